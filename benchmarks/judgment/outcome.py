"""Labels by outcome: what became of a run, measured at its end; never what fault was planted.

Levels. A series' *end level* is the median of its last tenth; its *best level* is the best running median
over a twentieth of it (at least three points). *Progress* is (level - chance) / (best end level of any run
of the same task - chance): 0 is a guess, 1 is the best run of the task. Chance is known for every task. U
is the training loss of a guess minus the lowest training loss at which any run of the task ended.

In this order:

1.  The weights, or what the model computes in the last tenth, are NaN or infinite: ``stop``, nan.
    Non-finite for a while and finite again at the end: not scored.
2.  The training loss ends more than 3 U above a guess's and above where it began, is not falling, and
    the objective is no better than a guess: ``stop``, diverged. By more than U, or falling: ``flag``,
    diverged. With an objective that is better than a guess: not scored (the two disagree).
3.  The value foretold at the end is over three times the return got, and progress is under 0.5: ``flag``,
    q_overestimation.
4.  Best progress under 0.1 and no more gain since the middle of the run: ``flag``, never_learned. Under 0.2:
    not scored.
5.  Held-out loss ends above its own best by 0.3 of what there was to gain while the training loss went down:
    ``flag``, overfit; not scored where the objective is an accuracy that lost nothing.
6.  Best progress of 0.5 or more and 0.35 of it lost at the end: ``flag``, lost. 0.1 to 0.35 lost: not scored
    (damaged). Lost over the last quarter of the run, but not at its end: not scored (restless).
7.  The weights stood still for the last tenth of the budget: not scored (idle: a waste, whatever the level).
8.  Progress of 0.75 or more at the end: ``continue``, healthy.
9.  The rest: not scored (slow).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judgment.record import Truth

Series = Sequence[tuple[int, float]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Outcome:
    """A run's label: what a gate should have said (empty: not scored), why, and from which row it was bad."""

    expected: str
    label: str
    first_bad_row: int | None
    end: float  # the objective's end level


@dataclass(frozen=True)
class Yardstick:
    """The best that any run of a task reached."""

    best_end: float
    best_loss_end: float
    best_eval_loss: float


def values(series: Series) -> Floats:
    return np.array([value for _, value in series], dtype=float)


