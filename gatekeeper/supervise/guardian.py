"""A small second process that ends the run's processes should the supervisor itself be killed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

from gatekeeper.supervise import processes

__all__ = ["Guardian"]


class Guardian:
    """Holds the pipe whose end tells the second process that the supervisor is no more.

    SIGKILL (the out-of-memory killer, a sweep agent's second stop) gives the supervisor no chance to act. A
    parent-death signal would reach the leader only, and at once: the guardian interrupts first, so that rows
    can still be written.
    """

    def __init__(self, marker: str, grace_s: float) -> None:
        """Start the second process.

        Raises:
            OSError: It cannot be started; the run can go on without it.

        """
        reading, self._pipe = os.pipe()
        try:
            # -I -S: neither the environment nor site-packages has a say in this interpreter.
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with one file of ours
                [sys.executable, "-I", "-S", processes.__file__, str(reading), marker, str(grace_s)],
                pass_fds=(reading,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The second process's pid."""
        return self._process.pid

    def watch(self, leader: int) -> None:
        """Name the process to end."""
        self._tell(f"{leader}\n")

    def dismiss(self) -> None:
        """Send it home: the run's processes have ended."""
        self._tell("done\n")
        with suppress(OSError):
            os.close(self._pipe)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)

    def _tell(self, text: str) -> None:
        with suppress(OSError):
            os.write(self._pipe, text.encode())
