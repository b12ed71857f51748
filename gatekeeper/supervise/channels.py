"""The child's output: passed through byte for byte and at once, with a copy for the judging thread."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import termios
import threading
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress

__all__ = ["Channel", "open_channels"]

CHUNK = 1 << 16
PIPE_BYTES = 1 << 20  # room for bursts, so that the child seldom waits for this process to be scheduled
_F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ, named since Python 3.10 on Linux only


class Channel:
    """One of the child's output streams, on its way to the same stream of this process.

    A terminal gets a pseudo-terminal, so that progress bars and colours stay; anything else gets a pipe. The
    copy is taken after the bytes have been passed on and may be dropped by who takes it: nothing here waits
    for a judgment.
    """

    def __init__(self, targets: Sequence[int], sink: Callable[[bytes], None]) -> None:
        """Make the stream.

        Args:
            targets: The descriptors (1, 2 or both) that it stands for in the child; it is written to the
                first.
            sink: Takes each chunk that was passed on; must return at once.

        """
        self.targets = tuple(targets)
        self._target: int | None = self.targets[0]
        self._sink = sink
        self.terminal = os.isatty(self._target)
        if self.terminal:
            self._reading, self._child_end = os.openpty()
            tty.setraw(self._child_end)  # no "\n" → "\r\n", no echo: the real terminal does that
            self.resize()
        else:
            self._reading, self._child_end = os.pipe()
            with suppress(OSError):  # the system's limit may be lower
                fcntl.fcntl(self._reading, _F_SETPIPE_SZ, PIPE_BYTES)
        self._wake_reading, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._pump, name="gatekeeper-output", daemon=True)
        self.at_line_start = True
        self.fault: str | None = None

    @property
    def child_end(self) -> int:
        """The descriptor to give to the child."""
        return self._child_end

    def resize(self) -> None:
        """Give the pseudo-terminal the real one's size."""
        if self.terminal and self._target is not None:
            with suppress(OSError):
                size = fcntl.ioctl(self._target, termios.TIOCGWINSZ, b"\0" * 8)
                fcntl.ioctl(self._reading, termios.TIOCSWINSZ, size)

    def start(self) -> None:
        """Close this process's copy of the child's end, and start to pass bytes on."""
        os.close(self._child_end)
        self._thread.start()

    def abandon(self) -> None:
        """Close everything: no child was started."""
        for descriptor in (self._child_end, self._reading, self._wake_reading, self._wake):
            os.close(descriptor)

    def drain(self) -> None:
        """Pass on what is there and end, even where the stream stays open: whoever should write is gone."""
        with suppress(OSError):
            os.write(self._wake, b"x")

    def join(self, seconds: float | None = None) -> bool:
        """Wait until everything has been passed on; False where that took longer."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _pump(self) -> None:
        try:
            poll = select.poll()
            poll.register(self._reading, select.POLLIN)
            poll.register(self._wake_reading, select.POLLIN)
            last_call = False
            while True:
                ready = dict(poll.poll(0 if last_call else None))
                if self._wake_reading in ready and not last_call:
                    last_call = True
                    poll.unregister(self._wake_reading)
                if self._reading not in ready:
                    if last_call:
                        return
                    continue
                try:
                    data = os.read(self._reading, CHUNK)
                except OSError as fault:
                    if fault.errno == errno.EIO:  # a pseudo-terminal's end of file
                        return
                    raise
                if not data:
                    return
                if not self._pass_on(data):
                    return
                self._copy(data)
        except Exception as fault:  # noqa: BLE001 - reported at the end
            self.fault = f"{type(fault).__name__}: {fault}"
        finally:
            # With the reading end closed a child that goes on writing gets EPIPE, never a wait without end.
            os.close(self._reading)

    def _copy(self, data: bytes) -> None:
        try:
            self._sink(data)
        except Exception as fault:  # noqa: BLE001 - whatever goes wrong with the copy, the output goes on
            self.fault = f"the output is no longer judged ({type(fault).__name__}: {fault})"
            self._sink = _nowhere

    def _pass_on(self, data: bytes) -> bool:
        if self._target is None:
            return True
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:  # whoever shares our stdout made it non-blocking
                select.select([], [self._target], [], 1.0)
            except OSError as fault:
                if fault.errno == errno.EPIPE:
                    # Nobody reads any more: the child is to see what it would have seen without us.
                    return False
                # A full disk, a terminal that went away: the run matters more than its output.
                self.fault = (
                    f"the output could not be passed on ({fault.strerror}); the command goes on without it"
                )
                self._target = None
                return True
        self.at_line_start = data.endswith(b"\n")
        return True


def _nowhere(data: bytes) -> None:
    """Take a copy that nobody wants."""


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False


def open_channels(sink: Callable[[int, bytes], None]) -> list[Channel]:
    """Return the channels for stdout and stderr: one for both where they go to one place, to keep order.

    Args:
        sink: Takes the number of the stream (1 or 2) and each chunk.

    """
    if _same_file(1, 2):
        return [Channel((1, 2), lambda data: sink(1, data))]
    return [Channel((1,), lambda data: sink(1, data)), Channel((2,), lambda data: sink(2, data))]
