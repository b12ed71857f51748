"""Replay recorded runs through the gate, and score what it would have done to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gatekeeper.config import Settings
from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.judging import Judged, judge_source
from gatekeeper.manifest import Case
from gatekeeper.report.record import verdict_record
from gatekeeper.sources import SourceOptions, open_source
from gatekeeper.verdict import CurvePoint

__all__ = ["SCHEMA", "Outcome", "replay", "totals"]

SCHEMA = "gatekeeper.backtest/1"

Record = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """A run after the gate saw it: the contract's record with ``expected``, and the curve to show."""

    case: Case
    record: Record
    curve: Sequence[CurvePoint] = ()


def replay(
    cases: Iterable[Case], settings: Settings, options: SourceOptions | None = None
) -> Iterator[Outcome]:
    """Judge each case from its first row as if live; what cannot be read is said in its place."""
    for case in cases:
        new_gate = partial(_gate, case, settings)
        try:
            sources = open_source(case.source, options=options)
        except GatekeeperError as fault:
            lost = isinstance(fault, Unreachable)
            yield _outcome(case, Judged(case.source, new_gate(), reachable=not lost, error=str(fault)))
            continue
        for source in sources:
            yield _outcome(case, judge_source(source, new_gate()))


def _gate(case: Case, settings: Settings) -> Gate:
    chosen = replace(settings, budget_steps=case.budget_steps or settings.budget_steps)
    return Gate(case.metric, case.mode, case.roles, chosen)


def _outcome(case: Case, judged: Judged) -> Outcome:
    record = verdict_record(judged)
    if judged.error is not None and record["decision"] != "STOP":
        record["decision"] = "ERROR"  # nothing looks at it again, as it would for a WAIT
    record["expected"] = case.expected
    name = judged.charted()
    return Outcome(case, record, judged.gate.curve(name) if name else ())


def totals(outcomes: Sequence[Outcome]) -> Record:
    """Return the scores of all runs and of each group, and which labelled runs the gate got wrong."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.case.group, []).append(outcome)
    return {
        "schema": SCHEMA,
        **_scores(outcomes),
        "groups": {name: _scores(groups[name]) for name in sorted(groups)} if len(groups) > 1 else {},
        "false_stops": [_place(item) for item in outcomes if _is(item, "continue", "STOP")],
        "missed": [_place(item) for item in outcomes if _is(item, "stop", "WAIT", "CONTINUE")],
    }


def _scores(outcomes: Sequence[Outcome]) -> Record:
    """Return what the gate did, and how that meets the labels.

    ``caught``, ``false``, ``flagged`` and ``quiet`` are [how many, of how many]. ``early`` counts the caught
    that were stopped before their ``first_bad_step`` and ``delay_steps`` is the median of the others.
    ``saved_rows`` are the rows after each STOP but for the false ones, whose rows are lost.
    """
    from statistics import median  # a slow import

    records = [outcome.record for outcome in outcomes]
    stops = [item for item in outcomes if item.record["decision"] == "STOP"]
    rows = sum(record["rows"] for record in records)
    saved = sum(_rest(item) for item in stops if item.case.expected != "continue")
    delays = [item.record["step"] - item.case.first_bad_step for item in stops if _timed(item)]
    waits = [item.record["wait_share"] or 0.0 for item in outcomes if _is(item, "continue", *_ANSWERS)]
    decisions = Counter(record["decision"] for record in records)
    return {
        "runs": len(records),
        "decisions": {name: decisions[name] for name in (*_ANSWERS, "ERROR")},
        "caught": _share(outcomes, "stop", "STOP"),
        "false": _share(outcomes, "continue", "STOP"),
        "flagged": _share(outcomes, "flag", "STOP", "WAIT"),
        "quiet": _share(outcomes, "continue", "CONTINUE"),
        "early": sum(delay < 0 for delay in delays),
        "delay_steps": median(late) if (late := [d for d in delays if d >= 0]) else None,
        "rules": dict(Counter(item.record["rule"] for item in stops).most_common()),
        "rows": rows,
        "saved_rows": saved,
        "saved_share": round(saved / rows, 4) if rows else 0.0,
        "lost_rows": sum(_rest(item) for item in stops if item.case.expected == "continue"),
        "unsure_median": round(median(waits), 4) if waits else None,
    }


_ANSWERS = ("STOP", "WAIT", "CONTINUE")


def _is(outcome: Outcome, expected: str, *decisions: str) -> bool:
    return outcome.case.expected == expected and outcome.record["decision"] in decisions


def _share(outcomes: Sequence[Outcome], expected: str, *decisions: str) -> list[int]:
    of = [item for item in outcomes if item.case.expected == expected]
    return [sum(_is(item, expected, *decisions) for item in of), len(of)]


def _timed(outcome: Outcome) -> bool:
    """Say whether it is known how long after its first bad step a broken run was stopped."""
    step, first = outcome.record["step"], outcome.case.first_bad_step
    return outcome.case.expected == "stop" and isinstance(step, (int, float)) and first is not None


def _rest(outcome: Outcome) -> int:
    return max(0, int(outcome.record["rows"]) - int(outcome.record["row"]))


def _place(outcome: Outcome) -> Record:
    return {key: outcome.record[key] for key in ("source", "decision", "rule", "row", "rows", "reason")}
