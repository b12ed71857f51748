"""What waits to be judged: bounded, and never in the way of the child."""

from __future__ import annotations

import threading
from collections import deque

__all__ = ["Backlog", "LineSplitter"]

LIMIT_BYTES = 32 << 20  # some 300,000 lines: minutes of a fast printer
LONGEST_LINE = 1 << 20


class Backlog:
    """A queue of output chunks. ``put`` never waits: beyond the limit lines are dropped, and counted."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self._limit = limit
        self._chunks: deque[tuple[int, bytes | None]] = deque()
        self._bytes = 0
        self._gaps: set[int] = set()
        self._open = True
        self._ready = threading.Condition()
        self.dropped = 0

    def put(self, stream: int, data: bytes) -> None:
        """Queue a chunk, or drop it where too much waits already."""
        with self._ready:
            if self._bytes + len(data) > self._limit:
                self.dropped += data.count(b"\n") or 1
                self._gaps.add(stream)
                return
            if stream in self._gaps:
                self._gaps.discard(stream)
                self._chunks.append((stream, None))
            self._chunks.append((stream, data))
            self._bytes += len(data)
            self._ready.notify()

    def get(self) -> tuple[int, bytes | None] | None:
        """Return the next stream and chunk (None: chunks are missing here); None once closed and empty."""
        with self._ready:
            while not self._chunks:
                if not self._open:
                    return None
                self._ready.wait()
            stream, data = self._chunks.popleft()
            self._bytes -= len(data or b"")
            return stream, data

    def close(self) -> None:
        """Say that no more will come."""
        with self._ready:
            self._open = False
            self._ready.notify_all()

    def discard(self) -> None:
        """Drop what still waits (the judging thread cannot keep up at the end), counted."""
        with self._ready:
            self.dropped += sum(data.count(b"\n") for _, data in self._chunks if data)
            self._chunks.clear()
            self._bytes = 0


class LineSplitter:
    """Turns chunks into lines. A carriage return ends a line too: progress bars redraw with it."""

    def __init__(self) -> None:
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that ``data`` completes, without their ends, empty ones left out."""
        whole = (self._rest + data).replace(b"\r", b"\n")
        *lines, self._rest = whole.split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if len(self._rest) > LONGEST_LINE:
            self.gap()
        return [line.decode("utf-8", "replace") for line in lines if line]

    def gap(self) -> None:
        """Forget the line that is under way: its rest will not come (or is no metric for sure)."""
        self._rest = b""
        self._skipping = True

    def end(self) -> list[str]:
        """Return the last line, which nothing ended."""
        rest, self._rest = self._rest, b""
        return [] if self._skipping or not rest else [rest.decode("utf-8", "replace")]
