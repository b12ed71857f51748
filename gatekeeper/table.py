"""The judgment table: the one place where what was seen becomes a decision.

``REVIEW`` asks the second opinion; ``REPORT`` is written down beside a decision and does not change it.
"""

from __future__ import annotations

from typing import NamedTuple

from gatekeeper.rules import divergence, finite, generalization, gradient, progress, reinforcement  # noqa: F401 - they register
from gatekeeper.rules.base import RULES, Rule

__all__ = ["RULE_NAMES", "TABLE", "Row", "row_of"]

STOP, REVIEW, CONTINUE, REPORT, WAIT = "STOP", "REVIEW", "CONTINUE", "REPORT", "WAIT"
BAD, FINE, UNSURE, NONE = "clearly_bad", "clearly_fine", "unsure", "-"


class Row(NamedTuple):
    """One row: what is seen, how sure that is, what follows, and what to look at next."""

    rule: str
    signal: str
    judgment: str
    decision: str
    look_next: str


TABLE: tuple[Row, ...] = (
    # From the training check, in its order.
    Row("nonfinite-loss", "NaN/Inf in loss", BAD, STOP, "the last finite checkpoint; the gradient norm and the batch just before; mixed precision, log or division of 0"),
    Row("loss-diverging", "loss diverging (rising for more than N checkpoints, against its own noise)", BAD, STOP, "learning rate (too high, no warm-up), gradient clipping"),
    Row("spike-divergent", "spike that ran away, or went far and stayed", BAD, STOP, "the batch and the learning rate at the row where it opened; restart from before it"),
    Row("worse-than-baseline", "eval significantly worse than the baseline", BAD, STOP, "what changed since the baseline was recorded"),
    Row("improving", "loss decreasing, eval improving", FINE, CONTINUE, "nothing; look less often"),
    Row("loss-flat", "loss flat, not diverging", UNSURE, REVIEW, "learning rate too low, frozen parameters, gradients that do not flow"),
    Row("too-noisy", "too noisy to tell", UNSURE, REVIEW, "batch size, logging interval; wait for a longer trend"),
    Row("slightly-worse-than-baseline", "slightly worse than the baseline, still early", UNSURE, REVIEW, "wait until the early share of the budget is over"),
    Row("unreachable", "source unreachable", NONE, WAIT, "the network and the server; nothing is known of the run"),
    # Missing and hidden values.
    Row("metric-missing", "training loss gone, with a second witness (or alone)", f"{BAD} / {UNSURE}", f"{STOP} / {REVIEW}", "what the trainer does with a NaN: blank, null, dropped key"),
    Row("nonfinite-score", "NaN/Inf in a score or return", UNSURE, REVIEW, "whether the evaluation had anything to average"),
    # Spikes.
    Row("spike-open", "loss more than 10 standard deviations above its level", UNSURE, REVIEW, "the batch, the learning rate; wait for it to come back"),
    Row("spike-lingering", "spike that has not come down", UNSURE, REVIEW, "whether the held-out measure suffered as well"),
    # Gradient and learning rate.
    Row("nonfinite-gradient", "gradient norm NaN/Inf, loss finite", UNSURE, REVIEW, "loss scale, mixed precision"),
    Row("exploding-gradient", "gradient norm 1000 times its median", UNSURE, REPORT, "clip the gradient (max_norm=1.0), lower the learning rate"),
    Row("vanishing-gradient", "gradient norm next to 0", UNSURE, REPORT, "initialisation, depth, saturated activations"),
    Row("zero-gradient", "gradient norm exactly 0 (smoke run: from the first row on)", f"{UNSURE} / {BAD}", f"{REVIEW} / {STOP}", "frozen parameters, detached loss, dead units"),
    Row("lr-zero", "learning rate constant 0", UNSURE, REPORT, "the scheduler and its total steps"),
    Row("lr-jump", "learning rate jumps", UNSURE, REPORT, "a warm restart or a wrong resume"),
    Row("lr-rising-with-loss", "learning rate and loss rise together", UNSURE, REPORT, "peak learning rate too high, warm-up too short"),
    Row("lr-off-schedule", "learning rate unlike the declared schedule", UNSURE, REPORT, "the scheduler's arguments"),
    # Progress.
    Row("never-learned", "objective never left its start (also: stuck at ln(classes))", UNSURE, REVIEW, "learning rate, initialisation, frozen parameters, labels"),
    Row("relapsed", "objective lost what it had won", UNSURE, REVIEW, "what happened at its best step; restart from there"),
    Row("plateau", "learned, then no progress for half of the run", UNSURE, REVIEW, "learning-rate decay, or stop at leisure"),
    Row("oscillating", "loss swings as far as it has fallen", UNSURE, REVIEW, "learning rate too high, batch too small"),
    # Held-out measures.
    Row("overfitting", "held-out loss rises while training loss falls", UNSURE, REVIEW, "regularisation, augmentation; keep the best checkpoint"),
    Row("eval-degrading", "held-out measure worse for several checkpoints", UNSURE, REVIEW, "keep the best checkpoint"),
    Row("train-eval-gap", "train score more than 20% above held-out score", UNSURE, REPORT, "regularisation, leakage, a shifted held-out set"),
    Row("no-comparison", "baseline set, no comparison possible", UNSURE, REVIEW, "record the baseline with this metric and over these steps"),
    # Reinforcement learning.
    Row("q-overestimation", "predicted Q more than twice the return, or value loss climbing while reward is flat", UNSURE, REVIEW, "twin critics; larger update delay; lower critic learning rate"),
    Row("entropy-collapse", "policy entropy gone before step 50,000", UNSURE, REVIEW, "entropy coefficient, action masking"),
    Row("forgetting", "objective fell from its peak and stays down", UNSURE, REVIEW, "learning-rate decay; protect good trajectories in the buffer"),
    Row("kl-too-large", "policy updates too large", UNSURE, REPORT, "learning rate, clip range, target KL"),
    Row("explained-variance-low", "value function does not track returns", UNSURE, REPORT, "value learning rate, reward scale"),
    Row("return-spread", "returns vary more than their mean", UNSURE, REPORT, "more evaluation episodes; the policy's stability"),
    # Hardware.
    Row("gpu-idle", "GPU idle", UNSURE, REPORT, "data loading, a hung worker"),
    # Smoke runs (only where smoke = true).
    Row("smoke-no-decrease", "smoke run: loss not below its start by more than its noise (bad: it stands still or rose)", f"{UNSURE} / {BAD}", f"{REVIEW} / {STOP}", "gradients, learning rate, labels; or more steps"),
    Row("smoke-above-maximum", "smoke run: loss above the maximum that was set", UNSURE, REVIEW, "what changed since the maximum was set"),
)  # fmt: skip

_ROWS = {row.rule: row for row in TABLE}
RULE_NAMES: tuple[str, ...] = tuple(_ROWS)
CHECKS: tuple[tuple[str, Rule], ...] = tuple(
    (row.rule, RULES[row.rule]) for row in TABLE if row.rule in RULES
)


def row_of(rule: str) -> Row:
    """Return the table's row of a rule; KeyError where there is none."""
    return _ROWS[rule]
