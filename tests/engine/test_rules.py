"""Every row of the judgment table: a run made for it, a sound run, and the contract that all rules keep."""

from __future__ import annotations

import json
import math
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.baseline import Baseline, BaselineMetric, BaselinePoint
from gatekeeper.config import ConfigError
from gatekeeper.table import CHECKS, RULE_NAMES, TABLE, row_of
from gatekeeper.verdict import Decision, Judgment, Verdict

Rows = list[tuple[int, dict[str, Any]]]
_RANDOM = random.Random(7)
_NOISE = [_RANDOM.gauss(0.0, 1.0) for _ in range(4096)]


def jitter(i: int, spread: float = 0.01) -> float:
    return spread * _NOISE[i % 4096]


def fall(i: int, n: int, start: float = 2.5, end: float = 0.3) -> float:
    return end + (start - end) * math.exp(-3.0 * i / n)


def rows(n: int, *metrics: Callable[[int], Mapping[str, Any]]) -> Rows:
    return [(i, {name: value for metric in metrics for name, value in metric(i).items()}) for i in range(n)]


def loss(n: int, **ends: float) -> Callable[[int], Mapping[str, Any]]:
    return lambda i: {"loss": fall(i, n, **ends) + jitter(i)}


def series(name: str, value: Callable[[int], Any], every: int = 1) -> Callable[[int], Mapping[str, Any]]:
    return lambda i: {name: value(i)} if i % every == 0 else {}


def a_baseline(metric: str, mean: float, spread: float | None, last: float) -> Baseline:
    points = (BaselinePoint(0.0, mean, spread, 5), BaselinePoint(last, mean, spread, 5))
    return Baseline(5, {metric: BaselineMetric("min", points[1], points)})


@dataclass
class Case:
    """A run made for a rule. ``scaled``: it must fire too where all values are multiplied by one factor."""

    rows: Rows
    config: dict[str, Any] = field(default_factory=dict)
    scaled: bool = True
    decision: str | None = None


