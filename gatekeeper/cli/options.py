"""Options that several commands share, and the settings they add up to."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from gatekeeper.config import Settings, load_settings, overridden, settings_from

__all__ = [
    "CONFIG_FILE",
    "Objective",
    "PositiveNumber",
    "deadline_option",
    "json_or_text",
    "objective_options",
    "settings_for",
    "with_objective",
]

Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class PositiveNumber(click.FloatRange):
    """A finite number above 0 (click's own range lets "nan" pass)."""

    def __init__(self) -> None:
        super().__init__(min=0.0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; anything else is wrong usage."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number", param, ctx)
        return number


def _roles(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    roles = {}
    for value in values:
        role, equals, key = value.partition("=")
        if not (role and equals and key):
            raise click.BadParameter(f"{value!r} is not ROLE=KEY, as in loss=train/loss", context, parameter)
        roles[role] = key
    settings_from({"roles": roles}, "--role")  # an unknown role is an error that names the nearest
    return roles


_OPTIONS = (
    click.option("--metric", metavar="KEY", help="The objective's name, as logged."),
    click.option(
        "--mode", type=click.Choice(["min", "max"]), help="Whether the objective is to fall or to rise."
    ),
    click.option(
        "--role",
        "roles",
        metavar="ROLE=KEY",
        multiple=True,
        callback=_roles,
        help="Declare what a metric is; KEY=off ignores one.",
    ),
    click.option(
        "--config",
        type=CONFIG_FILE,
        metavar="FILE",
        help="Configuration file (default: gatekeeper.toml or pyproject.toml, found upward).",
    ),
    click.option(
        "--baseline",
        metavar="NUMBER|FILE",
        help="What sound runs reach: a number, or a recorded baseline file.",
    ),
    click.option("--smoke", is_flag=True, help="Judge as a short run in CI."),
)

deadline_option = click.option(
    "--deadline",
    type=PositiveNumber(),
    default=60.0,
    show_default=True,
    metavar="S",
    help="Seconds after which a source counts as unreachable.",
)
json_or_text = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print.",
)


@dataclass(frozen=True)
class Objective:
    """What the command line says is judged, and against what."""

    metric: str | None
    mode: str | None
    roles: dict[str, str]
    config: Path | None
    baseline: str | None
    smoke: bool

    def settings(self, config: Path | None = None) -> Settings:
        """Return the configuration (or that of another file) under what the command line says."""
        settings = settings_for(config or self.config, self.baseline, self.smoke)
        settings = replace(
            settings,
            metric=self.metric or settings.metric,
            mode=self.mode or settings.mode,
            roles={**settings.roles, **self.roles},
        )
        if settings.mode and not settings.metric:
            raise click.UsageError(f"mode {settings.mode} says nothing without a metric: add --metric KEY")
        return settings


def objective_options(command: Command) -> Command:
    """Add the options that say what is judged, and against what."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def with_objective(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add those options and pass them on as one ``objective``."""

    @functools.wraps(command)
    def gathered(
        *,
        metric: str | None,
        mode: str | None,
        roles: dict[str, str],
        config: Path | None,
        baseline: str | None,
        smoke: bool,
        **others: Any,
    ) -> Any:
        return command(objective=Objective(metric, mode, roles, config, baseline, smoke), **others)

    return objective_options(gathered)


def settings_for(config: Path | None, baseline: str | None, smoke: bool) -> Settings:
    """Return the configuration in force, with what the command line says of baseline and smoke runs."""
    return overridden(load_settings(config), baseline, smoke)
