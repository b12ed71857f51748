"""Whole runs of other tasks and loggers: none that ends well is stopped, and what breaks is not passed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.interval import INTERVALS_S, next_interval
from gatekeeper.verdict import Decision, Verdict

Rows = list[tuple[int, dict[str, Any]]]
Play = Callable[..., list[Verdict]]


def fall(i: int, tau: float, start: float, end: float) -> float:
    return end + (start - end) * math.exp(-i / tau)


def rows(n: int, row: Callable[[int, random.Random], dict[str, Any]], seed: int = 3) -> Rows:
    source = random.Random(seed)
    return [(i, row(i, source)) for i in range(n)]


def loss(n: int, value: Callable[[int, random.Random], float]) -> Rows:
    return rows(n, lambda i, r: {"loss": value(i, r)})


SOUND: dict[str, Rows] = {
    "diffusion": loss(3000, lambda i, r: fall(i, 50, 1.0, 0.03) * math.exp(r.gauss(0, 0.4))),
    "contrastive": loss(2000, lambda i, r: fall(i, 500, 8.3, 2.9) + r.gauss(0, 0.05)),
    "reward model": loss(1000, lambda i, r: fall(i, 200, 0.693, 0.5) + r.gauss(0, 0.05)),
    "speech recognition": rows(
        2000,
        lambda i, r: {
            "loss": fall(i, 20, 300, 3) + r.gauss(0, 0.1),
            **({"val_wer": 1.0 if i < 300 else fall(i - 300, 300, 1.0, 0.2)} if i % 50 == 0 else {}),
        },
    ),
    "detection": rows(
        100,
        lambda i, r: {
            "train/box_loss": fall(i, 30, 1.5, 0.8),
            "val/cls_loss": fall(i, 20, 2.0, 0.7),
            "metrics/mAP50-95(B)": 0.5 - fall(i, 25, 0.5, 0.0),
        },
    ),
    "graph network": rows(
        200,
        lambda i, r: {
            "train_loss": fall(i, 30, 2, 0.2) + r.gauss(0, 0.02),
            "val_acc": 0.8 - fall(i, 15, 0.65, 0.0) + r.gauss(0, 0.01),
        },
    ),
    "low-rank finetune": rows(
        30,
        lambda i, r: {
            "loss": fall(i, 8, 2.0, 1.2) + r.gauss(0, 0.05),
            **({"eval_loss": fall(i, 10, 1.8, 1.3)} if i % 5 == 4 else {}),
        },
    ),
    "preference optimisation": rows(
        600,
        lambda i, r: {
            "loss": fall(i, 150, 0.69, 0.2) + r.gauss(0, 0.03),
            "rewards/chosen": -i / 100,
            "rewards/rejected": -i / 40,
            "rewards/margins": i * 0.015,
            "rewards/accuracies": min(1.0, 0.5 + i / 800),
            "logps/chosen": -300 - i / 3,
            "grad_norm": 3 + abs(r.gauss(0, 1)),
        },
    ),
    "finetune that logs its entropy": rows(
        500, lambda i, r: {"loss": fall(i, 100, 2, 1) + r.gauss(0, 0.03), "entropy": fall(i, 100, 1.5, 1.0)}
    ),
    "policy optimisation of a language model": rows(
        800,
        lambda i, r: {
            "loss": 1e-3 * i + abs(r.gauss(0, 0.01)),
            "reward": 0.8 - fall(i, 200, 0.6, 0.0) + r.gauss(0, 0.1),
            "reward_std": 0.3,
            "kl": 1e-4 * i,
        },
    ),
    "warm-up hump": loss(
        1500,
        lambda i, r: (
            2.5
            + 50 * math.exp(-(((i - 60) / 20) ** 2))
            - 1.5 * (1 - math.exp(-max(0, i - 80) / 300))
            + r.gauss(0, 0.03)
        ),
    ),
    "cliff after a plateau": loss(
        4000, lambda i, r: (2.3 if i < 2500 else fall(i - 2500, 50, 2.3, 0.2)) + r.gauss(0, 0.01)
    ),
    "grokking": rows(
        1200,
        lambda i, r: {
            "train_loss": fall(i, 10, 3, 0.01) + abs(r.gauss(0, 0.002)),
            "val_loss": 5.5 - fall(i, 30, 2, 0) if i < 700 else fall(i - 700, 30, 5.5, 0.1),
            "val_acc": 0.02 if i < 700 else 1 - fall(i - 700, 30, 0.98, 0),
        },
    ),
    "label-smoothing floor": loss(4000, lambda i, r: fall(i, 100, 2.3, 0.9) + r.gauss(0, 0.01)),
    "spikes at each evaluation": loss(
        5050, lambda i, r: fall(i, 200, 2.5, 0.5) + (30 if i % 200 == 199 else 0) + r.gauss(0, 0.02)
    ),
    "Cauchy noise": loss(
        4000, lambda i, r: fall(i, 200, 2.5, 0.5) + abs(0.05 * math.tan(math.pi * (r.random() - 0.5)))
    ),
    "Pareto noise": loss(4000, lambda i, r: fall(i, 200, 2.5, 0.5) * r.paretovariate(1.5)),
    "evaluations alone": rows(60, lambda i, r: {"eval_loss": fall(i, 10, 2, 1) + r.gauss(0, 0.01)}),
    "percentages": rows(100, lambda i, r: {"val_acc": 90 - fall(i, 20, 80, 0) + r.gauss(0, 0.5)}),
    "two hundred metrics": rows(
        600,
        lambda i, r: {
            **{f"layer{k}/act": 1.0 for k in range(100)},
            **{f"layers.{k}.grad_norm": 1 + r.random() for k in range(99)},
            "loss": fall(i, 100, 2, 1) + r.gauss(0, 0.02),
        },
    ),
    "variational annealing": rows(
        2000,
        lambda i, r: {
            "loss": fall(i, 50, 120, 20) + min(1, i / 1000) * 5 + r.gauss(0, 0.5),
            "kl_loss": 0.001 + 10 * (1 - math.exp(-i / 200)),
            "recon_loss": fall(i, 50, 100, 20),
        },
    ),
    "batch statistics spoil early evaluations": rows(
        100,
        lambda i, r: {
            "train_loss": fall(i, 30, 2, 0.1),
            "val_loss": 1e4 if i < 4 else fall(i, 30, 2, 0.2),
            "val_accuracy": 0.1 if i < 4 else 0.9 - fall(i, 20, 0.7, 0),
        },
    ),
    "late learner": rows(
        1000,
        lambda i, r: {
            "rollout/ep_rew_mean": (-200 if i < 500 else -50 - fall(i - 500, 100, 150, 0)) + r.gauss(0, 5),
            "train/loss": 1 + abs(r.gauss(0, 5)),
        },
    ),
    "far spike that returns": loss(
        3000,
        lambda i, r: (
            fall(i, 200, 2.5, 0.5) + (100 * math.exp(-(i - 2000) / 40) if i >= 2000 else 0) + r.gauss(0, 0.02)
        ),
    ),
    "huge scale": loss(800, lambda i, r: 1e200 * (fall(i, 100, 2, 0.5) + r.gauss(0, 0.02))),
    "tiny scale": loss(800, lambda i, r: 1e-200 * (fall(i, 100, 2, 0.5) + r.gauss(0, 0.02))),
}

OPEN: dict[str, Rows] = {  # sound or not: nobody can say, so nobody is stopped
    "curriculum": loss(
        5000, lambda i, r: fall(i % 1000, 250, 1.0 + 0.3 * (i // 1000), 0.3) + r.gauss(0, 0.02)
    ),
    "a term times ten": loss(
        5000, lambda i, r: (fall(i, 100, 2, 1) + r.gauss(0, 0.02)) * (10 if i > 2000 else 1)
    ),
    "a very short finetune": loss(12, lambda i, r: fall(i, 4, 2.0, 1.2)),
    "never learned": rows(
        1000, lambda i, r: {"loss": math.log(10) + r.gauss(0, 0.01), "val_accuracy": 0.1 + r.gauss(0, 0.003)}
    ),
    "overfitted": rows(
        400,
        lambda i, r: {
            "loss": fall(i, 50, 1, 0),
            "eval_loss": fall(i, 30, 1.5, 0.5) + 0.004 * i + r.gauss(0, 0.01),
        },
    ),
}

BROKEN: dict[str, tuple[Rows, int]] = {  # with the row before which the STOP must come
    "exponential from the start": (loss(800, lambda i, r: 2.3 * 1.02**i + r.gauss(0, 0.02)), 150),
    "linear from the start": (loss(1000, lambda i, r: 2.3 + 0.02 * i + r.gauss(0, 0.1)), 400),
    "exponential after learning": (
        loss(1500, lambda i, r: fall(i, 100, 2.5, 0.3) if i < 500 else 0.3 * 1.02 ** (i - 500)),
        900,
    ),
    "linear after learning": (
        loss(1500, lambda i, r: fall(i, 100, 2.5, 0.3) + max(0, i - 500) * 0.02 + r.gauss(0, 0.05)),
        1200,
    ),
    "a jump that stays": (
        loss(1000, lambda i, r: fall(i, 100, 2.5, 0.3) if i < 500 else 1e5 + r.gauss(0, 100)),
        600,
    ),
    "to the edge of the floats": (
        loss(300, lambda i, r: fall(i, 20, 2.5, 0.3) if i < 50 else 1e290 * 1.05**i),
        100,
    ),
    "a finetune that logs its entropy": (
        rows(
            800,
            lambda i, r: {
                "loss": fall(i, 100, 2, 1) + (1e-3 * math.exp((i - 300) / 20) if i > 300 else 0),
                "entropy": 1.0,
            },
        ),
        700,
    ),
    "evaluations that stay far off": (
        rows(
            200,
            lambda i, r: {
                "loss": fall(i, 30, 2, 0.5),
                "eval_loss": fall(i, 30, 2, 0.6) if i < 100 else 5e3 + r.gauss(0, 10),
            },
        ),
        130,
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_run_that_ends_well_goes_on(name: str, play: Play) -> None:
    verdicts = play(SOUND[name])
    assert not any(v.stopped for v in verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


@pytest.mark.parametrize("name", OPEN)
def test_what_nobody_can_say_is_no_stop(name: str, play: Play) -> None:
    assert not any(v.stopped for v in play(OPEN[name]))


@pytest.mark.parametrize("name", ["never learned", "overfitted"])
def test_what_went_wrong_quietly_is_not_passed(name: str, play: Play) -> None:
    assert play(OPEN[name])[-1].decision is Decision.WAIT


@pytest.mark.parametrize("name", BROKEN)
def test_a_run_that_diverges_is_stopped(name: str, play: Play) -> None:
    stream, latest = BROKEN[name]
    verdicts = play(stream)
    stop = next(v for v in verdicts if v.stopped)
    assert stop.row <= latest
    assert stop.rule in ("loss-diverging", "spike-divergent")
    assert stop.advice


def test_intervals_grow_while_healthy_and_fall_back_after_any_anomaly(play: Play) -> None:
    fine = play(SOUND["reward model"])
    clear = next(v for v in fine if v.rule == "improving")
    waits: list[int] = [INTERVALS_S[0]]
    for _ in range(4):
        waits.append(next_interval(waits[-1], clear))
    assert waits == [600, 1200, 1800, 3600, 3600]
    assert next_interval(3600, play([(0, {"loss": 1.0})])[-1]) == 600
    assert next_interval(3600, play([(0, {"loss": math.nan})])[-1]) == 600


def test_evidence_of_a_stop(play: Play) -> None:
    gate = Gate()
    play(
        [
            (10 * i, {"loss": math.nan if i == 50 else 1.0, "grad_norm": 2.0, "note": "x", "time/fps": 9.0})
            for i in range(60)
        ],
        gate=gate,
    )
    verdict = gate.verdict
    assert (verdict.row, verdict.step) == (51, 500)
    assert math.isnan(verdict.metrics["loss"])
    assert verdict.metrics["grad_norm"] == 2.0
    assert set(verdict.metrics) == {"loss", "grad_norm"}
    assert verdict.roles == {"loss": "loss", "grad_norm": "grad_norm"}
    assert gate.last_finite() == (50, 490)
    assert gate.curve("loss")[-1].mean == 1.0
