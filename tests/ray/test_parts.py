"""The Stopper and its parts as Ray calls them, one result at a time, without a cluster."""

from __future__ import annotations

import json
import math
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

MakeStopper = Callable[..., Any]


def result(step: int, loss: Any, **more: Any) -> dict[str, Any]:
    """A result as Ray 2.60 hands it to a Stopper."""
    return {
        "loss": loss, "timestamp": 1, "checkpoint_dir_name": None, "done": False, "training_iteration": step,
        "trial_id": "t", "date": "2026-01-01", "time_this_iter_s": 0.1, "time_total_s": 0.1 * step, "pid": 1,
        "hostname": "h", "node_ip": "127.0.0.1", "config": {"lr": 0.1}, "time_since_restore": 0.1 * step,
        "iterations_since_restore": step, **more,
    }  # fmt: skip


def falling(step: int) -> float:
    return 2.0 / step + 0.01 * math.sin(step)


def test_what_ray_asks_of_a_stopper(make_stopper: MakeStopper) -> None:
    stopper = make_stopper()
    assert stopper
    assert not hasattr(stopper, "__len__")
    assert stopper("t", result(1, 1.0)) is False
    assert stopper("t", result(2, np.float32("nan"))) is True
    assert stopper("t", result(3, 1.0)) is True  # a buffered result after the stop
    assert stopper.stop_all() is False
    assert stopper("empty", {"trial_id": "empty", "done": True}) is False
    assert stopper("odd", {"training_iteration": "x", "loss": object(), 3: [1], "config": None}) is False
    assert not stopper.faults


def test_the_last_result_comes_twice_and_counts_once(make_stopper: MakeStopper, tmp_path: Path) -> None:
    stopper = make_stopper(max_trials=5)
    for step in range(1, 6):
        assert stopper("t", result(step, falling(step))) is False
    assert stopper("t", result(5, falling(5), done=True)) is False
    assert len(stopper._trials) == 0
    # The same after a stop: the answer stays, and there is one note.
    stopper("n", result(1, 1.0))
    assert stopper("n", result(2, math.nan)) is True
    assert stopper("n", result(2, math.nan, done=True)) is True
    assert len((tmp_path / "notes" / "stops.jsonl").read_text().splitlines()) == 1


def test_state_survives_a_pickle_at_any_row(make_stopper: MakeStopper, tmp_path: Path) -> None:
    from ray import cloudpickle

    rows = [falling(step) for step in range(1, 40)] + [3.0**step for step in range(30)]
    whole = make_stopper()
    expected = [whole("t", result(step, loss)) for step, loss in enumerate(rows, 1)]
    assert any(expected)
    stopper = make_stopper(notes=tmp_path / "other", reviewer=None)
    uid, answers = stopper.uid, []
    for step, loss in enumerate(rows, 1):
        stopper = cloudpickle.loads(cloudpickle.dumps(stopper))
        answers.append(stopper("t", result(step, loss)))
    assert answers == expected
    assert stopper.uid == uid
    assert stopper.stopped_by == whole.stopped_by
    assert [stop.reason for stop in stopper.stops] == [stop.reason for stop in whole.stops]
    assert stopper.notes_directory == tmp_path / "other"
    assert not stopper.faults


def test_a_state_that_cannot_be_read_or_written_costs_only_itself(
    make_stopper: MakeStopper, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gatekeeper.gate import Gate

    stopper = make_stopper()
    stopper("t", result(1, 1.0))
    restored = pickle.loads(pickle.dumps(stopper))

    def broken(*arguments: Any) -> Any:
        raise KeyError("of another version")

    with monkeypatch.context() as patch:
        patch.setattr(Gate, "load_state_dict", broken)
        assert restored("t", result(2, 1.0)) is False
    assert restored.faults == {"reading a trial's saved state": 1}
    assert restored("t", result(3, math.nan)) is True
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "state_dict", broken)
        again = pickle.loads(pickle.dumps(stopper))
    assert again.faults == {"saving the trials' state": 1}
    assert again("t", result(2, math.nan)) is True


