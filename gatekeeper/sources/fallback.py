"""Several ways to the same run's rows, tried in order: its server, a local file, another machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources.base import Row, Source, SourceOptions, printable

__all__ = ["FallbackSource", "open_with_fallback"]

Opener = Callable[..., "list[Source]"]


def open_with_fallback(
    spec: str, fallbacks: Sequence[str], *, options: SourceOptions | None = None
) -> list[Source]:
    """Return the sources of ``spec``; with fallbacks, one that turns to them when it is unreachable."""
    from gatekeeper.sources.specs import open_source

    if not fallbacks:
        return open_source(spec, options=options)
    return [FallbackSource([spec, *fallbacks], options=options)]


class FallbackSource:
    """One run by several ways. Each look begins with the first; the next is used where one is unreachable.

    Every way holds the same run from its first row, so a way that is new to this look is passed over until it
    is beyond what was seen: rows of earlier steps, and those of the same step with the same values.
    """

    def __init__(
        self, specs: Sequence[str], *, options: SourceOptions | None = None, opener: Opener | None = None
    ) -> None:
        if not specs:
            raise GatekeeperError("a fallback chain needs at least one source")
        self.name = specs[0]
        self._specs = list(specs)
        self._options = options
        self._opener = opener
        self._opened: dict[int, Source] = {}
        self._current: int | None = None
        self._seen = 0
        self._last_step: float | None = None
        self._at_last: list[str] = []

    @property
    def run_url(self) -> str | None:
        """Where the run can be looked at, if any of the ways knows."""
        return next((source.run_url for source in self._sources() if source.run_url), None)

    @property
    def run_state(self) -> str | None:
        """The run's own state, from the way that was read last."""
        source = self._opened.get(self._current) if self._current is not None else None
        return source.run_state if source is not None else None

    @property
    def skipped(self) -> int:
        """How many malformed lines were skipped, in all ways."""
        return sum(source.skipped for source in self._sources())

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them."""
        return [example for source in self._sources() for example in source.skipped_examples][:5]

    @property
    def used(self) -> str | None:
        """The spec that the last look read, None before the first."""
        return self._specs[self._current] if self._current is not None else None

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call, from the first way that answers.

        Raises:
            Unreachable: None answered. The text names what was tried.
            SourceError: The only way is unreadable.

        """
        failures: list[str] = []
        lost = False
        for index, spec in enumerate(self._specs):
            try:
                yield from self._rows_of(index)
            except Unreachable as error:
                lost = True
                failures.append(str(error))
            except SourceError as error:
                if not lost:  # it answered, and what it said is the answer
                    raise
                failures.append(str(error))
            except GatekeeperError as error:
                if index == 0:
                    raise
                failures.append(f"{printable(spec, 120)}: {error}")
            else:
                return
        raise Unreachable(f"nothing answered for {printable(self.name, 200)}; tried: {'; '.join(failures)}")

    def _sources(self) -> list[Source]:
        return [self._opened[index] for index in sorted(self._opened)]

    def _rows_of(self, index: int) -> Iterator[Row]:
        source = self._open(index)
        catching_up = index != self._current and self._seen > 0
        to_skip = self._seen if catching_up else 0
        for row in source.rows():
            self._current = index
            if catching_up:
                if self._was_seen(row, to_skip):
                    to_skip -= 1
                    continue
                catching_up = False
            self._remember(row)
            yield row
        self._current = index

    def _open(self, index: int) -> Source:
        if index not in self._opened:
            from gatekeeper.sources.specs import open_source

            spec = self._specs[index]
            sources = (self._opener or open_source)(spec, options=self._options)
            if len(sources) != 1:
                raise SourceError(f"{printable(spec, 200)} holds {len(sources)} logs: a fallback names one")
            self._opened[index] = sources[0]
        return self._opened[index]

    def _was_seen(self, row: Row, left: int) -> bool:
        if row.step is None or self._last_step is None:
            return left > 0
        if row.step != self._last_step:
            return row.step < self._last_step
        return _print(row) in self._at_last

    def _remember(self, row: Row) -> None:
        self._seen += 1
        if row.step is None:
            return
        if row.step != self._last_step:
            self._last_step, self._at_last = row.step, []
        if len(self._at_last) < 64:
            self._at_last.append(_print(row))


def _print(row: Row) -> str:
    return repr(sorted((key, str(value)) for key, value in row.metrics.items()))