N = 400
RL = (
    series("rollout/ep_rew_mean", lambda i: 10.0 + jitter(i)),
    series("train/value_loss", lambda i: 1.0 + jitter(i)),
)
CASES: dict[str, Case] = {
    "nonfinite-loss": Case(
        rows(200, loss(200), series("loss", lambda i: math.nan if i == 150 else fall(i, 200))),
        decision="STOP",
    ),
    "loss-diverging": Case(
        rows(N, series("loss", lambda i: fall(i, 100) if i < 100 else 0.42 + 0.03 * (i - 100) + jitter(i))),
        decision="STOP",
    ),
    "spike-divergent": Case(
        rows(N, series("loss", lambda i: 1e5 + jitter(i) if i >= 200 else fall(i, 200) + jitter(i))),
        decision="STOP",
    ),
    "worse-than-baseline": Case(
        rows(200, loss(200, end=1.0)), {"baseline": 0.5, "budget_steps": 200}, scaled=False, decision="STOP"
    ),
    "improving": Case(rows(200, loss(200)), decision="CONTINUE"),
    "loss-flat": Case(rows(200, series("loss", lambda i: 1.0 + jitter(i, 1e-4))), decision="WAIT"),
    "too-noisy": Case(rows(200, series("loss", lambda i: 1.0 + jitter(i, 0.3))), decision="WAIT"),
    "slightly-worse-than-baseline": Case(
        rows(200, loss(200, end=0.97)), {"baseline": 1.0, "budget_steps": 200}, scaled=False, decision="WAIT"
    ),
    "metric-missing": Case(
        [(i, {"loss": fall(i, N)} if i < 300 else {"lr": 0.1}) for i in range(N)], decision="WAIT"
    ),
    "nonfinite-score": Case(
        rows(
            200,
            loss(200),
            series("val/mAP", lambda i: math.nan if i > 180 else 0.5 - 0.4 * math.exp(-i / 50), 10),
        ),
        decision="WAIT",
    ),
    "spike-open": Case(
        rows(202, series("loss", lambda i: 30.0 if i >= 200 else fall(i, 200) + jitter(i))), decision="WAIT"
    ),
    "spike-lingering": Case(
        rows(220, series("loss", lambda i: 8.0 if i >= 200 else fall(i, 200) + jitter(i)))
    ),
    "nonfinite-gradient": Case(
        rows(200, loss(200), series("grad_norm", lambda i: math.inf if i > 150 else 1.0 + jitter(i)))
    ),
    "exploding-gradient": Case(
        rows(200, loss(200), series("grad_norm", lambda i: 1e5 if i > 195 else 1.0 + jitter(i)))
    ),
    "vanishing-gradient": Case(
        rows(200, loss(200), series("grad_norm", lambda i: 1e-9 if i > 20 else 1.0)), scaled=False
    ),
    "zero-gradient": Case(rows(200, loss(200), series("grad_norm", lambda i: 0.0 if i > 100 else 1.0))),
    "lr-zero": Case(rows(200, loss(200), series("lr", lambda i: 0.0 if i > 100 else 0.1))),
    "lr-jump": Case(rows(200, loss(200), series("lr", lambda i: 0.1 if i > 150 else 0.001))),
    "lr-rising-with-loss": Case(
        rows(
            N,
            series("loss", lambda i: fall(i, 100) + 0.005 * max(0, i - 100) + jitter(i)),
            series("lr", lambda i: 1e-3 * (1 + i)),
        )
    ),
    "lr-off-schedule": Case(
        rows(200, loss(200), series("lr", lambda i: 0.1 + 0.001 * i)), {"lr_schedule": "decreasing"}
    ),
    "never-learned": Case(
        rows(200, series("loss", lambda i: math.log(10) + jitter(i, 1e-3))), decision="WAIT"
    ),
    "relapsed": Case(
        rows(N, series("loss", lambda i: (fall(i, 200) if i < 200 else 1.8) + jitter(i))), decision="WAIT"
    ),
    "plateau": Case(
        rows(N, series("loss", lambda i: max(0.5, 2.5 - 0.02 * i) + 1e-4 * i + jitter(i, 0.001)))
    ),
    "oscillating": Case(
        rows(60, series("loss", lambda i: 1.0 + 0.5 * (-1) ** i + jitter(i))), decision="WAIT"
    ),
    "overfitting": Case(
        rows(N, loss(N), series("eval_loss", lambda i: 1.0 + abs(i - 150) / 150 + jitter(i), 4)),
        decision="WAIT",
    ),
    "eval-degrading": Case(
        rows(N, loss(N), series("eval_loss", lambda i: 1.0 + abs(i - 200) / 200 + jitter(i), 4)),
        decision="WAIT",
    ),
    "train-eval-gap": Case(
        rows(
            200,
            loss(200),
            series("train_acc", lambda i: 0.98),
            series("val_acc", lambda i: 0.6 - 0.5 * math.exp(-i / 20)),
        ),
        scaled=False,
    ),
    "no-comparison": Case(rows(200, loss(200)), {"baseline": a_baseline("other", 1.0, 0.1, 200)}),
    "q-overestimation": Case(
        rows(
            200,
            *RL,
            series("q_pred", lambda i: 50.0 + jitter(i)),
            series("mc_return", lambda i: 10.0 + jitter(i)),
        ),
        decision="WAIT",
    ),
    "entropy-collapse": Case(
        rows(200, *RL, series("train/entropy", lambda i: 0.69 if i < 50 else 1e-4)),
        scaled=False,
        decision="WAIT",
    ),
    "forgetting": Case(
        rows(N, series("eval/return", lambda i: 100.0 * math.exp(-(((i - 100) / 60) ** 2)) + jitter(i))),
        decision="WAIT",
    ),
    "kl-too-large": Case(rows(200, *RL, series("train/approx_kl", lambda i: 0.5)), scaled=False),
    "explained-variance-low": Case(
        rows(200, *RL, series("train/explained_variance", lambda i: -0.5)), scaled=False
    ),
    "return-spread": Case(
        rows(200, series("eval/mean_reward", lambda i: 10.0), series("eval/std_reward", lambda i: 30.0))
    ),
    "gpu-idle": Case(rows(200, loss(200), series("system.gpu.0.gpu", lambda i: 1.0)), scaled=False),
    "smoke-no-decrease": Case(rows(40, series("loss", lambda i: 1.0)), {"smoke": True}, decision="STOP"),
    "smoke-above-maximum": Case(
        rows(40, loss(40)), {"smoke": True, "maximum_loss": 0.1}, scaled=False, decision="WAIT"
    ),
}

