"""Reinforcement learning.

Q overestimation, entropy, forgetting, KL, explained variance, spread; and idle hardware.
"""

from __future__ import annotations

from gatekeeper.review import Standing, standing
from gatekeeper.rules.base import number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.verdict import Finding

__all__: list[str] = []


@rule("q-overestimation")
def q_overestimation(run: RunState) -> Finding | None:
    """The critic promises more than the returns deliver.

    Formula: mean predicted Q / mean Monte Carlo return > 2, both positive and over the last windows; or,
    without a Monte Carlo return, the value loss (or Q) rises without end while the objective stays flat.
    Source: the diagnosis of training failures (healthy 0.9-1.5). Wrong where returns are near 0 or negative,
    where a ratio says nothing; hence unsure.
    """
    limits, q, returns, objective = (
        run.settings.thresholds,
        run.role("q_pred"),
        run.role("mc_return"),
        run.objective,
    )
    if q is not None and returns is not None and q.trend is not None and returns.trend is not None:
        over, under = q.trend.level, returns.trend.level
        if under > 0.0 and over > limits.q_ratio * under:
            return unsure(
                "q-overestimation",
                run,
                q,
                over / under,
                limits.q_ratio,
                f"{q.name} is {number(over)}, {number(over / under)} times {returns.name} ({number(under)})",
            )
    value = run.role("value_loss") or (run.loss if run.is_game and q is not None else None)
    if (
        value is None
        or value.trend is None
        or objective is None
        or objective.trend is None
        or objective.guess.kind != "return"
    ):
        return None
    rising = (
        value.trend.bins >= 8
        and value.trend.rises >= 4
        and value.trend.level > 10.0 * max(value.trend.start, 1e-300)
    )
    if rising and standing(run, objective) is not Standing.SOUND:
        return unsure(
            "q-overestimation",
            run,
            value,
            value.trend.level,
            None,
            f"{value.name} climbs ({number(value.trend.level)}) while {objective.name} does not improve",
        )
    return None


@rule("entropy-collapse")
def entropy_collapse(run: RunState) -> Finding | None:
    """The policy stopped exploring before it learned.

    Formula: policy entropy < 0.1 nats (and below a twentieth of where it began) before step 50,000, and the
    objective is not sound. Source: the diagnosis of training failures. Wrong for continuous actions, whose
    entropy may be negative from the start, and for solved tasks.
    """
    limits, track, objective = run.settings.thresholds, run.role("entropy"), run.objective
    if track is None or track.curve.n < 5:
        return None
    began, now = abs(track.head[0]), track.guess.direction * track.last
    early = run.step is None or run.step < limits.entropy_steps
    if (
        not early
        or track.guess.direction * track.head[0] <= limits.entropy_floor
        or now >= limits.entropy_floor
        or now > 0.05 * began
    ):
        return None
    if objective is not None and standing(run, objective) is Standing.SOUND:
        return None
    return unsure(
        "entropy-collapse",
        run,
        track,
        now,
        limits.entropy_floor,
        f"{track.name} fell from {number(began)} to {number(now)} by step {run.step}",
    )


@rule("forgetting")
def forgetting(run: RunState) -> Finding | None:
    """The objective fell from its peak and stays down.

    Formula: a score or return whose level has lost half of the way from its start to its peak, with the peak
    in the first 80% of the run. Source: the diagnosis of training failures (static evaluation < 0.5 peak).
    Wrong for noisy returns; hence unsure.
    """
    limits, objective = run.settings.thresholds, run.objective
    if objective is None or objective.trend is None or objective.guess.direction > 0:
        return None
    trend = objective.trend
    if (
        trend.bins < 5
        or trend.best_at > 0.8
        or trend.relapse < limits.forgetting_share
        or trend.gain_share < limits.learned_share
    ):
        return None
    return unsure(
        "forgetting",
        run,
        objective,
        -trend.level,
        -trend.best,
        f"{objective.name} peaked at {number(-trend.best)} and is down to {number(-trend.level)}",
    )


@rule("kl-too-large")
def kl_too_large(run: RunState) -> Finding | None:
    """Policy updates are too large.

    Formula: approximate KL level > 0.1 (PPO targets are 0.01 to 0.05). Source: "large approx_kl: update too
    aggressive". Wrong for other KL terms (a VAE's); only names with an ``approx`` or of an actor are read.
    """
    track = run.role("kl")
    if (
        track is None
        or track.trend is None
        or not ("approx" in track.name or "actor" in track.name or "policy" in track.name)
    ):
        return None
    limit = run.settings.thresholds.kl_high
    if track.trend.level <= limit:
        return None
    return unsure(
        "kl-too-large",
        run,
        track,
        track.trend.level,
        limit,
        f"{track.name} is {number(track.trend.level)}; updates are too aggressive",
    )


@rule("explained-variance-low")
def explained_variance_low(run: RunState) -> Finding | None:
    """The value function does not track the returns.

    Formula: explained variance < 0 over the last window after 8 bins. Source: "negative explained variance".
    Wrong early, and for constant returns.
    """
    track = run.role("explained_variance")
    if track is None or track.trend is None or track.trend.bins < 8 or -track.trend.level >= 0.0:
        return None
    return unsure(
        "explained-variance-low",
        run,
        track,
        -track.trend.level,
        0.0,
        f"{track.name} is {number(-track.trend.level)}: the value function does worse than a constant",
    )


@rule("return-spread")
def return_spread(run: RunState) -> Finding | None:
    """The evaluation returns vary more than they amount to.

    Formula: standard deviation over |mean| > 1 over the last window. Source: the checklist (healthy below
    30%, failing above 100%). Wrong for returns around 0.
    """
    track, objective, limit = run.role("return_std"), run.objective, run.settings.thresholds.return_spread
    if (
        track is None
        or track.trend is None
        or objective is None
        or objective.trend is None
        or objective.guess.kind != "return"
    ):
        return None
    mean = abs(objective.trend.level)
    if mean == 0.0 or track.trend.level <= limit * mean:
        return None
    return unsure(
        "return-spread",
        run,
        track,
        track.trend.level / mean,
        limit,
        f"{track.name} is {number(track.trend.level)} against a mean of {number(mean)}",
    )


@rule("gpu-idle")
def gpu_idle(run: RunState) -> Finding | None:
    """The GPU does nothing.

    Formula: utilisation below 5% in each of the last 4 bins. Source: "idle GPUs" of the training check. Wrong
    during evaluation or data loading; it only reports.
    """
    limit = run.settings.thresholds.gpu_idle
    tracks = run.all("gpu_util")
    recent = [value for track in tracks for value in track.curve.means[-4:]]
    if len(recent) < 4 * max(1, len(tracks)) or not recent or max(recent) >= limit:
        return None
    return unsure(
        "gpu-idle",
        run,
        tracks[0],
        max(recent),
        limit,
        f"{tracks[0].name} has been at or below {number(max(recent))}%",
    )
