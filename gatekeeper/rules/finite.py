"""Non-finite and missing values."""

from __future__ import annotations

import math

from gatekeeper.rules.base import bad, number, rule, unsure
from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.verdict import Finding

__all__: list[str] = []


def _lost(run: RunState, track: Track) -> bool:
    return track.nonfinite_row == run.row


def _overflowed(track: Track) -> bool:
    """Whether an infinite perplexity may be that of a finite loss.

    Exp() of an untrained model's loss overflows.
    """
    name = track.name.lower()
    return track.odd == math.inf and ("ppl" in name or "perplexity" in name)


@rule("nonfinite-loss")
def nonfinite_loss(run: RunState) -> Finding | None:
    """NaN or infinity in the training loss or a held-out loss, at this row.

    Formula: the value is not finite; for a part of a loss or a loss of a game (actor, critic, generator),
    three values in a row. Also a training loss of exactly 0 beside a non-finite gradient norm: Hugging Face
    Trainer logs a NaN loss as 0. Source: the table of the training check. Wrong when the training loop itself
    skips a bad batch and survives it: set ``nonfinite-loss = "warn"``, or do not log the skipped batch.
    """
    for track in run.tracks.values():
        if not _lost(run, track) or _overflowed(track):
            continue
        guess = track.guess
        plain = (
            guess.role == "loss" or track is run.objective or (guess.role == "eval" and guess.kind == "loss")
        )
        if plain and guess.kind not in ("return", "score", "accuracy"):
            return bad(
                "nonfinite-loss",
                run,
                track,
                track.odd,
                None,
                f"{track.name} is {track.odd} at step {_at(run)}",
            )
        if guess.role in ("aux_loss", "value_loss") and track.nonfinite_run >= 3:
            return bad(
                "nonfinite-loss",
                run,
                track,
                track.odd,
                3.0,
                f"{track.name} has been {track.odd} for {track.nonfinite_run} values in a row, up to "
                f"step {_at(run)}",
            )
    loss, grad = run.loss, run.role("grad_norm")
    if (
        loss is not None
        and grad is not None
        and _lost(run, grad)
        and loss.last_row == run.row
        and loss.last == 0.0
    ):
        return bad(
            "nonfinite-loss",
            run,
            loss,
            0.0,
            None,
            f"{loss.name} is logged as 0.0 while {grad.name} is {grad.odd} at step {_at(run)}: a NaN "
            "loss that the trainer hides",
        )
    return None


@rule("nonfinite-score")
def nonfinite_score(run: RunState) -> Finding | None:
    """NaN or infinity in a held-out score or return.

    Formula: the value is not finite; an infinite perplexity counts here. Unsure: Stable-Baselines3 logs a NaN
    return before the first episode ends, and a metric over an empty class is NaN in sound runs. Source: logs
    of reinforcement-learning runs. Wrong when the score is NaN because the model is: the loss tells then.
    """
    for track in run.all("eval"):
        if (
            track.nonfinite_run
            and (track.guess.kind != "loss" or _overflowed(track))
            and track.nonfinite_row >= track.last_row > 0
        ):
            return unsure(
                "nonfinite-score",
                run,
                track,
                track.odd,
                None,
                f"{track.name} is {track.odd} at step {_at(run)}",
            )
    return None


@rule("metric-missing")
def metric_missing(run: RunState) -> Finding | None:
    """The training loss stopped arriving (or arrives as null) while other metrics go on.

    Formula: silent for more than 8 times its usual interval and 20 rows, or null three times. With a second
    witness (and at a row where it was due: null at its usual interval, or twice that interval without it) (a
    non-finite or exploding gradient, a non-finite held-out loss, or a last loss far above where it started)
    it is the NaN that many loggers drop, and clearly bad; alone it is unsure, since trainers also just stop
    logging. Source: logs of NaN runs whose cells are blank. Wrong when a loss is logged only in one phase of
    the training; then declare the metric that goes on.
    """
    limits = run.settings.thresholds
    for track in run.all("eval"):
        spike = track.spike
        silence = run.row - track.last_row
        if track.watch and spike is not None and spike.stayed >= 2 and silence > 2 * track.gap + 1:
            return bad(
                "metric-missing",
                run,
                track,
                float(silence),
                2.0 * track.gap + 1,
                f"{track.name} stopped arriving {silence} rows ago, after it had stayed around "
                f"{number(track.last)}, far above its start",
            )
    loss = run.loss
    if loss is None or not loss.curve.n:
        return None
    silence = run.row - loss.last_row
    usual = (loss.last_row - loss.first_row) / max(1, loss.curve.n - 1)
    missing = silence > max(limits.missing_gaps * usual, limits.missing_rows)
    witness = _witness(run, loss)
    known = loss.curve.n > 1  # how often it comes
    if loss.nulls and witness and known and silence >= usual:
        return bad(
            "metric-missing", run, loss, None, None, f"{loss.name} is null at step {_at(run)} and {witness}"
        )
    if witness and silence > (max(2.0 * usual, 2) if known else limits.missing_rows):
        return bad(
            "metric-missing",
            run,
            loss,
            float(silence),
            limits.missing_rows,
            f"{loss.name} stopped arriving {silence} rows ago, and {witness}",
        )
    if loss.nulls >= 3 and silence > 2.0 * usual:
        return unsure(
            "metric-missing", run, loss, None, None, f"{loss.name} has been null {loss.nulls} times in a row"
        )
    objective = run.objective
    if missing and (objective is None or objective is loss):
        return unsure(
            "metric-missing",
            run,
            loss,
            float(silence),
            limits.missing_gaps * usual,
            f"{loss.name} stopped arriving {silence} rows ago (it came every {number(usual)} rows)",
        )
    return None


def _witness(run: RunState, loss: Track) -> str | None:
    for grad in run.all("grad_norm"):
        if (
            grad.nonfinite_run
            and grad.nonfinite_row >= loss.last_row
            and not grad.last_row > grad.nonfinite_row
        ):
            return f"{grad.name} is {grad.odd}"
        if grad.last_row > loss.last_row and grad.curve.n > _FEW:
            usual = sorted(grad.curve.means)[len(grad.curve.means) // 2]
            if usual > 0.0 and grad.last > run.settings.thresholds.grad_explosion * usual:
                return f"{grad.name} is {number(grad.last)}, against {number(usual)} usually"
    for track in run.all("eval"):
        if track.nonfinite_run and track.guess.kind == "loss" and track.nonfinite_row > loss.last_row:
            return f"{track.name} is {track.odd}"
    spike = loss.spike
    if (
        spike is not None
        and (loss.sign * loss.last - spike.base) > run.settings.thresholds.far_height * 10.0 * spike.scale
    ):
        return f"its last value, {number(loss.last)}, was far above its start"
    return None


_FEW = 8  # gradient norms that say what is usual


def _at(run: RunState) -> str:
    return "?" if run.step is None else f"{run.step:.12g}"
