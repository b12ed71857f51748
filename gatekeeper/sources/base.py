"""What every source of rows has in common: the row, the source's face and the record of skipped lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from gatekeeper.errors import GatekeeperError

__all__ = ["Row", "Skips", "Source", "SourceOptions", "UnreadableSource", "make_row", "printable"]

MAX_EXAMPLES = 5


class Row(NamedTuple):
    """One logged row: its step (None where the log has none) and its flat metrics, the step key removed."""

    step: float | None
    metrics: dict[str, object]


def make_row(step: float | None, metrics: dict[str, object], _new: object = tuple.__new__) -> Row:
    """Return a Row a little faster than its constructor does (readers make one per logged line)."""
    return _new(Row, (step, metrics))  # type: ignore[operator, no-any-return]


@dataclass(frozen=True)
class SourceOptions:
    """How sources are read.

    Attributes:
        follow: The log is still being written: a last line without its newline is kept back until it is
            complete, and a file that holds nothing yet is no error.
        deadline_s: For sources over a network: seconds after which one that does not answer is unreachable.
        step_key: The key (or column) that holds the step, where the usual names do not fit.

    """

    follow: bool = False
    deadline_s: float = 60.0
    step_key: str | None = None


@runtime_checkable
class Source(Protocol):
    """A stream of rows. ``rows()`` yields what is new since it was last called."""

    @property
    def name(self) -> str:
        """What the user typed, or the file's path."""

    @property
    def run_url(self) -> str | None:
        """Where the run can be looked at, if the source knows."""

    @property
    def run_state(self) -> str | None:
        """The run's own state ("finished", "crashed", …), reported and never taken as a verdict."""

    @property
    def skipped(self) -> int:
        """How many malformed lines were skipped so far."""

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of the skipped lines, as "line 17: …"."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows from where the last call ended to the present end.

        Raises:
            SourceError: The source cannot be read, or holds nothing that can be judged.
            Unreachable: The source did not answer within the deadline.

        """


def printable(text: str, width: int = 80) -> str:
    """Return at most ``width`` characters of an untrusted line, without control characters."""
    head = text[: width + 1].strip()
    shown = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in head
    )
    return shown if len(shown) <= width else shown[: width - 1] + "…"


@dataclass
class Skips:
    """Counts malformed lines and keeps the first few to show."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        """Count one malformed line; ``where`` is "line 17", ``text`` what stood there (untrusted)."""
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES:
            self.examples.append(f"{where}: {printable(text)}")


class UnreadableSource:
    """One log of a directory that could not be opened: it says so when its rows are asked for."""

    def __init__(self, name: str, error: GatekeeperError) -> None:
        self.name = name
        self.run_url: str | None = None
        self.run_state: str | None = None
        self.skipped = 0
        self.skipped_examples: list[str] = []
        self._error = error

    def rows(self) -> Iterator[Row]:
        """Raise the error that opening met."""
        raise self._error
