"""Real sweeps on a real Ray: what is stopped, what is left alone, and what the rest of Tune sees of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

Sweep = Callable[..., SimpleNamespace]

GATE_KEYS = ("gatekeeper/decision", "gatekeeper/rule", "gatekeeper/reason")


def test_asha_stops_the_broken_and_gives_the_sound_their_due(sweep: Sweep) -> None:
    from ray.tune.schedulers import ASHAScheduler

    from ray import tune

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 28):
            broken = config["kind"] == "nan" and step >= 6
            tune.report({"loss": math.nan if broken else config["level"] + 1 / step, "grad_norm": 1.0})

    levels = {"good": 0.0, "nan": 0.1, "poor": 5.0, "better": -0.5}
    ended = sweep(
        train,
        {
            "kind": tune.grid_search(list(levels)),
            "level": tune.sample_from(lambda config: levels[config["kind"]]),
        },
        tune_arguments={
            "scheduler": ASHAScheduler(max_t=27, grace_period=9, reduction_factor=3),
            "reuse_actors": True,  # one process runs several trials
            "max_concurrent_trials": 1,
        },
    )
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    nan = ended.by["nan"]
    assert nan.error is None
    assert nan.metrics["training_iteration"] == 6
    assert nan.metrics["gatekeeper/decision"] == "STOP"
    assert nan.metrics["gatekeeper/rule"] == "nonfinite-loss"
    assert "loss" in nan.metrics["gatekeeper/reason"]
    for kind in ("good", "better"):
        assert ended.by[kind].metrics["training_iteration"] == 27
    assert ended.by["poor"].metrics["training_iteration"] == 9
    for kind in ("good", "better", "poor"):
        assert not any(key in ended.by[kind].metrics for key in GATE_KEYS)

    [note] = ended.notes
    assert note["decision"] == "STOP"
    assert note["run_id"] == nan.metrics["trial_id"]
    assert note["run_name"].startswith("train_")
    assert note["experiment"].startswith("train_")
    assert note["config"]["kind"] == "nan"
    assert note["rows_used"] == 6
    assert note["seconds_used"] >= 0
    assert note["last_finite"] == {"row": 5, "step": 5}
    logged = [json.loads(line) for line in Path(nan.path, "result.json").read_text().splitlines()]
    assert logged[-1]["gatekeeper/decision"] == "STOP"
    # Nothing is left of trials that have ended, also of those that ASHA ended.
    assert len(ended.stopper._trials) == 0
    summary = ended.callback.summary()
    assert "4 trials started, 1 stopped, 0 failed" in summary
    assert "nonfinite-loss" in summary


def test_metrics_in_every_form_in_which_they_arrive(sweep: Sweep, make_stopper: Callable[..., Any]) -> None:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        forms: dict[str, Callable[[float], dict[str, Any]]] = {
            "nested": lambda value: {"eval": {"loss": value}},
            "literal": lambda value: {"eval/loss": value},
            "literal first": lambda value: {"eval/loss": 1.0, "eval": {"loss": value}},
            "deep": lambda value: {"eval": {"loss": value, "parts": {"a/b": value}}},
            "float32": lambda value: {"eval": {"loss": np.float32(value)}},
            "0-d array": lambda value: {"eval": {"loss": np.array(value)}},
            "text": lambda value: {"eval": {"loss": "nan" if math.isnan(value) else value}},
            "none": lambda value: {"eval": {"loss": None if math.isnan(value) else value}},
            "sound": lambda value: {
                "eval": {"loss": 0.5},
                "histogram": np.zeros(5),
                "time": {"step_avg": value},
            },
        }
        for step in range(1, 11):
            tune.report(forms[config["kind"]](math.nan if step >= 5 else 1 / step))

    kinds = ["nested", "literal", "literal first", "deep", "float32", "0-d array", "text", "none", "sound"]
    ended = sweep(
        train,
        {"kind": tune.grid_search(kinds)},
        stopper=make_stopper("eval/loss"),
        tune_arguments={"metric": "eval/loss", "reuse_actors": True},
    )
    stopped = {kind for kind, result in ended.by.items() if "gatekeeper/decision" in result.metrics}
    assert stopped == {"nested", "literal", "deep", "float32", "0-d array", "text"}
    assert {ended.by[kind].metrics["training_iteration"] for kind in stopped} == {5}
    # A value that is only missing is no proof, and a literal key wins over a nested one.
    for kind in ("none", "literal first", "sound"):
        assert ended.by[kind].metrics["training_iteration"] == 10
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    assert not ended.stopper.faults


def test_none_under_asha_is_replaced_before_the_scheduler_sees_it(
    sweep: Sweep, make_stopper: Callable[..., Any]
) -> None:
    from ray.tune.schedulers import ASHAScheduler

    from ray import tune

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 5):
            broken = step == 3
            # The validation loss cannot be computed any more, and the training loss says why.
            tune.report({"val_loss": None if broken else 1.0, "loss": math.nan if broken else 1 / step})

    for metric in ("val_loss", None):
        ended = sweep(
            train,
            {"kind": "none"},
            stopper=make_stopper(metric),
            tune_arguments={"metric": "val_loss", "scheduler": ASHAScheduler(max_t=9, grace_period=1)},
        )
        assert set(ended.recorder.status.values()) == {"TERMINATED"}
        assert math.isnan(ended.by["none"].metrics["val_loss"])
        assert ended.by["none"].metrics["training_iteration"] == 3


def test_worst_objective_reaches_the_searcher_finite(sweep: Sweep, make_stopper: Callable[..., Any]) -> None:
    from ray.tune.search import Searcher

    from ray import tune

    told: dict[str, float] = {}

    class Recording(Searcher):
        """Suggests three trials and keeps what it is told of them."""

        def __init__(self) -> None:
            super().__init__(metric="loss", mode="min")
            self.suggested = 0

        def suggest(self, trial_id: str) -> dict[str, Any] | None:
            self.suggested += 1
            return {"kind": ["sound", "nan", "nan later"][self.suggested - 1]}

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            assert not error
            assert result is not None
            told[result["config/kind"]] = result["loss"]

        def save(self, checkpoint_path: str) -> None: ...

        def restore(self, checkpoint_path: str) -> None: ...

    def train(config: dict[str, Any]) -> None:
        first_bad = {"sound": 99, "nan": 1, "nan later": 4}[config["kind"]]
        for step in range(1, 6):
            tune.report({"loss": math.nan if step >= first_bad else 40.0 / step})

    ended = sweep(
        train,
        {},
        stopper=make_stopper(report_objective="worst"),
        tune_arguments={
            "metric": None,
            "mode": None,
            "search_alg": Recording(),
            "num_samples": 3,
            "max_concurrent_trials": 1,
        },
    )
    assert told["sound"] == 8.0
    for kind in ("nan", "nan later"):
        assert math.isfinite(told[kind])
        assert told[kind] > 40.0
        assert ended.by[kind].metrics["gatekeeper/reported_objective"] == "NaN"


def test_crashes_and_failures_are_not_the_gates_business(sweep: Sweep, tmp_path: Path) -> None:
    from ray import tune

    marks = tmp_path / "marks"
    marks.mkdir()

    def train(config: dict[str, Any]) -> None:
        kind = config["kind"]
        first = 1
        checkpoint = tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as directory:
                first = int(Path(directory, "step").read_text()) + 1
        for step in range(first, 13):
            if kind.startswith("crash") and step == 5 and not (marks / kind).exists():
                (marks / kind).touch()
                raise RuntimeError("the machine is gone")
            if kind == "always fails" and step == 3:
                raise ValueError("no such column")
            loss = math.nan if kind == "crash then nan" and step >= 9 else 2.0 / step
            saved = None
            if step == 3:
                Path("checkpoint").mkdir(exist_ok=True)
                Path("checkpoint", "step").write_text(str(step))
                saved = tune.Checkpoint.from_directory("checkpoint")
            tune.report({"loss": loss, "step": step}, checkpoint=saved)

    kinds = ["crash", "crash then nan", "always fails"]
    ended = sweep(
        train,
        {"kind": tune.grid_search(kinds)},
        failure_config=tune.FailureConfig(max_failures=1),
    )
    assert ended.by["crash"].metrics["step"] == 12
    assert "gatekeeper/decision" not in ended.by["crash"].metrics
    assert ended.by["crash then nan"].metrics["gatekeeper/rule"] == "nonfinite-loss"
    assert ended.by["crash then nan"].metrics["step"] == 9
    assert ended.by["always fails"].error is not None
    assert sorted(ended.recorder.status.values()) == ["ERROR", "TERMINATED", "TERMINATED"]
    assert len(ended.notes) == 1
    assert len(ended.stopper._trials) == 0
    assert not ended.stopper.faults
    summary = ended.callback.summary()
    assert "1 stopped, 1 failed" in summary
    assert "no such column" in summary
    assert "restarts after a failure" in summary


def test_population_based_training_is_no_divergence(sweep: Sweep) -> None:
    from ray.tune.schedulers import PopulationBasedTraining

    from ray import tune

    class Train(tune.Trainable):
        """A loss that falls faster with a better lr; an exploited trial jumps to the donor's."""

        def setup(self, config: dict[str, Any]) -> None:
            self.loss = 50.0

        def step(self) -> dict[str, Any]:
            self.loss *= 1 - self.config["lr"]
            bad = self.config.get("kind") == "nan" and self.iteration >= 5
            return {"loss": math.nan if bad else self.loss + 0.01}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "loss").write_text(str(self.loss))

        def load_checkpoint(self, checkpoint: str) -> None:
            self.loss = float(Path(checkpoint, "loss").read_text())

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            self.loss = 50.0
            return True

    def at_the_end(trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["training_iteration"] >= 20)

    exploits = []
    rates = {"a": 0.001, "b": 0.4, "c": 0.01, "nan": 0.2}

    class Exploits(tune.Callback):
        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any
        ) -> None:
            if result["iterations_since_restore"] == 1 and result["training_iteration"] > 1:
                exploits.append(trial.trial_id)

    ended = sweep(
        Train,
        {"kind": tune.grid_search(list(rates)), "lr": tune.sample_from(lambda config: rates[config["kind"]])},
        stop=lambda stopper: tune.stopper.CombinedStopper(stopper, tune.stopper.FunctionStopper(at_the_end)),
        callbacks=[Exploits()],
        tune_arguments={
            "scheduler": PopulationBasedTraining(
                perturbation_interval=4,
                hyperparam_mutations={"lr": tune.uniform(0.001, 0.4)},
                time_attr="training_iteration",
            ),
            "reuse_actors": True,
        },
    )
    assert exploits
    stopped = [result for result in ended.results if "gatekeeper/decision" in result.metrics]
    assert [result.config["kind"] for result in stopped] == ["nan"]
    for result in ended.results:
        if result not in stopped:
            assert result.metrics["training_iteration"] >= 20
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    assert not ended.stopper.faults


