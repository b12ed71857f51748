"""What a gate can be told: keys, rules, thresholds, baselines, budgets; and its answer to an unknown key."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.baseline import Baseline, BaselineMetric, BaselinePoint
from gatekeeper.config import ConfigError, Settings, Thresholds, load_settings, settings_from
from gatekeeper.errors import GatekeeperError
from gatekeeper.verdict import Decision, Verdict

Play = Callable[..., list[Verdict]]


def learn(i: int, n: int, end: float = 0.5, start: float = 2.5) -> float:
    return end + (start - end) * math.exp(-5.0 * i / n)


# --- errors ---


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        ({"metrik": "loss"}, ["'metrik'", "'metric'"]),
        ({"budget_step": 5}, ["'budget_step'", "'budget_steps'"]),
        ({"rules": {"nonfinite-los": "off"}}, ["nonfinite-los", "'nonfinite-loss'"]),
        ({"rules": {"loss-flat": "kill"}}, ["loss-flat", "'kill'", "stop, warn, off"]),
        ({"thresholds": {"far_heigth": 3}}, ["far_heigth", "'far_height'"]),
        ({"thresholds": {"far_height": "high"}}, ["far_height", "'high'", "number"]),
        ({"thresholds": {"far_height": math.nan}}, ["far_height", "nan"]),
        ({"thresholds": 3}, ["thresholds", "table"]),
        ({"rules": ["loss-flat"]}, ["rules", "table"]),
        ({"roles": {"los": "x"}}, ["los", "'loss'"]),
        ({"roles": {"loss": 3}}, ["roles.loss", "3"]),
        ({"mode": "maximum"}, ["'maximum'", "min", "max"]),
        ({"metric": ""}, ["metric"]),
        ({"metric": 7}, ["metric", "7"]),
        ({"smoke": "yes"}, ["smoke", "'yes'", "true"]),
        ({"budget_steps": True}, ["budget_steps", "True"]),
        ({"maximum_loss": "1"}, ["maximum_loss", "'1'"]),
        ({"required_decrease": math.inf}, ["required_decrease"]),
        ({"lr_schedule": "cosine"}, ["'cosine'", "warmup-decay"]),
        ({"fallback": [1]}, ["fallback", "list"]),
        ({"baseline": "no-such-file.json"}, ["no-such-file.json", "gatekeeper baseline record"]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_error_names_the_key_and_the_remedy(table: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(GatekeeperError) as caught:
        settings_from(table, "gatekeeper.toml")
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    if "baseline" not in table:
        assert "gatekeeper.toml" in str(caught.value)


@pytest.mark.parametrize(
    "options", [{"mode": "up"}, {"roles": {"los": "x"}}, {"metric": 3}, {"config": {"rule": {}}}]
)
def test_a_gate_refuses_what_it_does_not_know(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Gate(**options)


def test_arguments_win_over_the_configuration() -> None:
    gate = Gate(
        metric="b",
        mode="max",
        roles={"loss": "l"},
        config={"metric": "a", "mode": "min", "roles": {"lr": "r"}},
    )
    assert (gate.settings.metric, gate.settings.mode) == ("b", "max")
    assert gate.settings.roles == {"lr": "r", "loss": "l"}
    kept = Gate(config={"metric": "a", "mode": "min"})
    assert (kept.settings.metric, kept.settings.mode) == ("a", "min")


# --- files ---


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_settings(start=tmp_path).thresholds == Thresholds()


def test_the_nearest_file_upward_is_read(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "gatekeeper.toml").write_text('metric = "top"\nnotes = "out"\n')
    assert load_settings(start=below).metric == "top"
    assert load_settings(start=below).notes == tmp_path / "out"
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.gatekeeper]\nmetric = "middle"\n')
    assert load_settings(start=below).metric == "middle"
    (below / "gatekeeper.toml").write_text('metric = "here"\n')
    assert load_settings(start=below).metric == "here"


def test_the_working_directory_is_where_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gatekeeper.toml").write_text("[rules]\nloss-flat = 'off'\n")
    monkeypatch.chdir(tmp_path)
    assert load_settings().rules == {"loss-flat": "off"}


def test_a_table_of_every_kind_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(
        '[tool.gatekeeper]\nmetric = "m"\nmode = "max"\nbudget_steps = 1000\nbaseline = 0.5\n'
        'lr_schedule = "constant"\nsmoke = true\n'
        'required_decrease = 0.2\nmaximum_loss = 3\nnotes = "n"\nfallback = ["a.log"]\n'
        '[tool.gatekeeper.roles]\nloss = "x"\n"train/odd" = "off"\n'
        '[tool.gatekeeper.rules]\nloss-flat = "warn"\n'
        "[tool.gatekeeper.thresholds]\nfar_height = 20\n"
    )
    settings = load_settings(path)
    assert (settings.metric, settings.mode, settings.budget_steps, settings.baseline_value) == (
        "m",
        "max",
        1000.0,
        0.5,
    )
    assert (settings.smoke, settings.required_decrease, settings.maximum_loss, settings.lr_schedule) == (
        True,
        0.2,
        3.0,
        "constant",
    )
    assert settings.fallback == ("a.log",)
    assert settings.roles == {"loss": "x", "train/odd": "off"}
    assert settings.rules == {"loss-flat": "warn"}
    assert settings.thresholds.far_height == 20.0


@pytest.mark.parametrize("content", [b"metric = ", b"\xff\xfe", b"metric = 3\n"])
def test_a_bad_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gatekeeper.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"gatekeeper\.toml"):
        load_settings(start=tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gatekeeper init"):
        load_settings(tmp_path / "none.toml")


# --- each threshold matters ---


def wave(i: int) -> float:
    return ((i * 7919) % 101) / 101.0 - 0.5


def run_for(name: str) -> tuple[list[tuple[int, dict[str, float]]], dict[str, Any]]:
    """Return a run (and a configuration) whose findings depend on the threshold."""
    n = 400
    spiky = [(i, {"loss": learn(i, 200) + (60 if i >= 200 else 0) + 0.01 * wave(i)}) for i in range(n)]
    run_away = [
        (i, {"loss": learn(i, 200) + (100 * 1.5 ** (i - 200) if i >= 200 else 0) + 0.01 * wave(i)})
        for i in range(n)
    ]
    rising = [(i, {"loss": learn(i, 100) + 0.03 * max(0, i - 100) + 0.01 * wave(i)}) for i in range(n)]
    hump = [(i, {"loss": 1.0 + 0.1 * i + 0.01 * wave(i)}) for i in range(200)]
    evals = [
        (i, {"loss": learn(i, n), "eval_loss": (learn(i, 50) if i < 50 else 100.0) + 0.01 * wave(i)})
        for i in range(100)
    ]
    early = [(i, {"loss": (2.3 - 0.1 * i if i < 4 else 200.0) * (1 + 0.6 * wave(i))}) for i in range(100)]
    learned = [(i, {"loss": learn(i, 300, 2.2) + 0.02 * wave(i)}) for i in range(n)]
    accuracy = [(i, {"val_accuracy": 0.3 - learn(i, 200, 0.0, 0.2) + 0.01 * wave(i)}) for i in range(200)]
    returns = [(i, {"eval/return": 130 - learn(i, 200, 0, 30) + wave(i)}) for i in range(200)]
    lost = [(i, {"loss": (learn(i, 200) if i < 200 else 1.5) + 0.01 * wave(i)}) for i in range(n)]
    over = [
        (i, {"loss": learn(i, n), "eval_loss": 1.0 + abs(i - 150) / 500 + 0.001 * wave(i)}) for i in range(n)
    ]
    gap = [(i, {"train_acc": 0.9, "val_acc": 0.6, "loss": learn(i, n)}) for i in range(100)]
    missing: list[tuple[int, dict[str, float]]] = [
        (i, {"loss": learn(i, 60)} if i < 60 or i == 90 else {"x": 1.0}) for i in range(100)
    ]
    gradient = [(i, {"loss": learn(i, n), "grad_norm": 2000.0 if i > 95 else 1.0}) for i in range(100)]
    actor = [(i, {"rollout/ep_rew_mean": learn(i, n), "actor/grad_norm": 150.0}) for i in range(100)]
    small = [
        (i, {"loss": learn(i, n), "grad_norm": 5e-8 if i > 10 else 1.0, "lr": 0.1 if i < 60 else 0.4})
        for i in range(70)
    ]
    zero = [(i, {"loss": learn(i, n), "grad_norm": 0.0 if i > 80 else 1.0}) for i in range(92)]
    flat = [(i, {"loss": 1.0 + 0.001 * wave(i)}) for i in range(100)]
    noisy = [(i, {"loss": 1.0 + 0.5 * wave(i + 50)}) for i in range(100)]
    agent = [
        (
            i,
            {
                "rollout/ep_rew_mean": 10.0,
                "train/entropy": 0.05 if i > 10 else 1.0,
                "q_pred": 30.0,
                "mc_return": 10.0,
                "train/approx_kl": 0.2,
                "eval/std_reward": 15.0,
                "system.gpu.0.gpu": 4.0,
            },
        )
        for i in range(100)
    ]
    forgotten = [
        (i, {"eval/return": 10 + 90 * math.exp(-(((i - 100) / 60) ** 2)) + 40 * (i > 150)}) for i in range(n)
    ]
    behind = [(i, {"loss": learn(i, 300, 1.0) + 0.01 * wave(i)}) for i in range(n)]
    smoke = [(i, {"loss": 2.0 - 0.004 * i + 0.05 * wave(i)}) for i in range(60)]
    point = BaselinePoint(0.0, 0.9, 0.02, 50)
    spread = Baseline(
        50,
        {
            "loss": BaselineMetric(
                "min", BaselinePoint(400.0, 0.9, 0.02, 50), (point, BaselinePoint(400.0, 0.9, 0.02, 50))
            )
        },
    )
    runs: dict[str, tuple[list[tuple[int, dict[str, float]]], dict[str, Any]]] = {
        "far_height": (spiky, {}),
        "runaway_height": (run_away, {}),
        "runaway_growth": (run_away, {}),
        "lingering_values": (spiky, {}),
        "lingering_evals": (evals, {}),
        "lingering_share": (spiky, {}),
        "rising_checkpoints": (rising, {}),
        "rising_height": (rising, {}),
        "rising_values": (hump, {}),
        "rising_z": (rising, {}),
        "rising_walk_z": (rising, {}),
        "unproven_height": (early, {}),
        "learned_share": (learned, {}),
        "learned_z": (learned, {}),
        "return_share": (returns, {}),
        "return_z": (returns, {}),
        "headroom_share": (accuracy, {}),
        "chance_share": (accuracy, {}),
        "relapse_share": (lost, {}),
        "relapse_z": (lost, {}),
        "overfit_share": (over, {}),
        "gap_share": (gap, {}),
        "missing_gaps": (missing, {}),
        "missing_rows": (missing, {}),
        "grad_explosion": (gradient, {}),
        "grad_high": (actor, {}),
        "grad_vanishing": (small, {}),
        "zero_values": (zero, {}),
        "lr_jump": (small, {}),
        "flat_share": (flat, {}),
        "noisy_ratio": (noisy, {}),
        "entropy_floor": (agent, {}),
        "entropy_steps": (agent, {}),
        "q_ratio": (agent, {}),
        "forgetting_share": (forgotten, {}),
        "kl_high": (agent, {}),
        "return_spread": (agent, {}),
        "gpu_idle": (agent, {}),
        "baseline_z": (behind, {"baseline": spread}),
        "baseline_margin": (behind, {"baseline": 0.9, "budget_steps": 400}),
        "early_share": (behind, {"baseline": 0.1, "budget_steps": 400}),
        "smoke_rows": (smoke, {"smoke": True}),
        "smoke_z": (smoke, {"smoke": True}),
    }
    return runs[name]


@pytest.mark.parametrize("name", [item.name for item in fields(Thresholds)])
def test_each_threshold_changes_what_is_said(name: str, play: Play) -> None:
    rows, config = run_for(name)

    def said(value: float) -> list[tuple[Any, ...]]:
        verdicts = play(rows, config={**config, "thresholds": {name: value}})
        return [(v.decision, v.rule, [f.rule for f in v.findings]) for v in verdicts]

    default = getattr(Thresholds(), name)
    outcomes = [said(default), said(default * 1e4 + 1), said(default / 1e4), said(0.0)]
    assert any(outcome != outcomes[0] for outcome in outcomes[1:])


# --- baselines and budgets ---


def curve_baseline(
    metric: str, direction: Any, points: list[tuple[float, float]], spread: float | None = 0.02
) -> Baseline:
    made = tuple(BaselinePoint(step, mean, spread, 10) for step, mean in points)
    return Baseline(10, {metric: BaselineMetric(direction, made[-1], made)})


@pytest.mark.parametrize("budget", [None, 300])
def test_a_run_that_ends_at_the_baselines_number_is_left_alone(budget: int | None, play: Play) -> None:
    config = {"baseline": 0.52, **({"budget_steps": budget} if budget else {})}
    verdicts = play([(i, {"loss": learn(i, 300) + 0.01 * wave(i)}) for i in range(300)], config=config)
    assert not any(v.stopped for v in verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE


def test_a_run_that_settles_behind_the_baselines_number_is_stopped(play: Play) -> None:
    rows = [(i, {"loss": learn(i, 150, 1.0) + 0.01 * wave(i)}) for i in range(300)]
    verdicts = play(rows, config={"baseline": 0.5, "budget_steps": 300})
    stop = next(v for v in verdicts if v.stopped)
    assert stop.rule == "worse-than-baseline"
    assert stop.row > 90  # not within the early share of the budget
    assert {v.decision for v in verdicts[60:90]} == {Decision.WAIT}


def test_higher_is_better_against_a_number(play: Play) -> None:
    rows = [(i, {"val_accuracy": 0.6 - learn(i, 150, 0.0, 0.5) + 0.002 * wave(i)}) for i in range(300)]
    assert (
        next(v for v in play(rows, config={"baseline": 0.9, "budget_steps": 300}) if v.stopped).rule
        == "worse-than-baseline"
    )
    assert not any(v.stopped for v in play(rows, config={"baseline": 0.3, "budget_steps": 300}))


def test_a_curve_is_compared_at_the_same_step(play: Play) -> None:
    points = [(float(s), learn(s, 300)) for s in range(0, 301, 10)]
    config = {"baseline": curve_baseline("loss", "min", points)}
    same = play([(i, {"loss": learn(i, 300) + 0.01 * wave(i)}) for i in range(300)], config=config)
    assert not any(v.stopped for v in same)
    assert same[-1].decision is Decision.CONTINUE
    worse = play([(i, {"loss": learn(i, 300) + 0.3 + 0.01 * wave(i)}) for i in range(300)], config=config)
    stop = next(v for v in worse if v.stopped)
    assert stop.rule == "worse-than-baseline"
    assert stop.row >= 90
    assert "slightly-worse-than-baseline" in {f.rule for v in worse[:90] for f in v.findings}


def test_a_comparison_that_cannot_be_made_is_said(play: Play) -> None:
    config = {"baseline": curve_baseline("other", "min", [(0.0, 1.0), (300.0, 0.5)])}
    verdicts = play([(i, {"loss": learn(i, 300)}) for i in range(300)], config=config)
    finding = next(f for f in verdicts[-1].findings if f.rule == "no-comparison")
    assert "'loss'" in finding.message
    assert not any(v.stopped for v in verdicts)


# --- smoke runs ---


def smoke(rows: list[dict[str, float]], play: Play, **config: Any) -> Verdict:
    return play(list(enumerate(rows)), config={"smoke": True, **config})[-1]


def test_a_healthy_short_run_goes_on(play: Play) -> None:
    assert (
        smoke([{"loss": learn(i, 40) + 0.02 * wave(i), "grad_norm": 1.0} for i in range(40)], play).decision
        is Decision.CONTINUE
    )


def test_a_frozen_run_is_stopped(play: Play) -> None:
    verdict = smoke([{"loss": 2.3} for _ in range(20)], play)
    assert (verdict.decision, verdict.rule) == (Decision.STOP, "smoke-no-decrease")
    assert smoke([{"loss": 0.0} for _ in range(20)], play).decision is Decision.STOP


def test_a_dead_gradient_is_stopped(play: Play) -> None:
    assert (
        smoke([{"loss": 2.3 + 0.001 * wave(i), "grad_norm": 0.0} for i in range(40)], play).decision
        is Decision.STOP
    )


def test_a_nan_is_stopped(play: Play) -> None:
    assert smoke([{"loss": math.nan if i == 3 else 1.0} for i in range(5)], play).rule == "nonfinite-loss"


@pytest.mark.parametrize("rows", [1, 2, 5, 7])
@pytest.mark.parametrize("value", [lambda i: 2.0 - 0.2 * i, lambda i: 2.0])
def test_too_few_rows_are_too_little_evidence(rows: int, value: Callable[[int], float], play: Play) -> None:
    assert smoke([{"loss": value(i)} for i in range(rows)], play).decision is Decision.WAIT
    assert (
        smoke([{"loss": value(i), "eval_loss": value(i)} for i in range(rows)], play).decision
        is Decision.WAIT
    )


def test_noise_without_a_decrease_waits(play: Play) -> None:
    assert smoke([{"loss": 2.3 + 0.2 * wave(i)} for i in range(40)], play).decision is Decision.WAIT


def test_a_required_decrease(play: Play) -> None:
    rows = [{"loss": 2.0 - 0.01 * i + 0.002 * wave(i)} for i in range(40)]
    assert smoke(rows, play, required_decrease=0.1).decision is Decision.CONTINUE
    asked = smoke(rows, play, required_decrease=0.5)
    assert asked.decision is Decision.WAIT
    assert "0.5" in asked.reason


def test_a_maximum_loss(play: Play) -> None:
    rows = [{"loss": learn(i, 40) + 0.01 * wave(i)} for i in range(40)]
    assert smoke(rows, play, maximum_loss=1.0).decision is Decision.CONTINUE
    above = smoke(rows, play, maximum_loss=0.2)
    assert (above.decision, above.rule) == (Decision.WAIT, "smoke-above-maximum")


def test_smoke_rules_are_silent_otherwise(play: Play) -> None:
    verdicts = play(
        [(i, {"loss": 2.3}) for i in range(40)], config={"maximum_loss": 0.1, "required_decrease": 0.9}
    )
    assert not [f for v in verdicts for f in v.findings if f.rule.startswith("smoke")]


def test_settings_are_plain_values() -> None:
    assert settings_from({}) == Settings()
    assert os.fspath(settings_from({"notes": Path("n")}).notes or "") == "n"
