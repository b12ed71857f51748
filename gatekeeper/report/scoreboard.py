"""What a backtest found, as text: what would have been stopped, what that saves, and who would have died."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from gatekeeper.report.sparkline import sparkline
from gatekeeper.report.terminal import clean, percent, styled
from gatekeeper.verdict import CurvePoint

__all__ = ["comparison_text", "run_line", "totals_text"]

Record = Mapping[str, Any]

_SCORES = {
    "caught": "went NaN or diverged, and were stopped",
    "false": "ended well, and were stopped",
    "flagged": "never learned or relapsed, and ended with STOP or WAIT",
    "quiet": "ended well, and ended with CONTINUE",
}
_CHART = 24
_GROUPS = 20


def run_line(record: Record, curve: Sequence[CurvePoint], *, unicode: bool = True) -> str:
    """Return one run: decision, place, curve, name, and why it is no CONTINUE; a wrong stop is marked."""
    decision = record["decision"]
    drawn = sparkline(curve, record["row"], unicode=unicode, width=_CHART)
    line = (
        f"{styled(decision, 8)} {_rows(record):>16}  {drawn[0] if drawn else '':{_CHART + 1}} {_name(record)}"
    )
    if decision == "STOP" and record.get("expected") == "continue":
        line += click.style("  ended well: a wrong stop", fg="red", bold=True)
    return line if decision == "CONTINUE" else f"{line}\n{'':26} {clean(record['reason'], 240)}"


def totals_text(totals: Record) -> str:
    """Return the totals; a score is said only where runs carry labels. The wrong stops come last."""
    return "\n".join([*_sums(totals), *_scored(totals), *_groups(totals["groups"]), *_wrong(totals)])


def comparison_text(totals: Record) -> str:
    """Return what another configuration changes: the runs it judges otherwise, and the scores."""
    compare = totals["compare"]
    label, changed, after = clean(compare["config"], 80), compare["changed"], compare["totals"]
    if not changed:
        return f"with {label}: no decision changes"
    lines = [f"with {label}, {_count(len(changed), 'decision')} changed:"]
    for item in changed:
        lines.append(f"  {item['from']:8} -> {item['to']:8} {_rows(item):>16}  {_name(item)}")
        lines.append(f"{'':23} {clean(item['reason'], 150)}")
    scored = [key for key in _SCORES if totals[key][1]]
    lines += [f"  {key:8} {_of(totals[key])} -> {_of(after[key])}" for key in scored]
    saved = f"{percent(totals['saved_share'])} -> {percent(after['saved_share'])}"
    lines.append(f"  {'saved':8} {saved} of the rows")
    return "\n".join(lines)


def _sums(totals: Record) -> Iterator[str]:
    decisions = totals["decisions"]
    unread = f", {decisions['ERROR']} unreadable" if decisions["ERROR"] else ""
    counts = ", ".join(f"{decisions[name]} {name}" for name in ("STOP", "WAIT", "CONTINUE"))
    yield f"{_count(totals['runs'], 'run')}: {counts}{unread}"
    if decisions["STOP"]:
        share = f"{100.0 * totals['saved_share']:.1f}%"
        yield f"the stops would have saved {totals['saved_rows']:,} of {totals['rows']:,} rows ({share})"
        yield "stopped by " + ", ".join(
            f"{clean(rule, 60)} {count}" for rule, count in totals["rules"].items()
        )


def _scored(totals: Record) -> Iterator[str]:
    labelled = {key: text for key, text in _SCORES.items() if totals[key][1]}
    if not labelled:
        yield "no run has a label: a manifest with a column `expected` (stop, continue, flag) scores the gate"
    for key, text in labelled.items():
        count, of = totals[key]
        yield f"  {key:8} {count:5} of {of:<5} {text}"
    if totals["delay_steps"] is not None:
        yield f"  median delay from the first bad step to the STOP: {totals['delay_steps']:g} steps"
    if totals["early"]:
        yield f"  {totals['early']} of the caught were stopped before their first bad step"
    if totals["unsure_median"] is not None:
        share = percent(totals["unsure_median"])
        yield f"  a run that ended well was undecided at {share} of its rows (median)"


def _groups(groups: Mapping[str, Record]) -> Iterator[str]:
    """Yield a table, the groups first in which the gate was wrong."""
    if not groups:
        return
    ordered = sorted(groups.items(), key=lambda item: (-item[1]["false"][0], -_misses(item[1])))
    columns = ("runs", "STOP", *_SCORES, "saved")
    yield f"\n{'group':32}" + "".join(f"{name:>10}" for name in columns)
    for name, scores in ordered[:_GROUPS]:
        cells = [str(scores["runs"]), str(scores["decisions"]["STOP"])]
        cells += [_of(scores[key]) if scores[key][1] else "-" for key in _SCORES]
        cells.append(percent(scores["saved_share"]))
        yield f"{clean(name or '(none)', 31):32}" + "".join(f"{cell:>10}" for cell in cells)
    if len(ordered) > _GROUPS:
        yield f"and {_count(len(ordered) - _GROUPS, 'group')} more: --format json has them all"


def _wrong(totals: Record) -> Iterator[str]:
    if missed := totals["missed"]:
        yield f"\n{_count(len(missed), 'run')} went NaN or diverged and would not have been stopped:"
        yield from (f"  {item['decision']:8} {_name(item)}  {clean(item['reason'], 120)}" for item in missed)
    if not (ended_well := totals["false"][1]):
        return
    if false := totals["false_stops"]:
        head = f"{len(false)} of the {_count(ended_well, 'run')} that ended well would have been killed:"
        yield "\n" + click.style(head, fg="red", bold=True)
        for item in false:
            why = f"by {clean(item['rule'], 60)}: {clean(item['reason'], 120)}"
            yield f"  {_name(item)} at {_rows(item)}, {why}"
    else:
        yield f"\nnone of the {_count(ended_well, 'run')} that ended well would have been stopped"


def _misses(scores: Record) -> int:
    return int(scores["caught"][1] - scores["caught"][0])


def _of(score: Sequence[int]) -> str:
    return f"{score[0]}/{score[1]}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _rows(record: Record) -> str:
    return f"row {record['row']}/{record['rows']}" if record["row"] else _count(record["rows"], "row")


def _name(record: Record) -> str:
    """Return a source by its end, which tells runs of one folder apart."""
    source = str(record["source"])
    return clean(source if len(source) <= 48 else f"…{source[-47:]}", 48)