@pytest.mark.parametrize("kind", ["function", "class"])
def test_the_last_finite_checkpoint_is_named(sweep: Sweep, kind: str) -> None:
    from ray import tune

    class Train(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"loss": math.nan if self.iteration >= 4 else 1.0 / (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "iteration").write_text(str(self.iteration))

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 9):
            Path("checkpoint").mkdir(exist_ok=True)
            Path("checkpoint", "iteration").write_text(str(step))
            tune.report(
                {"loss": math.nan if step >= 5 else 1.0 / step},
                checkpoint=tune.Checkpoint.from_directory("checkpoint"),
            )

    class_arguments = (
        {"checkpoint_config": tune.CheckpointConfig(checkpoint_frequency=1)} if kind == "class" else {}
    )
    ended = sweep(Train if kind == "class" else train, {"kind": kind}, **class_arguments)
    [result], [note] = ended.results, ended.notes
    assert result.metrics["training_iteration"] == 5
    finite = Path(note["last_finite_checkpoint"])
    assert finite.is_dir()
    assert Path(finite, "iteration").read_text() == "4"
    assert result.metrics["gatekeeper/last_finite_checkpoint"] in str(finite)
    # Ray itself calls the checkpoint of the NaN the trial's last.
    assert result.checkpoint is not None
    assert Path(result.checkpoint.path, "iteration").read_text() == "5"


