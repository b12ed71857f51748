"""What the supervisor says on stderr while the child's output passes by."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from gatekeeper.text import for_terminal

__all__ = ["Messages"]


class Messages:
    """Prints whole lines, also where the child has left one unfinished; from any thread. It never raises."""

    def __init__(self, at_line_start: Callable[[], bool] = lambda: True) -> None:
        """Take a function that says whether stderr's last byte was a line break."""
        self._at_line_start = at_line_start
        self._lock = threading.Lock()

    def say(self, *lines: object) -> None:
        """Print lines, each made safe for a terminal."""
        text = "".join(f"gatekeeper: {for_terminal(line)}\n" for line in lines)
        with self._lock:
            try:
                os.write(2, (text if self._at_line_start() else "\n" + text).encode("utf-8", "replace"))
            except OSError:
                return  # nobody listens
