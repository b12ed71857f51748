"""JSON Lines: one object a line, as most trainers and Ray's result.json write them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gatekeeper.metrics import flatten
from gatekeeper.sources.base import Row, Skips, make_row
from gatekeeper.sources.steps import better_spellings, choose_step_key, step_value

__all__ = ["RAY_AUTO_KEYS", "JsonLines", "drop_ray_keys", "looks_like_ray"]

#: What Ray Tune adds to every result by itself; none of it says how training goes.
RAY_AUTO_KEYS = frozenset(
    {
        "agent_timesteps_total",
        "checkpoint_dir_name",
        "date",
        "done",
        "episodes_total",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "num_agent_steps_sampled",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "trial_id",
        "trial_log_path",
        "warmup_time",
    }
)
_CONFIG_KEYS = ("config", "hparams", "hyperparameters", "args", "env_vars")


def looks_like_ray(keys: object) -> bool:
    """Say whether a row's keys (anything with ``in``) are those of a Ray Tune result."""
    return "training_iteration" in keys and ("trial_id" in keys or "time_this_iter_s" in keys)  # type: ignore[operator]


def drop_ray_keys(metrics: dict[str, object]) -> None:
    """Remove Ray's automatic keys and the flattened config from a row, in place."""
    for key in RAY_AUTO_KEYS & metrics.keys():
        del metrics[key]
    for key in [key for key in metrics if key.startswith(("config/", "config."))]:
        del metrics[key]


def plain_row(metrics: dict[str, object]) -> dict[str, object]:
    """Flatten the nested dicts of a row; a logged configuration is no metric and is left out."""
    for key in _CONFIG_KEYS:
        if isinstance(metrics.get(key), dict):
            del metrics[key]
    if any(type(value) is dict for value in metrics.values()):
        return flatten(metrics)
    return metrics


class JsonLines:
    """Decodes JSON Lines a block of whole lines at a time.

    A block is parsed with one call, because a call per line costs more than the parsing itself; only a block
    with a malformed line in it is parsed again line by line.
    """

    returns = False

    def __init__(self, skips: Skips, step_key: str | None = None) -> None:
        self._skips = skips
        self._declared = step_key
        self._step_key: str | None = step_key
        self._better: tuple[str, ...] = ()
        self._ray = False
        self._started = False
        self._line = 0

    def finish(self) -> Iterator[Row]:
        """Hold nothing back."""
        return iter(())

    def feed(self, text: str) -> Iterator[Row]:
        """Yield the rows of ``text``, which holds whole lines."""
        lines = [line for line in text.split("\n") if line and not line.isspace()]
        if not lines:
            self._line += text.count("\n")
            return
        objects = self._parse(lines, text)
        # As many opening braces as rows: nothing is nested, and no row needs to be looked at for it.
        nested = text.count("{") > len(objects)
        self._line += text.count("\n")
        for metrics in objects:
            if nested:
                metrics = plain_row(metrics)  # noqa: PLW2901
            if not self._started:
                self._start(metrics)
            if not metrics:
                continue
            if self._better:
                self._reconsider(metrics)
            step = metrics.pop(self._step_key, None) if self._step_key is not None else None
            if step.__class__ is not int and step is not None:
                step = step_value(step)
            if self._ray:
                drop_ray_keys(metrics)
            yield make_row(step, metrics)

    def _start(self, metrics: dict[str, object]) -> None:
        self._started = bool(metrics)
        if self._declared is None:
            self._choose(choose_step_key(metrics))
        self._ray = looks_like_ray(metrics)

    def _choose(self, key: str | None) -> None:
        self._step_key = key
        self._better = better_spellings(key)

    def _reconsider(self, metrics: dict[str, object]) -> None:
        """Change to a better step key that the rows before this one did not have."""
        for key in self._better:
            if key in metrics:
                self._choose(key)
                return

    def _parse(self, lines: list[str], text: str) -> list[dict[str, object]]:
        try:
            objects = json.loads("[" + ",".join(lines) + "]")
            if len(objects) == len(lines) and set(map(type, objects)) == {dict}:
                return objects  # type: ignore[no-any-return]
        except (ValueError, RecursionError):
            pass
        good: list[dict[str, object]] = []
        for number, line in enumerate(text.split("\n"), self._line + 1):
            if not line or line.isspace():
                continue
            try:
                item = json.loads(line)
            except (ValueError, RecursionError):
                item = None
            if isinstance(item, dict):
                good.append(item)
            else:
                self._skips.add(f"line {number}", line)
        return good
