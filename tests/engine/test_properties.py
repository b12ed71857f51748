"""What holds for every stream: determinism, continuation, scale, sign, prefixes, latches and bounds."""

from __future__ import annotations

import copy
import json
import math
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from gatekeeper import Gate
from gatekeeper.verdict import Decision, Verdict
from hypothesis import given, settings
from hypothesis import strategies as st

FEW = settings(max_examples=40, deadline=None)
NAMES = [
    "loss",
    "eval_loss",
    "val_accuracy",
    "grad_norm",
    "lr",
    "train/entropy",
    "rollout/ep_rew_mean",
    "train/value_loss",
    "q_pred",
    "mc_return",
]
Rows = list[tuple[Any, dict[str, Any]]]


@st.composite
def streams(
    draw: st.DrawFn, *, names: tuple[str, ...] = ("loss", "eval_loss"), most: int = 300, odd: bool = True
) -> Rows:
    """A run of pieces (falling, flat, rising, jumping, noisy) with gaps and values that are none."""
    source = random.Random(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, most))
    pieces = draw(
        st.lists(
            st.tuples(st.sampled_from([0.9, 0.99, 1.0, 1.01, 1.3]), st.sampled_from([0.0, 0.01, 0.3])),
            min_size=1,
            max_size=4,
        )
    )
    keep = draw(st.sampled_from([1.0, 0.5, 0.1]))
    rows: Rows = []
    levels = {name: source.uniform(0.5, 5.0) for name in names}
    for i in range(n):
        factor, spread = pieces[i * len(pieces) // n]
        row: dict[str, Any] = {}
        for name in names:
            levels[name] = max(min(levels[name] * factor, 1e6), 1e-6)
            if source.random() < keep:
                row[name] = levels[name] * (1.0 + spread * source.gauss(0.0, 1.0))
            if odd and source.random() < 0.01:
                row[name] = source.choice([None, 0.0, "text", 1e12])
        rows.append((i, row))
    return rows


def play(rows: Rows, gate: Gate | None = None, **options: Any) -> list[Verdict]:
    judge = gate if gate is not None else Gate(**options)
    return [judge.observe(step, metrics) for step, metrics in rows]


def outline(verdicts: list[Verdict]) -> list[tuple[Decision, str | None, int]]:
    return [(verdict.decision, verdict.rule, verdict.row) for verdict in verdicts]


@FEW
@given(streams(names=tuple(NAMES)))
def test_the_same_rows_give_the_same_verdicts(rows: Rows) -> None:
    assert play(rows) == play(copy.deepcopy(rows))


@FEW
@given(streams(names=tuple(NAMES)), st.data())
def test_goes_on_after_json_and_pickle_at_any_row(rows: Rows, data: st.DataObject) -> None:
    whole = play(rows)
    cut = data.draw(st.integers(0, len(rows)))
    first = Gate()
    play(rows[:cut], first)
    text = json.dumps(first.state_dict(), allow_nan=False)
    restored = Gate()
    restored.load_state_dict(json.loads(text))
    for gate in (restored, pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        assert play(rows[cut:], gate) == whole[cut:]
        assert gate.rows == len(rows)
        assert gate.roles == play_roles(rows)
    assert json.dumps(restored.state_dict(), sort_keys=True) == json.dumps(
        pickle.loads(pickle.dumps(restored)).state_dict(), sort_keys=True
    )


def play_roles(rows: Rows) -> dict[str, str]:
    gate = Gate()
    play(rows, gate)
    return gate.roles


@FEW
@given(streams(), st.sampled_from([2.0**-27, 0.5, 2.0**27, 2.0**90]))
def test_decisions_are_free_of_scale(rows: Rows, factor: float) -> None:
    scaled: Rows = [
        (step, {name: value * factor if isinstance(value, float) else value for name, value in row.items()})
        for step, row in rows
    ]
    assert outline(play(scaled)) == outline(play(rows))


@FEW
@given(streams(names=("quality",)))
def test_higher_is_better_mirrors_lower_is_better(rows: Rows) -> None:
    mirrored: Rows = [
        (step, {name: -value if isinstance(value, float) else value for name, value in row.items()})
        for step, row in rows
    ]
    down, up = play(rows, metric="quality", mode="min"), play(mirrored, metric="quality", mode="max")
    assert [verdict.decision for verdict in up] == [verdict.decision for verdict in down]


@FEW
@given(streams(names=("my_loss",)))
def test_a_loss_that_is_maximised_mirrors_one_that_is_minimised(rows: Rows) -> None:
    mirrored: Rows = [
        (step, {name: -value if isinstance(value, float) else value for name, value in row.items()})
        for step, row in rows
    ]
    down, up = play(rows, metric="my_loss", mode="min"), play(mirrored, metric="my_loss", mode="max")
    assert [verdict.decision for verdict in up] == [verdict.decision for verdict in down]


@FEW
@given(streams(names=tuple(NAMES)), streams(names=tuple(NAMES)), st.data())
def test_a_verdict_depends_on_no_later_row(rows: Rows, others: Rows, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    assert play(rows)[:cut] == play([*rows[:cut], *others])[:cut]


@FEW
@given(
    streams(odd=False),
    st.sampled_from(
        [math.nan, math.inf, -math.inf, "nan", "Infinity", np.float32("nan"), np.array(math.inf)]
    ),
    st.data(),
)
def test_a_nonfinite_loss_stops_at_exactly_its_row_and_latches(
    rows: Rows, value: Any, data: st.DataObject
) -> None:
    calm = [(step, dict.fromkeys(row, 1.0 + 1.0 / (1 + step))) for step, row in rows]
    place = data.draw(st.integers(0, len(calm) - 1))
    name = data.draw(st.sampled_from(["loss", "eval_loss"]))
    calm[place] = (calm[place][0], {**calm[place][1], name: value})
    gate = Gate()
    verdicts = play(calm, gate)
    assert [verdict.stopped for verdict in verdicts] == [i >= place for i in range(len(calm))]
    stop = verdicts[place]
    assert (stop.rule, stop.row, stop.step) == ("nonfinite-loss", place + 1, place)
    assert not math.isfinite(stop.metrics[name])
    assert all(verdict is stop for verdict in verdicts[place:])
    assert gate.rows == len(calm)


class Raises:
    """A logged object whose conversion fails in its own way."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    def __float__(self) -> float:
        raise self.fault

    def __repr__(self) -> str:
        return "Raises()"


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**308, 10**400),
    st.floats(),
    st.text(max_size=50),
    st.binary(max_size=5),
    st.complex_numbers(),
    st.decimals(),
    st.fractions(),
    st.sampled_from(
        [
            np.float16(1.5),
            np.float32("inf"),
            np.int64(3),
            np.bool_(True),
            np.array(2.5),
            np.array([1.0, 2.0]),
            np.array("x"),
            np.datetime64("2026-01-01"),
            Decimal("sNaN"),
            Fraction(1, 3),
            object(),
            float,
            [1],
            (),
            {"a": 1},
            {1},
            lambda: 1,
            "nan",
            "1e400",
            "1_0",
            "٣",
            Raises(ValueError()),
            Raises(KeyError("x")),
            Raises(ZeroDivisionError()),
            Raises(MemoryError()),
            Raises(RecursionError()),
        ]
    ),
)
KEYS = st.one_of(
    st.sampled_from(NAMES), st.text(max_size=20), st.integers(), st.none(), st.tuples(st.text(max_size=3))
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(SCALARS, st.dictionaries(KEYS, SCALARS, max_size=6)), max_size=60))
@pytest.mark.filterwarnings("ignore")
def test_no_row_raises(rows: Rows) -> None:
    gate = Gate(config={"rules": {"nonfinite-loss": "warn"}})
    for verdict in play(rows, gate):
        assert isinstance(verdict.decision, Decision)
    assert 0.0 <= gate.wait_share <= 1.0
    again = Gate(config={"rules": {"nonfinite-loss": "warn"}})
    again.load_state_dict(json.loads(json.dumps(gate.state_dict(), allow_nan=False)))
    assert again.state_dict() == gate.state_dict()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=120),
    st.sampled_from(NAMES),
    st.booleans(),
)
def test_no_size_of_value_raises(values: list[float], name: str, smoke: bool) -> None:
    config = {
        "smoke": smoke,
        "baseline": 1.0,
        "budget_steps": 100,
        "lr_schedule": "constant",
        "maximum_loss": 1.0,
    }
    gate = Gate(config=config)
    play([(i, {name: value, "loss": value}) for i, value in enumerate(values)], gate)
    json.dumps(gate.state_dict(), allow_nan=False)


@FEW
@given(streams(names=tuple(NAMES)))
def test_shares_and_curves_are_bounded(rows: Rows) -> None:
    gate = Gate()
    assert gate.wait_share == 1.0
    verdicts = play(rows, gate)
    waits = sum(verdict.decision is Decision.WAIT for verdict in verdicts)
    assert gate.wait_share == waits / len(rows)
    for name in NAMES:
        points = gate.curve(name)
        assert len(points) <= 64
        assert [point.row for point in points] == sorted({point.row for point in points})
        assert all(point.low <= point.high for point in points)
    assert gate.curve("never seen") == ()
    last = gate.last_finite()
    assert last is None or 1 <= last[0] <= len(rows)


# --- bounds ---


def size(gate: Gate) -> int:
    return len(json.dumps(gate.state_dict()))


def test_the_state_of_a_long_run_is_no_larger_than_that_of_a_short_one() -> None:
    source = random.Random(1)
    gate = Gate()
    sizes = []
    for i in range(100_000):
        gate.observe(
            i,
            {
                "loss": 1.0 + math.exp(-i / 3000) + source.gauss(0, 0.05),
                "grad_norm": source.random(),
                "lr": 1e-3,
            },
        )
        if i + 1 in (1000, 100_000):
            sizes.append(size(gate))
    assert sizes[1] < 1.5 * sizes[0]
    assert len(gate.curve("loss")) <= 64


@pytest.mark.parametrize("name", ["loss_{}", "layer.{}.grad_norm", "eval/task{}_loss", "count_{}", "x{}"])
def test_ten_thousand_names_are_not_kept(name: str) -> None:
    gate = Gate()
    for i in range(10_000):
        gate.observe(i, {name.format(i): 1.0, "loss": 1.0 + math.exp(-i / 1000)})
    held = size(gate)
    for i in range(10_000, 12_000):
        gate.observe(i, {name.format(i): 1.0, "loss": 1.0 + math.exp(-i / 1000)})
    assert size(gate) < held + 5_000
    assert held < 400_000
    assert gate.roles["loss"] == "loss"
    assert gate.observe(12_000, {"loss": math.nan}).stopped


def test_a_name_that_is_declared_or_better_is_kept_however_many_came_before() -> None:
    gate = Gate(roles={"loss": "mine"})
    other = Gate()
    for i in range(1000):
        gate.observe(i, {f"loss_{i}": 1.0})
        other.observe(i, {f"loss_{i}": 1.0})
    assert gate.observe(1000, {"mine": math.nan}).stopped
    assert other.observe(1000, {"loss": math.nan}).stopped


# --- numbers as trainers log them ---


@pytest.mark.parametrize(
    "wrap", [np.float64, np.float32, np.float16, np.array, str, lambda x: Decimal(str(x)), lambda x: f" {x} "]
)
def test_numbers_of_any_kind_are_judged_alike(wrap: Any) -> None:
    values = [1.0 + 2.0**-k for k in range(8)] * 2 + [1.0] * 80
    assert outline(play([(i, {"loss": wrap(value)}) for i, value in enumerate(values)])) == outline(
        play([(i, {"loss": value}) for i, value in enumerate(values)])
    )


def test_numpy_steps_and_values_leave_a_state_of_plain_json() -> None:
    gate = Gate()
    for i in range(50):
        gate.observe(np.int64(i), {"loss": np.float32(1.0 / (1 + i))})
    assert json.loads(json.dumps(gate.state_dict(), allow_nan=False))["rows"] == 50
    assert gate.verdict.step == 49
