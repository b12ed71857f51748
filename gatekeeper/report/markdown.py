"""Verdicts as Markdown: for a step summary, a merge request's comment or a file.

Everything that came from a log is escaped, the chart is an extra beside the tables, and the whole stays
under a size whatever was judged: the worst runs come first and what is left out is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.redact import redact_url
from gatekeeper.report import RunReport
from gatekeeper.report._record import by_severity, decision, findings, number, place, reason, redacted
from gatekeeper.report.mermaid import curve_charts
from gatekeeper.text import for_markdown, markdown_link, shorten

__all__ = ["MAX_BYTES", "markdown_report"]

MAX_BYTES = 900_000  # GitHub drops a summary above 1 MiB
MAX_FINDINGS = 50
MAX_METRICS = 30
MAX_CHARTED_RUNS = 10  # a page with dozens of charts is slow to draw
_ICON = {"STOP": "❌", "ERROR": "❌", "WAIT": "⚠️", "CONTINUE": "✅"}
_MAX_SENTENCE, _MAX_NAME = 600, 120


def markdown_report(reports: Sequence[RunReport], *, max_bytes: int = MAX_BYTES) -> str:
    """Return the report of all judged runs in at most ``max_bytes`` of UTF-8, the worst run first."""
    ordered = by_severity(redacted(reports))
    if not ordered:
        return "## ❌ gatekeeper: nothing was judged\n"
    head = _headline(ordered) if len(ordered) > 1 else ""
    parts, room = [head], max_bytes - len(head.encode()) - 200
    for i, report in enumerate(ordered):
        section = _section(report, chart=i < MAX_CHARTED_RUNS)
        room -= len(section.encode()) + 1
        if room < 0:
            parts.append(
                f"*{len(ordered) - i} more runs do not fit here; none of them is worse than those above.*\n"
            )
            break
        parts.append(section)
    return "\n".join(part for part in parts if part)


def _headline(reports: Sequence[RunReport]) -> str:
    worst = decision(reports[0].record)
    counts = [decision(report.record) for report in reports]
    tally = ", ".join(f"{counts.count(word)} {word}" for word in dict.fromkeys(counts))
    return f"## {_ICON[worst]} gatekeeper: {worst}\n\n{len(reports)} runs: {tally}\n"


def _section(report: RunReport, *, chart: bool) -> str:
    record, word = report.record, decision(report.record)
    rule = record.get("rule")
    title = f"## {_ICON[word]} {word}" + (f": {_cell(rule, _MAX_NAME)}" if rule else "")
    parts = [title, _cell(reason(record), _MAX_SENTENCE), _facts(report)]
    if chart:
        parts += _charts(report)
    parts += [_findings(record), _metrics(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _facts(report: RunReport) -> str:
    record = report.record
    rows = [("Run", _cell(record.get("source"), 2 * _MAX_NAME))]
    if record.get("run_url"):
        url = redact_url(record["run_url"])
        rows.append(("URL", markdown_link(shorten(url, 2 * _MAX_NAME), url)))
    if where := place(record):
        rows.append(("Where", _cell(where, _MAX_NAME)))
    if record.get("judgment"):
        rows.append(("Judgment", _cell(str(record["judgment"]).replace("_", " "), _MAX_NAME)))
    if record.get("decided_by") not in (None, "table"):
        rows.append(("Decided by", _cell(record["decided_by"], _MAX_NAME)))
    if record.get("look_next"):
        rows.append(("Look at next", _cell(record["look_next"], _MAX_SENTENCE)))
    if record.get("run_state"):
        rows.append(("The run's own state", _cell(record["run_state"], _MAX_NAME)))
    if record.get("skipped_lines"):
        rows.append(("Skipped lines", _cell(number(record["skipped_lines"]), _MAX_NAME)))
    if record.get("reachable") is False:
        rows.append(("Source", "not reachable: this says nothing about the run"))
    if isinstance(share := record.get("wait_share"), (int, float)):
        rows.append(("Undecided rows", f"{share:.0%}"))
    if report.notes_path is not None:
        rows.append(("Notes", _cell(report.notes_path, 2 * _MAX_NAME)))
    return _table(rows[0], rows[1:])


def _charts(report: RunReport) -> list[str]:
    record = report.record
    stopped = decision(record) == "STOP"
    step, row = record.get("step"), record.get("row")
    charts = curve_charts(
        report.curve,
        report.curve_metric,
        stop_step=float(step) if stopped and isinstance(step, (int, float)) else None,
        stop_row=int(row) if stopped and isinstance(row, (int, float)) else None,
    )
    return [f"```mermaid\n{chart}\n```" for chart in charts]


def _findings(record: Mapping[str, Any]) -> str:
    rows = findings(record)
    if not rows:
        return ""
    table = _table(
        ("Rule", "Judgment", "Metric", "Step", "Value", "Threshold", "What was seen"),
        [
            (
                _cell(item.get("rule"), _MAX_NAME),
                _cell(str(item.get("judgment") or "").replace("_", " "), _MAX_NAME),
                _cell(item.get("metric"), _MAX_NAME),
                *(_cell(number(item.get(key)), 40) for key in ("step", "value", "threshold")),
                _cell(item.get("message"), _MAX_SENTENCE),
            )
            for item in rows[:MAX_FINDINGS]
        ],
    )
    more = f"\n\n*{len(rows) - MAX_FINDINGS} more findings*" if len(rows) > MAX_FINDINGS else ""
    return f"### Findings\n\n{table}{more}"


def _metrics(record: Mapping[str, Any]) -> str:
    metrics, roles = record.get("metrics"), record.get("roles")
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    role_of = {str(key): str(role) for role, key in roles.items()} if isinstance(roles, Mapping) else {}
    rows = [
        (_cell(name, _MAX_NAME), _cell(role_of.get(str(name)), _MAX_NAME), _cell(number(value), 40))
        for name, value in list(metrics.items())[:MAX_METRICS]
    ]
    more = f"\n\n*{len(metrics) - MAX_METRICS} more metrics*" if len(metrics) > MAX_METRICS else ""
    title = "Metrics at the stop" if decision(record) == "STOP" else "Last metrics"
    return f"### {title}\n\n{_table(('Metric', 'Role', 'Value'), rows)}{more}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: object, limit: int) -> str:
    return for_markdown(shorten(value, limit)) if value is not None else ""
