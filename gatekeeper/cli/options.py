"""Options that several commands share, and the settings they add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from gatekeeper.config import Settings, load_settings

__all__ = ["objective_options", "settings_for"]

Command = TypeVar("Command", bound=Callable[..., Any])


def _roles(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    roles = {}
    for value in values:
        role, equals, key = value.partition("=")
        if not (role and equals and key):
            raise click.BadParameter(f"{value!r} is not ROLE=KEY, as in loss=train/loss", context, parameter)
        roles[role] = key
    return roles


_OPTIONS = (
    click.option("--metric", metavar="KEY", help="The objective's name, as logged."),
    click.option("--mode", type=click.Choice(["min", "max"]), help="Whether the objective is to fall or to rise."),
    click.option("--role", "roles", metavar="ROLE=KEY", multiple=True, callback=_roles, help="Declare what a metric is; KEY=off ignores one."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Configuration file (default: gatekeeper.toml or pyproject.toml, found upward).",
    ),
    click.option("--baseline", metavar="NUMBER|FILE", help="What sound runs reach: a number, or a recorded baseline file."),
    click.option("--smoke", is_flag=True, help="Judge as a short run in CI."),
)


def objective_options(command: Command) -> Command:
    """Add the options that say what is judged, and against what."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def settings_for(config: Path | None, baseline: str | None, smoke: bool) -> Settings:
    """Return the configuration in force, with what the command line says of baseline and smoke runs."""
    settings = load_settings(config)
    if smoke:
        settings = replace(settings, smoke=True)
    if baseline is None:
        return settings
    try:
        return replace(settings, baseline=None, baseline_value=float(baseline))
    except ValueError:
        from gatekeeper.baseline import load_baseline

        return replace(settings, baseline=load_baseline(baseline), baseline_value=None)
