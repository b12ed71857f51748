"""What people use instead of a gate, each re-expressed after the version that it names.

Each policy answers with the row at which it would have stopped a run, or None. Those of one run alone see
the objective where it is logged (lower is better here) and the training loss; those that compare trials see
a whole sweep, all of whose trials report in step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from judgment.logs import Run, Series

Stops = dict[str, int | None]  # by the run's path


def terminate_on_nan(run: Run) -> int | None:
    """Keras 3.8 ``TerminateOnNaN``: the batch's loss is NaN or infinite."""
    return next((row for row, value in run.loss if not math.isfinite(value)), None)


def keras_early_stopping(patience: int) -> Callable[[Run], int | None]:
    """Keras 3.8 ``EarlyStopping``: no improvement for ``patience`` epochs; never in the first epoch."""

    def policy(run: Run) -> int | None:
        best, wait = math.inf, 0
        for epoch, (row, value) in enumerate(run.objective):
            wait += 1
            if value < best:
                best, wait = value, 0
                continue
            if wait >= patience and epoch > 0:
                return row
        return None

    return policy


def lightning_early_stopping(run: Run, patience: int = 3) -> int | None:
    """Lightning 2.5 ``EarlyStopping`` defaults: patience 3, min_delta 0, ``check_finite``."""
    best, wait = math.inf, 0
    for row, value in run.objective:
        if not math.isfinite(value):
            return row
        if value < best:
            best, wait = value, 0
        else:
            wait += 1
            if wait >= patience:
                return row
    return None


def trial_plateau(run: Run, std: float = 0.01, window: int = 4, grace: int = 4) -> int | None:
    """Ray 2.60 ``TrialPlateauStopper`` defaults: the last four results' standard deviation is under 0.01."""
    last: deque[float] = deque(maxlen=window)
    for count, (row, value) in enumerate(run.objective, 1):
        last.append(value)
        if count >= grace and len(last) == window and float(np.std(last)) < std:
            return row
    return None


def in_step(runs: Sequence[Run]) -> list[tuple[int, Run, int, float]]:
    """Return (result number, run, row, value) of a sweep whose trials all run at once."""
    length = max(len(run.objective) for run in runs)
    return [
        (t, run, *run.objective[t - 1])
        for t in range(1, length + 1)
        for run in runs
        if t <= len(run.objective)
    ]


def median_rule(runs: Sequence[Run], grace: int = 4, least: int = 3) -> Stops:
    """Ray 2.60 ``MedianStoppingRule``: the best so far is worse than the median of running means."""
    seen: dict[str, list[float]] = {str(run.path): [] for run in runs}
    stopped: Stops = dict.fromkeys(seen)
    for t, run, row, value in in_step(runs):
        own = str(run.path)
        if stopped[own] is not None:
            continue
        seen[own].append(value)
        if t < grace:
            continue
        others = [series for name, series in seen.items() if name != own and len(series) >= t]
        means = [float(np.mean(series[grace - 1 : t])) for series in others]
        finite = [mean for mean in means if math.isfinite(mean)]
        best = min(seen[own])  # as Ray compares: what a NaN does here, it does there
        if len(finite) >= least and min(float(np.median(finite)), best) != best:
            stopped[own] = row
    return stopped


def successive_halving(runs: Sequence[Run], reduction: float = 4.0, grace: int = 1) -> Stops:
    """Ray 2.60 ``ASHAScheduler`` defaults (one bracket, reduction 4): a rung's upper quarter goes on."""
    length = max(len(run.objective) for run in runs)
    rungs: list[tuple[float, dict[str, float]]] = []
    milestone = float(grace)
    while milestone <= length:
        rungs.insert(0, (milestone, {}))
        milestone *= reduction
    stopped: Stops = {str(run.path): None for run in runs}
    for t, run, row, value in in_step(runs):
        own = str(run.path)
        if stopped[own] is not None:
            continue
        for at, recorded in rungs:
            if t < at or own in recorded:
                continue
            reward = -value
            if recorded and reward < np.nanpercentile(list(recorded.values()), (1 - 1 / reduction) * 100):
                stopped[own] = row
            recorded[own] = reward
            break
    return stopped


ALONE: dict[str, Callable[[Run], int | None]] = {
    "Keras TerminateOnNaN": terminate_on_nan,
    "Keras EarlyStopping, patience 0 (default)": keras_early_stopping(0),
    "Keras EarlyStopping, patience 3": keras_early_stopping(3),
    "Lightning EarlyStopping, patience 3": lightning_early_stopping,
    "Ray TrialPlateauStopper": trial_plateau,
}
TOGETHER: dict[str, Callable[[Sequence[Run]], Stops]] = {
    "median rule (Ray)": median_rule,
    "ASHA (Ray)": successive_halving,
}


def objective_so_far(series: Series, row: int) -> float:
    """Return the best objective logged up to a row (infinite where there is none)."""
    return min((value for at, value in series if at <= row and math.isfinite(value)), default=math.inf)
