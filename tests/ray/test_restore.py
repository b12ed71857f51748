"""A sweep that is interrupted and restored, each in a process of its own as a user would do it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SWEEP = """
import json, logging, math, os, sys, time
from pathlib import Path

import ray
from ray import tune

from gatekeeper.config import Settings
from gatekeeper_ray import GatekeeperCallback, GatekeeperStopper

work, what = Path(sys.argv[1]), sys.argv[2]


def train(config):
    first = 1
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            first = int(Path(directory, "step").read_text()) + 1
    first_bad = {"nan early": 3, "nan late": 25}.get(config["kind"], 999)
    for step in range(first, 31):
        (work / "progress" / config["kind"]).write_text(str(step))
        saved = None
        if step % 4 == 0:
            Path("checkpoint").mkdir(exist_ok=True)
            Path("checkpoint", "step").write_text(str(step))
            saved = tune.Checkpoint.from_directory("checkpoint")
        time.sleep(0.1)
        tune.report({"loss": math.nan if step >= first_bad else 2.0 / step, "step": step}, checkpoint=saved)


ray.init(
    address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
)
if what == "fit":
    stopper = GatekeeperStopper("loss", "min", notes=work / "notes", config=Settings(), circuit_breaker=2)
    tuner = tune.Tuner(
        train,
        param_space={"kind": tune.grid_search(["nan early", "nan late", "sound"])},
        tune_config=tune.TuneConfig(metric="loss", mode="min"),
        run_config=tune.RunConfig(
            name="sweep", storage_path=str(work / "results"), stop=stopper,
            callbacks=[GatekeeperCallback(stopper)], verbose=0,
        ),
    )
else:
    os.chdir(work / "elsewhere")
    tuner = tune.Tuner.restore(str(work / "results" / "sweep"), train, resume_errored=True)
results = tuner.fit()
print("ENDS " + json.dumps([
    [results[i].config["kind"], results[i].metrics["step"], results[i].metrics.get("gatekeeper/rule"),
     str(results[i].error or "")] for i in range(len(results))
]))
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("progress", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "sweep.py").write_text(SWEEP)
    return tmp_path


def start(work: Path, what: str) -> subprocess.Popen[str]:
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0"}
    return subprocess.Popen(
        [sys.executable, str(work / "sweep.py"), str(work), what],
        cwd=work, env={**os.environ, **quiet}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_until(condition: object, process: subprocess.Popen[str], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the sweep does not get on"
        time.sleep(0.05)


def notes_of(work: Path) -> list[dict[str, object]]:
    path = work / "notes" / "stops.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_interrupted_and_restored(work: Path) -> None:
    first = start(work, "fit")

    def far_enough() -> bool:
        late = work / "progress" / "nan late"
        # Past a checkpoint at 8, so that the restored trial repeats rows.
        return bool(notes_of(work)) and late.exists() and int(late.read_text() or 0) >= 11

    wait_until(far_enough, first)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=90)
    assert "Traceback" not in err
    assert [note["config"] for note in notes_of(work)] == [{"kind": "nan early"}]
    assert "1 stopped" in err

    second = start(work, "restore")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    ends = {
        kind: (step, rule, error)
        for kind, step, rule, error in json.loads(out.split("ENDS ")[1].splitlines()[0])
    }
    assert ends == {
        "nan early": (3, "nonfinite-loss", ""),
        "nan late": (25, "nonfinite-loss", ""),
        "sound": (30, None, ""),
    }
    # The notes are where they were, though the restored process stood elsewhere.
    early, late = notes_of(work)
    assert late["config"] == {"kind": "nan late"}
    assert not (work / "elsewhere" / "gatekeeper-notes").exists()
    # The snapshot's state went on: rows seen before the interruption still count, and so do repeated ones.
    assert late["rows_used"] > 25
    # The Callback found the restored Stopper, which remembers the stop before the interruption.
    assert "2 stopped" in err
    assert "nan early" not in err  # named by its trial, not by its config
    assert str(early["run_name"]) in err
    assert "gave up" not in err  # two in a row by one rule, but the sound one was healthy beside them
    assert "faults of the gate" not in err
