"""The verdict as a tired person reads it: the decision, the sentence, then the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gatekeeper.report import RunReport
from gatekeeper.report._record import findings, number, place
from gatekeeper.report.sparkline import sparkline
from gatekeeper.text import for_terminal, shorten

__all__ = ["clean", "percent", "run_text", "styled"]

_COLORS = {"STOP": "red", "WAIT": "yellow", "CONTINUE": "green", "ERROR": "magenta"}
_FINDINGS, _METRICS = 6, 8


def run_text(report: RunReport, *, unicode: bool = True) -> str:
    """Return the report of one run; styled, the caller's echo strips it where colours are not wanted."""
    record = report.record
    decision = record["decision"]
    stopped = decision == "STOP"
    lines = [
        f"{styled(decision)}  {clean(record['source'], 200)}" + (f"  at {place(record)}" if stopped else ""),
        f"  {clean(record['reason'], 400)}",
    ]
    if record.get("rule"):
        by = "" if record.get("decided_by") in (None, "table") else f", by {clean(record['decided_by'], 60)}"
        rows = f"{record['rows']} row{'' if record['rows'] == 1 else 's'}"
        share = f"{rows}, {percent(record.get('wait_share'))} of them WAIT"
        lines.append(_dim(f"  rule {clean(record['rule'], 60)}{by}; {share}"))
    if drawn := sparkline(report.curve, record.get("row"), unicode=unicode):
        lines.append(f"  {drawn[0]}  {clean(report.curve_metric or '', 40)}")
        if drawn[1]:
            lines.append(f"  {drawn[1]}")
    lines += _others(record, "·" if unicode else "-")
    if stopped and record.get("metrics"):
        lines.append(f"  at the stop: {_metrics(record['metrics'])}")
    if decision != "CONTINUE" and record.get("look_next"):
        lines.append(f"  look at: {clean(record['look_next'], 200)}")
    if record.get("run_url"):
        lines.append(f"  {clean(record['run_url'], 300)}")
    lines += [_dim(f"  {line}") for line in _remarks(report)]
    return "\n".join(lines)


def styled(decision: str, width: int = 0) -> str:
    """Return a decision in its colour, padded to ``width``."""
    return click.style(f"{decision:{width}}", fg=_COLORS.get(decision), bold=True)


def percent(share: object) -> str:
    """Return a share as a whole percentage."""
    return f"{share:.0%}" if isinstance(share, (int, float)) else "?"


def clean(text: object, limit: int) -> str:
    """Return untrusted text as one printable line of at most about ``limit`` characters."""
    return for_terminal(shorten(text, limit))


def _remarks(report: RunReport) -> list[str]:
    record = report.record
    remarks = []
    if record.get("run_state"):
        remarks.append(f"the run calls itself {clean(record['run_state'], 40)}")
    if skipped := record.get("skipped_lines"):
        lines = "1 malformed line" if skipped == 1 else f"{skipped} malformed lines"
        remarks.append(f"{lines} skipped, e.g. {clean(record['skipped_examples'][0], 120)}")
    if record.get("error") and record["decision"] == "STOP":
        remarks.append(f"not read to its end: {clean(record['error'], 200)}")
    if report.notes_path is not None:
        remarks.append(f"written to {clean(report.notes_path, 300)}")
    return remarks


def _others(record: Mapping[str, Any], bullet: str) -> list[str]:
    """Return what the rules found beside what the reason already says."""
    others = [item for item in findings(record) if item["message"] not in record["reason"]]
    lines = [f"  {bullet} {clean(item['message'], 200)} ({clean(item['rule'], 60)})" for item in others]
    if len(lines) > _FINDINGS:
        lines[_FINDINGS:] = [f"  {bullet} and {len(lines) - _FINDINGS} more findings"]
    return lines


def _metrics(metrics: Mapping[str, Any]) -> str:
    shown = [f"{clean(name, 40)} {number(value)}" for name, value in list(metrics.items())[:_METRICS]]
    if len(metrics) > len(shown):
        shown.append(f"and {len(metrics) - len(shown)} more")
    return ", ".join(shown)


def _dim(text: str) -> str:
    return click.style(text, dim=True)
