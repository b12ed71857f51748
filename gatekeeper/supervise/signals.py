"""Signals and nudges as bytes that a loop can wait for."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from types import FrameType
from typing import Any

__all__ = ["ENDING", "HANDED_ON", "Inbox"]

#: Requests to end, handed to the child in the form that it understands.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Signals with a meaning between the user (or the scheduler) and the training; they would kill the
#: supervisor.
HANDED_ON = (signal.SIGUSR1, signal.SIGUSR2)

_NUDGE = 0


def _received(signum: int, frame: FrameType | None) -> None:
    """Do nothing: the signal's number is in the wake-up pipe already."""


class Inbox:
    """Collects signals while the child runs; ``wait`` returns what has come.

    Taking every signal over also resets it to its default in the child: a job that was put into the
    background has SIGINT ignored by its shell, and a child that inherited this could not be interrupted.
    """

    def __init__(self) -> None:
        """Take the signals over (main thread only); SIGHUP stays ignored where it was (``nohup``)."""
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        self._before: dict[int, Any] = {}
        self.background = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        self._wakeup_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for signum in (*ENDING, *HANDED_ON, signal.SIGCHLD, signal.SIGTSTP, signal.SIGWINCH):
            if signum == signal.SIGHUP and signal.getsignal(signum) is signal.SIG_IGN:
                continue
            self._before[signum] = signal.signal(signum, _received)

    def nudge(self) -> None:
        """Wake the loop from another thread."""
        with suppress(OSError):  # full: it wakes anyway
            os.write(self._writing, bytes([_NUDGE]))

    def wait(self, seconds: float) -> list[int]:
        """Return the signals that have come, in order; an empty list after so many seconds, or on a nudge."""
        select.select([self._reading], [], [], seconds)
        try:
            data = os.read(self._reading, 4096)
        except BlockingIOError:
            return []
        return [signum for signum in data if signum != _NUDGE]

    def close(self) -> None:
        """Give the signals back."""
        for signum, handler in self._before.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reading)
        os.close(self._writing)
