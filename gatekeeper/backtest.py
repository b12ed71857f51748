"""Replay recorded runs through the gate and score it: what would have been stopped, when, why, and what that saves."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gatekeeper.config import Settings
from gatekeeper.errors import GatekeeperError
from gatekeeper.gate import Gate
from gatekeeper.judging import Judged, judge_source
from gatekeeper.report.record import SCHEMA as VERDICT_SCHEMA
from gatekeeper.report.record import verdict_record
from gatekeeper.sources import SourceOptions, open_source

__all__ = ["SCHEMA", "Case", "Outcome", "is_manifest", "read_manifest", "replay", "totals"]

SCHEMA = "gatekeeper.backtest/1"
EXPECTED = ("stop", "continue", "flag", "")


@dataclass(frozen=True)
class Case:
    """One recorded run and what became of it (``expected`` empty: not known)."""

    source: str
    expected: str = ""
    first_bad_step: float | None = None
    metric: str | None = None
    mode: str | None = None
    roles: dict[str, str] = field(default_factory=dict)
    group: str = ""
    budget_steps: float | None = None


@dataclass
class Outcome:
    """A case after the gate saw it: the contract's record, and the gate for its curves."""

    case: Case
    record: dict[str, Any]
    judged: Judged | None = None


def is_manifest(path: Path) -> bool:
    """Whether a CSV file lists runs (it has a ``source`` column) rather than metrics."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
        head = next(csv.reader(stream), [])
    return "source" in [cell.strip() for cell in head]


def read_manifest(path: Path) -> list[Case]:
    """Return the cases of a manifest; sources are relative to it. Raises GatekeeperError naming line and column."""
    cases: list[Case] = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            for row in csv.DictReader(stream):
                cases.append(_case(path, len(cases) + 2, {str(k).strip(): (v or "").strip() for k, v in row.items() if isinstance(v, str) or v is None}))
    except OSError as fault:
        raise GatekeeperError(f"{path}: cannot be read: {fault.strerror}") from fault
    except (UnicodeDecodeError, csv.Error) as fault:
        raise GatekeeperError(f"{path}: not a CSV file: {fault}") from fault
    if not cases:
        raise GatekeeperError(f"{path}: the manifest lists no runs; it needs a column `source` and a line per run")
    return cases


def _case(path: Path, line: int, row: dict[str, str]) -> Case:
    where = f"{path}, line {line}"
    source = row.get("source", "")
    if not source:
        raise GatekeeperError(f"{where}: no source")
    expected = row.get("expected", "").lower()
    if expected not in EXPECTED:
        raise GatekeeperError(f"{where}: expected = {expected!r} must be stop, continue, flag or empty")
    mode = row.get("mode") or None
    if mode not in (None, "min", "max"):
        raise GatekeeperError(f"{where}: mode = {mode!r} must be min, max or empty")
    roles: dict[str, str] = {}
    for part in filter(None, row.get("roles", "").split(";")):
        role, mark, name = part.partition("=")
        if not mark or not role or not name:
            raise GatekeeperError(f"{where}: roles: {part!r} is not ROLE=KEY")
        roles[role.strip()] = name.strip()
    local = path.parent / source
    return Case(
        source=str(local) if local.exists() or "://" not in source and source.count("/") != 2 else source,
        expected=expected,
        first_bad_step=_number(where, "first_bad_step", row.get("first_bad_step", "")),
        metric=row.get("metric") or None,
        mode=mode,
        roles=roles,
        group=row.get("group", ""),
        budget_steps=_number(where, "budget_steps", row.get("budget_steps", "")),
    )


def _number(where: str, key: str, text: str) -> float | None:
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise GatekeeperError(f"{where}: {key} = {text!r} is no number") from None


def replay(cases: Sequence[Case], settings: Settings, options: SourceOptions | None = None) -> Iterator[Outcome]:
    """Judge each case from its first row as if live; an unreadable source is reported in its place and ends nothing."""
    for case in cases:
        try:
            sources = open_source(case.source, options=options)
        except GatekeeperError as fault:
            yield Outcome(case, _unread(case, str(fault)))
            continue
        for source in sources:
            chosen = replace(settings, budget_steps=case.budget_steps or settings.budget_steps)
            gate = Gate(case.metric, case.mode, case.roles, chosen)
            judged = judge_source(source, gate)
            record = verdict_record(judged)
            record["expected"] = case.expected
            yield Outcome(case, record, judged)


def _unread(case: Case, error: str) -> dict[str, Any]:
    return {
        "schema": VERDICT_SCHEMA, "source": case.source, "run_url": None, "decision": "ERROR", "judgment": None, "rule": None,
        "reason": error, "step": None, "row": None, "rows": 0, "metrics": {}, "roles": {}, "findings": [], "reachable": False,
        "wait_share": None, "next_check_s": None, "error": error, "expected": case.expected,
    }  # fmt: skip


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the scores over labelled runs, and what the gate did on all of them.

    ``saved_rows`` is every row after a STOP; ``saved_share`` its share of all rows. ``quiet``: of the runs that ended well, those whose last
    decision is CONTINUE (a gate that always shrugs is no gate).
    """
    by: dict[str, list[dict[str, Any]]] = {key: [] for key in EXPECTED}
    for outcome in outcomes:
        by[outcome.case.expected].append(outcome.record)
    records = [outcome.record for outcome in outcomes]
    stopped = [record for record in records if record["decision"] == "STOP"]
    saved = sum(record["rows"] - record["row"] for record in stopped)
    rows = sum(record["rows"] for record in records)
    rules: dict[str, int] = {}
    for record in stopped:
        rules[record["rule"]] = rules.get(record["rule"], 0) + 1
    waits = [record["wait_share"] for record in by["continue"] if record["wait_share"] is not None]
    return {
        "schema": SCHEMA,
        "runs": len(records),
        "decisions": {name: sum(record["decision"] == name for record in records) for name in ("STOP", "WAIT", "CONTINUE", "ERROR")},
        "caught": [_count(by["stop"], "STOP"), len(by["stop"])],
        "false": [_count(by["continue"], "STOP"), len(by["continue"])],
        "flagged": [_count(by["flag"], "STOP", "WAIT"), len(by["flag"])],
        "quiet": [_count(by["continue"], "CONTINUE"), len(by["continue"])],
        "rules": dict(sorted(rules.items(), key=lambda item: -item[1])),
        "rows": rows,
        "saved_rows": saved,
        "saved_share": round(saved / rows, 4) if rows else 0.0,
        "unsure_median": round(statistics.median(waits), 4) if waits else None,
    }


def _count(records: Sequence[dict[str, Any]], *decisions: str) -> int:
    return sum(record["decision"] in decisions for record in records)
