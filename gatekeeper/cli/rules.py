"""``gatekeeper rules``: the judgment table with the values in force, or one rule explained."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import click

from gatekeeper.cli.options import CONFIG_FILE, json_or_text
from gatekeeper.cli.output import say
from gatekeeper.config import Settings, load_settings
from gatekeeper.errors import GatekeeperError
from gatekeeper.rulebook import action_of, as_json, explanation, thresholds_of
from gatekeeper.strictjson import dumps
from gatekeeper.table import RULE_NAMES, TABLE, Row, row_of

__all__ = ["command"]


@click.command("rules", short_help="Print the judgment table, or explain one rule.")
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--config",
    type=CONFIG_FILE,
    metavar="FILE",
    help="Configuration file (default: gatekeeper.toml or pyproject.toml, found upward).",
)
@json_or_text
def command(name: str | None, config: Path | None, form: str) -> None:
    """Print the judgment table with the values in force, or explain the rule NAME.

    An explanation holds what the rule looks for, its formula, its thresholds with their defaults, where they
    come from, and when the rule is wrong.
    """
    settings = load_settings(config)
    if name is not None and name not in RULE_NAMES:
        near = get_close_matches(name, RULE_NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`gatekeeper rules` lists them"
        raise GatekeeperError(f"there is no rule {name!r}; {hint}")
    if form == "json":
        for row in TABLE if name is None else (row_of(name),):
            say(dumps(as_json(row, settings), ascii_only=True))
    elif name is None:
        _print_table(settings)
    else:
        _print_rule(row_of(name), settings)


def _print_table(settings: Settings) -> None:
    def line(rule: str, judgment: str, decision: str, signal: str) -> str:
        return f"{rule:{max(map(len, RULE_NAMES))}}  {judgment:20}  {decision:24}  {signal}"

    say(click.style(line("rule", "judgment", "decision", "what is seen"), bold=True))
    for row in TABLE:
        say(line(row.rule, row.judgment, action_of(row, settings), row.signal))
    say(
        "\nREVIEW asks the second opinion; REPORT is written down only. `gatekeeper rules NAME` explains one."
    )


def _print_rule(row: Row, settings: Settings) -> None:
    say(f"{click.style(row.rule, bold=True)}: {row.signal}")
    say(f"judgment {row.judgment}, decision {action_of(row, settings)}\n")
    say(explanation(row.rule))
    if thresholds := thresholds_of(row.rule, settings):
        say("\nthresholds")
    for item in thresholds:
        default = "" if item.value == item.default else f" (default {item.default:g})"
        say(f"  {item.name} = {item.value:g}{default}: {item.meaning}")
    say(f"\nlook at: {row.look_next}")
