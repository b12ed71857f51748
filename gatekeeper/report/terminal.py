"""The verdict as a tired person reads it: the decision, the sentence, then the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gatekeeper.report import RunReport
from gatekeeper.report.sparkline import sparkline
from gatekeeper.text import for_terminal, shorten

__all__ = ["run_text"]

_COLORS = {"STOP": "red", "WAIT": "yellow", "CONTINUE": "green", "ERROR": "magenta"}
_SHOWN = 6


def run_text(report: RunReport, *, unicode: bool = True) -> str:
    """Return the report of one run; styled, the caller's echo strips it where colours are not wanted."""
    record = report.record
    decision = record["decision"]
    lines = [f"{click.style(decision, fg=_COLORS.get(decision), bold=True)}  {_clean(record['source'], 200)}{_where(record)}"]
    lines.append(f"  {_clean(record['reason'], 400)}")
    if record.get("rule"):
        by = f", by {_clean(record['decided_by'], 60)}" if record.get("decided_by") not in (None, "table") else ""
        lines.append(_dim(f"  rule {_clean(record['rule'], 60)}{by}; {record['rows']} rows, {_percent(record.get('wait_share'))} of them WAIT"))
    drawn = sparkline(report.curve, record.get("row"), unicode=unicode)
    if drawn is not None:
        name = _clean(report.curve_metric or "", 24)
        lines.append(f"  {drawn[0]}  {name}")
        if drawn[1]:
            lines.append(f"  {drawn[1]}")
    lines += _findings(record)
    if record.get("metrics") and decision == "STOP":
        lines.append("  at the stop: " + _metrics(record["metrics"]))
    if record.get("look_next") and decision != "CONTINUE":
        lines.append(f"  look at: {_clean(record['look_next'], 200)}")
    if record.get("run_url"):
        lines.append(f"  {_clean(record['run_url'], 300)}")
    if record.get("run_state"):
        lines.append(_dim(f"  the run calls itself {_clean(record['run_state'], 40)}"))
    if record.get("skipped_lines"):
        lines.append(_dim(f"  {record['skipped_lines']} malformed lines skipped, e.g. {_clean(record['skipped_examples'][0], 120)}"))
    if report.notes_path is not None:
        lines.append(_dim(f"  written to {_clean(report.notes_path, 300)}"))
    return "\n".join(lines)


def _where(record: Mapping[str, Any]) -> str:
    if record.get("row") is None:
        return ""
    step = record.get("step")
    at = f"step {step:.12g}, " if isinstance(step, (int, float)) else ""
    return f"  at {at}row {record['row']} of {record['rows']}"


def _findings(record: Mapping[str, Any]) -> list[str]:
    others = [finding for finding in record.get("findings", ()) if finding["message"] not in record["reason"]]
    lines = [f"  · {_clean(finding['message'], 200)} ({_clean(finding['rule'], 60)})" for finding in others[:_SHOWN]]
    if len(others) > _SHOWN:
        lines.append(f"  · and {len(others) - _SHOWN} more findings")
    return lines


def _metrics(metrics: Mapping[str, Any]) -> str:
    shown = list(metrics.items())[:8]
    text = ", ".join(f"{_clean(name, 40)} {value if isinstance(value, str) else f'{value:.4g}'}" for name, value in shown)
    return text + (f", and {len(metrics) - len(shown)} more" if len(metrics) > len(shown) else "")


def _percent(share: Any) -> str:
    return f"{100.0 * share:.0f}%" if isinstance(share, (int, float)) else "?"


def _dim(text: str) -> str:
    return click.style(text, dim=True)


def _clean(text: object, limit: int) -> str:
    return for_terminal(shorten(text, limit))


def joined(reports: Sequence[RunReport], *, unicode: bool = True) -> str:
    """Return the reports of several runs, an empty line between them."""
    return "\n\n".join(run_text(report, unicode=unicode) for report in reports)