RULES = [name for name, _ in CHECKS]


def healthy(n: int = 600) -> Rows:
    """A supervised run with every kind of metric, improving to its end."""
    return rows(
        n,
        loss(n),
        series("eval_loss", lambda i: fall(i, n) + 0.05 + jitter(i), 10),
        series("eval_accuracy", lambda i: 0.9 - 0.8 * fall(i, n, 1.0, 0.0) + jitter(i, 0.001), 10),
        series("train_accuracy", lambda i: 0.95 - 0.8 * fall(i, n, 1.0, 0.0) + jitter(i, 0.001)),
        series("grad_norm", lambda i: 1.0 + abs(jitter(i, 0.3))),
        series("lr", lambda i: 1e-3 * (1 - i / n) + 1e-6),
        series("system.gpu.0.gpu", lambda i: 90.0),
    )


def healthy_agent(n: int = 600) -> Rows:
    """An agent that improves to the end of its run while its critic's loss rises with the returns."""
    return rows(
        n,
        series("eval/mean_reward", lambda i: 500.0 - 480.0 * fall(i, n, 1.0, 0.0) + jitter(i, 5.0)),
        series("eval/std_reward", lambda i: 20.0 + jitter(i)),
        series("train/value_loss", lambda i: 1.0 + i / 10 + jitter(i)),
        series("train/policy_gradient_loss", lambda i: -0.01 + jitter(i, 0.01)),
        series("train/loss", lambda i: 1.0 + i / 20 + jitter(i, 0.5)),
        series("train/entropy", lambda i: 0.69 - 0.3 * i / n),
        series("train/approx_kl", lambda i: 0.01 + abs(jitter(i, 0.002))),
        series("train/explained_variance", lambda i: 0.2 + 0.6 * i / n),
        series("q_pred", lambda i: 100.0 + jitter(i)),
        series("mc_return", lambda i: 95.0 + jitter(i)),
    )


def judge(case: Case, **more: Any) -> tuple[Gate, list[Verdict]]:
    config = {**case.config, **more}
    gate = Gate(config=config)
    return gate, [gate.observe(step, metrics) for step, metrics in case.rows]


def said(verdicts: list[Verdict]) -> set[str]:
    return {finding.rule for verdict in verdicts for finding in verdict.findings}


def only(rule: str, action: str | None = None) -> dict[str, str]:
    actions = {name: "off" for name in RULES if name != rule}
    return {**actions, rule: action} if action else actions


# --- each rule has its run ---


def test_every_row_of_the_table_has_a_rule_and_a_run() -> None:
    assert set(CASES) == set(RULES)
    assert [row.rule for row in TABLE if row.rule not in RULES] == ["unreachable"]


@pytest.mark.parametrize("rule", RULES)
def test_fires_on_the_run_made_for_it(rule: str) -> None:
    case = CASES[rule]
    _, verdicts = judge(case)
    assert rule in said(verdicts)
    finding = next(item for verdict in verdicts for item in verdict.findings if item.rule == rule)
    assert finding.message
    assert finding.judgment.value in row_of(rule).judgment
    if case.decision is not None:
        assert verdicts[-1].decision.value == case.decision
    if case.decision == "STOP":
        assert verdicts[-1].rule == rule
        assert verdicts[-1].reason in {item.message for item in verdicts[-1].findings if item.rule == rule}


