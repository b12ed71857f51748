"""What real logs do: each kind of row, value and course that has fooled a gate, under its own name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.verdict import Decision, Verdict

NAN, INF = math.nan, math.inf
Play = Callable[..., list[Verdict]]
Noise = Callable[[float], float]


def learn(i: int, n: float, start: float = 2.5, end: float = 0.5) -> float:
    return end + (start - end) * math.exp(-5.0 * i / n)


def stops(verdicts: Iterable[Verdict]) -> list[int]:
    return [verdict.row for verdict in verdicts if verdict.stopped][:1]


def seen(verdicts: list[Verdict]) -> set[str]:
    return {finding.rule for verdict in verdicts for finding in verdict.findings}


# --- how a NaN arrives ---


@pytest.mark.parametrize("value", [NAN, INF, -INF, "nan", "NaN", " nan ", "Infinity", "-inf", 10**400])
def test_nonfinite_loss_stops_at_its_row(value: Any, play: Play) -> None:
    verdicts = play([(i, {"loss": value if i == 70 else learn(i, 100)}) for i in range(100)])
    assert stops(verdicts) == [71]
    assert verdicts[-1].rule == "nonfinite-loss"
    assert verdicts[-1].step == 70


@pytest.mark.parametrize("name", ["val_loss", "eval/loss", "validation/ctc_loss", "val_bpb"])
def test_nonfinite_held_out_loss_stops_at_its_row(name: str, play: Play) -> None:
    rows = [
        (i, {"loss": learn(i, 100), **({name: NAN if i == 60 else 1.0} if i % 10 == 0 else {})})
        for i in range(100)
    ]
    assert stops(play(rows)) == [61]


def test_hugging_face_hides_a_nan_loss_as_zero(play: Play) -> None:
    rows = [
        (i, {"loss": 0.0, "grad_norm": NAN} if i >= 50 else {"loss": learn(i, 100), "grad_norm": 1.0})
        for i in range(100)
    ]
    verdicts = play(rows)
    assert stops(verdicts) == [51]
    assert verdicts[-1].rule == "nonfinite-loss"


def test_hugging_face_hides_it_from_the_first_row_on(play: Play) -> None:
    assert stops(play([(i, {"loss": 0.0, "grad_norm": "nan"}) for i in range(5)])) == [1]


def test_null_loss_beside_a_nonfinite_gradient_stops(play: Play) -> None:
    rows = [
        (i, {"loss": learn(i, 100) if i < 50 else None, "grad_norm": 1.0 if i < 50 else NAN})
        for i in range(100)
    ]
    verdicts = play(rows)
    assert stops(verdicts) == [51]
    assert verdicts[-1].rule == "metric-missing"


@pytest.mark.parametrize(
    "witness",
    [{"grad_norm": NAN}, {"grad_norm": "inf"}, {"grad_norm": 1e6}, {"val_ppl": NAN}],
    ids=["nan gradient", "inf gradient", "exploding gradient", "nan eval"],
)
@pytest.mark.parametrize("gone", [{}, {"loss": None}], ids=["missing key", "null"])
def test_missing_loss_with_a_second_witness_stops_soon(
    gone: dict[str, Any], witness: dict[str, Any], play: Play
) -> None:
    rows = [
        (i, {"loss": learn(i, 100), "grad_norm": 1.0} if i < 50 else {**gone, **witness}) for i in range(100)
    ]
    (row,) = stops(play(rows))
    assert 51 <= row <= 55


def test_missing_loss_after_a_last_value_far_off_stops_soon(play: Play) -> None:
    rows = [
        (i, {"loss": learn(i, 100) if i < 49 else 1e9, "lr": 0.1} if i < 50 else {"lr": 0.1})
        for i in range(100)
    ]
    (row,) = stops(play(rows))
    assert 51 <= row <= 55


@pytest.mark.parametrize(
    "gone",
    [{"lr": 0.1}, {"lr": 0.1, "loss": None}, {"lr": 0.1, "loss": ""}],
    ids=["missing key", "null", "blank"],
)
def test_missing_loss_alone_is_no_stop(gone: dict[str, Any], play: Play) -> None:
    verdicts = play([(i, {"lr": 0.1, "loss": learn(i, 300)} if i < 300 else gone) for i in range(500)])
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.WAIT
    assert verdicts[-1].rule in ("metric-missing", "improving")
    assert "metric-missing" in {finding.rule for finding in verdicts[-1].findings}


@pytest.mark.parametrize("value", [None, "", "n/a", "-"])
def test_one_blank_in_a_healthy_run_is_nothing(value: Any, play: Play) -> None:
    verdicts = play([(i, {"loss": value if i in (50, 77) else learn(i, 200)}) for i in range(200)])
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


# --- a NaN that does not matter ---


@pytest.mark.parametrize("sparse", [{}, {"loss": None}], ids=["missing key", "null"])
@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("odd", [INF, NAN, "inf"])
def test_loss_scale_overflows_at_the_start(odd: Any, every: int, sparse: dict[str, Any], play: Play) -> None:
    rows = [
        (
            i,
            {
                "grad_norm": odd if i in (0, 1, 2, 3, 5, 211) else 1.0,
                **({"loss": learn(i, 800)} if i % every == 0 else sparse),
            },
        )
        for i in range(800)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_timing_that_is_nan(play: Play) -> None:
    verdicts = play(
        [(i, {"loss": learn(i, 300), "step_avg": NAN, "time/fps": INF, "epoch": NAN}) for i in range(300)]
    )
    assert {v.decision for v in verdicts[50:]} == {Decision.CONTINUE}


def test_a_score_without_anything_to_average(play: Play) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 400),
                **({"val/mAP": NAN if i < 80 else 0.5 - learn(i, 400) / 5} if i % 10 == 0 else {}),
            },
        )
        for i in range(400)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_an_untrained_models_perplexity_overflows(play: Play) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 400, 12, 3),
                **({"val_ppl": INF if i < 20 else math.exp(learn(i, 400, 12, 3))} if i % 10 == 0 else {}),
            },
        )
        for i in range(400)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE
    assert Gate().observe(0, {"val_ppl": NAN}).stopped


def test_the_loss_of_one_player_skips_a_batch(play: Play) -> None:
    rows = [(i, {"loss_gen": NAN if i in (40, 41, 90) else 1.0, "loss_dis": 0.7}) for i in range(200)]
    assert not stops(play(rows))
    assert stops(play([(i, {"loss_gen": NAN if i >= 40 else 1.0, "loss_dis": 0.7}) for i in range(200)])) == [
        43
    ]


# --- levels ---


def test_constant_garbage(play: Play) -> None:
    verdicts = play([(i, {"loss": 3.2e31 if i >= 3 else learn(i, 50)}) for i in range(620)])
    (row,) = stops(verdicts)
    assert row <= 50
    assert verdicts[-1].rule == "spike-divergent"


def test_a_loss_printed_as_zero(play: Play) -> None:
    verdicts = play([(i, {"loss": round(learn(i, 100, 2.0, 0.0), 4)}) for i in range(800)])
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


@pytest.mark.parametrize("first", [[0.0] * 3, [0.0] * 150, [1e-9]], ids=["zeros", "many zeros", "rounding"])
def test_a_loss_that_is_not_computed_at_first(first: list[float], play: Play, noise: Noise) -> None:
    values = first + [learn(i, 800) + noise(0.02) for i in range(800)]
    verdicts = play([(i, {"loss": value}) for i, value in enumerate(values)])
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_gradient_norm_that_was_never_computed(play: Play, noise: Noise) -> None:
    verdicts = play([(i, {"loss": learn(i, 300) + noise(0.01), "grad_norm": 0.0}) for i in range(300)])
    assert "zero-gradient" not in seen(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_large_gradient_norm_is_normal_there(play: Play, noise: Noise) -> None:
    verdicts = play(
        [(i, {"loss": learn(i, 300), "grad_norm": 1e5 * (1 + abs(noise(0.3)))}) for i in range(300)]
    )
    assert not seen(verdicts) & {"exploding-gradient", "nonfinite-gradient"}
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_gradient_leads_a_spike_that_recovers(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 800) + (20 * math.exp(-(i - 400) / 8) if i >= 400 else 0) + noise(0.01),
                "grad_norm": 960.0 if 398 <= i < 404 else 0.24,
            },
        )
        for i in range(800)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert {"spike-open", "exploding-gradient"} <= seen(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


# --- rising is fine ---


def test_value_and_policy_losses_rise_with_the_returns(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "rollout/ep_rew_mean": 500 - 4.8 * learn(i, 400, 100, 0) + noise(20),
                "train/value_loss": 1 + i * i / 50 + abs(noise(5)),
                "train/loss": 1 + i * i / 100,
            },
        )
        for i in range(400)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_the_losses_of_a_gan(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss_G": 0.7 + 4 * (1 - math.exp(-i / 300)) + noise(0.2),
                "loss_D": 0.3 + math.exp(-i / 100) + noise(0.1),
            },
        )
        for i in range(1500)
    ]
    assert not stops(play(rows))


def test_a_term_rises_beside_a_loss_that_falls(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 500, 100, 20) + noise(0.5),
                "kl_loss": 0.001 + 10 * (1 - math.exp(-i / 200)),
                "commit_loss": 1e-4 * (1 + i),
            },
        )
        for i in range(1000)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_box_loss_rises_in_the_first_epochs(play: Play) -> None:
    rows = [
        (
            i,
            {
                "train/box_loss": 1.5 + 0.4 * math.exp(-(((i - 3) / 2) ** 2)) - 0.7 * (1 - math.exp(-i / 30)),
                "val/box_loss": 1.5 + 0.3 * math.exp(-(((i - 3) / 2) ** 2)),
                "metrics/mAP50-95(B)": 0.5 * (1 - math.exp(-i / 25)),
            },
        )
        for i in range(100)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_eval_loss_rises_while_the_task_metric_improves(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 300, 2.5, 0.01),
                "eval_loss": 0.6 + abs(i - 60) / 200 + noise(0.01),
                "eval_accuracy": 0.9 - learn(i, 300, 0.8, 0.0),
            },
        )
        for i in range(300)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


@pytest.mark.parametrize("name", ["loss", "nll", "val_nll"])
def test_negative_losses(name: str, play: Play, noise: Noise) -> None:
    falling = [(i, {name: 50 + learn(i, 300, 0, -100) + noise(0.5)}) for i in range(600)]
    verdicts = play(falling)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE
    below = [(i, {name: -50 - 100 * (1 - math.exp(-i / 60)) + noise(0.5)}) for i in range(600)]
    verdicts = play(below)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE
    assert stops(play([*below, *((600 + i, {name: -150 + 1.2**i}) for i in range(300))]))


def test_an_elbo_that_is_maximised(play: Play, noise: Noise) -> None:
    verdicts = play(
        [(i, {"train/elbo": -500 + 400 * (1 - math.exp(-i / 60)) + noise(2)}) for i in range(400)],
        metric="train/elbo",
        mode="max",
    )
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


# --- jumps are fine ---


def test_warm_restarts(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": 0.3 + 2 * math.exp(-i / 400) + 0.5 * math.exp(-(i % 500) / 60) + noise(0.02),
                "lr": 0.25 * (1 + math.cos(math.pi * (i % 500) / 500)) + 1e-6,
            },
        )
        for i in range(3000)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert "lr-jump" in seen(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_cyclic_learning_rate(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": 0.5 + 1.5 * math.exp(-i / 500) + 0.3 * abs(math.sin(i / 100)) + noise(0.02),
                "lr": 0.01 * abs(math.sin(i / 100)) + 1e-5,
            },
        )
        for i in range(3000)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_population_based_exploit_forgets_the_baselines(play: Play) -> None:
    gate = Gate()
    play([(i, {"loss": learn(i, 200)}) for i in range(200)], gate=gate)
    gate.reset("exploit of trial 7")
    assert gate.verdict.decision is Decision.WAIT
    assert gate.verdict.reason == "exploit of trial 7"
    assert gate.rows == 200
    after = play([(i, {"loss": learn(i, 200, 400.0, 90.0)}) for i in range(150, 400)], gate=gate)
    assert not stops(after)
    assert after[-1].decision is Decision.CONTINUE
    assert gate.rows == 450


def test_a_restore_releases_a_latched_stop(play: Play) -> None:
    gate = Gate()
    play([(0, {"loss": 1.0}), (1, {"loss": NAN})], gate=gate)
    assert gate.observe(2, {"loss": 1.0}).stopped
    gate.reset("restored from a checkpoint")
    assert not gate.observe(1, {"loss": 1.0}).stopped


def test_mixup_is_bimodal(play: Play, noise: Noise) -> None:
    verdicts = play(
        [
            (i, {"loss": (0.3 if noise(1) > 0 else 1.5) + 1.5 * math.exp(-i / 300) + noise(0.05)})
            for i in range(3000)
        ]
    )
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


# --- flat is undecidable ---


def test_flat_at_ln_2_and_then_it_learns(play: Play, noise: Noise) -> None:
    rows = [
        (i, {"loss": (math.log(2) if i < 4000 else 0.1 + 0.59 * math.exp(-(i - 4000) / 300)) + noise(0.002)})
        for i in range(6000)
    ]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert {v.decision for v in verdicts[500:4000]} == {Decision.WAIT}
    assert "ln(2)" in verdicts[3999].reason
    assert verdicts[-1].decision is Decision.CONTINUE


def test_the_train_loss_ends_and_the_eval_goes_on(play: Play, noise: Noise) -> None:
    rows: list[tuple[int, dict[str, float]]] = [
        (i, {"loss": learn(i, 200) + noise(0.02), "eval_loss": learn(i, 3000)}) for i in range(50)
    ]
    rows += [(100 * i, {"eval_loss": learn(i, 3000) + noise(0.005)}) for i in range(50, 3000)]
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE
    rows.append((300_000, {"eval_loss": NAN}))
    assert stops(play(rows)) == [3001]


def test_train_looks_recovered_and_eval_is_not(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": learn(i, 500) + (50 * math.exp(-(i - 1000) / 20) if i >= 1000 else 0) + noise(0.01),
                **(
                    {"eval_loss": (learn(i, 500) + 0.1) * (1.14 if i > 1000 else 1) + noise(0.003)}
                    if i % 25 == 0
                    else {}
                ),
            },
        )
        for i in range(2000)
    ]
    verdicts = play(rows)
    assert verdicts[-1].decision is Decision.WAIT
    assert verdicts[-1].rule == "relapsed"


# --- steps ---


def test_steps_rewind_on_resume(play: Play, noise: Noise) -> None:
    steps = [*range(500), *range(400, 900), *range(850, 1500)]
    gate = Gate()
    verdicts = play([(s, {"loss": learn(s, 1500) + noise(0.02)}) for s in steps], gate=gate)
    assert gate.resets == 0
    assert verdicts[-1].decision is Decision.CONTINUE


def test_steps_repeat_for_train_eval_and_summary_rows(play: Play) -> None:
    rows: list[tuple[int, dict[str, float]]] = []
    for s in range(0, 600, 10):
        rows += [(s, {"loss": learn(s, 600)}), (s, {"eval_loss": learn(s, 600) + 0.1}), (s, {"lr": 0.1})]
    rows.append((590, {"train_runtime": 60.0, "train_loss": 0.9}))
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_several_runs_in_one_file(play: Play, noise: Noise) -> None:
    gate = Gate()
    verdicts = play(
        [(s, {"loss": learn(s, 800, 40, 0.5) + noise(0.02)}) for _ in range(3) for s in range(800)], gate=gate
    )
    assert gate.resets == 2
    assert not stops(verdicts)
    assert verdicts[800].decision is Decision.WAIT
    assert verdicts[-1].decision is Decision.CONTINUE


def test_batches_count_from_zero_in_each_epoch_of_one_run(play: Play, noise: Noise) -> None:
    gate = Gate()
    verdicts = play(
        [
            (b, {"loss": learn(100 * epoch + b, 2000) + noise(0.05)})
            for epoch in range(20)
            for b in range(100)
        ],
        gate=gate,
    )
    assert gate.resets == 0
    assert verdicts[-1].decision is Decision.CONTINUE


@pytest.mark.parametrize("step", [None, NAN, INF, "12", "last", 10**400, -5, 2.5, True, object()])
def test_any_step(step: Any, play: Play) -> None:
    verdicts = play([(step, {"loss": learn(i, 100)}) for i in range(100)])
    assert verdicts[-1].decision is Decision.CONTINUE
    assert verdicts[-1].row == 100


def test_rows_are_mixed_and_sparse(play: Play, noise: Noise) -> None:
    rows: list[tuple[int, dict[str, Any]]] = []
    for i in range(1500):
        row: dict[str, Any] = {"epoch": i / 100}
        if i % 7 == 0:
            row["loss"] = learn(i, 1500) + noise(0.02)
        if i % 50 == 0:
            row |= {"eval_loss": learn(i, 1500) + 0.1, "eval_accuracy": 0.9 - learn(i, 1500, 0.8, 0)}
        if i % 3 == 0:
            row |= {"lr": 1e-3, "note": "ok", "sample": [1, 2], "flag": False}
        rows.append((i, row))
    verdicts = play(rows)
    assert not stops(verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_empty_rows_decide_nothing(play: Play) -> None:
    verdicts = play([(i, {}) for i in range(500)])
    assert {v.decision for v in verdicts} == {Decision.WAIT}


# --- the life of a spike ---


def test_a_spike_recovers_lingers_or_diverges(play: Play, noise: Noise) -> None:
    def run(tail: Callable[[int], float]) -> list[Verdict]:
        return play(
            [
                (i, {"loss": learn(i, 400) + (tail(i - 400) if i >= 400 else 0.0) + noise(0.01)})
                for i in range(800)
            ]
        )

    recovered = run(lambda k: 200.0 * math.exp(-k / 5))
    assert "spike-open" in seen(recovered)
    assert recovered[-1].decision is Decision.CONTINUE
    lingering = run(lambda k: 6.0)
    assert "spike-lingering" in seen(lingering)
    assert not stops(lingering)
    assert lingering[-1].decision is Decision.WAIT
    divergent = run(lambda k: 1e4)
    (row,) = stops(divergent)
    assert row <= 480
    assert divergent[-1].rule == "spike-divergent"


def test_a_later_divergence_is_seen_after_a_spike_that_recovered(play: Play, noise: Noise) -> None:
    rows = [
        (
            i,
            {
                "loss": 1e25
                if i in (500, 501)
                else learn(i, 500) + noise(0.01)
                if i < 1000
                else 1.01 ** (i - 1000)
            },
        )
        for i in range(2000)
    ]
    verdicts = play(rows)
    assert {v.decision for v in verdicts[600:1000]} == {Decision.CONTINUE}
    assert stops(verdicts)
