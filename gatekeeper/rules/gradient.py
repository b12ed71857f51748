"""Gradient norms and learning rates."""

from __future__ import annotations

import itertools

from gatekeeper.rules.base import bad, number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.verdict import Finding

__all__: list[str] = []

_SCALER_ROWS = (
    100  # a loss scaler finds its scale within the first steps; infinite gradients are its way of looking
)


@rule("nonfinite-gradient")
def nonfinite_gradient(run: RunState) -> Finding | None:
    """The gradient norm is NaN or infinite while the loss is finite.

    Formula: 5 non-finite values in a row, after the first 100 rows. Source: the seeds' non-finite detection;
    fp16 loss scaling starts with infinite gradients in sound runs. Wrong when a scaler skips steps for
    longer; the loss shows whether it matters.
    """
    for track in run.all("grad_norm"):
        if track.nonfinite_run >= 5 and run.row > _SCALER_ROWS:
            return unsure(
                "nonfinite-gradient",
                run,
                track,
                track.odd,
                5.0,
                f"{track.name} has been {track.odd} for {track.nonfinite_run} values in a row",
            )
    return None


@rule("exploding-gradient")
def exploding_gradient(run: RunState) -> Finding | None:
    """The gradient norm is far above its own history.

    Formula: value > 1000 times the median of its bins; for an actor or critic also > 100. Source: the level
    is the run's own (1e5 is normal in some large runs); 100 is the checklist's. Wrong at a spike that
    recovers; hence unsure.
    """
    limits = run.settings.thresholds
    for track in run.all("grad_norm"):
        if len(track.curve.means) < 3 or track.nonfinite_run:
            continue
        middle = track.usual()
        if middle > 0.0 and track.last > limits.grad_explosion * middle:
            return unsure(
                "exploding-gradient",
                run,
                track,
                track.last,
                limits.grad_explosion * middle,
                f"{track.name} is {number(track.last)}, against {number(middle)} usually",
            )
        if (
            "/" in track.name
            and track.name.split("/")[0] in ("actor", "critic")
            and middle > limits.grad_high
        ):
            return unsure(
                "exploding-gradient",
                run,
                track,
                middle,
                limits.grad_high,
                f"{track.name} is {number(middle)}; 0.1 to 10 is usual",
            )
    return None


@rule("vanishing-gradient")
def vanishing_gradient(run: RunState) -> Finding | None:
    """The gradient norm is next to nothing, but not 0.

    Formula: the latest bins are all below 1e-7. Source: SageMaker Debugger's default for the mean gradient.
    Wrong for losses of tiny scale (1e-8), whose gradients are as tiny.
    """
    limits, loss = run.settings.thresholds, run.loss
    scale = max(1e-300, abs(loss.head[0])) if loss is not None and loss.head else 1.0
    for track in run.all("grad_norm"):
        recent = track.curve.means[-4:]
        if len(recent) == 4 and 0.0 < max(recent) < limits.grad_vanishing * min(1.0, scale):
            return unsure(
                "vanishing-gradient",
                run,
                track,
                track.last,
                limits.grad_vanishing,
                f"{track.name} has fallen to {number(track.last)}",
            )
    return None


@rule("zero-gradient")
def zero_gradient(run: RunState) -> Finding | None:
    """The gradient norm is exactly 0.

    Formula: 10 values in a row, and it was not 0 before or the loss stands still. Source: the checklist
    ("exactly 0"). A norm that is 0 from the first row beside a loss that moves was never computed; nothing is
    said of it. In a smoke run one that is 0 from the first row on for 30 values, beside a loss that does not
    fall, is clearly bad: nothing is trained. Wrong for frozen phases.
    """
    limits, loss = run.settings.thresholds, run.loss
    for track in run.all("grad_norm"):
        if track.zeros < limits.zero_values:
            continue
        moved = loss is None or loss.trend is None or loss.trend.worst > loss.trend.best
        if track.zeros >= track.curve.n and moved and not run.settings.smoke:
            continue
        say = (
            bad
            if run.settings.smoke
            and track.zeros >= max(track.curve.n, 3 * limits.zero_values)
            and _no_decrease(run)
            else unsure
        )
        return say(
            "zero-gradient",
            run,
            track,
            0.0,
            limits.zero_values,
            f"{track.name} has been exactly 0 for {track.zeros} values",
        )
    return None


