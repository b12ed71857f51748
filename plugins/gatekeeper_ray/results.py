"""Read the result dict that Ray Tune hands over: nested, full of bookkeeping, with "/" in some keys."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gatekeeper.metrics import flatten

__all__ = ["BOOKKEEPING", "RowReader", "config_digest", "locate", "missing_values", "row_of"]

# What Ray adds to every result. None of it says how the training goes.
BOOKKEEPING = frozenset(
    [
        "__duplicate__",
        "checkpoint_dir_name",
        "config",
        "date",
        "done",
        "episodes_total",
        "experiment_id",
        "experiment_tag",
        "hostname",
        "iterations_since_restore",
        "node_ip",
        "pid",
        "should_checkpoint",
        "time_since_restore",
        "time_this_iter_s",
        "time_total_s",
        "timestamp",
        "timesteps_since_restore",
        "timesteps_this_iter",
        "timesteps_total",
        "training_iteration",
        "trial_id",
        "trial_log_path",
        "trial_name",
        "warmup_time",
    ]
)


def row_of(result: Mapping[str, Any]) -> dict[str, object]:
    """Return the metrics of a result as one flat row; a literal key wins over a nested path."""
    row: dict[str, object] = {}
    nested = False
    for key, value in result.items():
        if key in BOOKKEEPING:
            continue
        if isinstance(value, Mapping):
            nested = True
        else:
            row[key] = value
    if nested:
        for key, value in result.items():
            if isinstance(value, Mapping) and key not in BOOKKEEPING:
                for inner, item in flatten(value).items():
                    row.setdefault(f"{key}/{inner}", item)
    return row


class RowReader:
    """``row_of`` for result after result: keys hardly ever change, so which are metrics is remembered."""

    __slots__ = ("_keys", "_metrics")

    def __init__(self) -> None:
        self._keys: frozenset[str] = frozenset()
        self._metrics: tuple[str, ...] = ()

    def read(self, result: Mapping[str, Any]) -> dict[str, object]:
        """Return the metrics of a result as one flat row."""
        if result.keys() == self._keys:
            row: dict[str, object] = {key: result[key] for key in self._metrics}
            if _PLAIN.issuperset(map(type, row.values())):
                return row
        self._keys = frozenset(result)
        self._metrics = tuple(key for key in result if key not in BOOKKEEPING)
        return row_of(result)


_PLAIN = frozenset({float, int, bool, str, type(None), np.float32, np.float64, np.int64})


def locate(result: Mapping[str, Any], metric: str) -> tuple[dict[str, Any], str] | None:
    """Return the dict and the key that hold ``metric``: the literal key first, then each nested path."""
    if metric in result:
        return (result, metric) if isinstance(result, dict) else None
    position = metric.find("/")
    while position != -1:
        inner = result.get(metric[:position])
        if isinstance(inner, Mapping):
            found = locate(inner, metric[position + 1 :])
            if found is not None:
                return found
        position = metric.find("/", position + 1)
    return None


def missing_values(result: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the place of every metric that was reported as None."""
    for key, value in list(result.items()):
        if key in BOOKKEEPING:
            continue
        if value is None:
            yield result, key
        elif isinstance(value, dict):
            yield from missing_values(value)


def config_digest(config: object) -> bytes:
    """Return a short digest of a trial's hyperparameters, the same in every process.

    Only plain values count: a function or an object in a config is a new object in every result, and says
    nothing.
    """
    flat = flatten(config) if isinstance(config, Mapping) else {}
    plain = sorted(
        (key, repr(value)) for key, value in flat.items() if isinstance(value, (int, float, str, type(None)))
    )
    return hashlib.blake2b(repr(plain).encode(), digest_size=8).digest()
