"""``gatekeeper backtest``: replay finished runs, to decide whether to trust the gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from gatekeeper.backtest import Outcome, replay, totals
from gatekeeper.cli.options import CONFIG_FILE, Objective, deadline_option, json_or_text, with_objective
from gatekeeper.cli.output import complain, say, unicode_output
from gatekeeper.cli.progress import progress
from gatekeeper.manifest import Case, is_manifest, read_manifest
from gatekeeper.redact import redact
from gatekeeper.report.scoreboard import comparison_text, run_line, totals_text
from gatekeeper.sources import SourceOptions
from gatekeeper.strictjson import dumps

__all__ = ["command"]

NOTHING_READ = 2


@click.command("backtest", short_help="Replay finished runs and score the gate on them.")
@click.argument("sources", nargs=-1, required=True, metavar="MANIFEST.csv|SOURCE...")
@with_objective
@click.option(
    "--compare", type=CONFIG_FILE, metavar="FILE", help="Also say what another configuration changes."
)
@deadline_option
@json_or_text
def command(
    *,
    sources: tuple[str, ...],
    objective: Objective,
    compare: Path | None,
    deadline: float,
    form: str,
) -> int:
    """Replay recorded runs row by row: what would have been stopped, when, why, and what that saves.

    A manifest is a CSV file with a column `source` (relative to it) and, where known, `expected` (stop,
    continue or flag), `first_bad_step`, `metric`, `mode`, `roles` (ROLE=KEY;ROLE=KEY), `group` and
    `budget_steps`. Anything else is read as for `check`: files, directories, W&B runs, or a whole W&B project
    (wandb:entity/project).

    Exit codes: 0 for a report, whatever it says; 2 for wrong usage, or if no run could be read.
    """
    settings = objective.settings()
    other = objective.settings(compare) if compare is not None else None
    if other is not None and "-" in sources:
        raise click.UsageError("--compare reads every source twice: give a file in place of -")
    cases: list[Case] = []
    for source in sources:
        path = Path(source)
        cases += read_manifest(path) if is_manifest(path) else [Case(source)]
    options = SourceOptions(deadline_s=deadline)
    outcomes: list[Outcome] = []
    again: list[Outcome] = []
    with progress(lambda: f"{len(outcomes) + len(again):,} runs judged"):
        for outcome in replay(cases, settings, options):
            outcomes.append(outcome)
            _print(outcome, form)
        if other is not None:
            again += replay(cases, other, options)
    _finish(outcomes, again, compare, form)
    if any(outcome.record["decision"] != "ERROR" for outcome in outcomes):
        return 0
    complain("error", outcomes[0].record["reason"] if outcomes else "there are no runs to judge")
    return NOTHING_READ


def _print(outcome: Outcome, form: str) -> None:
    if form == "json":
        say(dumps(outcome.record, ascii_only=True))
    else:
        say(run_line(outcome.record, outcome.curve, unicode=unicode_output()))


def _finish(outcomes: Sequence[Outcome], again: Sequence[Outcome], compare: Path | None, form: str) -> None:
    result = totals(outcomes)
    if compare is not None:
        changed = _changed(outcomes, again)
        result["compare"] = {"config": str(compare), "changed": changed, "totals": totals(again)}
    result = redact(result)
    if form == "json":
        say(dumps(result, ascii_only=True))
        return
    if compare is not None:
        say("\n" + comparison_text(result))
    say("\n" + totals_text(result))


def _changed(outcomes: Sequence[Outcome], again: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return the runs that another configuration judges otherwise, or stops at another row."""
    pairs = [(before.record, after.record) for before, after in zip(outcomes, again, strict=False)]
    return [
        {
            "source": after["source"],
            "expected": after["expected"],
            "from": before["decision"],
            "from_row": before["row"],
            "to": after["decision"],
            **{key: after[key] for key in ("row", "rows", "rule", "reason")},
        }
        for before, after in pairs
        if (before["decision"], before["row"]) != (after["decision"], after["row"])
    ]
