"""Which key of a row is its step."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gatekeeper.metrics import to_float

__all__ = ["STEP_KEYS", "better_spellings", "choose_step_key", "is_bookkeeping", "step_value", "usable"]

#: Step keys in order of preference, compared without case and padding. Optimizer steps come before
#: environment steps, these before rounds and epochs: the finest clock that trainers agree on wins.
STEP_KEYS: tuple[str, ...] = (
    "step",
    "_step",
    "global_step",
    "trainer/global_step",
    "train/global_step",
    "training_iteration",
    "iteration",
    "iter",
    "itr",
    "train_step",
    "training_step",
    "train/step",
    "time/total_timesteps",
    "total_timesteps",
    "misc/total_timesteps",
    "timesteps_total",
    "num_env_steps_sampled_lifetime",
    "timestep",
    "timesteps",
    "num_timesteps",
    "timestepssofar",
    "totalenvinteracts",
    "total_env_steps",
    "total_steps",
    "env_steps",
    "env_step",
    "frames",
    "time/iterations",
    "iterations",
    "update",
    "num_updates",
    "nupdates",
    "misc/nupdates",
    "epoch",
    "time/epoch",
    "train/epoch",
    "round",
    "episode",
    "episodes",
)
_RANK = {key: rank for rank, key in enumerate(STEP_KEYS)}


def rank_of(key: str) -> int | None:
    """Return how preferred ``key`` is as a step (0 is best), or None where it is no step key."""
    return _RANK.get(key.strip().lower())


def choose_step_key(keys: Iterable[str]) -> str | None:
    """Return the best step key among ``keys``, as it is written there."""
    best: tuple[int, str] | None = None
    for key in keys:
        rank = rank_of(key)
        if rank is not None and (best is None or rank < best[0]):
            best = (rank, key)
    return best[1] if best else None


def better_spellings(key: str | None) -> tuple[str, ...]:
    """Return the keys that would replace ``key`` as the step key, should a later row have them."""
    if key is None:
        return STEP_KEYS
    rank = rank_of(key)
    return STEP_KEYS[:rank] if rank is not None else ()


def step_value(value: object) -> float | None:
    """Return a logged step as a finite number, or None."""
    if type(value) is int:
        return value
    number = None if isinstance(value, bool) else to_float(value)
    return number if number is not None and math.isfinite(number) else None


_BOOKKEEPING = frozenset(
    {
        "time",
        "date",
        "timestamp",
        "duration",
        "elapsed",
        "runtime",
        "fps",
        "eta",
        "pid",
        "hostname",
        "per_second",
        "step_avg",
        "steps",
        "step",
        "epoch",
        "episodes",
        "total_flos",
        "samples",
        "num_examples",
        "it/s",
        "mfu",
    }
)


def is_bookkeeping(key: str) -> bool:
    """Say whether ``key`` only counts or times (a log with nothing else cannot be judged)."""
    name = key.strip().lower()
    if name in _RANK or name.startswith(
        ("time/", "time_", "timers/", "perf/", "_timestamp", "_runtime", "_stamp")
    ):
        return True
    last = name.rsplit("/", 1)[-1]
    return last in _BOOKKEEPING or last.endswith(
        (
            "_time",
            "_duration",
            "_seconds",
            "_per_second",
            "_runtime",
            "_timestamp",
            "_ms",
            "time_s",
            "timesteps",
        )
    )


def usable(metrics: Mapping[str, object]) -> bool:
    """Say whether a row holds a number that is neither step nor bookkeeping (NaN and null are signs, too)."""
    return any(
        value is None or (not isinstance(value, bool) and to_float(value) is not None)
        for key, value in metrics.items()
        if not is_bookkeeping(key)
    )
