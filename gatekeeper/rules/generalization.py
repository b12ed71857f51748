"""Held-out measures: overfitting, degradation, the gap to training, and the baseline."""

from __future__ import annotations

from gatekeeper.rules.base import bad, number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.verdict import Finding

__all__: list[str] = []


@rule("overfitting")
def overfitting(run: RunState) -> Finding | None:
    """A held-out loss rises while the training loss still falls.

    Formula: the held-out level is 10% above its best window and 3 standard errors, the training loss is at
    its best. Source: "train good, val bad" of the diagnosis; (val - train)/train > 0.1 in SageMaker Debugger.
    Wrong when the task metric still improves while the held-out loss rises (over-confident classifiers): the
    second opinion weighs that.
    """
    limits, loss = run.settings.thresholds, run.loss
    if loss is None or loss.trend is None or loss.trend.best_at < 0.7:
        return None
    for track in run.all("eval"):
        trend = track.trend
        if track.guess.kind != "loss" or trend is None or trend.relapse_z < limits.relapse_z or track is loss:
            continue
        rise = (trend.level - trend.best) / max(abs(trend.best), 1e-300)
        if rise > limits.overfit_share and trend.best_at < 0.8:
            return unsure(
                "overfitting",
                run,
                track,
                trend.level,
                trend.best,
                f"{track.name} rose from {number(trend.best)} to {number(trend.level)} while {loss.name} "
                "still falls",
            )
    return None


@rule("eval-degrading")
def eval_degrading(run: RunState) -> Finding | None:
    """A held-out measure gets worse for several checkpoints.

    Formula: 3 windows in a row got worse, by 3 standard errors in all. Source: "evaluation metrics improving,
    or at least not degrading". Wrong for noisy returns; hence unsure.
    """
    for track in run.all("eval"):
        trend = track.trend
        if (
            trend is not None
            and trend.bins >= 5
            and trend.rises >= 3
            and trend.relapse_z > run.settings.thresholds.relapse_z
        ):
            return unsure(
                "eval-degrading",
                run,
                track,
                track.sign * trend.level,
                track.sign * trend.best,
                f"{track.name} has got worse for {trend.rises} checkpoints, from "
                f"{number(track.sign * trend.best)} to {number(track.sign * trend.level)}",
            )
    return None


@rule("train-eval-gap")
def train_eval_gap(run: RunState) -> Finding | None:
    """The training score is far above the held-out score.

    Formula: train score - held-out score > 0.20 (20 points where they are percentages), same kind of metric.
    Source: "gap > 20%" of the diagnosis. Wrong for small or shifted held-out sets.
    """
    limits = run.settings.thresholds
    held = next(
        (track for track in run.all("eval") if track.guess.kind == "accuracy" and track.trend is not None),
        None,
    )
    train = next(
        (
            track
            for track in run.all("train_metric")
            if track.guess.kind == "accuracy" and track.trend is not None
        ),
        None,
    )
    if held is None or train is None or held.trend is None or train.trend is None:
        return None
    unit = 100.0 if max(abs(train.trend.level), abs(held.trend.level)) > 1.5 else 1.0
    gap = -train.trend.level + held.trend.level
    if gap <= limits.gap_share * unit:
        return None
    return unsure(
        "train-eval-gap",
        run,
        held,
        gap,
        limits.gap_share * unit,
        f"{train.name} is {number(-train.trend.level)} but {held.name} only {number(-held.trend.level)}",
    )


@rule("worse-than-baseline")
def worse_than_baseline(run: RunState) -> Finding | None:
    """The objective is significantly worse than the baseline.

    Formula: level worse than the baseline by 3 of its standard deviations over runs (more where it is of few
    runs: a prediction interval; 10% of it where the spread is not known; 4 in a smoke run) and by 3 of its
    own standard errors, past the first 30% of the budget; a single number only once the pace of the last
    quarter would not reach it within the budget. Source: the table of the training check. Wrong when the
    baseline was made on other data; record it again.
    """
    found = _behind(run)
    if found is None:
        return None
    track, level, expected, margin, early = found
    if early or track.trend is None or track.trend.bins < 3:
        return None
    return bad(
        "worse-than-baseline",
        run,
        track,
        level,
        expected,
        f"{track.name} is {number(level)}, worse than the baseline {number(expected)} by more than "
        f"{number(margin)}",
    )


