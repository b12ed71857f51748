"""Baselines: what is recorded, how it reads, and that a comparison that cannot be made says so."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from gatekeeper.baseline import (
    MAX_CURVE_POINTS,
    BaselineError,
    Expected,
    RunSeries,
    build_baseline,
    dump_baseline,
    load_baseline,
    parse_baseline,
    save_baseline,
)
from hypothesis import given, settings
from hypothesis import strategies as st


def gatekeeper(*arguments):
    return subprocess.run(
        [sys.executable, "-c", "from gatekeeper.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_mean_and_spread_are_those_of_single_values_over_runs():
    runs = [RunSeries([0, 10], [1.0, value]) for value in (2.0, 4.0, 6.0)]
    baseline = build_baseline({"eval/loss": runs}, {"eval/loss": "min"}, runs=3)
    assert baseline.expected_at("eval/loss", 10) == (4.0, 2.0, 3)
    assert baseline.expected_at("eval/loss", 0) == (1.0, 0.0, 3)
    assert baseline.expected_at("eval/loss", 5) == (2.5, 1.0, 3)
    assert baseline.final("eval/loss") == (4.0, 2.0, 3)


def test_what_cannot_be_compared_is_none_and_has_a_sentence():
    series = {"acc": [RunSeries([5, 10], [0.1, 0.2]), RunSeries([5, 10], [0.1, 0.3])]}
    baseline = build_baseline(series, {"acc": "max"}, runs=2)
    assert baseline.expected_at("acc", 4) is None
    assert baseline.expected_at("acc", 11) is None
    assert baseline.expected_at("acc", float("nan")) is None
    assert baseline.expected_at("loss", 5) is None
    assert baseline.gap("acc", 7) is None
    assert baseline.gap("acc", 11) == "the baseline of 'acc' covers steps 5 to 10, not step 11"
    assert "has no metric 'loss' (it has acc)" in baseline.gap("loss")


def test_one_run_has_no_spread_and_says_so():
    baseline = build_baseline({"acc": [RunSeries([1, 2], [0.1, 0.2])]}, {"acc": "max"}, runs=1)
    assert baseline.expected_at("acc", 2) == (0.2, None, 1)
    assert "one run: its spread is unknown" in baseline.gap("acc", 2)


@pytest.mark.parametrize(
    ("n", "z", "quantile"),
    # Student's t with n - 1 degrees of freedom at the probability of z, from its table
    [(8, 2.5758, 3.499), (5, 1.9600, 2.776), (8, 3.0902, 4.785), (3, 1.9600, 4.303), (31, 2.3263, 2.457)],
)
def test_the_margin_of_one_more_run_is_a_prediction_interval(n, z, quantile):
    exact = 2.0 * quantile * (1 + 1 / n) ** 0.5
    assert 0.99 <= Expected(0.0, 2.0, n).margin(z) / exact <= 1.05


def test_without_a_spread_there_is_no_margin():
    assert Expected(1.0, None, 1).margin(3.0) is None
    assert (
        Expected(1.0, 0.5, 2).margin(8.0) > 1e6
    )  # two runs can tell next to nothing, and no number overflows


def test_runs_without_a_common_step_are_refused():
    with pytest.raises(BaselineError, match="no step in common"):
        build_baseline({"a": [RunSeries([1], [1.0]), RunSeries([2], [1.0])]}, {"a": None}, runs=2)


numbers = st.floats(-1e12, 1e12, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5), st.text(min_size=1))
def test_a_baseline_survives_its_file(rows, name):
    runs = [RunSeries([0, 1.5, 1e6], values) for values in rows]
    baseline = build_baseline({name: runs}, {name: "min"}, runs=len(runs))
    text = dump_baseline(baseline)
    assert parse_baseline(text) == baseline
    assert dump_baseline(parse_baseline(text)) == text


def test_the_file_is_made_to_be_reviewed():
    series = {name: [RunSeries([0, 50, 100], [3.0, 2.0, 1.0 / 3.0])] * 2 for name in ("z", "a")}
    text = dump_baseline(build_baseline(series, {"z": "min", "a": None}, runs=2))
    assert text == dump_baseline(
        build_baseline(dict(reversed(series.items())), {"a": None, "z": "min"}, runs=2)
    )
    assert '        {"step": 100, "mean": 0.333333, "spread": 0.0, "n": 2}\n' in text
    assert list(json.loads(text)["metrics"]) == ["a", "z"]


def test_long_runs_give_a_short_curve_with_both_ends():
    steps = list(range(0, 100_000, 7))
    baseline = build_baseline({"loss": [RunSeries(steps, steps)]}, {"loss": "min"}, runs=1)
    curve = baseline.metrics["loss"].curve
    assert len(curve) <= MAX_CURVE_POINTS
    assert (curve[0].step, curve[-1].step) == (steps[0], steps[-1])


POINT = '{"step": 1, "mean": 1, "spread": null, "n": 1}'
GOOD = '{"schema": "gatekeeper.baseline/1", "runs": 1, "metrics": {"m": {"final": %s, "curve": [%s]}}}'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", '"schema" must be'),
        ('{"schema": "gatekeeper.baseline/9"}', '"schema" must be'),
        ('{"schema": "gatekeeper.baseline/1", "runs": true}', '"runs" must be'),
        ('{"schema": "gatekeeper.baseline/1", "runs": 2, "metrics": {}}', "at least one metric"),
        (GOOD % (POINT, ""), "metrics.m.curve"),
        (GOOD % (POINT, f"{POINT}, {POINT}"), "the steps must rise"),
        (GOOD % (POINT, POINT.replace('"mean": 1', '"mean": NaN')), "metrics.m.curve[0].mean"),
        (GOOD % (POINT, POINT.replace('"mean": 1', f'"mean": 1{"0" * 400}')), "metrics.m.curve[0].mean"),
        (GOOD % (POINT.replace("null", "-1"), POINT), "metrics.m.final.spread"),
        (GOOD % (POINT.replace('"n": 1', '"n": 0'), POINT), "metrics.m.final.n"),
    ],
)
def test_a_broken_file_is_named_with_its_key(tmp_path, text, named):
    file = tmp_path / "base.json"
    file.write_text(text)
    with pytest.raises(BaselineError) as caught:
        load_baseline(file)
    assert str(file) in str(caught.value)
    assert named in str(caught.value)
    assert parse_baseline(GOOD % (POINT, POINT)).runs == 1


def test_record_and_show_on_real_trainings(tmp_path, train):
    file = tmp_path / "base.json"
    done = gatekeeper("baseline", "record", *(train(seed=seed) for seed in range(4)), "-o", file)
    assert (done.returncode, done.stderr) == (0, "")
    baseline = load_baseline(file)
    assert baseline.runs == 4
    assert {name: metric.direction for name, metric in baseline.metrics.items()} == {
        "train/loss": "min",
        "eval/loss": "min",
        "eval/accuracy": "max",
    }
    start, end = baseline.expected_at("eval/loss", 9), baseline.final("eval/loss")
    assert start.mean > end.mean + 5 * end.spread > 5 * end.spread > 0
    shown = gatekeeper("baseline", "show", file)
    assert shown.returncode == 0
    assert "eval/accuracy (higher is better)" in shown.stdout
    assert "4 runs" in shown.stdout


def test_recording_one_run_warns_that_the_spread_is_unknown(tmp_path, train):
    done = gatekeeper("baseline", "record", train(), "-o", tmp_path / "base.json", "--metric", "eval/loss")
    assert done.returncode == 0
    assert "spread is unknown" in done.stderr
    assert list(load_baseline(tmp_path / "base.json").metrics) == ["eval/loss"]
    assert "spread unknown: one run" in gatekeeper("baseline", "show", tmp_path / "base.json").stdout


def test_a_broken_run_is_no_baseline(tmp_path, train):
    done = gatekeeper("baseline", "record", train(), train("nan"), "-o", tmp_path / "base.json")
    assert done.returncode == 2
    assert "is no baseline: the gate stops it" in done.stderr
    assert not (tmp_path / "base.json").exists()


def test_a_metric_that_a_run_lacks_is_an_error(tmp_path, train):
    done = gatekeeper("baseline", "record", train(), "-o", tmp_path / "b.json", "--metric", "nope")
    assert done.returncode == 2
    assert "'nope'" in done.stderr


def test_a_baseline_that_cannot_be_written_is_one_sentence(tmp_path):
    baseline = parse_baseline(GOOD % (POINT, POINT))
    with pytest.raises(BaselineError, match="cannot write the baseline"):
        save_baseline(baseline, tmp_path / "no" / "such" / "folder.json")
