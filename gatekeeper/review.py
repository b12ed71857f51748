"""The second opinion: who decides when the table is unsure.

The built-in reviewer is a statistical self-review: a slower, longer look at the objective over the whole run.
It asks three things, each with a robust test on windows of an eighth of the run: did it learn at all (gain
against noise and level), has it lost what it won (relapse as a share of the gain), and is anything open right
now (a spike, a silent loss). A reviewer that the user names takes its place through the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.signals.trend import Trend
from gatekeeper.verdict import Decision, Finding

__all__ = ["Opinion", "ReviewRequest", "Reviewer", "Standing", "primary", "self_review", "standing"]


@dataclass(frozen=True, slots=True)
class Opinion:
    """A reviewer's answer, in one sentence.

    ``rule`` names the finding that it rests on, if it is one of those asked about.
    """

    decision: Decision
    reason: str
    rule: str | None = None


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """What a reviewer is asked: the run's state and the findings that nobody is sure of."""

    run: RunState
    findings: Sequence[Finding]


Reviewer = Callable[[ReviewRequest], Opinion]


class Standing(Enum):
    """Where a metric stands in its own history."""

    UNKNOWN = "too little evidence"
    UNLEARNED = "it has not left its start"
    RELAPSED = "it lost much of what it had won"
    SOUND = "it learned and holds its level"


_FEW = 5  # values of the objective below which the training loss is asked instead


def primary(run: RunState) -> Track | None:
    """Return the metric the run is judged by.

    The objective once it has five values (or is sound), before that the training loss.
    """
    objective, loss = run.objective, run.loss
    known = objective is not None and objective.trend is not None
    if (
        objective is not None
        and known
        and (objective.curve.n >= _FEW or standing(run, objective) is Standing.SOUND)
    ):
        return objective
    if (
        loss is not None
        and loss.trend is not None
        and not run.is_game
        and (objective is None or loss.trend.n >= objective.curve.n)
    ):
        return loss
    return objective


def standing(run: RunState, track: Track) -> Standing:
    """Return where a metric stands, by the thresholds in force."""
    trend = track.trend
    if trend is None:
        return Standing.UNKNOWN
    if not _learned(run, track, trend):
        return Standing.UNLEARNED
    return Standing.RELAPSED if _relapsed(run, track, trend) else Standing.SOUND


def _learned(run: RunState, track: Track, trend: Trend) -> bool:
    limits = run.settings.thresholds
    share = trend.gain_share
    if track.guess.kind == "accuracy":
        ceiling = 100.0 if max(-trend.best, -trend.start) > 1.5 else 1.0
        if (
            -trend.start > limits.chance_share * ceiling
        ):  # guessing scores above 0: count what was left to win
            won = trend.gain / max(ceiling + trend.start, 1e-12)
            share = won * limits.learned_share / max(limits.headroom_share, 1e-12)
    elif track.guess.role == "eval" and track.guess.kind == "loss" and trend.level > track.head[0]:
        return (
            False  # a held-out loss averages over its set: one that is above its very first value won nothing
        )
    if share < (limits.return_share if track.guess.kind == "return" else limits.learned_share):
        return False
    needed = limits.return_z if track.guess.kind == "return" else limits.learned_z
    return trend.gain_z >= (needed if share < 0.5 else limits.learned_z / 2.0)


def _relapsed(run: RunState, track: Track, trend: Trend) -> bool:
    limits = run.settings.thresholds
    if trend.relapse_z < limits.relapse_z:
        return False
    if trend.relapse > limits.relapse_share:
        return True
    if track.guess.kind != "loss" or track.guess.role != "eval":
        return False
    if trend.previous - trend.level > 0.1 * (trend.previous - trend.best):
        return False  # on its way back
    rise = (trend.level - trend.best) / max(abs(trend.best), 1e-300)
    return rise > limits.overfit_share and (
        trend.relapse_z > 2.0 * limits.relapse_z or rise > 2.5 * limits.overfit_share
    )


# Findings that a sound objective does not outweigh: something is happening right now.
_OPEN = frozenset(
    {
        "spike-open",
        "metric-missing",
        "nonfinite-score",
        "smoke-no-decrease",
        "smoke-above-maximum",
        "slightly-worse-than-baseline",
    }
)


_RULES = {Standing.UNLEARNED: "never-learned", Standing.RELAPSED: "relapsed"}


_STALLING = ("overfitting", "q-overestimation")


def _stalled(run: RunState, track: Track, finding: Finding) -> bool:
    """Whether the goal has stopped improving, so that such a finding counts against the run.

    A rising held-out loss does so only where nobody declared the goal.
    """
    if track.trend is None or track.trend.best_at >= 0.8:
        return False
    return finding.rule != "overfitting" or track.name != run.objective_name


def self_review(request: ReviewRequest) -> Opinion:
    """Answer by the objective's standing; WAIT while something is open that it cannot outweigh."""
    run = request.run
    track = primary(run)
    if track is None:
        return Opinion(Decision.WAIT, "there is no metric yet to judge the run by")
    where = standing(run, track)
    if where is not Standing.SOUND:
        return Opinion(Decision.WAIT, f"{track.name}: {where.value}", _RULES.get(where))
    for finding in request.findings:
        if finding.rule == "no-comparison" and finding.value is None and run.settings.smoke:
            return Opinion(Decision.WAIT, finding.message, finding.rule)
        if finding.rule in _OPEN or (finding.rule in _STALLING and _stalled(run, track, finding)):
            return Opinion(Decision.WAIT, finding.message, finding.rule)
    if (
        any(
            spike is not None and spike.stayed >= run.settings.thresholds.lingering_evals
            for spike in (other.spike for other in run.watched)
        )
        and track.trend is not None
        and track.trend.best_at < 0.8
    ):
        return Opinion(Decision.WAIT, "a loss is far off and has stayed there", "spike-lingering")
    return Opinion(Decision.CONTINUE, f"{track.name}: {where.value}")
