"""What every format reads off a report's record: order by severity, redacted values, readable numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gatekeeper.redact import redact
from gatekeeper.report import RunReport

__all__ = ["by_severity", "decision", "findings", "number", "place", "reason", "redacted"]

_SEVERITY = ("STOP", "ERROR", "WAIT", "CONTINUE")
_MAX_TEXT, _MAX_ITEMS = 3000, 1000  # more than is shown, so that no cut secret is
_JUDGMENT = ("clearly_bad", "unsure", "clearly_fine")


class _Redacted(RunReport):
    """A report that was searched for secrets already: one is printed, written and summed up."""


def redacted(reports: Iterable[RunReport]) -> list[RunReport]:
    """Return the reports without secrets in any text of theirs, and no text longer than a format shows."""
    return [report if isinstance(report, _Redacted) else _redacted(report) for report in reports]


def _redacted(report: RunReport) -> _Redacted:
    record, metric = redact(_bounded(report.record)), redact(_bounded(report.curve_metric))
    return _Redacted(record, report.curve, metric, report.notes_path)


def _bounded(value: Any) -> Any:
    """Cut texts and lists before they are searched for secrets: a log may hold lines of megabytes."""
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return value[:_MAX_TEXT]
    if isinstance(value, Mapping):
        return {_bounded(key): _bounded(item) for key, item in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, (list, tuple)):
        return [_bounded(item) for item in value[:_MAX_ITEMS]]
    return value


def decision(record: Mapping[str, Any]) -> str:
    """Return the decision; what is not one of the contract's words is an ERROR, never a pass."""
    found = record.get("decision")
    return found if found in _SEVERITY else "ERROR"


def reason(record: Mapping[str, Any]) -> str:
    """Return the sentence behind the decision."""
    return str(record.get("reason") or record.get("error") or "no reason given")


def by_severity(reports: Iterable[RunReport]) -> list[RunReport]:
    """Return the reports, the worst decision first; equals stay in the order in which they were given."""
    return sorted(reports, key=lambda report: _SEVERITY.index(decision(report.record)))


def findings(record: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the findings, the deciding rule's first, then the worst judgments."""

    def rank(finding: Mapping[str, Any]) -> tuple[bool, int]:
        judgment = finding.get("judgment")
        order = _JUDGMENT.index(judgment) if judgment in _JUDGMENT else len(_JUDGMENT)
        return finding.get("rule") != record.get("rule"), order

    found = record.get("findings")
    rows = [item for item in found if isinstance(item, Mapping)] if isinstance(found, (list, tuple)) else []
    return sorted(rows, key=rank)


def number(value: object) -> str:
    """Return a number as people write it: six significant digits, steps in full, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return str(value)


def place(record: Mapping[str, Any]) -> str:
    """Return where the decision fell and how much of the run there is: ``step 300, row 301 of 1000``."""
    step, row, rows = record.get("step"), record.get("row"), record.get("rows")
    parts = [f"step {number(step)}"] if step is not None else []
    if row is not None:
        parts.append(f"row {number(row)}" + (f" of {number(rows)}" if rows is not None else ""))
    elif rows is not None:
        parts.append(f"{number(rows)} rows judged")
    return ", ".join(parts)
