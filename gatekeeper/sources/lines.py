"""Line logs: bytes from anywhere, cut into whole lines, decoded to rows."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Protocol

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Row, Skips, SourceOptions
from gatekeeper.sources.steps import usable

__all__ = ["Decoder", "Feed", "LineSource", "Restart"]

MAX_LINE = 64 * 1024 * 1024  # bytes; what is longer without a line break is no line


class Decoder(Protocol):
    """Turns whole lines into rows.

    Attributes:
        returns: A carriage return ends a line, too (a progress bar is redrawn by it).

    """

    returns: bool

    def feed(self, text: str) -> Iterator[Row]:
        """Yield the rows of ``text``, which ends with a line break."""

    def finish(self) -> Iterator[Row]:
        """Yield the rows that were held back to see what follows, when nothing will."""


class Restart:
    """What a feed gives instead of bytes when the log begins anew.

    Attributes:
        rewritten: The same rows were written again under a wider header; those already seen are not new.

    """

    def __init__(self, *, rewritten: bool = False) -> None:
        self.rewritten = rewritten


class Feed(Protocol):
    """Where bytes come from: a file, standard input, another machine."""

    name: str

    def read(self) -> Iterator[bytes | Restart]:
        """Yield what is new since the last call, in blocks of any size."""


class LineSource:
    """A line log as a source of rows.

    A last line without its line break is kept back while the log is followed. When it is read once, it is the
    end of a finished file and is yielded if it parses.
    """

    def __init__(
        self,
        feed: Feed,
        sniff: Callable[[bytes, bool], Callable[[Skips], Decoder] | None],
        options: SourceOptions,
    ) -> None:
        self.name = feed.name
        self.run_url: str | None = None
        self.run_state: str | None = None
        self._feed = feed
        self._sniff = sniff
        self._options = options
        self._skips = Skips()
        self._make: Callable[[Skips], Decoder] | None = None
        self._decoder: Decoder | None = None
        self._held: list[bytes] = []
        self._utf16: codecs.IncrementalDecoder | None = None
        self._begun = False
        self._yielded = 0  # rows seen since the log began
        self._replay = 0  # rows still to come that were seen before the log was rewritten
        self._bytes = 0
        self._usable = False
        self._tail: bytes | None = None  # the unfinished last line, when it was already read as a row

    @property
    def skipped(self) -> int:
        """How many malformed lines were skipped so far."""
        return self._skips.count

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them, as "line 17: …"."""
        return list(self._skips.examples)

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call."""
        for block in self._feed.read():
            if isinstance(block, Restart):
                self._restart(rewritten=block.rewritten)
            else:
                yield from self._take(block)
        if not self._options.follow:
            yield from self.finish()
            self._judge_whole()
        elif self._skips.count > max(20, self._yielded):
            raise self._mostly_malformed()

    def finish(self) -> Iterator[Row]:
        """Yield what a last line without its line break holds, when no more will come."""
        yield from self._decode(b"", final=True)
        if self._decoder is not None:
            yield from self._new(self._decoder.finish())

    def _take(self, block: bytes) -> Iterator[Row]:
        self._bytes += len(block)
        if not self._begun:
            block = self._first(block)
        if self._utf16 is not None:
            block = self._utf16.decode(block).encode("utf-8", "replace")
        if self._tail is not None:
            block = self._after_tail(block)
        cut = block.rfind(b"\n") + 1
        if self._decoder is None or self._decoder.returns:
            cut = max(cut, block.rfind(b"\r") + 1)
        if not cut:
            if block:
                self._hold(block)
            return
        self._held.append(block[:cut])
        whole = b"".join(self._held)
        self._held = [block[cut:]] if cut < len(block) else []
        yield from self._decode(whole)

    def _first(self, block: bytes) -> bytes:
        """Look at the first bytes for a byte order mark."""
        self._begun = bool(block)
        if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._utf16 = codecs.getincrementaldecoder("utf-16")("replace")
        elif block.startswith(codecs.BOM_UTF8):
            block = block[len(codecs.BOM_UTF8) :]
        return block

    def _after_tail(self, block: bytes) -> bytes:
        """Deal with the line that was read before it was finished: not again, unless it went on."""
        tail = self._tail or b""
        stripped = block.lstrip(b"\r")
        if not stripped:
            return block
        self._tail = None
        if stripped.startswith(b"\n"):
            return stripped[1:]
        return tail + block

    def _hold(self, block: bytes) -> None:
        self._held.append(block)
        if sum(map(len, self._held)) > MAX_LINE:
            self._skips.add("a line", f"longer than {MAX_LINE >> 20} MiB")
            self._held = []

    def _decode(self, whole: bytes, *, final: bool = False) -> Iterator[Row]:
        if final:
            whole = b"".join(self._held)
        decoder = self._decoder
        if decoder is None:
            make = self._make or self._sniff(whole, final)
            if make is None:  # not enough to tell yet
                self._held.insert(0, whole) if not final else None
                return
            self._make = make
            decoder = self._decoder = make(self._skips)
            if not final and not decoder.returns and not whole.endswith(b"\n"):
                cut = whole.rfind(b"\n") + 1
                self._held.insert(0, whole[cut:])
                whole = whole[:cut]
        if not whole:
            return
        if final:
            self._held = []
            self._tail = whole.rsplit(b"\n", 1)[-1]
            text = whole.decode("utf-8", "replace") + "\n"
        else:
            text = whole.decode("utf-8", "replace")
        yield from self._new(decoder.feed(text))

    def _new(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Pass on the rows that were not seen before the log was rewritten."""
        for row in rows:
            if self._replay:
                self._replay -= 1
                continue
            self._yielded += 1
            if not self._usable:
                self._usable = usable(row.metrics)
            yield row

    def _restart(self, *, rewritten: bool) -> None:
        self._decoder = None
        self._utf16 = None
        self._begun = False
        self._held = []
        self._tail = None
        if rewritten:
            self._replay = self._yielded
        else:
            self._make = None
            self._replay = self._yielded = 0

    def _judge_whole(self) -> None:
        """Refuse a finished log that holds nothing to judge.

        Raises:
            SourceError: It is empty, mostly malformed, or has no usable metric.

        """
        if self._skips.count > self._yielded and self._skips.count:
            raise self._mostly_malformed()
        if not self._bytes:
            name = "standard input" if self.name == "-" else self.name
            raise SourceError(f"{name} is empty: wait for the first logged row, or give another log")
        if not self._usable:
            raise SourceError(
                f"{self.name} holds no metric that can be judged ({self._yielded} rows read): "
                "give a log with a loss, a reward or another numeric metric"
            )

    def _mostly_malformed(self) -> SourceError:
        example = self._skips.examples[0] if self._skips.examples else "no line"
        return SourceError(
            f"{self.name} is mostly malformed: {self._skips.count} lines could not be read and "
            f"{self._yielded} could ({example}); check that it is a metrics log and that it is whole"
        )
