"""``gatekeeper rules``: the judgment table with the values in force, or one rule explained."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from gatekeeper.config import load_settings
from gatekeeper.errors import GatekeeperError
from gatekeeper.rulebook import action_of, as_json, explanation, thresholds_of
from gatekeeper.strictjson import dumps
from gatekeeper.table import RULE_NAMES, TABLE, row_of

__all__ = ["command"]


@click.command("rules", short_help="Print the judgment table, or explain one rule.")
@click.argument("name", required=False)
@click.option("--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Configuration file (default: the nearest one).")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print.")
def command(name: str | None, config: Path | None, form: str) -> None:
    """Print the judgment table with the values in force; with NAME, one rule: formula, default, source, when it is wrong."""
    settings = load_settings(config)
    if name is not None and name not in RULE_NAMES:
        close = difflib.get_close_matches(name, RULE_NAMES, n=1)
        raise GatekeeperError(f"there is no rule {name!r}" + (f"; did you mean {close[0]!r}?" if close else "; `gatekeeper rules` lists them"))
    rows = TABLE if name is None else (row_of(name),)
    if form == "json":
        for row in rows:
            click.echo(dumps(as_json(row, settings)))
        return
    if name is None:
        width = max(len(row.rule) for row in TABLE)
        click.echo(click.style(f"{'rule':{width}}  {'judgment':20}  {'decision':16}  what is seen", bold=True))
        for row in TABLE:
            click.echo(f"{row.rule:{width}}  {row.judgment:20}  {action_of(row, settings):16}  {row.signal}")
        click.echo("\nREVIEW asks the second opinion; REPORT is written down only. `gatekeeper rules NAME` explains one.")
        return
    row = rows[0]
    click.echo(click.style(row.rule, bold=True) + f": {row.signal}")
    click.echo(f"judgment {row.judgment}, decision {action_of(row, settings)}\n")
    click.echo(explanation(row.rule))
    for threshold, value, default, meaning in thresholds_of(row.rule, settings):
        changed = "" if value == default else f" (default {default:g})"
        click.echo(f"  {threshold} = {value:g}{changed}: {meaning}")
    click.echo(f"\nlook at: {row.look_next}")