@pytest.mark.parametrize(
    ("first", "losses", "config"),
    [
        (
            1,
            [2.0, 1.5, 1.2, 1.0, 0.9, 0.8],
            {"lr": 0.1},
        ),  # a crash before the first checkpoint: all over again
        (20, [0.1, 0.09, 0.08], {"lr": 0.1}),  # a crash after one: rows repeat
        (
            31,
            [40.0, 38.0, 35.0, 33.0, 30.0, 28.0, 25.0],
            {"lr": 0.5},
        ),  # a PBT exploit: other weights, other lr
        (12, [9.0, 8.0, 7.5, 7.0, 6.0, 5.0], {"lr": 0.02}),  # the same, from a donor that is not as far
    ],
)
def test_restores_and_exploits_are_no_divergence(
    make_stopper: MakeStopper, first: int, losses: list[float], config: dict[str, float]
) -> None:
    stopper = make_stopper()
    for step in range(1, 31):
        assert stopper("t", result(step, falling(step))) is False
    for index, loss in enumerate(losses):
        again = result(first + index, loss, iterations_since_restore=1 + index, config=config)
        assert stopper("t", again) is False
    # What is broken afterwards is still seen.
    bad = result(first + len(losses), math.nan, iterations_since_restore=1 + len(losses), config=config)
    assert stopper("t", bad) is True


def test_a_pause_is_no_restart(make_stopper: MakeStopper, tmp_path: Path) -> None:
    stopper = make_stopper()
    for step in range(1, 31):
        stopper("t", result(step, falling(step), iterations_since_restore=1 + (step - 1) % 5))
    stopper("t", result(31, math.nan, iterations_since_restore=1))
    [note] = [json.loads(line) for line in (tmp_path / "notes" / "stops.jsonl").read_text().splitlines()]
    assert note["last_finite"] == {"row": 30, "step": 30}  # forgotten by a reset, kept by a pause


def test_trials_without_an_end_stay_under_the_cap(make_stopper: MakeStopper) -> None:
    stopper = make_stopper(max_trials=20)
    for trial in range(500):
        for step in range(1, 4):
            assert stopper(f"{trial}", result(step, falling(step))) is False
    assert len(stopper._trials.live) <= 20
    assert len(stopper._trials) <= 100
    # A packed trial goes on where it was, a dropped one starts over; neither is stopped for it.
    for trial in (450, 0):
        assert stopper(f"{trial}", result(4, falling(4))) is False
        assert stopper(f"{trial}", result(5, math.nan)) is True
    for trial in range(500):
        stopper.trial_ended(f"{trial}")
    assert len(stopper._trials) == 0
    assert not stopper.faults


def test_trials_that_were_silent_from_snapshot_to_snapshot_are_packed(make_stopper: MakeStopper) -> None:
    stopper = make_stopper()
    for trial in range(10):
        stopper(f"{trial}", result(1, 1.0))
    pickle.dumps(stopper)
    assert len(stopper._trials.live) == 10
    stopper("3", result(2, 0.9))
    restored = pickle.loads(pickle.dumps(stopper))
    assert list(stopper._trials.live) == ["3"]
    assert len(stopper._trials) == len(restored._trials) == 10
    for trial in range(10):
        assert restored(f"{trial}", result(3, math.nan)) is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"mode": "lowest"}, "'min' or 'max'"),
        ({"report_objective": "best"}, "'keep' or 'worst'"),
        ({"metric": None, "report_objective": "worst"}, "needs metric and mode"),
        ({"circuit_breaker": 0}, "at least 1"),
        ({"circuit_breaker": True}, "at least 1"),
        ({"max_trials": 0}, "at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_said_before_the_sweep(
    make_stopper: MakeStopper, arguments: dict[str, Any], says: str
) -> None:
    from gatekeeper.config import ConfigError

    with pytest.raises(ConfigError, match=says):
        make_stopper(**arguments)


