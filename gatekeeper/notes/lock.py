"""An exclusive lock on a file, waited for with a deadline that holds even where the call itself hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["exclusive"]

_POLL_S = (0.001, 0.01)  # the first and the longest wait between two tries
_GRACE_S = 0.02  # how much longer than its patience an attempt may take to report

if sys.platform == "win32":
    import msvcrt

    def _take(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _release(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    # flock, not lockf: it also holds between threads, and closing another descriptor does not drop it.
    def _take(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def exclusive(path: Path, patience_s: float) -> Iterator[bool]:
    """Hold the lock on ``path`` while inside; yields False when it was not had within ``patience_s`` seconds.

    A file that cannot be opened or a file system without locks yields False as well.
    """
    attempt = _attempt(path, patience_s)
    try:
        yield attempt is not None
    finally:
        if attempt is not None:
            attempt.drop()


class _Attempt(threading.Thread):
    """Tries in a thread of its own: on a network file system even a non-blocking call can hang."""

    def __init__(self, path: Path, patience_s: float) -> None:
        super().__init__(name="gatekeeper-notes-lock", daemon=True)
        self._path, self._deadline = path, time.monotonic() + patience_s
        self._mutex = threading.Lock()
        self._descriptor: int | None = None
        self._abandoned = False

    def run(self) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError:
            return
        taken = self._poll(descriptor)
        with self._mutex:
            if taken and not self._abandoned:
                self._descriptor = descriptor
                return
        if taken:
            _release(descriptor)
        os.close(descriptor)

    def _poll(self, descriptor: int) -> bool:
        wait_s, longest_s = _POLL_S
        while True:
            try:
                _take(descriptor)
            except (BlockingIOError, PermissionError):  # held by someone else
                if time.monotonic() >= self._deadline:
                    return False
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, longest_s)
            except OSError:  # no locks on this file system
                return False
            else:
                return True

    def held(self, wait_s: float) -> bool:
        """Return whether the lock was taken within ``wait_s`` seconds; if not, it is let go when it comes."""
        try:
            self.join(wait_s)
        finally:  # also when interrupted
            with self._mutex:
                self._abandoned = self._descriptor is None
        return not self._abandoned

    def drop(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            try:
                _release(self._descriptor)  # explicitly: a forked child may hold a copy of the descriptor
            finally:
                os.close(self._descriptor)
                self._descriptor = None


_hanging: dict[Path, _Attempt] = {}


def _attempt(path: Path, patience_s: float) -> _Attempt | None:
    stuck = _hanging.get(path)
    if stuck is not None and stuck.is_alive():  # one hanging thread per lock is enough
        return None
    attempt = _Attempt(path, patience_s)
    try:
        attempt.start()
    except RuntimeError:  # the interpreter is shutting down
        return None
    try:
        if attempt.held(patience_s + _GRACE_S):
            _hanging.pop(path, None)
            return attempt
    except BaseException:  # a signal while waiting
        attempt.drop()
        raise
    _hanging[path] = attempt
    return None
