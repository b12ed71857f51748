"""Losses that leave: spikes and their ends, steady divergence."""

from __future__ import annotations

from gatekeeper.review import Standing, standing
from gatekeeper.roles import PLAIN
from gatekeeper.rules.base import bad, number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.verdict import Finding

__all__: list[str] = []


def _objective_holds(run: RunState, track: Track) -> bool:
    """Whether the goal is still reached while a training loss is far off: now, or (a score) now and then."""
    objective = run.objective
    if objective is None or objective is track or not objective.head:
        return False
    if track.guess.role == "eval" and objective.guess.kind not in ("accuracy", "score", "return"):
        return False
    start = objective.sign * objective.head[0]
    if objective.trend is not None and objective.trend.gain > 0.0:
        start -= 0.05 * objective.trend.gain  # a twentieth of what was won: chance alone is not "reached"
    recent = objective.curve.lows if objective.sign > 0 else objective.curve.highs
    if objective.guess.kind in ("loss", "error", "part"):
        return bool(recent) and objective.sign * objective.last < start
    if objective.curve.n <= _LOOKS:
        return True
    bins = max(1, -(-_LOOKS // objective.curve.width))
    return any(objective.sign * value < start for value in recent[-bins:])


def _another_holds(run: RunState, track: Track) -> bool:
    """Whether this is one of several training losses, no plain total, and another learns on.

    Terms may rise by design.
    """
    rank = track.guess.rank
    if track.guess.role != "loss":
        return False
    return any(
        other is not track
        and (other.guess.rank > rank or rank < PLAIN)
        and other.spike is None
        and standing(run, other) is Standing.SOUND
        for other in run.all("loss")
    )


_LOOKS = 8  # evaluations without one value above its start, before a score is taken for dead


@rule("spike-divergent")
def spike_divergent(run: RunState) -> Finding | None:
    """A spike that ran away, or that went far and stayed.

    Formula: height is counted in starting levels, (value - level before) / max(|first value|, range covered).
    Run away: height above 1e8 after growing 1000-fold since it opened. Stayed: nine tenths of its values
    above height 10, for 40 values (5 of a held-out loss, 3 where two agree) and 15% of the values before it,
    not fading, and the objective did not hold; where less than eight values came before, also a mean height
    of 30, and four standard deviations or another loss as far. Source: spikes of recorded runs: bad batches
    return within a tenth of the run, however high; what stays this far never returned. Wrong when the scale
    of the loss itself is changed on purpose (a new term, another reduction). Not applied to losses of a game
    by persistence.
    """
    limits = run.settings.thresholds
    tracks = run.watched
    far = [track for track in tracks if track.spike is not None and track.spike.stayed]
    agree = sum(1 for track in far if track.guess.role == "eval")
    for track in tracks:
        spike = track.spike
        if spike is None or spike.values < 2 or _another_holds(run, track):
            continue
        if spike.height > limits.runaway_height and spike.growth > limits.runaway_growth:
            return bad(
                "spike-divergent",
                run,
                track,
                track.last,
                track.sign * (spike.base + limits.runaway_height * spike.scale),
                f"{track.name} ran away from {number(track.sign * spike.base)} to {number(track.last)} "
                f"within {spike.values} values",
            )
        least = (
            limits.lingering_values
            if track.guess.role != "eval"
            else limits.lingering_evals - 2.0 * (agree > 1)
        )
        if (
            spike.stayed < max(least, limits.lingering_share * spike.before)
            or spike.fading
            or spike.from_nothing
        ):
            continue
        if not spike.proven(limits.unproven_height, len(far)) or (
            run.is_game and track.guess.role != "eval" and spike.height < 1e4
        ):
            continue
        if not _objective_holds(run, track):
            return bad(
                "spike-divergent",
                run,
                track,
                track.last,
                track.sign * (spike.base + limits.far_height * spike.scale),
                f"{track.name} left {number(track.sign * spike.base)} at row {spike.row} and has stayed "
                "around "
                f"{number(track.sign * spike.level)} for {spike.stayed} values",
            )
    return None


@rule("loss-diverging")
def loss_diverging(run: RunState) -> Finding | None:
    """A loss that rises checkpoint after checkpoint, beyond its start and against its own noise.

    Formula: 5 windows (an eighth of the run each, or single values in a short log) rise in a row, the level
    is one starting level above the start, 6 standard errors and 4 standard deviations of a random walk above
    the best, of which most windows rose 3% at least (a step up is no rise); 20 bins at least, 100 values
    where it rose from its very start (the hump of a warm-up). Source: the table of the training check
    ("increasing for more than N steps"). Wrong for losses that rise by design; left out are losses of a game,
    a term beside others that learn, and runs whose held-out goal is at its best or was not measured during
    the rise (a recorded run rose tenfold in its first hundred rows and ended well).
    """
    limits = run.settings.thresholds
    for track in run.watched:
        trend = track.trend
        if (
            trend is None
            or trend.bins < 20
            or trend.rises < limits.rising_checkpoints
            or (run.is_game and track.guess.role != "eval")
        ):
            continue
        size = max(abs(trend.start), trend.gain, 1e-300)  # the range covered would grow with the rise itself
        above = (trend.level - trend.start) / size
        if (
            above < limits.rising_height
            or trend.relapse_z < limits.rising_z
            or trend.climb < 0.03 * (trend.level - trend.best)
        ):
            continue
        if trend.walk_z < limits.rising_walk_z:
            continue
        if trend.gain_share < limits.learned_share and trend.n < limits.rising_values:
            continue
        if not _goal_suffers(run, track) or _another_holds(run, track):
            continue
        return bad(
            "loss-diverging",
            run,
            track,
            track.sign * trend.level,
            track.sign * (trend.start + limits.rising_height * size),
            f"{track.name} has risen for {trend.rises} checkpoints in a row, to "
            f"{number(track.sign * trend.level)} from a start of "
            f"{number(track.sign * trend.start)} (noise {number(trend.noise)})",
        )
    return None


def _goal_suffers(run: RunState, track: Track) -> bool:
    """Whether the held-out goal, if any, was measured during the rise and is not sound or at its best."""
    objective = run.objective
    if objective is None or objective is track:
        return True
    trend = objective.trend
    middle = track.curve.ends[len(track.curve.ends) // 2]
    return (
        trend is not None
        and objective.last_row > middle
        and trend.best_at < 0.8
        and standing(run, objective) is not Standing.SOUND
    )


@rule("spike-open")
def spike_open(run: RunState) -> Finding | None:
    """A loss above its normal range: more than ten standard deviations over its level.

    Formula: value > level + 10 standard deviations, both from its own recent bins. Source: the training
    check's "sudden large jumps (> 10 times normal variance)". Some spikes are normal; how far and how long
    decide. Losses of a game may jump while all is well. Wrong when the loss is bimodal (mixup).
    """
    for track in run.watched:
        spike = track.spike
        if run.is_game and track.guess.role != "eval":
            continue
        if spike is not None and spike.calm == 0 and spike.values < 5:
            return unsure(
                "spike-open",
                run,
                track,
                track.last,
                track.sign * track.alarm,
                f"{track.name} jumped to {number(track.last)} at row {spike.row}",
            )
    return None


@rule("spike-lingering")
def spike_lingering(run: RunState) -> Finding | None:
    """A spike that has not come down after five values.

    Formula: open for five values or more. Source: severity and persistence decide. Wrong when the loss has a
    new, higher level by design.
    """
    for track in run.watched:
        spike = track.spike
        if spike is not None and spike.values >= 5:
            return unsure(
                "spike-lingering",
                run,
                track,
                track.last,
                track.sign * track.alarm,
                f"{track.name} has been above its normal range since row {spike.row} (level before "
                f"{number(track.sign * spike.base)})",
            )
    return None