def test_configuration_by_mapping_and_by_file(tmp_path: Path) -> None:
    from gatekeeper.config import ConfigError

    from gatekeeper_ray import GatekeeperStopper

    (tmp_path / "gatekeeper.toml").write_text('metric = "nll"\nmode = "min"\nnotes = "why"\n')
    by_file = GatekeeperStopper(config=tmp_path / "gatekeeper.toml")
    assert by_file.notes_directory == tmp_path / "why"
    assert by_file("t", result(1, 1.0, nll=math.nan)) is True
    off = GatekeeperStopper("loss", config={"rules": {"nonfinite-loss": "off"}}, notes=tmp_path / "n")
    assert off("t", result(1, math.nan)) is False
    with pytest.raises(ConfigError, match="did you mean"):
        GatekeeperStopper(config={"rulez": {}})


def test_for_tune_takes_what_a_tune_config_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from gatekeeper.config import Settings
    from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

    from gatekeeper_ray import GatekeeperStopper
    from ray import tune

    def note_of(config: Any, **row: Any) -> dict[str, Any]:
        notes = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        stopper = GatekeeperStopper.for_tune(config, config=Settings(), notes=notes)
        assert stopper("t", result(1, 1.0)) is False
        assert stopper("t", result(2, 1.0, **row)) is True
        note: dict[str, Any] = json.loads((notes / "stops.jsonl").read_text())
        return note

    own = tune.TuneConfig(metric="odd/name", mode="max", scheduler=ASHAScheduler(max_t=50))
    note = note_of(own, **{"odd": {"name": math.nan}})
    assert (note["rows_used"], note["rows_saved"]) == (2, 48)
    assert note["seconds_saved"] == pytest.approx(0.2 / 2 * 48)
    scheduler = ASHAScheduler(metric="odd", mode="min", time_attr="time_total_s", max_t=50)
    note = note_of(tune.TuneConfig(scheduler=scheduler), odd=math.inf)
    assert note["rows_saved"] is None
    assert "synch" not in caplog.text
    GatekeeperStopper.for_tune(
        tune.TuneConfig(scheduler=PopulationBasedTraining(synch=True, hyperparam_mutations={"lr": [1]})),
        config=Settings(),
    )
    assert "use synch=False" in caplog.text  # Ray itself hangs there when any stopper ends a trial


@pytest.mark.parametrize("mode", ["min", "max"])
def test_worst_is_worse_than_any_seen_and_finite(make_stopper: MakeStopper, mode: str) -> None:
    stopper = make_stopper(mode=mode, report_objective="worst")
    nothing_seen = result(1, math.nan)
    assert stopper("first", nothing_seen) is True
    seen = [3.0, -2.0, 5.0, 4.0]
    for trial, value in enumerate(seen):
        stopper(f"{trial}", result(1, value))
    nested = result(1, 0.0)
    del nested["loss"]
    for last in (result(2, math.nan), result(2, math.inf), result(2, "nan")):
        name = repr(last["loss"])
        stopper(name, result(1, 1.0))
        assert stopper(name, last) is True
        assert math.isfinite(last["loss"])
        assert last["loss"] > 5.0 if mode == "min" else last["loss"] < -2.0
        assert last["gatekeeper/reported_objective"] in ("NaN", "Infinity", "nan")
    huge = make_stopper(mode=mode, report_objective="worst")
    huge("a", result(1, 1.7e308 if mode == "min" else -1.7e308))
    last = result(1, math.nan)
    huge("b", last)
    assert math.isfinite(last["loss"])


def test_keep_changes_nothing_but_none(make_stopper: MakeStopper) -> None:
    stopper = make_stopper(metric="eval/loss")
    last = result(1, math.nan, eval={"loss": 0.25, "other": None})
    assert stopper("a", last) is True
    assert math.isnan(last["loss"])
    assert last["eval"] == {"loss": 0.25, "other": None}
    last = result(1, math.nan, eval={"loss": None})
    assert stopper("b", last) is True
    assert math.isnan(last["eval"]["loss"])


