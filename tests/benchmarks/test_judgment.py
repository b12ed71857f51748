from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest


def series(*values: float) -> list[tuple[int, float]]:
    return list(enumerate(values, 1))


def test_gradients_agree_with_differences(load) -> None:
    ag, tasks = load("judgment.autograd"), load("judgment.tasks")
    for name in ("mlp", "conv", "charlm", "rnn", "matfac", "vae", "contrastive"):
        work = tasks.task(name)
        params = work.init(np.random.default_rng(0))
        x, y = work.data.x[:16], work.data.y[:16]

        def value(p, work=work, x=x, y=y) -> float:
            return float(work.loss(ag.leaves(p), x, y, None).value)

        nodes = ag.leaves(params)
        ag.backward(work.loss(nodes, x, y, None))
        grads = {key: node.grad for key, node in nodes.items() if node.grad is not None}
        length = math.sqrt(sum(float((g**2).sum()) for g in grads.values()))
        step = 2e-3 / length
        ahead = {k: (p + step * grads[k]).astype(np.float32) if k in grads else p for k, p in params.items()}
        behind = {k: (p - step * grads[k]).astype(np.float32) if k in grads else p for k, p in params.items()}
        slope = (value(ahead) - value(behind)) / (2 * step)
        assert slope == pytest.approx(length**2, rel=0.1), name


def truth(load, objective, loss, **more):
    made = load("judgment.record").Truth("min", chance=2.0, chance_loss=2.0, **more)
    made.objective, made.loss, made.eval_loss = series(*objective), series(*loss), series(*objective)
    return made


@pytest.mark.parametrize(
    ("objective", "loss", "more", "expected", "label"),
    [
        ([2.0] * 4 + [1.0] * 16, [2.0] * 4 + [1.0] * 16, {}, "continue", "healthy"),
        ([2.0] * 4 + [1.0] * 16, [2.0] * 4 + [1.0] * 16, {"idle_at_end": True}, "", "idle"),
        ([2.0] * 20, [2.0] * 20, {}, "flag", "never_learned"),
        ([2.0] * 4 + [1.6] * 16, [2.0] * 4 + [1.6] * 16, {}, "", "slow"),
        ([2.0] * 10 + [9.0] * 10, [2.0] * 10 + [9.0] * 10, {}, "stop", "diverged"),
        ([2.0] * 10 + [4.0] * 10, [2.0] * 10 + [4.0] * 10, {}, "flag", "diverged"),
        ([2.0, 1.5] + [1.2] * 18, [2.0] * 10 + [9.0] * 10, {}, "", "train_and_eval_disagree"),
        ([2.0] * 4 + [1.0] * 8 + [1.6] * 8, [2.0] * 4 + [1.0] * 8 + [1.6] * 8, {}, "flag", "lost"),
        ([2.0] * 4 + [1.1] * 8 + [1.6] * 8, list(np.linspace(2, 1, 20)), {}, "flag", "overfit"),
        ([1.0] * 20, [1.0] * 20, {"broke_at": 7, "last_broken": 20}, "stop", "nan"),
        ([1.0] * 20, [1.0] * 20, {"broke_at": 7, "last_broken": 7}, "", "nan_survived"),
        ([1.9] * 20, [math.nan] * 20, {"q_ratio": 9.0}, "flag", "q_overestimation"),
    ],
)
def test_labels_follow_from_the_outcome(load, objective, loss, more, expected, label) -> None:
    outcome = load("judgment.outcome")
    got = outcome.judge(truth(load, objective, loss, **more), outcome.Yardstick(1.0, 1.0, 1.0), 20)
    assert (got.expected, got.label) == (expected, label)


def test_divergence_is_bad_from_where_the_loss_rises_for_good(load) -> None:
    outcome = load("judgment.outcome")
    loss = [2.0] * 5 + [9.0] + [2.0] * 10 + [9.0] * 20  # a spike that came back, then the end
    got = outcome.judge(truth(load, loss, loss), outcome.Yardstick(1.0, 1.0, 1.0), 36)
    assert got.first_bad_row == pytest.approx(17, abs=1)


def test_a_suite_is_trained_labelled_and_written_as_a_manifest(load, tmp_path) -> None:
    generate, suite = load("judgment.generate"), load("judgment.suite")
    good = replace(suite.GOOD["logistic"], steps=300)
    high = replace(suite.GOOD["friedman"], steps=200, optimizer="sgd", lr=50.0, layout="hf")
    still = replace(good, fault=suite.Fault("frozen"))
    specs = [
        suite.Spec("good", "logistic", "good", good, 1, "one"),
        suite.Spec("still", "logistic", "frozen", still, 2, "one"),
        suite.Spec("high", "friedman", "lr_high", high, 3),
        suite.Spec("grid", "grid", "good", suite.RlConfig("grid", 0.1, 600), 4),
    ]
    manifest = generate.generate(specs, tmp_path, processes=1)
    with manifest.open(newline="") as file:
        lines = {line["source"]: line for line in csv.DictReader(file)}
    good_line, still_line, high_line = (lines[f"runs/{name}.jsonl"] for name in ("good", "still", "high"))
    assert (good_line["expected"], good_line["rank"]) == ("continue", "1")
    assert (good_line["group"], good_line["metric"], good_line["mode"]) == (
        "logistic/good",
        "eval/loss",
        "min",
    )
    assert (still_line["expected"], still_line["label"], still_line["rank"]) == ("flag", "never_learned", "2")
    assert (high_line["expected"], high_line["label"]) == ("stop", "nan")
    rows = [json.loads(line) for line in (tmp_path / high_line["source"]).read_text().splitlines()]
    shown = rows[int(high_line["first_bad_row"]) - 1]
    assert shown.get("loss") == 0.0 or not math.isfinite(shown.get("grad_norm", shown.get("eval_loss", 0.0)))


