"""The record log inside a `.wandb` file: LevelDB's blocks and chunks behind a 7-byte header.

A block has 32 KiB. A record is one FULL chunk or a FIRST, any MIDDLE and a LAST one; no chunk crosses a
block. Each chunk starts with its checksum (CRC-32 of type and data), length and type. A file that is being
written, or whose writer was killed, ends anywhere: what is incomplete at the end is left for the next look
and is no damage. Damage before the end costs the records it touches and nothing else.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Skips

__all__ = ["HEADER", "LogBlocks"]

BLOCK = 32 * 1024
MAGIC = b":W&B"
HEADER = MAGIC + struct.pack("<HB", 0xBEE1, 0)
#: A record larger than this is skipped: real ones are a few KB, and memory must not follow a damaged length.
MAX_RECORD = 64 * 1024 * 1024

_CHUNK = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_KIND_BYTE = re.compile(rb"[\x01-\x04]")
_SEED = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


class LogBlocks:
    """Reads the records of one `.wandb` file; each call of `records` yields those that are new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.skips = Skips()
        #: Whether the last look ended inside a record (a live file, or a writer that was killed).
        self.truncated = False
        #: How often the file was found replaced or cut and was read again from its start.
        self.restarts = 0
        self._identity: tuple[int, int] | None = None
        self._rewind()

    def _rewind(self) -> None:
        self._block = 0  # where the current block starts in the file
        self._offset = 0  # the next chunk in it
        self._parts: list[bytes] | None = None  # of a record whose LAST is still to come
        self._held = 0  # bytes in them
        self._resyncing = False  # after damage, until a record starts

    def records(self) -> Iterator[bytes]:
        """Yield each complete record that was not yielded before.

        Raises:
            SourceError: The file cannot be opened or is no `.wandb` file.

        """
        try:
            with self._open() as file:
                if self._block == self._offset == 0 and not self._read_header(file):
                    return
                while True:
                    file.seek(self._block)
                    block = file.read(BLOCK)
                    yield from self._chunks(block)
                    if len(block) < BLOCK:
                        return
                    self._block += BLOCK
                    self._offset = 0
        except (OSError, EOFError, zlib.error) as fault:
            what = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
            raise SourceError(f"{self.path}: cannot be read: {what}") from fault

    def _open(self) -> IO[bytes]:
        if self.path.suffix == ".gz":
            return io.BufferedReader(gzip.GzipFile(self.path, "rb"))
        file = self.path.open("rb")
        status = os.fstat(file.fileno())
        identity = (status.st_dev, status.st_ino)
        replaced = self._identity is not None and identity != self._identity
        if replaced or status.st_size < self._block + self._offset:
            self.restarts += 1
            self._rewind()
        self._identity = identity
        return file

    def _read_header(self, file: IO[bytes]) -> bool:
        """Step over the header; say whether it is there in full."""
        head = file.read(len(HEADER))
        if head == HEADER:
            self._offset = len(HEADER)
            return True
        if HEADER.startswith(head):  # empty, or its writer has not come further yet
            self.truncated = True
            return False
        if head[:4] == MAGIC:
            raise SourceError(
                f"{self.path}: a .wandb file of an unknown version (header {head[4:].hex()}); read the run "
                "from its server (ENTITY/PROJECT/RUN_ID) or upgrade sweep-gatekeeper"
            )
        raise SourceError(f"{self.path}: not a .wandb file (it does not begin with ':W&B')")

    def _chunks(self, block: bytes) -> Iterator[bytes]:
        """Yield the records that end in this block, and remember where the next look begins."""
        complete = len(block) == BLOCK
        self.truncated = False
        while True:
            start = self._offset
            if len(block) - start < _CHUNK.size:  # at most six bytes of padding
                self.truncated = not complete and (start < len(block) or self._parts is not None)
                return
            end = _sound(block, start)
            if not end:
                found = _next_sound(block, start + 1)
                if not found and not complete:
                    # The writer is in the middle of this chunk, or never came to its end.
                    self.truncated = True
                    return
                self._damage(start)
                if not found:
                    return
                self._offset = found
                continue
            self._offset = end
            record = self._join(block[start + 6], block[start + _CHUNK.size : end], start)
            if record is not None:
                yield record

    def _join(self, kind: int, data: bytes, start: int) -> bytes | None:
        """Add one chunk to the record being put together; return the record once it is whole."""
        if kind in (_FULL, _FIRST):
            if self._parts is not None:
                self._skip(start, "a record without its end")
            self._resyncing = False
            self._parts = None if kind == _FULL else [data]
            self._held = len(data)
            return data if kind == _FULL else None
        if self._parts is None:
            if not self._resyncing:
                self._skip(start, "the end of a record without its start")
                self._resyncing = True
            return None
        self._held += len(data)
        if self._held > MAX_RECORD:
            self._skip(start, f"a record larger than {MAX_RECORD >> 20} MiB")
            self._parts, self._resyncing = None, True
            return None
        self._parts.append(data)
        if kind == _MIDDLE:
            return None
        record, self._parts = b"".join(self._parts), None
        return record

    def _damage(self, start: int) -> None:
        self._skip(start, "damaged data (checksum)")
        self._parts, self._resyncing = None, True

    def _skip(self, start: int, what: str) -> None:
        self.skips.add(f"byte {self._block + start}", what)


def _sound(block: bytes, start: int) -> int:
    """Return where the chunk at `start` ends, or 0 where there is no chunk with a right checksum."""
    checksum, length, kind = _CHUNK.unpack_from(block, start)
    begin = start + _CHUNK.size
    end: int = begin + length
    if kind not in _SEED or end > len(block) or zlib.crc32(block[begin:end], _SEED[kind]) != checksum:
        return 0
    return end


def _next_sound(block: bytes, start: int) -> int:
    """Return the first place from `start` on where a sound chunk begins, or 0."""
    for match in _KIND_BYTE.finditer(block, start + _CHUNK.size - 1):  # the last byte of a chunk header
        at = match.start() - _CHUNK.size + 1
        if _sound(block, at):
            return at
    return 0
