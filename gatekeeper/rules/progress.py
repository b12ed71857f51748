"""Whether the run gets anywhere: improving, flat, noisy, never learned, relapsed."""

from __future__ import annotations

import itertools
import math

from gatekeeper.review import Standing, primary, standing
from gatekeeper.rules.base import bad, fine, number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.signals.trend import Trend
from gatekeeper.verdict import Finding

__all__: list[str] = []


def _levels(track: Track, trend: Trend) -> tuple[str, str, str]:
    return number(track.head[0]), number(track.sign * trend.best), number(track.sign * trend.level)


@rule("improving")
def improving(run: RunState) -> Finding | None:
    """The objective (or, before it is known, the loss) is at or near its best and has clearly won ground.

    Formula: the best window lies in the last fifth of the run, the gain is 3 standard errors and 5% of the
    level. Source: "loss decreasing, metrics improving" of the training check. Wrong when the wrong metric is
    watched.
    """
    track = primary(run)
    if (
        track is None
        or track.trend is None
        or standing(run, track) is not Standing.SOUND
        or track.trend.best_at < 0.8
    ):
        return None
    start, _, level = _levels(track, track.trend)
    return fine(
        "improving",
        run,
        track,
        track.sign * track.trend.level,
        None,
        f"{track.name} went from {start} to {level} and is at its best",
    )


@rule("never-learned")
def never_learned(run: RunState) -> Finding | None:
    """The objective never left its start.

    Formula: the gain from the start to the best window is below 5% of the level, or below 3 standard errors.
    Says so if the loss sits at ln(classes), what guessing costs. Source: "loss flat from epoch 0" of the
    diagnosis. Wrong early: late learners exist.
    """
    track = primary(run)
    if track is None or track.trend is None or standing(run, track) is not Standing.UNLEARNED:
        return None
    start, best, level = _levels(track, track.trend)
    guess = ""
    loss = run.loss
    if loss is not None and loss.trend is not None:
        # Beyond ten classes the logarithms lie too close together for a level to mean one of them.
        classes = next(
            (
                n
                for n in (*range(2, 11), 100, 1000)
                if abs(loss.trend.level - math.log(n)) < 0.01 * math.log(n)
            ),
            None,
        )
        if classes is not None:
            guess = f"; {loss.name} sits at ln({classes}), what guessing costs"
    return unsure(
        "never-learned",
        run,
        track,
        track.sign * track.trend.level,
        None,
        f"{track.name} started at {start} and is at {level} (best {best}){guess}",
    )


@rule("loss-flat")
def loss_flat(run: RunState) -> Finding | None:
    """The loss does not move.

    Formula: over the last quarter the level changed by less than 1% of itself and by less than 3 standard
    errors. Source: "loss flat but not diverging" of the training check. Wrong at convergence, hence unsure.
    """
    track, limits = run.loss, run.settings.thresholds
    if track is None or track.trend is None or track.trend.bins < 8:
        return None
    trend = track.trend
    change = abs(trend.level - trend.before)
    if change > limits.flat_share * abs(trend.level) or change > 3.0 * trend.noise * (
        2.0 / trend.window
    ) ** 0.5 + 1e-12 * abs(trend.level):
        return None
    return unsure(
        "loss-flat",
        run,
        track,
        trend.level,
        None,
        f"{track.name} has stayed at {number(trend.level)} over the last quarter of the run",
    )


@rule("plateau")
def plateau(run: RunState) -> Finding | None:
    """The objective learned and has not improved for the last half of the run.

    Formula: learned, and its best window lies in the first half. Source: "decreased, then plateaued" of the
    diagnosis. Wrong when the rest of the run is meant as a cool-down; hence unsure.
    """
    track = primary(run)
    if (
        track is None
        or track.trend is None
        or track.trend.bins < 8
        or standing(run, track) is not Standing.SOUND
        or track.trend.best_at > 0.5
    ):
        return None
    _, best, level = _levels(track, track.trend)
    return unsure(
        "plateau",
        run,
        track,
        track.sign * track.trend.level,
        track.sign * track.trend.best,
        f"{track.name} has not passed its best, {best}, for half of the run (now {level})",
    )


@rule("too-noisy")
def too_noisy(run: RunState) -> Finding | None:
    """The noise hides any trend.

    Formula: the gain is below 3 standard errors, and the noise is above 1% of the level (below that it is
    flat). Source: "metrics noisy, can't tell trend". Wrong for tiny batches, where a longer look finds the
    trend; the windows grow with the run.
    """
    track, limits = primary(run), run.settings.thresholds
    if track is None or track.trend is None or track.trend.bins < 8:
        return None
    trend = track.trend
    error = trend.noise * (2.0 / trend.window) ** 0.5
    if trend.gain > limits.noisy_ratio * error or trend.noise <= limits.flat_share * abs(trend.level):
        return None
    return unsure(
        "too-noisy",
        run,
        track,
        trend.noise,
        None,
        f"{track.name} varies by {number(trend.noise)} from checkpoint to checkpoint, more than it gained",
    )