@pytest.mark.parametrize("scheduler", ["hyperband", "median", "fifo without callback"])
def test_with_other_schedulers(sweep: Sweep, scheduler: str) -> None:
    from ray.tune.schedulers import FIFOScheduler, HyperBandScheduler, MedianStoppingRule

    from ray import tune

    class Train(tune.Trainable):
        def step(self) -> dict[str, Any]:
            bad = self.config["kind"] == "nan" and self.iteration >= 1
            return {"loss": math.nan if bad else self.config["level"] + 1.0 / (self.iteration + 1)}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "x").touch()

        def load_checkpoint(self, checkpoint: str) -> None: ...

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return True

    schedulers = {
        "hyperband": lambda: HyperBandScheduler(max_t=9, reduction_factor=3),
        "median": lambda: MedianStoppingRule(grace_period=2, min_samples_required=2),
        "fifo without callback": FIFOScheduler,
    }
    ended = sweep(
        Train,
        {
            "kind": tune.grid_search(["a", "nan", "b", "c"]),
            "level": tune.sample_from(lambda config: len(config["kind"])),
        },
        stop=lambda stopper: [stopper, tune.stopper.MaximumIterationStopper(9)],
        callback=scheduler != "fifo without callback",
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        tune_arguments={"scheduler": schedulers[scheduler](), "reuse_actors": True},
    )
    assert ended.by["nan"].metrics["gatekeeper/rule"] == "nonfinite-loss"
    assert ended.by["nan"].metrics["training_iteration"] == 2
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    assert [note["run_id"] for note in ended.notes] == [ended.by["nan"].metrics["trial_id"]]
    assert max(result.metrics["training_iteration"] for result in ended.results) == 9
    assert not ended.stopper.faults


