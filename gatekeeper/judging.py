"""Feed a source to a gate: the one loop behind check, backtest, CI and the watcher."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.sources.base import Source

__all__ = ["Judged", "judge_source", "judge_sources"]


@dataclass
class Judged:
    """A source and what the gate says of it. ``rows`` counts all rows the source holds, also after a STOP."""

    source: str
    gate: Gate
    rows: int = 0
    run_url: str | None = None
    run_state: str | None = None
    reachable: bool = True
    error: str | None = None
    skipped: int = 0
    skipped_examples: tuple[str, ...] = ()


def judge_source(source: Source, gate: Gate) -> Judged:
    """Judge every row of a source from its first, as if live; an unreadable or unreachable source is said in the result."""
    judged = Judged(source.name, gate)
    rows = 0
    observe = gate.observe
    try:
        stream = iter(source.rows())
        for step, metrics in stream:
            rows += 1
            if observe(step, metrics).stopped:
                break
        for _ in stream:  # how much a STOP saves is counted from all rows
            rows += 1
    except Unreachable as fault:
        judged.reachable = False
        judged.error = str(fault)
    except GatekeeperError as fault:
        judged.error = str(fault)
    judged.rows = rows
    judged.run_url = source.run_url
    judged.run_state = source.run_state
    judged.skipped = source.skipped
    judged.skipped_examples = tuple(source.skipped_examples)
    return judged


def judge_sources(sources: Iterable[tuple[Source, Gate]]) -> list[Judged]:
    """Judge several sources, each with its own gate."""
    return [judge_source(source, gate) for source, gate in sources]