def test_circuit_breaker_needs_a_row_of_one_rule(make_stopper: MakeStopper) -> None:
    def stopped(stopper: Any, name: str, loss: float = math.nan) -> None:
        stopper(name, result(1, 1.0))
        assert stopper(name, result(2, loss)) is True
        stopper.trial_ended(name)

    stopper = make_stopper(circuit_breaker=3)
    stopped(stopper, "a")
    stopped(stopper, "b")
    for step in range(1, 30):
        assert stopper("healthy", result(step, falling(step))) is False
    stopper.trial_ended("healthy")  # ended by itself, in good health: the row begins anew
    stopped(stopper, "c")
    stopped(stopper, "d")
    assert stopper.given_up is None
    stopper = pickle.loads(pickle.dumps(stopper))
    for step in range(1, 30):
        assert stopper("running", result(step, falling(step))) is False
    stopped(stopper, "e")
    assert stopper.given_up is None  # three in a row, but one is healthy beside them
    stopper.trial_failed("running")
    stopped(stopper, "f")
    assert stopper.given_up is not None
    assert "nonfinite-loss" in stopper.given_up
    # From now on every trial ends at its first result, however good; also after a restore.
    stopper = pickle.loads(pickle.dumps(stopper))
    for name in ("g", "h", "i"):
        assert stopper.stop_all() is False
        last = result(1, 0.5)
        assert stopper(name, last) is True
        assert last["gatekeeper/rule"] == "circuit-breaker"
        assert "nonfinite-loss" in last["gatekeeper/reason"]
        stopper.trial_ended(name)
    assert stopper.stop_all() is True


def test_callback_and_stopper_find_each_other(make_stopper: MakeStopper) -> None:
    from gatekeeper_ray import GatekeeperCallback

    first = make_stopper()
    explicit = GatekeeperCallback(first)
    second = make_stopper()
    implicit = GatekeeperCallback()
    for stopper in (first, second):
        stopper.stop_all()  # Ray's first question
    second("t", result(1, math.nan))
    assert "0 stopped" in explicit.summary()
    assert "1 stopped" in implicit.summary()
    # After a restore there is another copy of each, and the one that Ray asks is the one that counts.
    restored = pickle.loads(pickle.dumps(second))
    unused = pickle.loads(pickle.dumps(second))
    callback = GatekeeperCallback(summary=False)
    callback.set_state(implicit.get_state())
    restored.stop_all()
    restored("u", result(1, math.nan))
    assert "2 stopped" in callback.summary()
    assert len(unused.stops) == 1


def test_callback_never_raises(make_stopper: MakeStopper, capsys: pytest.CaptureFixture[str]) -> None:
    from gatekeeper_ray import GatekeeperCallback

    stopper = make_stopper()
    stopper.stop_all()
    callback = GatekeeperCallback(stopper)
    callback.setup()
    nonsense: Any = SimpleNamespace()
    callback.on_trial_start(0, [], nonsense)
    callback.on_trial_complete(0, [], nonsense)
    callback.on_trial_error(0, [], nonsense)
    callback.on_trial_recover(0, [], nonsense)
    callback.on_checkpoint(0, [], nonsense, nonsense)
    callback.on_step_end(0, nonsense)
    callback.on_experiment_end(nonsense)
    assert "4 faults of the gate itself" in capsys.readouterr().err


