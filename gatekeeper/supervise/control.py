"""The control file: what the hook inside the child tells the supervisor.

One strict-JSON object a line, appended by the child's processes (see docs/run.md):

``{"event": "attached", "pid": 12}``
    Metrics are judged in that process; printed lines are not judged beside that.
``{"event": "verdict", "pid": 12, "verdict": {…}}``
    The last verdict of a run that was not stopped.
``{"event": "stop", "pid": 12, "verdict": {…}, "note": "path"}``
    The gate stopped the run there: it is finished, and its note written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["CONTROL", "ControlFile"]

#: Environment variable with the control file's absolute path.
CONTROL = "GATEKEEPER_CONTROL"

MAX_READ = 1 << 20


class ControlFile:
    """Reads events as they are appended. What is no event is passed over: the writer may be newer."""

    def __init__(self, path: Path) -> None:
        """Make the file.

        Raises:
            OSError: It cannot be made.
        """
        path.touch(mode=0o600)
        self._path = path
        self._offset = 0

    def poll(self) -> list[dict[str, Any]]:
        """Return the events appended since the last call; a line under way waits until it is whole."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MAX_READ)
        except OSError:
            return []
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) == MAX_READ:
            cut = MAX_READ  # no event is that long: step over it
        self._offset += cut
        events = []
        for line in data[:cut].splitlines():
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events
