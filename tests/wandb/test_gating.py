"""The gate inside the SDK, without an agent: scripts, offline runs, TensorBoard sync, threads."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from typing import Any

import pytest

NO_TORCH = "PyTorch is not installed: no extra of the tests brings it, for its size"


def script(sweeping: Any, code: str, **env: str) -> tuple[Any, str]:
    """Run a script and return what it printed as RESULT, and everything it printed."""
    output = sweeping.run(sys.executable, "-c", textwrap.dedent(code), env=env)
    result = [line for line in output.splitlines() if line.startswith("RESULT")]
    return (json.loads(result[0].removeprefix("RESULT")) if result else None), output


def test_a_script_without_an_agent_leaves_the_gated_block(sweeping: Any) -> None:
    result, _ = script(
        sweeping,
        """
        import json, wandb, gatekeeper_wandb
        after = []
        with gatekeeper_wandb.gate_run(notes="here") as trials:
            for name in ("good", "bad"):
                with wandb.init(name=name, id=name) as run:
                    for i in range(20):
                        run.log({"loss": float("nan") if name == "bad" and i == 9 else 1 / (i + 1)})
                after.append(name)
        run = wandb.init(name="later", id="later")     # not gated any more
        run.log({"loss": float("nan")})
        run.log({"loss": float("nan")})
        run.finish()
        stopped = [(trial.run_id, trial.stopped_by) for trial in trials.trials]
        print("RESULT", json.dumps([after, stopped, wandb.run is None]))
        """,
    )
    after, trials, no_run_left = result
    assert after == ["good"]
    assert trials == [["bad", "nonfinite-loss"]]
    assert no_run_left
    runs = {run.name: run for run in sweeping.backend.state.runs.values()}
    assert [(name, len(run.rows), run.exit_codes) for name, run in runs.items()] == [
        ("good", 20, [0]),
        ("bad", 10, [0]),
        ("later", 2, [0]),
    ]
    note = json.loads((sweeping.directory / "here" / "stops.jsonl").read_text())
    assert (note["run_name"], note["run_url"].endswith("/ent/proj/runs/bad")) == ("bad", True)


def test_an_offline_run_has_its_note_at_once_and_its_rows_in_the_file(sweeping: Any) -> None:
    """No server at all: the note is local, the URL is open, and `wandb sync` later brings every row up."""
    sweeping.backend.refuse()
    script(
        sweeping,
        """
        import wandb, gatekeeper_wandb
        with gatekeeper_wandb.gate_run():
            with wandb.init(id="abc") as run:
                for i in range(20):
                    run.log({"loss": float("inf") if i == 4 else 1.0})
        """,
        WANDB_MODE="offline",
    )
    (note,) = sweeping.notes()
    assert note["run_url"] is None
    assert "wandb sync" in note["extra"]["offline"]
    directory = note["extra"]["offline_directory"]
    sweeping.backend.clear_faults()
    sweeping.run(sys.executable, "-m", "wandb", "sync", directory)
    (run,) = sweeping.backend.state.runs.values()
    assert [run.rows[i]["loss"] for i in (0, 4)] == [1.0, math.inf]
    assert len(run.rows) == 5
    assert run.tags == ["gatekeeper-stopped"]
    assert run.summary["gatekeeper/rule"] == note["rule"]


def test_rows_synced_from_tensorboard_are_judged_as_they_are_written(sweeping: Any) -> None:
    pytest.importorskip("torch", reason=NO_TORCH)
    script(
        sweeping,
        """
        import wandb, gatekeeper_wandb
        with gatekeeper_wandb.gate_run():
            with wandb.init(id="tb", sync_tensorboard=True) as run:
                from torch.utils.tensorboard import SummaryWriter
                writer = SummaryWriter("logs")
                for i in range(200):
                    writer.add_scalar("train/loss", float("nan") if i == 30 else 1 / (i + 1), i)
        """,
    )
    (run,) = sweeping.backend.state.runs.values()
    assert (run.state, run.exit_codes, run.tags) == ("finished", [0], ["gatekeeper-stopped"])
    steps = [row["global_step"] for row in run.rows if "train/loss" in row]
    assert steps[-1] == 30
    assert math.isnan(run.rows[-1]["train/loss"])
    (note,) = sweeping.notes()
    assert (note["step"], note["roles"]) == (30, {"loss": "train/loss"})


def test_many_threads_on_one_run_stop_once(sweeping: Any) -> None:
    result, output = script(
        sweeping,
        """
        import json, threading, wandb, gatekeeper_wandb
        errors = []
        def note(arguments):
            if not isinstance(arguments.exc_value, gatekeeper_wandb.RunStopped):
                errors.append(repr(arguments.exc_value))
        threading.excepthook = note
        with gatekeeper_wandb.gate_run():
            run = wandb.init(id="many")
            barrier = threading.Barrier(8)
            def log():
                barrier.wait()
                for i in range(300):
                    run.log({"loss": float("nan") if i == 100 else 1.0})
            threads = [threading.Thread(target=log) for _ in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        print("RESULT", json.dumps(errors))
        """,
    )
    assert result == []
    assert len(sweeping.notes()) == 1
    (run,) = sweeping.backend.state.runs.values()
    assert (run.exit_codes, run.tags) == ([0], ["gatekeeper-stopped"])
    assert output.count("gatekeeper: STOP") == 1


def test_a_fault_inside_the_engine_never_reaches_the_run(sweeping: Any) -> None:
    """The engine is made to raise: there is no input known to do that, so it is broken by hand here."""
    result, output = script(
        sweeping,
        """
        import json, logging, wandb, gatekeeper_wandb
        from gatekeeper.gate import Gate
        def broken(self, step, metrics):
            raise ZeroDivisionError("engine")
        Gate.observe = broken
        with gatekeeper_wandb.gate_run() as trials:
            with wandb.init(id="abc") as run:
                for i in range(30):
                    run.log({"loss": float("nan")})
        print("RESULT", json.dumps([trials.faults.count, trials.faults.kinds]))
        """,
    )
    (run,) = sweeping.backend.state.runs.values()
    assert (len(run.rows), run.exit_codes, run.tags) == (30, [0], [])
    count, kinds = result
    assert count == 30
    assert len(kinds) == 1
    assert "ZeroDivisionError: engine" in kinds[0]
    assert output.count("the run goes on") == 1


def test_importing_the_plugin_does_not_import_the_sdk(sweeping: Any) -> None:
    result, _ = script(
        sweeping,
        """
        import json, sys, gatekeeper_wandb, gatekeeper_wandb.cli, gatekeeper_wandb.environment
        imported = "wandb" in sys.modules
        print("RESULT", json.dumps([imported, gatekeeper_wandb.agent.__module__, "wandb" in sys.modules]))
        """,
    )
    assert result == [False, "gatekeeper_wandb.agents", False]


@pytest.mark.parametrize(
    ("module", "values"),
    [
        ("numpy", "[numpy.float16(nan), numpy.array([nan]), numpy.array(nan)]"),
        ("torch", "[torch.tensor(nan, requires_grad=True), torch.tensor([nan]), torch.tensor(nan).half()]"),
    ],
)
def test_values_count_as_the_sdk_stores_them(sweeping: Any, module: str, values: str) -> None:
    """Tensors, also those that need a gradient, and arrays of one element are numbers; nothing warns."""
    pytest.importorskip(module, reason=NO_TORCH)
    result, output = script(
        sweeping,
        f"""
        import json, warnings
        import numpy, {module}, wandb, gatekeeper_wandb
        warnings.simplefilter("error")
        nan = float("nan")
        values = {values}
        rows = []
        for value in values:
            with gatekeeper_wandb.gate_run() as trials:
                with wandb.init(mode="offline") as run:
                    run.log(dict(loss=1.0, histogram=wandb.Histogram([1, 2]), image=numpy.ones((2, 2))))
                    run.log(dict(loss=value))
                    run.log(dict(loss=1.0))
            rows.append(len(trials.stopped))
        print("RESULT", json.dumps(rows))
        """,
    )
    assert result == [1, 1, 1]
    assert "Warning" not in output