@pytest.mark.parametrize("run", [healthy, healthy_agent])
def test_all_but_improving_are_silent_on_a_sound_run(
    run: Callable[[], Rows], play: Callable[..., list[Verdict]]
) -> None:
    verdicts = play(run())
    assert said(verdicts[len(verdicts) // 2 :]) == {"improving"}
    assert not any(verdict.stopped for verdict in verdicts)
    assert verdicts[-1].decision is Decision.CONTINUE
    assert verdicts[-1].judgment is Judgment.CLEARLY_FINE


# --- the contract of all rules ---


@pytest.mark.parametrize("rule", RULES)
def test_says_how_it_works_where_it_comes_from_and_when_it_is_wrong(rule: str) -> None:
    text = dict(CHECKS)[rule].__doc__ or ""
    for part in ("Formula:", "Source:", "Wrong"):
        assert part in text, part
    row = row_of(rule)
    assert row.signal
    assert row.look_next
    assert row.decision


def test_the_table_names_each_rule_once() -> None:
    assert len(set(RULE_NAMES)) == len(TABLE)


@pytest.mark.parametrize("rule", RULES)
def test_off_silences_it(rule: str) -> None:
    _, verdicts = judge(CASES[rule], rules={rule: "off"})
    assert rule not in said(verdicts)
    assert all(verdict.rule != rule for verdict in verdicts)


@pytest.mark.parametrize("rule", RULES)
def test_warn_reports_it_and_decides_nothing(rule: str) -> None:
    _, verdicts = judge(CASES[rule], rules={rule: "warn"})
    assert rule in said(verdicts)
    assert all(verdict.rule != rule for verdict in verdicts)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "improving"])
def test_stop_makes_it_stop(rule: str) -> None:
    _, verdicts = judge(CASES[rule], rules=only(rule, "stop"))
    first = next(verdict for verdict in verdicts if rule in said([verdict]))
    assert first.stopped
    assert first.rule == rule
    assert first.advice == row_of(rule).look_next


@pytest.mark.parametrize("rule", ["improving", "unreachable"])
def test_what_says_nothing_bad_cannot_be_told_to_stop(rule: str) -> None:
    with pytest.raises(ConfigError, match=f"rules.{rule}"):
        Gate(config={"rules": {rule: "stop"}})


@pytest.mark.parametrize("rule", RULES)
def test_speaks_alone_too_and_says_the_same_of_the_same_rows(rule: str) -> None:
    case = CASES[rule]
    _, verdicts = judge(case, rules=only(rule))
    assert said(verdicts) == {rule}
    assert judge(case, rules=only(rule))[1] == verdicts


@pytest.mark.parametrize("rule", RULES)
def test_goes_on_after_pickle_and_json(rule: str) -> None:
    case = CASES[rule]
    _, whole = judge(case)
    cut = len(case.rows) * 3 // 5
    first = Gate(config=case.config)
    for step, metrics in case.rows[:cut]:
        first.observe(step, metrics)
    second = Gate(config=case.config)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    third = pickle.loads(pickle.dumps(first))
    for gate in (second, third):
        assert [gate.observe(step, metrics) for step, metrics in case.rows[cut:]] == whole[cut:]


@pytest.mark.parametrize("factor", [2.0**-27, 2.0**27], ids=["1e-8", "1e8"])
@pytest.mark.parametrize("rule", [rule for rule in RULES if CASES[rule].scaled])
def test_is_free_of_scale(rule: str, factor: float) -> None:
    case = CASES[rule]
    scaled = [
        (step, {name: value * factor for name, value in metrics.items()}) for step, metrics in case.rows
    ]
    plain = judge(case, rules=only(rule))[1]
    other = judge(Case(scaled, case.config), rules=only(rule))[1]
    assert [(v.decision, v.row) for v in other] == [(v.decision, v.row) for v in plain]
    assert [bool(v.findings) for v in other] == [bool(v.findings) for v in plain]


ODD = [
    None,
    "nan",
    "-inf",
    "Infinity",
    "",
    "text",
    True,
    10**400,
    -(10**400),
    1e308,
    -1e308,
    5e-324,
    0.0,
    -0.0,
    math.nan,
    math.inf,
    b"1",
    1 + 2j,
    [1.0],
    {},
    object(),
]


@pytest.mark.parametrize("rule", RULES)
def test_never_raises_on_odd_values(rule: str) -> None:
    case = CASES[rule]
    source = random.Random(rule)
    spoiled = [
        (
            step,
            {name: source.choice(ODD) if source.random() < 0.3 else value for name, value in metrics.items()},
        )
        for step, metrics in case.rows
    ]
    gate = Gate(config={**case.config, "rules": dict.fromkeys(RULES, "warn")})
    for step, metrics in spoiled:
        assert not gate.observe(step, metrics).stopped
