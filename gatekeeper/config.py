"""What a gate can be told, and where it is read from: ``gatekeeper.toml`` or ``[tool.gatekeeper]``."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gatekeeper.baseline import Baseline, load_baseline
from gatekeeper.errors import GatekeeperError
from gatekeeper.roles import ROLES

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the same parser under its older name
    import tomli as tomllib

__all__ = [
    "FILE_NAME",
    "ConfigError",
    "Settings",
    "Thresholds",
    "load_settings",
    "overridden",
    "settings_from",
]

FILE_NAME = "gatekeeper.toml"
ACTIONS = ("stop", "warn", "off")
_NEVER_STOP = ("improving", "unreachable")


class ConfigError(GatekeeperError, ValueError):
    """A configuration that cannot be used; the text names the file, the key and the remedy."""


def _number(default: float, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Every number that a rule compares with.

    Shares are of the run's own quantities, so they carry no unit.
    """

    far_height: float = _number(10.0, "a loss this many starting levels above its base is far off")
    runaway_height: float = _number(1e8, "a spike that grew to this many starting levels has run away")
    runaway_growth: float = _number(
        1e3, "… if it also grew this many times since it opened (one jump is not growth)"
    )
    lingering_values: float = _number(
        40, "values that a far spike of a training loss must last before it is divergent"
    )
    lingering_evals: float = _number(5, "the same for a held-out loss")
    lingering_share: float = _number(0.15, "… and this share of the values seen before it")
    unproven_height: float = _number(
        30.0, "height, with four standard deviations, of a spike whose base rests on less than eight values"
    )
    rising_checkpoints: float = _number(5, "checkpoints in a row that a diverging loss rises")
    rising_height: float = _number(1.0, "starting levels above the start that a diverging loss must reach")
    rising_values: float = _number(
        100, "… and values that it needs where it never fell: a warm-up may begin with a hump"
    )
    rising_z: float = _number(6.0, "… and standard errors above its best")
    rising_walk_z: float = _number(4.0, "… and standard deviations of a random walk with its bins' steps")
    learned_share: float = _number(0.05, "gain, as a share of the level, below which nothing was learned")
    learned_z: float = _number(3.0, "gain, in standard errors, below which nothing was learned")
    return_share: float = _number(0.15, "the same for a return, whose noise is larger")
    return_z: float = _number(5.0, "… and its standard errors")
    headroom_share: float = _number(
        0.1, "an accuracy that guessing raises above 0 must win this share of what was left to win"
    )
    chance_share: float = _number(0.02, "… which is so where it starts above this share of its ceiling")
    relapse_share: float = _number(0.4, "share of the gain whose loss is a relapse")
    relapse_z: float = _number(3.0, "… if it is also this many standard errors")
    overfit_share: float = _number(
        0.1, "rise of a held-out loss above its best, as a share of the level, that is overfitting"
    )
    gap_share: float = _number(
        0.2, "train score minus held-out score that is a gap (both in 0-1 or both in percent)"
    )
    missing_gaps: float = _number(8.0, "times its usual interval that a loss must be silent to be missing")
    missing_rows: float = _number(20, "… and rows")
    grad_explosion: float = _number(1000.0, "times its median that an exploding gradient reaches")
    grad_high: float = _number(100.0, "gradient norm of an actor or critic that is reported")
    grad_vanishing: float = _number(1e-7, "gradient norm below which it has vanished")
    zero_values: float = _number(10, "values in a row that are exactly 0")
    lr_jump: float = _number(3.0, "times the learning rate rises at once")
    flat_share: float = _number(
        0.01, "change over the last quarter, as a share of the level, below which a loss is flat"
    )
    noisy_ratio: float = _number(3.0, "gain, in standard errors, below which no trend can be told")
    entropy_floor: float = _number(0.1, "policy entropy in nats below which exploration has ended")
    entropy_steps: float = _number(50_000, "steps before which that is premature")
    q_ratio: float = _number(2.0, "predicted over realised return above which Q values are overestimated")
    forgetting_share: float = _number(0.5, "share of the peak below which an objective is forgotten")
    kl_high: float = _number(0.1, "KL divergence of an update that is too large")
    return_spread: float = _number(1.0, "spread of the returns over their mean that is reported")
    gpu_idle: float = _number(5.0, "GPU utilisation in percent below which it idles")
    baseline_z: float = _number(3.0, "standard deviations behind the baseline that are significantly worse")
    baseline_margin: float = _number(0.1, "margin, as a share of the baseline, where its spread is not known")
    early_share: float = _number(
        0.3, "share of the budget (or of the baseline) before which worse is still early"
    )
    smoke_rows: float = _number(8, "loss values that a smoke run needs before its decrease is judged")
    smoke_z: float = _number(4.0, "standard errors that a smoke run's loss must fall")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a gate and the tools around it can be told."""

    metric: str | None = None
    mode: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    budget_steps: float | None = None
    baseline: Baseline | None = None
    baseline_value: float | None = None
    lr_schedule: str | None = None
    smoke: bool = False
    required_decrease: float | None = None
    maximum_loss: float | None = None
    notes: Path | None = None
    fallback: tuple[str, ...] = ()


_KEYS = {
    "metric": "the objective's name, as logged",
    "mode": "min or max: which way the objective is better",
    "budget_steps": "steps the run is planned for; early and late are shares of it",
    "baseline": "a number, or a baseline file made by `gatekeeper baseline record`",
    "lr_schedule": "the schedule the learning rate should follow: constant, decreasing, increasing or "
    "warmup-decay",
    "smoke": "true: judge as a short run in CI",
    "required_decrease": "smoke runs: share by which the loss must fall, e.g. 0.2",
    "maximum_loss": "smoke runs: level that the final loss must stay below",
    "notes": "directory of the notes",
    "fallback": "sources tried when the first one is unreachable, in order",
    "roles": 'table: ROLE = metric name, or METRIC NAME = role, or "off"',
    "rules": "table: rule name = stop, warn or off",
    "thresholds": "table: threshold name = number",
}


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known keys: {', '.join(sorted(known))}"


def settings_from(
    table: Mapping[str, Any], where: str = "configuration", base: Path | None = None
) -> Settings:
    """Return settings from a mapping; an unknown key or a value of the wrong kind raises ConfigError."""
    from gatekeeper.table import RULE_NAMES

    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{where}: unknown key {key!r}{_nearest(str(key), list(_KEYS))}")
    values: dict[str, Any] = {}
    for key in ("metric", "lr_schedule"):
        if (text := table.get(key)) is not None:
            values[key] = _text(where, key, text)
    if (schedule := values.get("lr_schedule")) is not None and schedule not in _SCHEDULES:
        raise ConfigError(f"{where}: lr_schedule = {schedule!r} is none of {', '.join(_SCHEDULES)}")
    if (mode := table.get("mode")) is not None:
        if mode not in ("min", "max"):
            raise ConfigError(f'{where}: mode = {mode!r} must be "min" or "max"')
        values["mode"] = mode
    for key in ("budget_steps", "required_decrease", "maximum_loss"):
        if (number := table.get(key)) is not None:
            values[key] = _finite(where, key, number)
    if (smoke := table.get("smoke")) is not None:
        if not isinstance(smoke, bool):
            raise ConfigError(f"{where}: smoke = {smoke!r} must be true or false")
        values["smoke"] = smoke
    if (baseline := table.get("baseline")) is not None:
        if isinstance(baseline, (int, float)) and not isinstance(baseline, bool):
            values["baseline_value"] = _finite(where, "baseline", baseline)
        elif isinstance(baseline, Baseline):
            values["baseline"] = baseline
        else:
            values["baseline"] = load_baseline((base or Path()) / _text(where, "baseline", baseline))
    if (notes := table.get("notes")) is not None:
        values["notes"] = (base or Path()) / _text(where, "notes", notes)
    if (fallback := table.get("fallback")) is not None:
        items = [fallback] if isinstance(fallback, str) else fallback
        if not isinstance(items, (list, tuple)) or not all(isinstance(item, str) for item in items):
            raise ConfigError(f'{where}: fallback must be a list of sources, e.g. ["logs/train.log"]')
        values["fallback"] = tuple(items)
    values["roles"] = _roles(where, table.get("roles", {}))
    values["rules"] = _rules(where, table.get("rules", {}), RULE_NAMES)
    values["thresholds"] = _thresholds(where, table.get("thresholds", {}))
    return Settings(**values)


_SCHEDULES = ("constant", "decreasing", "increasing", "warmup-decay")


def _text(where: str, key: str, value: object) -> str:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ConfigError(f"{where}: {key} = {value!r} must be a text in quotes")
    return str(value)


def _finite(where: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ConfigError(f"{where}: {key} = {value!r} must be a finite number")
    return float(value)


def _table(where: str, key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: {key} must be a table, e.g. [tool.gatekeeper.{key}]")
    return value


def _roles(where: str, value: object) -> dict[str, str]:
    roles: dict[str, str] = {}
    for key, target in _table(where, "roles", value).items():
        text = _text(where, f"roles.{key}", target)
        if key not in ROLES and text not in ROLES and text != "off":
            raise ConfigError(f"{where}: roles.{key}: unknown role{_nearest(str(key), list(ROLES))}")
        roles[str(key)] = text
    return roles


def _rules(where: str, value: object, known: tuple[str, ...]) -> dict[str, str]:
    rules: dict[str, str] = {}
    for key, action in _table(where, "rules", value).items():
        if key not in known:
            raise ConfigError(f"{where}: rules.{key}: no such rule{_nearest(str(key), list(known))}")
        if action not in ACTIONS:
            raise ConfigError(f"{where}: rules.{key} = {action!r} must be one of {', '.join(ACTIONS)}")
        if action == "stop" and key in _NEVER_STOP:
            raise ConfigError(f'{where}: rules.{key} cannot be "stop": it says nothing bad of a run')
        rules[str(key)] = str(action)
    return rules


def _thresholds(where: str, value: object) -> Thresholds:
    known = [item.name for item in fields(Thresholds)]
    changed: dict[str, float] = {}
    for key, number in _table(where, "thresholds", value).items():
        if key not in known:
            raise ConfigError(f"{where}: thresholds.{key}: no such threshold{_nearest(str(key), known)}")
        changed[str(key)] = _finite(where, f"thresholds.{key}", number)
    return replace(Thresholds(), **changed)


def overridden(settings: Settings, baseline: str | None, smoke: bool) -> Settings:
    """Return the settings with a baseline (a number or a file's path) and smoke runs as a command was told.

    Raises ConfigError for a number that is not finite, BaselineError for a file that cannot be read.
    """
    if smoke:
        settings = replace(settings, smoke=True)
    if baseline is None:
        return settings
    try:
        value = float(baseline)
    except ValueError:
        return replace(settings, baseline=load_baseline(baseline), baseline_value=None)
    if not math.isfinite(value):
        raise ConfigError(f"baseline: {baseline!r} is no finite number")
    return replace(settings, baseline=None, baseline_value=value)


def load_settings(path: Path | None = None, start: Path | None = None) -> Settings:
    """Return the settings of ``path``, or of the nearest configuration upward from ``start`` (default.

    The working directory).

    Raises ConfigError for a file that cannot be read or used; no file at all means the defaults.
    """
    if path is not None:
        return _read(Path(path).absolute(), required=True)
    here = Path(start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        own = folder / FILE_NAME
        if own.is_file():
            return _read(own, required=True)
        project = folder / "pyproject.toml"
        if project.is_file():
            return _read(project, required=False)
    return Settings()


def _read(path: Path, *, required: bool) -> Settings:
    try:
        with path.open("rb") as stream:
            data = tomllib.load(stream)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such configuration file; make one with `gatekeeper init`"
        ) from None
    except OSError as fault:
        raise ConfigError(f"{path}: cannot be read: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        if not required and b"tool.gatekeeper" not in path.read_bytes():
            return Settings()  # somebody else's trouble
        raise ConfigError(f"{path}: not valid TOML: {fault}") from fault
    tool = data.get("tool")
    nested = tool.get("gatekeeper") if isinstance(tool, Mapping) else None
    if path.name == "pyproject.toml":
        data = nested if isinstance(nested, dict) else {}
    elif nested is not None and set(data) == {"tool"}:
        data = nested
    return settings_from(data, str(path), path.parent)
