"""What a backtest found, as text: what would have been stopped, why, what that saves, and who would have died wrongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from gatekeeper.report.sparkline import sparkline
from gatekeeper.text import for_terminal, shorten

__all__ = ["comparison_text", "run_line", "totals_text"]

_COLORS = {"STOP": "red", "WAIT": "yellow", "CONTINUE": "green", "ERROR": "magenta"}


def run_line(record: Mapping[str, Any], curve: Sequence[Any], *, unicode: bool = True) -> str:
    """Return one run: decision, place, curve, reason; a wrong kill is marked."""
    decision = record["decision"]
    wrong = decision == "STOP" and record.get("expected") == "continue"
    at = f"row {record['row']}/{record['rows']}" if record.get("row") else f"{record['rows']} rows"
    drawn = sparkline(curve, record.get("row"), unicode=unicode, width=24)
    line = f"{click.style(f'{decision:8}', fg=_COLORS.get(decision), bold=True)} {at:>16}  {drawn[0] if drawn else '':25} {_clean(_short(record['source']), 48)}"
    if wrong:
        line += click.style("  ended well: a wrong kill", fg="red", bold=True)
    if decision != "CONTINUE":
        line += f"\n{'':26} {_clean(record['reason'], 150)}"
    return line


def totals_text(totals: Mapping[str, Any]) -> str:
    """Return the totals in sentences; a rate is said only where runs carry labels."""
    decisions = totals["decisions"]
    lines = [
        f"{totals['runs']} runs: {decisions['STOP']} STOP, {decisions['WAIT']} WAIT, {decisions['CONTINUE']} CONTINUE"
        + (f", {decisions['ERROR']} unreadable" if decisions["ERROR"] else ""),
        f"stopping them would have saved {totals['saved_rows']:,} of {totals['rows']:,} rows ({100.0 * totals['saved_share']:.1f}%)",
    ]
    if totals["rules"]:
        lines.append("stopped by: " + ", ".join(f"{rule} {count}" for rule, count in totals["rules"].items()))
    for key, text in (
        ("caught", "went NaN or diverged and were stopped (caught)"),
        ("false", "ended well and were stopped (false)"),
        ("flagged", "never learned or relapsed and were stopped or flagged (flagged)"),
        ("quiet", "ended well and were left in peace (quiet)"),
    ):
        count, of = totals[key]
        if of:
            lines.append(f"{count:5} of {of:<5} {text}")
    if totals.get("unsure_median") is not None:
        lines.append(f"median share of a sound run's rows at which the answer was WAIT: {100.0 * totals['unsure_median']:.0f}%")
    return "\n".join(lines)


def comparison_text(changes: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], name: str) -> str:
    """Return the runs whose decision differs under another configuration."""
    label = _clean(name, 80)
    if not changes:
        return f"with {label}: no decision changes"
    lines = [f"with {label}, {len(changes)} decisions change:"]
    for before, after in changes:
        lines.append(f"  {before['decision']:8} → {after['decision']:8} {_clean(_short(before['source']), 60)}  {_clean(after['reason'], 120)}")
    return "\n".join(lines)


def _short(source: str) -> str:
    return source if len(source) <= 48 else "…" + source[-47:]


def _clean(text: object, limit: int) -> str:
    return for_terminal(shorten(text, limit))
