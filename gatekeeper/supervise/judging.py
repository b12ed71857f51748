"""Judge what the child logs, beside it: in a thread of its own that can fail without touching the child."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.sources import Row, Source, SourceOptions, open_source
from gatekeeper.sources.base import Skips
from gatekeeper.sources.jsonl import JsonLines
from gatekeeper.sources.textlog import TextLog
from gatekeeper.supervise.backlog import Backlog, LineSplitter
from gatekeeper.verdict import Decision, Verdict

__all__ = ["Judge", "LogWatcher", "OutputWatcher", "Stream", "Watcher"]

OUTPUT_NAMES = {1: "stdout", 2: "stderr"}


@dataclass
class Stream:
    """One stream of rows with the gate that judges it."""

    name: str
    gate: Gate
    run_url: str | None = None
    skipped: int = 0
    skipped_examples: list[str] = field(default_factory=list)


class Judge:
    """The gates of one run. The first STOP counts, and is told at once."""

    def __init__(self, make_gate: Callable[[], Gate], told: Callable[[Stream, Verdict], None]) -> None:
        self._make_gate = make_gate
        self._told = told
        self.streams: list[Stream] = []
        self.stopped: Stream | None = None

    def stream(self, name: str) -> Stream:
        """Return the stream of that name, new or known."""
        for known in self.streams:
            if known.name == name:
                return known
        self.streams.append(Stream(name, self._make_gate()))
        return self.streams[-1]

    def observe(self, stream: Stream, row: Row) -> None:
        """Judge one row."""
        verdict = stream.gate.observe(row.step, row.metrics)
        if verdict.decision is Decision.STOP and self.stopped is None:
            self.stopped = stream
            self._told(stream, verdict)

    @property
    def speaking(self) -> Stream | None:
        """The stream that stands for the run: a stopped one, else one that waits, else the longest."""
        if self.stopped is not None:
            return self.stopped
        rank = {Decision.WAIT: 1, Decision.CONTINUE: 0, Decision.STOP: 2}
        return max(
            self.streams, key=lambda one: (rank[one.gate.verdict.decision], one.gate.rows), default=None
        )


class Watcher(threading.Thread):
    """A thread that feeds a judge until it is told that the child has ended."""

    def __init__(self, judge: Judge, report: Callable[[str], None]) -> None:
        super().__init__(name="gatekeeper-judge", daemon=True)
        self._judge = judge
        self._report = report
        self.fault: str | None = None

    def run(self) -> None:
        """Watch; a fault ends the judging, is reported, and does nothing to the child."""
        try:
            self._watch()
        except Exception as fault:  # noqa: BLE001 - the run must not pay for a fault of the gate
            self.fault = f"{type(fault).__name__}: {fault}"
            self._report(f"internal error while judging: {self.fault}; the command goes on unjudged")

    def close(self) -> None:
        """Say that the child has ended: judge what is still there, and end."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Give up what is still to be judged."""

    def _watch(self) -> None:
        raise NotImplementedError


