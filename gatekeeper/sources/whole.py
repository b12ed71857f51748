"""Sources whose file is read whole each time it has changed."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Row, Skips, SourceOptions
from gatekeeper.sources.localfile import is_gzip, open_for_reading
from gatekeeper.sources.steps import usable

__all__ = ["WholeFileSource"]


class WholeFileSource:
    """A log that is one document or archive. Rows seen in an earlier look are passed over.

    A file that was replaced by another run's (its first row differs, or it became shorter) begins anew.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[BinaryIO, Skips], Iterator[Row]],
        options: SourceOptions,
        name: str | None = None,
    ) -> None:
        self.name = name if name is not None else str(path)
        self.run_url: str | None = None
        self.run_state: str | None = None
        self._path = path
        self._read = read
        self._options = options
        self._skips = Skips()
        self._stamp: tuple[int, int, int] | None = None
        self._first: Row | None = None
        self._seen = 0

    @property
    def skipped(self) -> int:
        """How many malformed entries were skipped."""
        return self._skips.count

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them."""
        return list(self._skips.examples)

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call."""
        if self._options.follow and not self._path.exists():
            return
        with open_for_reading(self._path) as raw:
            status = os.fstat(raw.fileno())
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
            if stamp == self._stamp:
                return
            if not status.st_size:
                if self._options.follow:
                    return
                raise SourceError(f"{self.name} is empty: wait for the first logged row, or give another log")
            head = raw.read(2)
            raw.seek(0)
            file = io.BytesIO(self._unpack(raw)) if is_gzip(head) else raw
            skips = Skips()
            try:
                rows = list(self._read(file, skips))
            except SourceError:
                if self._options.follow:  # half-written: the next look sees it whole
                    return
                raise
        self._skips = skips
        self._stamp = stamp
        if self._seen and (len(rows) < self._seen or _differ(rows[0], self._first)):
            self._seen = 0
        new = rows[self._seen :]
        if rows:
            self._first = rows[0]._replace(metrics=dict(rows[0].metrics))
        self._seen = len(rows)
        yield from new
        if not self._options.follow and not any(usable(row.metrics) for row in rows):
            raise SourceError(
                f"{self.name} holds no metric that can be judged ({len(rows)} rows read): "
                "give a log with a loss, a reward or another numeric metric"
            )

    def finish(self) -> Iterator[Row]:
        """Hold nothing back: what is complete was yielded."""
        return iter(())

    def _unpack(self, raw: BinaryIO) -> bytes:
        try:
            with gzip.GzipFile(fileobj=raw) as file:
                return file.read()
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{self.name} is damaged gzip: {error}; decompress it by hand") from None


def _differ(one: Row, other: Row | None) -> bool:
    """Compare by text, so that NaN equals NaN."""
    return other is None or repr(one) != repr(other)
