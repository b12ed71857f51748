"""What of a W&B history row is a metric, alike for `.wandb` files and the API."""

from __future__ import annotations

from collections.abc import Mapping

from gatekeeper.metrics import flatten, to_float
from gatekeeper.sources.base import Row, make_row
from gatekeeper.sources.steps import step_value

__all__ = ["STEP_KEY", "history_row", "is_metric_value"]

STEP_KEY = "_step"
_OWN_KEYS = frozenset({"_step", "_runtime", "_timestamp"})


def history_row(
    logged: Mapping[str, object], system: Mapping[str, object] | None = None, step_key: str | None = None
) -> Row | None:
    """Return a logged row as step and flat metrics, or None where it holds no metric.

    Nested keys are joined with "/"; media (histograms, images, tables), text and lists are no metrics; None
    is one: something was logged that JSON could not hold. ``system`` joins a row that holds a metric and
    never makes one.
    """
    metrics: dict[str, object] = {}
    media: set[str] = set()
    for key, value in logged.items():
        if key in _OWN_KEYS or key.startswith("_wandb"):
            continue
        if isinstance(value, Mapping):
            for inner, item in flatten({key: _without_media(value)}).items():
                if is_metric_value(item):
                    metrics.setdefault(inner, item)
        elif key.endswith("/_type"):  # a medium whose fields were logged as separate keys
            media.add(key[: -len("_type")])
        elif is_metric_value(value):
            metrics[key] = value
    if media:
        metrics = {key: value for key, value in metrics.items() if not key.startswith(tuple(media))}
    step = step_value(logged.get(step_key)) if step_key else None
    if step is None:
        step = step_value(logged.get(STEP_KEY))
    else:
        metrics.pop(step_key or "", None)
    if not metrics:
        return None
    if system:
        metrics.update(system)
    return make_row(step, metrics)


def is_metric_value(value: object) -> bool:
    """Say whether a logged value can be judged: a number (also as text), or None where one was."""
    kind = type(value)
    if kind is float or kind is int or value is None or kind is bool:
        return True
    return isinstance(value, (str, float, int)) and to_float(value) is not None


def _without_media(value: Mapping[str, object]) -> dict[str, object]:
    """Return a nested mapping without the media in it; a medium says so by its ``_type``."""
    if "_type" in value:
        return {}
    return {
        str(key): _without_media(item) if isinstance(item, Mapping) else item
        for key, item in value.items()
        if not str(key).startswith("_wandb")
    }
