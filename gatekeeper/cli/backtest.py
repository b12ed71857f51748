"""``gatekeeper backtest``: replay finished runs, to decide whether to trust the gate."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from gatekeeper.backtest import Case, Outcome, is_manifest, read_manifest, replay, totals
from gatekeeper.cli.options import objective_options, settings_for
from gatekeeper.config import Settings, load_settings
from gatekeeper.report.scoreboard import comparison_text, run_line, totals_text
from gatekeeper.sources import SourceOptions
from gatekeeper.strictjson import dumps

__all__ = ["command"]


@click.command("backtest", short_help="Replay finished runs and score the gate on them.")
@click.argument("sources", nargs=-1, required=True, metavar="MANIFEST.csv|SOURCE...")
@objective_options
@click.option("--compare", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="OTHER.toml", help="Also say what changes with this configuration.")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="S", help="Seconds after which a source counts as unreachable.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
def command(
    *,
    sources: tuple[str, ...],
    metric: str | None,
    mode: str | None,
    roles: dict[str, str],
    config: Path | None,
    baseline: str | None,
    smoke: bool,
    compare: Path | None,
    deadline: float,
    form: str,
) -> None:
    """Replay recorded runs row by row: what would have been stopped, when, why, and what that saves.

    A manifest is a CSV with a column `source` (relative to it) and, where known, `expected` (stop, continue or flag), `metric`,
    `mode`, `roles` (ROLE=KEY;ROLE=KEY), `group` and `budget_steps`. Anything else is read as for `check`: files, directories, W&B
    runs or a whole W&B project.
    """
    settings = settings_for(config, baseline, smoke)
    settings = replace(settings, metric=metric or settings.metric, mode=mode or settings.mode, roles={**settings.roles, **roles})
    cases: list[Case] = []
    for source in sources:
        path = Path(source)
        cases.extend(read_manifest(path) if is_manifest(path) else [Case(source)])
    other = load_settings(compare) if compare is not None else None
    options = SourceOptions(deadline_s=deadline)
    outcomes: list[Outcome] = []
    with _progress(len(cases)) as tick:
        for outcome in replay(cases, settings, options):
            outcomes.append(outcome)
            _echo(outcome, form)
            tick(outcome.case)
    result = totals(outcomes)
    changes = _changes(outcomes, cases, other, options) if other is not None else []
    if form == "json":
        if other is not None:
            result["compare"] = {"config": str(compare), "changed": [{"source": a["source"], "from": a["decision"], "to": b["decision"], "reason": b["reason"]} for a, b in changes]}
        click.echo(dumps(result))
        return
    click.echo("\n" + totals_text(result))
    if other is not None:
        click.echo("\n" + comparison_text(changes, str(compare)))


def _echo(outcome: Outcome, form: str) -> None:
    if form == "json":
        click.echo(dumps(outcome.record))
        return
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    click.echo(run_line(outcome.record, _curve(outcome), unicode="utf" in encoding))


def _curve(outcome: Outcome) -> object:
    if outcome.judged is None:
        return ()
    gate = outcome.judged.gate
    name = gate.roles.get("loss") or gate.roles.get("eval")
    return gate.curve(name) if name else ()


def _changes(outcomes: list[Outcome], cases: list[Case], other: Settings, options: SourceOptions) -> list[tuple[dict[str, object], dict[str, object]]]:
    again = list(replay(cases, other, options))
    return [
        (before.record, after.record)
        for before, after in zip(outcomes, again, strict=False)
        if (before.record["decision"], before.record["row"]) != (after.record["decision"], after.record["row"])
    ]


class _progress:
    """A counter on stderr for long work at a terminal; silent in a pipe."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._shown = total, 0, total > 20 and sys.stderr.isatty()

    def __enter__(self) -> _progress:
        return self

    def __call__(self, case: Case) -> None:
        self._done += 1
        if self._shown:
            click.echo(f"\r{self._done}/{self._total} runs judged", nl=False, err=True)

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)
