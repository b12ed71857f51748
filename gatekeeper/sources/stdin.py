"""Standard input as a source: rows come out while the writer still writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import SourceOptions
from gatekeeper.sources.lines import LineSource, Restart
from gatekeeper.sources.sniff import decoder_for
from gatekeeper.sources.unzip import StreamUnzip

__all__ = ["PipeFeed", "open_stdin"]

BLOCK = 256 * 1024


class PipeFeed:
    """Reads a file descriptor as bytes arrive, until its end."""

    def __init__(self, fd: int, name: str) -> None:
        self.name = name
        self._fd = fd
        self._unzip = StreamUnzip(name)

    def read(self) -> Iterator[bytes | Restart]:
        """Yield blocks as they come; blocks until the writer has closed its end."""
        while True:
            try:
                block = os.read(self._fd, BLOCK)
            except OSError as error:
                raise SourceError(f"{self.name} cannot be read: {error.strerror or error}") from None
            if not block:
                rest = self._unzip.rest()
                if rest:
                    yield rest
                return
            block = self._unzip.feed(block)
            if block:
                yield block


def open_stdin(options: SourceOptions) -> LineSource:
    """Return standard input as a source; its end is the log's end, also while it is followed."""
    try:
        fd = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise SourceError("- means standard input, which is closed: pipe a log into the command") from None
    feed = PipeFeed(fd, "-")
    return LineSource(feed, decoder_for("standard input", options), replace(options, follow=False))
