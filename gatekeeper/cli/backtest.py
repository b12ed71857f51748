"""``gatekeeper backtest``: replay recorded runs."""

from __future__ import annotations

from pathlib import Path

import click

from gatekeeper.backtest import Case, is_manifest, read_manifest, replay, totals
from gatekeeper.config import load_settings
from gatekeeper.strictjson import dumps

__all__ = ["command"]


@click.command("backtest")
@click.argument("sources", nargs=-1, required=True, metavar="MANIFEST.csv|SOURCE...")
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
@click.option("--config", type=click.Path(path_type=Path), help="Configuration file (default: the nearest one).")
def command(sources: tuple[str, ...], style: str, config: Path | None) -> None:
    """Replay recorded runs through the gate and score it."""
    settings = load_settings(config)
    cases: list[Case] = []
    for source in sources:
        path = Path(source)
        cases.extend(read_manifest(path) if is_manifest(path) else [Case(source)])
    outcomes = []
    for outcome in replay(cases, settings):
        outcomes.append(outcome)
        if style == "json":
            click.echo(dumps(outcome.record))
    click.echo(dumps(totals(outcomes)))
