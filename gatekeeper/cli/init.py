"""``gatekeeper init``: write a commented configuration."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import click

from gatekeeper.cli.output import say
from gatekeeper.config import FILE_NAME, Thresholds
from gatekeeper.errors import GatekeeperError
from gatekeeper.table import TABLE

__all__ = ["command", "template"]

_HEAD = """\
# gatekeeper's configuration. Everything is optional: what is commented out shows the default, or an example.
# The same tables may stand in pyproject.toml under [tool.gatekeeper].

# metric = "val/loss"        # the objective, as logged; without it the best held-out measure is taken
# mode = "min"               # min or max
# budget_steps = 10000       # steps a run is planned for: early and late are shares of it
# baseline = 0.35            # a number, or a file made by `gatekeeper baseline record`
# lr_schedule = "constant"   # constant, decreasing, increasing or warmup-decay
# smoke = false              # true: judge as a short run in CI
# required_decrease = 0.2    # smoke runs: share by which the loss must fall
# maximum_loss = 2.0         # smoke runs: level that the loss must stay below
# notes = "gatekeeper-notes" # where stops are written down
# fallback = ["logs/train.log", "ssh://host/path/train.log"]  # tried in order when a run is unreachable

[roles]
# loss = "train/loss"        # ROLE = metric name
# "train/aux" = "off"        # METRIC NAME = "off": it never decides
"""


def template() -> str:
    """Return the configuration with every key, rule and threshold commented out."""
    rules = [f'# {row.rule} = "warn"  # {row.signal}: {row.decision}' for row in TABLE]
    thresholds = [
        f"# {item.name} = {item.default:g}  # {item.metadata['help']}" for item in fields(Thresholds)
    ]
    parts = [
        "[rules]",
        "# Each rule: stop, warn (report only) or off.",
        *rules,
        "",
        "[thresholds]",
        *thresholds,
    ]
    return "\n".join([_HEAD, *parts, ""])


@click.command("init", short_help="Write a commented configuration.")
@click.argument(
    "path",
    required=False,
    default=FILE_NAME,
    metavar="[PATH]",
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(path: Path, force: bool) -> None:
    """Write a configuration with every key commented out (default: gatekeeper.toml here)."""
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(template())
    except FileExistsError:
        raise GatekeeperError(f"{path} exists already; use --force to overwrite it") from None
    except OSError as fault:
        raise GatekeeperError(f"{path} cannot be written: {fault.strerror or fault}") from fault
    say(f"wrote {click.format_filename(path)}: uncomment what you want to change")
