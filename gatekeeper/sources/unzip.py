"""Gzip from a stream: bytes go in as they come, what they hold comes out."""

from __future__ import annotations

import zlib

from gatekeeper.errors import SourceError

__all__ = ["StreamUnzip"]

MAGIC = b"\x1f\x8b"
_WITH_GZIP_HEADER = 31


class StreamUnzip:
    """Passes plain bytes on; decompresses them where the first two are gzip's."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first = b""
        self._plain: bool | None = None
        self._unzip = zlib.decompressobj(_WITH_GZIP_HEADER)

    def feed(self, block: bytes) -> bytes:
        """Return what ``block`` adds.

        Raises:
            SourceError: The gzip stream is damaged.

        """
        if self._plain is None:
            self._first += block
            if len(self._first) < len(MAGIC):
                return b""
            self._plain = not self._first.startswith(MAGIC)
            block, self._first = self._first, b""
        if self._plain:
            return block
        pieces: list[bytes] = []
        try:
            while block:
                pieces.append(self._unzip.decompress(block))
                block = self._unzip.unused_data
                if block:  # a further member of the file
                    self._unzip = zlib.decompressobj(_WITH_GZIP_HEADER)
                    if not block.strip(b"\x00"):
                        break
        except zlib.error as error:
            raise SourceError(f"{self._name} is damaged gzip: {error}; decompress it by hand") from None
        return b"".join(pieces)

    def rest(self) -> bytes:
        """Return a single byte that was held back to see whether a second follows."""
        held, self._first = self._first, b""
        return held