@rule("slightly-worse-than-baseline")
def slightly_worse(run: RunState) -> Finding | None:
    """The objective is worse than the baseline, but slightly, or early.

    Formula: worse by the margin before 30% of the budget, or by a third of the margin later (not in a smoke
    run whose baseline has a spread: within it nothing is worse). Source: the table of the training check
    ("slightly worse, but still early" is unsure). Wrong when the budget is not the baseline's; set
    ``budget_steps``.
    """
    found = _behind(run, share=1.0 / 3.0)
    if found is None:
        return None
    track, level, expected, margin, early = found
    when = " (still early)" if early else ""
    return unsure(
        "slightly-worse-than-baseline",
        run,
        track,
        level,
        expected,
        f"{track.name} is {number(level)}, behind the baseline {number(expected)} by more than "
        f"{number(margin)}{when}",
    )


@rule("no-comparison")
def no_comparison(run: RunState) -> Finding | None:
    """A baseline is set, but this run cannot be compared with it.

    Formula: the baseline has no value of the objective at this step; in a smoke run also: the declared
    objective was never logged. Source: a comparison that cannot be made must not read as a pass, so a smoke
    run waits. Wrong never; elsewhere it only reports.
    """
    name = run.objective_name
    if run.settings.smoke and name is not None and name not in run.tracks:
        return unsure("no-comparison", run, None, None, None, f"the objective {name} has not been logged")
    baseline, track = run.settings.baseline, run.objective or run.loss
    if baseline is None or track is None:
        return None
    position = _position(run, baseline.axis)
    why = baseline.gap(track.name, position)
    if why is None:
        return None
    expected = baseline.expected_at(
        track.name, position
    )  # there, but of one run: compared without its spread
    level = track.sign * track.trend.level if expected is not None and track.trend is not None else None
    return unsure("no-comparison", run, track, level, expected.mean if expected is not None else None, why)


def _position(run: RunState, axis: str) -> float:
    return float(run.row) if axis == "row" or run.step is None else run.step


def _behind(run: RunState, share: float = 1.0) -> tuple[Track, float, float, float, bool] | None:
    settings, limits = run.settings, run.settings.thresholds
    track = run.objective or run.loss
    if track is None or track.trend is None:
        return None
    done = run.budget_share
    if settings.baseline_value is not None:
        expected, allowed = settings.baseline_value, None
        # A single number is where a run should end. With no budget known, still improving is still early.
        early = track.trend.best_at > 0.7 if done is None else done < limits.early_share
    elif settings.baseline is not None:
        # The level is that of a window, so the baseline is read at the window's middle: a curve that falls is
        # no lag.
        middle = track.trend.row if settings.baseline.axis == "row" or run.step is None else track.trend.step
        found = settings.baseline.expected_at(track.name, middle)
        if found is None:
            return None
        expected, allowed = found.mean, found.margin(limits.smoke_z if settings.smoke else limits.baseline_z)
        last = settings.baseline.metrics[track.name].final.step
        early = _position(run, settings.baseline.axis) < limits.early_share * last
    else:
        return None
    margin = allowed if allowed else limits.baseline_margin * abs(expected)
    if allowed and settings.smoke:
        share = 1.0  # a run within the recorded spread is as good as the recorded ones
    error = limits.baseline_z * track.trend.noise * (1.0 / track.trend.window) ** 0.5
    margin = max(margin, error) * share
    level = track.sign * track.trend.level
    behind = track.sign * (level - expected)
    if behind <= margin:
        return None
    if settings.baseline_value is not None and done is not None and 0.0 < done < 1.0:
        pace = max(0.0, track.trend.before - track.trend.level) / 0.25  # won per run so far
        early = early or behind - pace * (1.0 - done) / done <= margin
    return track, level, expected, margin, early