def end_level(series: Series) -> float:
    """Return the median of the last tenth, at least three points (NaN where there are none)."""
    tail = values(series)[-max(3, len(series) // 10) :]
    return float(np.median(tail)) if len(tail) else math.nan


def running_median(series: Series) -> Floats:
    """Return the running median over a twentieth of the series, at least three points."""
    data = values(series)
    width = min(max(3, len(data) // 20), len(data))
    if not width:
        return np.array([math.nan])
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(data, width), axis=1))


def best_level(series: Series, mode: str) -> float:
    """Return the best running median."""
    levels = running_median(series)
    levels = levels[np.isfinite(levels)]
    if not len(levels):
        return math.nan
    return float(levels.max() if mode == "max" else levels.min())


def yardstick(runs: Iterable[Truth]) -> Yardstick:
    """Measure the best levels over a task's runs."""
    truths = list(runs)

    def best(numbers: Iterable[float], mode: str) -> float:
        finite = [n for n in numbers if math.isfinite(n)]
        return (max if mode == "max" else min)(finite, default=math.nan)

    return Yardstick(
        best((end_level(t.objective) for t in truths), truths[0].mode),
        best((end_level(t.loss) for t in truths), "min"),
        best((best_level(t.eval_loss, "min") for t in truths), "min"),
    )


def first_row_above(series: Series, level: float) -> int:
    """Return the first row from which the running median stays above a level to the end; NaN is above."""
    data = values(series)
    width = min(5, len(data))
    levels = np.median(np.lib.stride_tricks.sliding_window_view(data, width), axis=1)
    below = np.flatnonzero(levels <= level)
    first = 0 if not len(below) else int(below[-1]) + 1
    return series[min(first + width // 2, len(series) - 1)][0]


def judge(truth: Truth, yard: Yardstick, rows: int) -> Outcome:
    """Label one run by the rules of this module."""
    end = end_level(truth.objective)
    if truth.broken_at_end or (truth.last_broken is not None and truth.last_broken > 0.9 * rows):
        return Outcome("stop", "nan", blow_up(truth, yard), math.nan)
    if truth.broke_at is not None:
        return Outcome("", "nan_survived", truth.broke_at, end)

    def progress(level: float) -> float:
        return (level - truth.chance) / (yard.best_end - truth.chance)

    reached, kept = progress(best_level(truth.objective, truth.mode)), progress(end)
    if math.isfinite(truth.chance_loss) and (above := excess(truth, yard)) > 1:
        if kept > 0:
            return Outcome("", "train_and_eval_disagree", None, end)
        first = blow_up(truth, yard)
        expected = "stop" if above > 3 and not falling(truth.loss, first) else "flag"
        return Outcome(expected, "diverged", first, end)
    if truth.q_ratio is not None and truth.q_ratio > 3 and kept < 0.5:
        return Outcome("flag", "q_overestimation", truth.fault_row, end)
    if reached < 0.2:
        gaining = kept - progress(median_between(truth.objective, 0.4, 0.6)) > 0.05
        return Outcome("flag" if reached < 0.1 and not gaining else "", "never_learned", None, end)
    if overfitted(truth, yard):
        lost_nothing = truth.mode == "max" and reached - kept < 0.05
        return Outcome("" if lost_nothing else "flag", "overfit", None, end)
    if reached - kept >= 0.1:
        lost = reached >= 0.5 and reached - kept >= 0.35
        return Outcome("flag" if lost else "", "lost" if lost else "damaged", truth.fault_row, end)
    if reached - progress(median_between(truth.objective, 0.75, 1.0)) >= 0.35:
        return Outcome("", "restless", None, end)
    if truth.idle_at_end:
        return Outcome("", "idle", None, end)
    return Outcome("continue", "healthy", None, end) if kept >= 0.75 else Outcome("", "slow", None, end)


def median_between(series: Series, start: float, stop: float) -> float:
    """Return the median over a stretch of a series, given as shares of its length."""
    data = values(series)
    return float(np.median(data[int(start * len(data)) : max(1, math.ceil(stop * len(data)))]))


def excess(truth: Truth, yard: Yardstick) -> float:
    """Return by how many U the training loss ends above a guess's and above where it began."""
    began = float(np.median(values(truth.loss[:3])))
    return (end_level(truth.loss) - max(truth.chance_loss, began)) / (truth.chance_loss - yard.best_loss_end)


def blow_up(truth: Truth, yard: Yardstick) -> int | None:
    """Return the row from which the run was lost: non-finite, or worse than a guess and never back."""
    if not truth.loss or not math.isfinite(truth.chance_loss):
        return truth.broke_at
    level = truth.chance_loss + 0.25 * (truth.chance_loss - yard.best_loss_end)
    above = first_row_above(truth.loss, level)
    return above if truth.broke_at is None else min(above, truth.broke_at)


def falling(series: Series, first: int | None) -> bool:
    """Whether a series lost a fifth of its height over the second half of what came after a row."""
    after = values([(row, value) for row, value in series if first is None or row >= first])
    tenth = max(3, len(after) // 10)
    return bool(np.median(after[-tenth:]) < 0.8 * np.median(after[len(after) // 2 :][:tenth]))


def overfitted(truth: Truth, yard: Yardstick) -> bool:
    """Whether held-out loss rose by 0.3 of what there was to gain, after its best, as training loss fell."""
    if not truth.eval_loss or not math.isfinite(truth.chance_loss):
        return False
    levels = running_median(truth.eval_loss)
    lowest = int(np.argmin(levels))
    rise = end_level(truth.eval_loss) - levels[lowest]
    width = len(truth.eval_loss) - len(levels) + 1
    then = truth.eval_loss[lowest + width - 1][0]
    before = [value for row, value in truth.loss if row <= then] or [truth.loss[0][1]]
    fell = end_level(truth.loss) < np.median(before[-max(3, len(truth.loss) // 20) :])
    return bool(rise > 0.3 * (truth.chance_loss - yard.best_eval_loss) and fell)