def test_circuit_breaker_ends_a_broken_experiment_cleanly(
    sweep: Sweep, make_stopper: Callable[..., Any]
) -> None:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 6):
            tune.report({"loss": math.nan if step >= 2 else 1.0})

    ended = sweep(
        train,
        {"kind": tune.uniform(0, 1)},
        stopper=make_stopper(circuit_breaker=3),
        tune_arguments={"num_samples": 200, "reuse_actors": True},
    )
    assert ended.stopper.given_up is not None
    assert "3 trials in a row were stopped by nonfinite-loss" in ended.stopper.given_up
    assert len(ended.recorder.started) < 100
    # Every trial that started was told that it is over: logger callbacks wait for those that are not.
    assert sorted(ended.recorder.completed) == sorted(set(ended.recorder.started))
    rules = [note["rule"] for note in ended.notes]
    assert rules[:3] == ["nonfinite-loss"] * 3
    assert set(rules[3:]) <= {"circuit-breaker", "nonfinite-loss"}
    assert "gave up the experiment" in ended.callback.summary()


def test_circuit_breaker_spares_an_experiment_with_a_healthy_trial(
    sweep: Sweep, make_stopper: Callable[..., Any], tmp_path: Path
) -> None:
    import time

    from ray import tune

    learning = tmp_path / "learning"

    def train(config: dict[str, Any]) -> None:
        healthy = config["kind"] == 0
        while not healthy and not learning.exists():  # the broken ones are stopped beside one that learns
            time.sleep(0.05)
        for step in range(1, 60 if healthy else 9):
            if healthy:
                time.sleep(0.05)
                if step == 20:
                    learning.touch()
            tune.report({"loss": 1 / step if healthy or step < 8 else math.nan})

    ended = sweep(
        train,
        {"kind": tune.grid_search(list(range(6)))},
        stopper=make_stopper(circuit_breaker=3),
        tune_arguments={"reuse_actors": True},
    )
    assert ended.stopper.given_up is None
    assert ended.stopper.stopped_by == {"nonfinite-loss": 5}
    assert ended.by[0].metrics["training_iteration"] == 59


def test_an_engine_that_fails_costs_nobody_a_trial(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from gatekeeper.gate import Gate

    from ray import tune

    def broken(self: Gate, step: float | None, metrics: Any) -> Any:
        raise RuntimeError("no verdict today")

    monkeypatch.setattr(Gate, "observe", broken)  # a real engine never raises, so this one is made to

    def train(config: dict[str, Any]) -> None:
        for _ in range(6):
            tune.report({"loss": math.nan})

    ended = sweep(train, {"kind": tune.grid_search(["a", "b"])})
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    assert [result.metrics["training_iteration"] for result in ended.results] == [6, 6]
    assert ended.stopper.faults == {"judging a result": 12}
    assert "12 faults of the gate itself" in ended.callback.summary()
    assert "no verdict today" in caplog.text
    assert (
        sum("a fault of its own" in record.message for record in caplog.records) == 2
    )  # the 1st and the 10th


def test_a_stop_survives_notes_that_cannot_be_written(
    sweep: Sweep, make_stopper: Callable[..., Any], tmp_path: Path
) -> None:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        for step in range(1, 6):
            tune.report({"loss": math.nan if step >= 3 else 1.0})

    (tmp_path / "file").write_text("not a directory")
    ended = sweep(train, {"kind": "nan"}, stopper=make_stopper(notes=tmp_path / "file" / "notes"))
    assert ended.by["nan"].metrics["training_iteration"] == 3
    assert ended.by["nan"].metrics["gatekeeper/decision"] == "STOP"
    assert ended.stopper.faults == {"writing the note": 1}


def test_trainables_that_return_early_or_never_report(sweep: Sweep) -> None:
    from ray import tune

    def train(config: dict[str, Any]) -> None:
        if config["kind"] == "returns":
            for step in range(1, 4):
                tune.report({"loss": 1.0 / step})

    ended = sweep(train, {"kind": tune.grid_search(["returns", "silent"])}, callback=False)
    assert set(ended.recorder.status.values()) == {"TERMINATED"}
    assert not ended.stopper.faults
    assert not ended.notes
    # A function that returns is told apart from one that a scheduler ends, so nothing stays behind.
    assert len(ended.stopper._trials) == 0