def _no_decrease(run: RunState) -> bool:
    from gatekeeper.rules.progress import smoke_no_decrease

    loss = run.loss
    return (
        loss is not None
        and loss.curve.n >= run.settings.thresholds.smoke_rows
        and smoke_no_decrease(run) is not None
    )


@rule("lr-zero")
def lr_zero(run: RunState) -> Finding | None:
    """The learning rate is exactly 0.

    Formula: 10 values in a row, of which the last. Source: "is the schedule behaving". Wrong at the very end
    of a schedule that goes to 0.
    """
    track = run.role("lr")
    if track is None or track.zeros < run.settings.thresholds.zero_values:
        return None
    return unsure(
        "lr-zero",
        run,
        track,
        0.0,
        None,
        f"{track.name} has been 0 for {track.zeros} values: nothing is learned",
    )


@rule("lr-jump")
def lr_jump(run: RunState) -> Finding | None:
    """The learning rate jumped up.

    Formula: 3 times the value before, after the warm-up (20 values). Source: learning-rate checks. Wrong for
    warm restarts, where the loss jumps with it and comes back; it explains a spike.
    """
    track = run.role("lr")
    if track is None or not run.lr_jump_row or run.row - run.lr_jump_row > 20:
        return None
    return unsure(
        "lr-jump",
        run,
        track,
        track.last,
        None,
        f"{track.name} jumped to {number(track.last)} at row {run.lr_jump_row}",
    )


@rule("lr-rising-with-loss")
def lr_rising_with_loss(run: RunState) -> Finding | None:
    """Learning rate and loss rise together.

    Formula: both rose for 3 checkpoints in a row, the loss by 3 standard errors. Source: "loss oscillating or
    rising: learning rate too high". Wrong in a warm-up that the loss survives; hence unsure.
    """
    lr, loss = run.role("lr"), run.loss
    if lr is None or loss is None or loss.trend is None or run.is_game:
        return None
    rates = lr.curve.means[-4:]
    if (
        len(rates) < 4
        or not rates[0] < rates[1] < rates[2] < rates[3]
        or loss.trend.rises < 3
        or loss.trend.relapse_z < run.settings.thresholds.relapse_z
    ):
        return None
    return unsure(
        "lr-rising-with-loss",
        run,
        loss,
        loss.trend.level,
        loss.trend.best,
        f"{loss.name} rises with {lr.name} (now {number(lr.last)})",
    )


@rule("lr-off-schedule")
def lr_off_schedule(run: RunState) -> Finding | None:
    """The learning rate does not follow the schedule that was declared.

    Formula: constant: the range is above 1% of the level; decreasing or increasing: it went the other way by
    1%; warmup-decay: it rises again after its peak. Source: "is the learning-rate schedule behaving as
    expected". Wrong for what is not declared; nothing is said then.
    """
    track, declared = run.role("lr"), run.settings.lr_schedule
    if track is None or declared is None or len(track.curve.means) < 4:
        return None
    means = list(track.curve.means)
    top = max(means)
    rises = max(0.0, *(b - a for a, b in itertools.pairwise(means)))
    falls = max(0.0, *(a - b for a, b in itertools.pairwise(means)))
    after = means[means.index(top) :]
    rebound = max((b - a for a, b in itertools.pairwise(after)), default=0.0)
    off = {
        "constant": max(means) - min(means) > 0.01 * top,
        "decreasing": rises > 0.01 * top,
        "increasing": falls > 0.01 * top,
        "warmup-decay": rebound > 0.01 * top,
    }[declared]
    if not off:
        return None
    return unsure(
        "lr-off-schedule",
        run,
        track,
        track.last,
        None,
        f"{track.name} is not {declared}: it went from {number(means[0])} over {number(top)} to "
        f"{number(means[-1])}",
    )