def test_faults_are_said_at_the_end_also_without_a_callback(tmp_path: Path) -> None:
    import subprocess

    code = (
        "from gatekeeper.config import Settings\n"
        "from gatekeeper.gate import Gate\n"
        "from gatekeeper_ray import GatekeeperStopper\n"
        "stopper = GatekeeperStopper('loss', 'min', config=Settings())\n"
        "stopper.stop_all()\n"
        "Gate.observe = lambda *arguments: 1 / 0\n"  # a real engine never raises, so this one is made to
        "for step in range(1, 4):\n"
        "    assert stopper('t', {'training_iteration': step, 'loss': 1.0}) is False\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "3 faults of its own in this sweep" in done.stderr
    assert not list(tmp_path.iterdir())


def test_untrusted_text_is_harmless_on_the_terminal(
    make_stopper: MakeStopper, caplog: pytest.LogCaptureFixture
) -> None:
    from gatekeeper_ray import GatekeeperCallback

    stopper = make_stopper(metric="evil\x1b]0;owned\x07\n::error::loss")
    stopper.stop_all()
    stopper("\x1b[31mtrial\nsecond line", result(1, 1.0, **{"evil\x1b]0;owned\x07\n::error::loss": math.nan}))
    assert stopper.stopped_by
    summary = GatekeeperCallback(stopper).summary()
    for text in (summary, caplog.messages[-1]):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert not any(line.startswith("::error") for line in summary.splitlines())


def test_wandb_addresses(make_stopper: MakeStopper, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of a W&B run; an online run needs a server, so stand-ins for it are used here."""
    from gatekeeper_ray.wandb_runs import DIRECTORY, WandbRuns, record_run, runs_directory

    for key in ("WANDB_PROJECT_NAME", "WANDB_ENTITY", "WANDB_MODE", "WANDB_BASE_URL", "WANDB_APP_URL"):
        monkeypatch.delenv(key, raising=False)
    runs = WandbRuns()
    assert runs.address("p1_00001").state == "unknown"
    assert not runs.in_use(["p1_00001"])
    # The project alone is no address; with the entity it is.
    runs.logger = SimpleNamespace(project="p 1", kwargs={})
    assert runs.in_use()
    assert runs.address("p1_00001").state == "unknown"
    monkeypatch.setenv("WANDB_ENTITY", "team")
    assert runs.address("p1_00001").url == "https://wandb.ai/team/p%201/runs/p1_00001"
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org/")
    assert runs.address("p1_00001").url == "https://wandb.example.org/team/p%201/runs/p1_00001"
    runs.logger.kwargs.update(entity="other", mode="offline")
    assert runs.address("p1_00001").url is None
    assert runs.address("p1_00001").state == "offline"
    # What a run says of itself comes first, also for its siblings.
    monkeypatch.setenv(DIRECTORY, runs_directory())
    online = SimpleNamespace(
        id="p2_00000", url="https://w.example/x/team2/p2/runs/p2_00000", offline=False, disabled=False,
        project="p2", entity="team2",
    )  # fmt: skip
    record_run(online)
    fresh = WandbRuns()
    assert fresh.address("p2_00000").url == online.url
    assert fresh.address("p2_00001").url == "https://w.example/x/team2/p2/runs/p2_00001"
    assert WandbRuns().address("p2_00001", ["p2_00000"]).url == "https://w.example/x/team2/p2/runs/p2_00001"
    assert WandbRuns().address("elsewhere_1").url is None


def test_the_hook_leaves_a_hook_of_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import ray
    from gatekeeper_ray.wandb_runs import DIRECTORY, HOOK, NEXT_HOOK, install_hook, record_run

    assert not ray.is_initialized()
    monkeypatch.setenv(HOOK, "their_hook.seen.append")
    monkeypatch.setenv(DIRECTORY, "")
    monkeypatch.setenv(NEXT_HOOK, "")
    (tmp_path / "their_hook.py").write_text(
        "class seen:\n    runs = []\n    append = staticmethod(runs.append)\n"
    )
    (tmp_path / "their_module.py").write_text("runs = []\nappend = runs.append\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    os.environ[HOOK] = "their_module.append"
    assert install_hook()
    assert os.environ[HOOK] == "gatekeeper_ray.wandb_runs.record_run"
    assert install_hook()  # a second Stopper changes nothing
    run = SimpleNamespace(id="x_1", url="https://w/e/p/runs/x_1", offline=False, project="p", entity="e")
    record_run(run)
    assert sys.modules["their_module"].runs == [run]


def test_the_package_is_cheap_to_look_into(tmp_path: Path) -> None:
    import subprocess

    code = (
        "import gatekeeper_ray, gatekeeper_ray.cli, sys; print('ray' in sys.modules, 'wandb' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert out.stdout.split() == ["False", "False"]
