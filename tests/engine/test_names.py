"""What a metric is, from the names that trainers log it under; and declarations that override it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.roles import ROLES, understand
from gatekeeper.verdict import Verdict

UP, DOWN = -1, 1

IGNORED = [
    "loss_scale",
    "loss_weight",
    "grad_norm_clip",
    "max_grad_norm",
    "best_val_loss",
    "total_flos",
    "eval_runtime",
    "eval_samples_per_second",
    "eval_steps_per_second",
    "train_runtime",
    "train_samples_per_second",
    "epoch",
    "time/fps",
    "step_avg",
    "step_time",
    "mfu",
    "train/mfu",
    "gpu_mem",
    "rollout/ep_len_mean",
    "train/clip_fraction",
    "train/std",
    "train/n_updates",
    "train/ent_coef",
    "charts/SPS",
    "charts/episodic_length",
    "losses/clipfrac",
    "training_iteration",
    "time_total_s",
    "time_this_iter_s",
    "test/num_examples",
    "score",
    "preemption_count",
    "weight_decay",
    "beta1",
    "entropy_coef",
    "num_loss",
    "loss_count",
    "time/loss",
    "system.cpu",
    "iter",
    "glossary",
    "lossless",
    "rewards/chosen",
    "rewards/rejected",
]

KNOWN: dict[str, list[tuple[str, str, int]]] = {
    "Hugging Face": [
        ("loss", "loss", DOWN),
        ("train_loss", "loss", DOWN),
        ("eval_loss", "eval", DOWN),
        ("eval_accuracy", "eval", UP),
        ("eval_f1", "eval", UP),
        ("eval_bleu", "eval", UP),
        ("eval_wer", "eval", DOWN),
        ("eval_rougeL", "eval", UP),
        ("grad_norm", "grad_norm", 0),
        ("learning_rate", "lr", 0),
        ("eval_rewards/accuracies", "eval", UP),
    ],
    "Lightning": [
        ("train/loss_step", "loss", DOWN),
        ("train/loss_epoch", "loss", DOWN),
        ("val_loss", "eval", DOWN),
        ("val_acc", "eval", UP),
        ("lr-Adam", "lr", 0),
        ("lr-SGD/pg1", "lr", 0),
        ("valid_loss", "eval", DOWN),
    ],
    "Keras": [
        ("val_accuracy", "eval", UP),
        ("accuracy", "train_metric", UP),
        ("val_sparse_categorical_accuracy", "eval", UP),
        ("val_mean_absolute_error", "eval", DOWN),
        ("val_mse", "eval", DOWN),
    ],
    "Stable-Baselines3": [
        ("rollout/ep_rew_mean", "eval", UP),
        ("eval/mean_reward", "eval", UP),
        ("train/value_loss", "value_loss", DOWN),
        ("train/policy_gradient_loss", "aux_loss", DOWN),
        ("train/entropy_loss", "entropy", UP),
        ("train/approx_kl", "kl", 0),
        ("train/explained_variance", "explained_variance", UP),
        ("train/actor_loss", "aux_loss", DOWN),
        ("train/critic_loss", "value_loss", DOWN),
        ("train/learning_rate", "lr", 0),
    ],
    "CleanRL": [
        ("charts/episodic_return", "eval", UP),
        ("losses/value_loss", "value_loss", DOWN),
        ("losses/policy_loss", "aux_loss", DOWN),
        ("losses/entropy", "entropy", DOWN),
        ("losses/qf1_loss", "value_loss", DOWN),
        ("losses/qf1_values", "q_pred", 0),
        ("charts/learning_rate", "lr", 0),
    ],
    "RLlib and Ray": [
        ("episode_reward_mean", "eval", UP),
        ("env_runners/episode_return_mean", "eval", UP),
        ("learners/default_policy/vf_loss", "value_loss", DOWN),
        ("learners/default_policy/total_loss", "aux_loss", DOWN),
        ("mean_accuracy", "train_metric", UP),
    ],
    "Ultralytics": [
        ("train/box_loss", "loss", DOWN),
        ("val/box_loss", "eval", DOWN),
        ("metrics/mAP50-95(B)", "eval", UP),
        ("metrics/precision(B)", "eval", UP),
        ("lr/pg0", "lr", 0),
    ],
    "nanoGPT and AlgoPerf": [
        ("train/loss", "loss", DOWN),
        ("val/loss", "eval", DOWN),
        ("val_bpb", "eval", DOWN),
        ("validation/ctc_loss", "eval", DOWN),
        ("validation/wer", "eval", DOWN),
        ("validation/ssim", "eval", UP),
    ],
    "actor and critic": [
        ("actor/loss", "aux_loss", DOWN),
        ("critic/loss", "value_loss", DOWN),
        ("actor/grad_norm", "grad_norm", 0),
        ("critic/q_pred", "q_pred", 0),
        ("critic/mc_return", "mc_return", 0),
        ("actor/entropy", "entropy", DOWN),
        ("eval/return", "eval", UP),
        ("eval/return_std", "return_std", 0),
    ],
    "games": [
        (name, "aux_loss", DOWN)
        for name in ("loss_dis", "loss_gen", "loss_G", "loss_D", "D_loss", "G_loss", "generator_loss")
    ],
    "others": [
        ("val/mAP", "eval", UP),
        ("FID", "eval", DOWN),
        ("val_ppl", "eval", DOWN),
        ("val_psnr", "eval", UP),
        ("dice_loss", "loss", DOWN),
        ("loss_giou", "loss", DOWN),
        ("val_dice", "eval", UP),
        ("reward", "eval", UP),
        ("reward_std", "return_std", 0),
        ("lr/group0", "lr", 0),
        ("perplexity", "loss", DOWN),
        ("wer", "train_metric", DOWN),
        ("system.gpu.0.gpu", "gpu_util", 0),
    ],
}


@pytest.mark.parametrize("name", IGNORED)
def test_clocks_counters_and_settings_never_decide(name: str, play: Callable[..., list[Verdict]]) -> None:
    assert understand(name).role == "ignored"
    loss = [1.0 + math.exp(-i / 40) for i in range(200)]
    plain = play([(i, {"loss": value}) for i, value in enumerate(loss)])
    beside = play(
        [(i, {"loss": value, name: math.nan if i > 100 else 1e9 * i}) for i, value in enumerate(loss)]
    )
    assert [v.decision for v in beside] == [v.decision for v in plain]


@pytest.mark.parametrize(
    ("name", "role", "direction"),
    [case for cases in KNOWN.values() for case in cases],
    ids=str,
)
def test_names_are_understood_with_their_direction(name: str, role: str, direction: int) -> None:
    guess = understand(name)
    assert (guess.role, guess.direction) == (role, direction)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ("loss", "train/aux_loss"),
        ("train_loss", "loss_ce"),
        ("val_accuracy", "val_loss"),
        ("val_loss", "test_loss"),
        ("eval/mean_reward", "rollout/ep_rew_mean"),
        ("metrics/mAP50-95(B)", "val/box_loss"),
        ("eval_loss", "FID"),
    ],
)
def test_the_better_candidate_plays_the_role_whatever_the_order(better: str, worse: str) -> None:
    for order in ((better, worse), (worse, better)):
        gate = Gate()
        for i in range(5):
            gate.observe(i, dict.fromkeys(order, 1.0 / (i + 1)))
        role = understand(better).role
        assert gate.roles["eval" if role == "eval" else role] == better


@pytest.mark.parametrize("name", ["x1", "loss_scale", "my metric", "épaisseur", "a" * 500])
def test_any_name_can_be_declared(name: str) -> None:
    for roles in ({"loss": name}, {name: "loss"}):
        gate = Gate(roles=roles)
        assert gate.observe(0, {name: math.nan}).stopped
        assert gate.verdict.roles["loss"] == name


@pytest.mark.parametrize("roles", [{"loss": "off"}, {"train/loss": "off"}])
def test_a_metric_or_a_role_can_be_switched_off(roles: dict[str, str]) -> None:
    gate = Gate(roles=roles)
    assert not gate.observe(0, {"train/loss": math.nan}).stopped
    assert gate.roles == {}


def test_a_declared_role_wins_over_a_better_name() -> None:
    gate = Gate(roles={"loss": "odd"})
    for i in range(5):
        gate.observe(i, {"loss": 1.0, "odd": 2.0})
    assert gate.roles["loss"] == "odd"


def test_the_objective_is_the_one_that_is_named() -> None:
    gate = Gate(metric="train/quality", mode="max")
    for i in range(100):
        gate.observe(i, {"val_accuracy": 0.1, "train/quality": 1.0 - math.exp(-i / 20), "loss": 1.0})
    assert gate.roles["eval"] == "train/quality"
    assert gate.verdict.decision.value == "CONTINUE"


def test_text_and_nothing_under_a_metrics_name_take_no_role() -> None:
    gate = Gate()
    for i in range(60):
        gate.observe(
            i, {"loss": "cross-entropy", "val_accuracy": None, "train_loss": 1.0 + math.exp(-i / 15)}
        )
    assert gate.roles == {"loss": "train_loss"}
    assert gate.verdict.decision.value == "CONTINUE"


@pytest.mark.parametrize("name", ["", "   ", "///", "\x00", "🔥", "__proto__", "a.b.c/d e", "N/A"])
def test_no_name_is_too_odd(name: str) -> None:
    assert understand(name).role in {*ROLES, "ignored"}
    Gate().observe(0, {name: 1.0})


@pytest.mark.parametrize("key", [1, None, 2.5, ("loss",), b"loss", math.nan])
def test_keys_that_are_no_text_are_left_aside(key: Any) -> None:
    gate = Gate()
    for i in range(5):
        gate.observe(i, {key: 1.0, "loss": 1.0})
    assert gate.roles == {"loss": "loss"}
