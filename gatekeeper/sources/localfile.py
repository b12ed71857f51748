"""A growing file on this machine as a feed of bytes: truncation, rotation and rewriting are noticed."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gatekeeper.errors import SourceError
from gatekeeper.sources.lines import Restart

__all__ = ["FileFeed", "GzipFeed", "is_gzip", "open_for_reading", "unpacked_head", "wider_header"]

BLOCK = 256 * 1024
HEAD = 4096  # bytes that a rewritten log is recognised by
GZIP_MAGIC = b"\x1f\x8b"


def open_for_reading(path: Path) -> BinaryIO:
    """Open ``path``, or say in one sentence why not."""
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise SourceError(f"{path} does not exist: check the path") from None
    except PermissionError:
        raise SourceError(
            f"{path} cannot be read: permission denied; run as a user who may read it"
        ) from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from None


def is_gzip(head: bytes) -> bool:
    """Say whether a file that begins with ``head`` is gzip-compressed."""
    return head.startswith(GZIP_MAGIC)


def unpacked_head(path: Path, size: int) -> bytes:
    """Return the first bytes of what a gzip file holds, as far as they can be read."""
    with open_for_reading(path) as raw, gzip.GzipFile(fileobj=raw) as file:
        try:
            return file.read(size)
        except (EOFError, OSError, zlib.error):
            return b""


def wider_header(old: bytes, new: bytes) -> bool:
    """Say whether ``new`` begins like ``old`` rewritten: the same CSV with further columns in its header.

    Stable-Baselines3, baselines and Lightning rewrite the whole file when a metric appears that it lacks.
    """
    if b"\n" not in old or b"\n" not in new:
        return False
    before, after = (
        {name.strip() for name in text.split(b"\n", 1)[0].split(b",") if name.strip()} for text in (old, new)
    )
    return len(before) > 1 and before < after


class FileFeed:
    """Reads what was appended to a file since the last look."""

    def __init__(self, path: Path, *, follow: bool = False, name: str | None = None) -> None:
        self.path = path
        self.name = name if name is not None else str(path)
        self._follow = follow
        self._file: BinaryIO | None = None
        self._offset = 0
        self._head = b""
        self._identity: tuple[int, int] | None = None

    def read(self) -> Iterator[bytes | Restart]:
        """Yield the new bytes, after a Restart where the file began anew."""
        if self._file is None and self._identity is None and self._follow and not self.path.exists():
            return  # it may still appear
        try:
            yield from self._read()
        finally:
            if not self._follow:
                self.close()

    def close(self) -> None:
        """Close the file; a later ``read`` opens it again where it left off."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> Iterator[bytes | Restart]:
        if self._file is not None and self._rotated():
            yield from self._drain()  # what was written between the last look and the rotation
            self.close()
        if self._file is None:
            if self._follow and self._identity is not None and not self.path.exists():
                return  # rotated away, the new one is not there yet
            self._file = open_for_reading(self.path)
        status = os.fstat(self._file.fileno())
        identity = (status.st_dev, status.st_ino)
        head = self._file.read(HEAD) if self._file.seek(0) == 0 else b""
        if self._identity is not None:
            changed = identity != self._identity or status.st_size < self._offset
            common = min(len(self._head), self._offset)
            if changed or head[:common] != self._head[:common]:
                yield Restart(rewritten=wider_header(self._head, head))
                self._offset = 0
        self._identity = identity
        self._head = head
        self._file.seek(self._offset)
        yield from self._drain()

    def _rotated(self) -> bool:
        try:
            status = os.stat(self.path)
        except OSError:
            return True
        return (status.st_dev, status.st_ino) != self._identity

    def _drain(self) -> Iterator[bytes]:
        file = self._file
        while file is not None:
            try:
                block = file.read(BLOCK)
            except OSError as error:
                raise SourceError(f"{self.path} cannot be read: {error.strerror or error}") from None
            if not block:
                return
            self._offset += len(block)
            yield block


class GzipFeed:
    """Reads a gzip-compressed file as a stream; one that grows or is replaced, again from its start."""

    def __init__(self, path: Path, *, follow: bool = False, name: str | None = None) -> None:
        self.path = path
        self.name = name if name is not None else str(path)
        self._follow = follow
        self._seen: tuple[int, int, int] | None = None
        self._given = 0
        self._head = b""

    def read(self) -> Iterator[bytes | Restart]:
        """Yield the decompressed bytes that are new since the last call."""
        if self._seen is None and self._follow and not self.path.exists():
            return
        with open_for_reading(self.path) as raw:
            status = os.fstat(raw.fileno())
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return
            first = self._seen is None
            self._seen = seen
            skip = 0 if first else self._given
            with gzip.GzipFile(fileobj=raw) as file:
                try:
                    head = file.read(HEAD)
                    if not first and head[: len(self._head)] != self._head:
                        yield Restart(rewritten=wider_header(self._head, head))
                        skip = self._given = 0
                    self._head = head
                    yield from self._beyond(head, file, skip)
                except EOFError:
                    return  # a member that is still being written, or a cut-off download
                except (OSError, zlib.error) as error:
                    raise SourceError(
                        f"{self.path} is damaged gzip: {error}; decompress it by hand"
                    ) from None

    def _beyond(self, head: bytes, file: gzip.GzipFile, skip: int) -> Iterator[bytes]:
        block = head
        at = 0
        while block:
            end = at + len(block)
            if end > skip:
                new = block[max(0, skip - at) :]
                self._given += len(new)
                yield new
            at = end
            block = file.read(BLOCK)