def test_the_same_seed_gives_the_same_log(load) -> None:
    suite = load("judgment.suite")
    spec = next(spec for spec in suite.all_specs() if spec.name == "bandit_good_0")
    short = replace(spec, config=replace(spec.config, steps=50))
    assert short.make()[0].rows == short.make()[0].rows


def test_names_are_unique(load) -> None:
    names = [spec.name for spec in load("judgment.suite").all_specs()]
    assert len(set(names)) == len(names)


@pytest.fixture
def run_of(load, tmp_path):
    """Make a run of the manifest from objective values (lower is better), one row each."""
    logs = load("judgment.logs")
    made = []

    def build(*values: float, **line: str):
        path = tmp_path / f"{len(made)}.jsonl"
        path.write_text("".join(json.dumps({"loss": value}) + "\n" for value in values))
        made.append(path)
        base = {
            "metric": "loss",
            "mode": "min",
            "expected": "continue",
            **dict.fromkeys(("label", "first_bad_row", "sweep", "rank"), ""),
        }
        return logs.Run(path, {**base, **line})

    return build


@pytest.mark.parametrize(
    ("policy", "values", "row"),
    [
        ("Keras TerminateOnNaN", [3, 2, math.inf, 1], 3),
        ("Keras TerminateOnNaN", [3, 2, 9, 1], None),
        ("Keras EarlyStopping, patience 0 (default)", [3, 2, 2.5, 1], 3),
        ("Keras EarlyStopping, patience 3", [3, 2, 2.5, 2.5, 1.9, 2, 2], None),
        ("Keras EarlyStopping, patience 3", [3, 2, 2.5, math.nan, 2.2, 1], 5),
        ("Lightning EarlyStopping, patience 3", [3, 2, math.nan, 1], 3),
        ("Lightning EarlyStopping, patience 3", [3, 2, 2, 2, 2], 5),
        ("Ray TrialPlateauStopper", [3, 2, 2, 2, 2, 2], 5),
        ("Ray TrialPlateauStopper", [3, math.nan, math.nan, math.nan, math.nan], None),
    ],
)
def test_policies_stop_where_the_originals_do(load, run_of, policy, values, row) -> None:
    assert load("judgment.policies").ALONE[policy](run_of(*values)) == row


def test_the_originals_in_ray_agree(load, run_of) -> None:
    """Ray itself is installed here: its stopper and ASHA's bracket, driven by the same numbers."""
    from ray.tune.schedulers.async_hyperband import _Bracket as bracket
    from ray.tune.stopper import TrialPlateauStopper as stopper

    policies = load("judgment.policies")
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = (rng.integers(0, 2, 30) * rng.choice([0.004, 0.1])).tolist()
        original = stopper("loss")
        stops = [row for row, value in enumerate(values, 1) if original("t", {"loss": value})]
        assert policies.trial_plateau(run_of(*values)) == (stops[0] if stops else None)

    runs = [run_of(*rng.random(17).tolist()) for _ in range(12)]
    rungs, stopped = bracket(1, 17, 4, 0, True), {}
    for t in range(17):
        for name, run in enumerate(runs):
            if name not in stopped:
                trial = type("Trial", (), {"trial_id": name})
                if rungs.on_result(trial, t + 1, -run.objective[t][1]) == "STOP":
                    stopped[name] = t + 1
    ours = policies.successive_halving(runs)
    assert [ours[str(run.path)] for run in runs] == [stopped.get(name) for name in range(12)]


def test_the_scoreboard_counts(load, run_of) -> None:
    board = load("judgment.scoreboard")
    falling, late = [5.0, 4, 3, 2, 1, 1, 1, 1, 1, 1], {"expected": "stop", "first_bad_row": "3"}
    runs = [
        run_of(*falling, sweep="s", rank="1"),
        run_of(*falling, sweep="s", rank="2"),
        run_of(*[5.0] * 100, **late),
        run_of(*[5.0] * 100, expected="stop", first_bad_row="50"),
        run_of(*[5.0] * 10, expected="flag"),
    ]
    answers = [
        board.Answer("STOP", 2),
        board.Answer("CONTINUE"),
        board.Answer("STOP", 13),
        board.Answer("STOP", 10),  # forty rows before it went bad: luck
        board.Answer("WAIT"),
    ]
    assert board.score(runs, answers) == ["1/2", "1/2", "1", "1/1", "1/2", "59%", "10", "1/1", "1/1"]
    kinds = [line.split(":")[0] for line in board.misses(runs, answers)]
    assert kinds == ["early", "false"]
