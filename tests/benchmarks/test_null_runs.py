from __future__ import annotations

import numpy as np
import pytest


def test_every_noise_has_unit_scale_and_the_memory_in_its_name(load) -> None:
    null_runs = load("null_runs")
    for kind in null_runs.NOISES:
        noise = null_runs.draw_noise(kind, np.random.default_rng(0), 50_000)
        quartiles = (
            np.subtract(*np.percentile(noise, [75, 25])) / 1.349
        )  # the scale that heavy tails leave alone
        assert 0.4 < quartiles < 1.6, kind
        memory = float(kind.removeprefix("ar1-")) if kind.startswith("ar1-") else 0.0
        assert np.corrcoef(noise[1:], noise[:-1])[0, 1] == pytest.approx(memory, abs=0.03), kind


def test_every_curve_ends_at_its_best(load) -> None:
    null_runs = load("null_runs")
    for kind in null_runs.CURVES:
        curve = null_runs.draw_curve(kind, np.random.default_rng(1), 5000)
        assert np.isfinite(curve).all()
        assert curve[-500:].mean() <= curve[:500].mean() + 1e-12, kind
        assert curve[-1] <= curve.min() + 0.1, kind


def test_a_run_is_made_from_its_number_alone_and_all_kinds_come_round(load) -> None:
    null_runs = load("null_runs")
    one, again, other = (null_runs.make_run(i, 300, 0) for i in (7, 7, 8))
    assert list(one.rows()) == list(again.rows()) != list(other.rows())
    kinds = {(r.noise, r.curve, r.layout) for r in (null_runs.make_run(i, 120, 0) for i in range(120))}
    assert len(kinds) == len(null_runs.NOISES) * len(null_runs.CURVES) * len(null_runs.LAYOUTS)


def test_the_bound_is_the_rule_of_three_and_grows_with_hits(load) -> None:
    bound = load("null_runs").upper_bound
    assert bound(0, 3000) == pytest.approx(3 / 3000, rel=0.01)
    assert bound(1, 20) == pytest.approx(0.2161, abs=1e-4)  # tables of Clopper and Pearson
    assert bound(5, 5) == 1.0


def test_a_stop_is_reported_with_what_repeats_it(load) -> None:
    null_runs = load("null_runs")
    stop = {"index": 17, "noise": "gaussian", "curve": "flat", "layout": "loss", "last": "STOP"}
    stop |= {"row": 40, "rule": "some-rule", "reason": "because"}
    fine = {"index": 18, "noise": "gaussian", "curve": "flat", "layout": "loss", "last": "CONTINUE"}
    text = null_runs.report([stop, fine], 2000, 5)
    assert "| gaussian | 2 | 1 | 0 | 1 |" in text
    assert "--seed 5 --rows 2000 --only 17: some-rule at row 40" in text