@rule("oscillating")
def oscillating(run: RunState) -> Finding | None:
    """The loss swings up and down at the scale of its whole gain.

    Formula: at least 8 bins, neighbouring bins reverse direction in 80% of cases, and the noise exceeds half
    of the gain. Source: "loss oscillating" of the diagnosis. Wrong for tiny batches and cyclic learning
    rates; hence unsure.
    """
    track = run.loss
    if track is None or track.trend is None or track.trend.bins < 8 or run.is_game:
        return None
    means = track.curve.means
    steps = [b - a for a, b in itertools.pairwise(means)]
    turns = sum(1 for a, b in itertools.pairwise(steps) if a * b < 0.0)
    if (
        len(steps) < 8
        or turns < 0.8 * (len(steps) - 1)
        or track.trend.noise < 0.5 * max(track.trend.gain, 0.0)
    ):
        return None
    return unsure(
        "oscillating",
        run,
        track,
        track.trend.noise,
        None,
        f"{track.name} swings by {number(track.trend.noise)} from checkpoint to checkpoint",
    )


@rule("relapsed")
def relapsed(run: RunState) -> Finding | None:
    """The objective lost much of what it had won.

    Formula: more than 40% of the gain (for a held-out loss also a rise of 10% above its best that keeps
    rising) is lost, by 3 standard errors. Source: "spikes that never recovered" in recorded runs. Wrong for
    noisy returns; hence unsure.
    """
    track = primary(run)
    if track is None or track.trend is None or standing(run, track) is not Standing.RELAPSED:
        return None
    _, best, level = _levels(track, track.trend)
    return unsure(
        "relapsed",
        run,
        track,
        track.sign * track.trend.level,
        track.sign * track.trend.best,
        f"{track.name} was at {best} and is back at {level}",
    )


@rule("smoke-no-decrease")
def smoke_no_decrease(run: RunState) -> Finding | None:
    """Smoke runs: the loss did not fall below where it started by more than its noise.

    Formula: unsure before 8 values; then the mean of the last quarter against the mean of the first quarter,
    in standard errors (4 needed; about each quarter's own line), and against ``required_decrease`` where that
    is set. A loss that did not move at all (frozen) is clearly bad, and so is one that rose (from 40 values
    on: each value of the last quarter is above those of the first by more than their range); one that moved
    less than its noise is unsure. Source: what a short run can show. Wrong when the run is too short to
    learn; give it more steps.
    """
    settings, track = run.settings, run.loss
    if not settings.smoke or track is None:
        return None
    if not track.curve.n and track.zeros >= settings.thresholds.smoke_rows:
        return bad(
            "smoke-no-decrease",
            run,
            track,
            0.0,
            None,
            f"{track.name} is exactly 0 in every row: nothing is being trained",
        )
    if track.curve.n < settings.thresholds.smoke_rows or track.trend is None:
        return unsure(
            "smoke-no-decrease",
            run,
            track,
            float(track.curve.n),
            settings.thresholds.smoke_rows,
            f"{track.name} has {track.curve.n} of the {number(settings.thresholds.smoke_rows)} values "
            "from which a decrease is judged",
        )
    values = list(track.curve.means)
    quarter = max(2, len(values) // 4)
    first, last = values[:quarter], values[-quarter:]
    fall = sum(first) / quarter - sum(last) / quarter
    needed = settings.required_decrease
    if max(values) == min(values):
        return bad(
            "smoke-no-decrease",
            run,
            track,
            track.last,
            None,
            f"{track.name} is exactly {number(track.last)} in every row: nothing is being trained",
        )
    spread = (max(_variance(first), _variance(last)) * 2.0 / quarter) ** 0.5
    above = 2.0 * max(first) - min(first)
    if quarter >= 10 and min(last) > above:
        return bad(
            "smoke-no-decrease",
            run,
            track,
            min(last),
            above,
            f"{track.name} rose: each of its last {quarter} values is far above all of its first {quarter}",
        )
    if fall < settings.thresholds.smoke_z * spread:
        return unsure(
            "smoke-no-decrease",
            run,
            track,
            fall,
            settings.thresholds.smoke_z * spread,
            f"{track.name} fell by {number(fall)}, less than {number(settings.thresholds.smoke_z)} "
            f"standard errors ({number(spread)} each)",
        )
    if needed is not None and fall < needed * abs(sum(first) / quarter):
        return unsure(
            "smoke-no-decrease",
            run,
            track,
            fall,
            needed * abs(sum(first) / quarter),
            f"{track.name} fell by {number(fall)}, less than the required share {number(needed)}",
        )
    return None


@rule("smoke-above-maximum")
def smoke_above_maximum(run: RunState) -> Finding | None:
    """Smoke runs: the loss is above the level that was set for it.

    Formula: mean of the last window > ``maximum_loss``. Unsure while rows still come. Source: the
    configuration. Wrong when the limit is.
    """
    settings, track = run.settings, run.loss
    if not settings.smoke or settings.maximum_loss is None or track is None or track.trend is None:
        return None
    if track.trend.level <= settings.maximum_loss:
        return None
    return unsure(
        "smoke-above-maximum",
        run,
        track,
        track.trend.level,
        settings.maximum_loss,
        f"{track.name} is at {number(track.trend.level)}, above the maximum of "
        f"{number(settings.maximum_loss)}",
    )


def _variance(values: list[float]) -> float:
    """Return the variance about the values' own straight line.

    A loss that falls fast is not noisy for that.
    """
    count, mean = len(values), sum(values) / len(values)
    offsets = [i - (count - 1) / 2.0 for i in range(count)]
    slope = sum(x * value for x, value in zip(offsets, values, strict=True)) / sum(x * x for x in offsets)
    rests = [value - mean - slope * x for x, value in zip(offsets, values, strict=True)]
    return sum(rest * rest for rest in rests) / max(1, count - 2)