class OutputWatcher(Watcher):
    """Judges printed lines: JSON objects, and whatever the reader of text logs understands."""

    def __init__(
        self, judge: Judge, report: Callable[[str], None], *, backlog: Backlog | None = None
    ) -> None:
        super().__init__(judge, report)
        self._backlog = backlog or Backlog()
        self._stream = judge.stream("output")
        self._lines = {number: LineSplitter() for number in OUTPUT_NAMES}
        self._skips = Skips()
        self._decoders = {
            number: (JsonLines(self._skips, None), TextLog(self._skips, None)) for number in OUTPUT_NAMES
        }
        self._muted = False

    @property
    def dropped(self) -> int:
        """How many lines were passed on but not judged, since they came faster than they could be."""
        return self._backlog.dropped

    def put(self, number: int, data: bytes) -> None:
        """Take a chunk of stdout (1) or stderr (2). Returns at once."""
        if not self._muted and self.fault is None:
            self._backlog.put(number, data)

    def mute(self) -> None:
        """Judge no more output: a better witness has come forward, the hook inside the child."""
        self._muted = True

    @property
    def muted(self) -> bool:
        """Whether the output is passed on only."""
        return self._muted

    def close(self) -> None:
        """Say that no more lines will come."""
        self._backlog.close()

    def abandon(self) -> None:
        """Drop the lines that are still queued, counted."""
        self._backlog.discard()
        self.join(5.0)

    def _watch(self) -> None:
        while (item := self._backlog.get()) is not None:
            number, data = item
            if data is None:
                self._lines[number].gap()
            else:
                self._judge_lines(number, self._lines[number].feed(data))
        for number, splitter in self._lines.items():
            self._judge_lines(number, splitter.end())

    def _judge_lines(self, number: int, lines: list[str]) -> None:
        if self._muted:
            return
        for row in self._rows(number, lines):
            self._judge.observe(self._stream, row)
        self._stream.skipped = self._skips.count
        self._stream.skipped_examples = list(self._skips.examples)

    def _rows(self, number: int, lines: list[str]) -> Iterator[Row]:
        objects, text = self._decoders[number]
        block: list[str] = []
        for line in lines:
            if line.lstrip().startswith('{"'):
                if block:
                    yield from text.feed("\n".join(block) + "\n")
                    block = []
                yield from objects.feed(line + "\n")
            else:
                block.append(line)
        if block:
            yield from text.feed("\n".join(block) + "\n")


class LogWatcher(Watcher):
    """Follows a metrics file, or the logs in a directory, that the child writes.

    What a log held before the child was started is not the child's, and is not judged.
    """

    def __init__(
        self, judge: Judge, report: Callable[[str], None], *, spec: str, poll_s: float, start: Path
    ) -> None:
        """Look at what is there already.

        Args:
            judge: Gets the rows.
            report: Takes sentences for the user.
            spec: A path (which need not exist yet) or anything else that can be read as a source.
            poll_s: Seconds between two looks.
            start: The directory that a relative path starts from.

        """
        super().__init__(judge, report)
        path = start / spec
        is_path = path.exists() or "://" not in spec
        self._spec = str(path) if is_path else spec
        self._path = path if is_path else None
        self._poll_s = poll_s
        self._ended = threading.Event()
        self._options = SourceOptions(follow=True)
        self._sources: dict[str, Source] = {}
        self._said: set[str] = set()
        self.unreachable = False
        self.problem: str | None = None
        if self._path is not None and self._path.exists():
            self._look(judged=False)

    def close(self) -> None:
        """Say that the child has ended: look a last time."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._poll_s):
            self._look()
        self._look()
        for name, source in self._sources.items():
            for row in _unfinished(source):
                self._judge.observe(self._judge.stream(name), row)

    def _look(self, *, judged: bool = True) -> None:
        try:
            if self._path is not None and not self._path.exists():
                self.problem = f"{self._spec} does not exist"
                return
            for source in open_source(self._spec, options=self._options):
                self._sources.setdefault(source.name, source)
        except Unreachable as fault:
            self._no_answer(fault)
            return
        except (GatekeeperError, OSError) as fault:
            # A log that is just being made may look like none: this is said at the end, if it stays so.
            self.problem = str(fault)
            return
        self.problem, self.unreachable = None, False
        for name, source in list(self._sources.items()):
            try:
                for row in source.rows():
                    if judged:
                        self._judge.observe(self._judge.stream(name), row)
            except Unreachable as fault:
                self._no_answer(fault)
            except (GatekeeperError, OSError) as fault:
                self.problem = str(fault)
                self._mention(str(fault))
            if judged and any(stream.name == name for stream in self._judge.streams):
                stream = self._judge.stream(name)
                stream.run_url = source.run_url
                stream.skipped, stream.skipped_examples = source.skipped, source.skipped_examples

    def _no_answer(self, fault: Unreachable) -> None:
        self.unreachable = True
        self._mention(f"{fault} (tried again in {self._poll_s:g} s)")

    def _mention(self, text: str) -> None:
        self.problem = text
        if text not in self._said and len(self._said) < 20:
            self._said.add(text)
            self._report(text)


def _unfinished(source: Source) -> Iterator[Row]:
    """Yield what a last line without its line break holds, where the source can tell."""
    finish = getattr(source, "finish", None)
    if callable(finish):
        yield from finish()
