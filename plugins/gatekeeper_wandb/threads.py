"""Take a stop to the thread that trains where another thread logged the bad row."""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress

from gatekeeper_wandb.watch import RunStopped, RunWatch

__all__ = ["TrainingThread", "interrupt"]


def interrupt(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in another thread, at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


class TrainingThread:
    """The thread that runs the user's code; it calls ``enter`` before and ``leave`` after."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None

    def enter(self) -> None:
        """Note that the user's code starts."""
        with self._lock:
            self._thread = threading.get_ident()

    def leave(self) -> None:
        """Note that the user's code has ended: no stop may reach this thread from here on."""
        with suppress(RunStopped):
            with self._lock:
                thread, self._thread = self._thread, None
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)

    def take_out(self, watch: RunWatch) -> None:
        """Stop the user's code as well; nothing to do where its own thread logged the bad row."""
        with self._lock:
            if self._thread is not None and self._thread != threading.get_ident():
                watch.leave(self._thread)
                interrupt(self._thread, RunStopped)
