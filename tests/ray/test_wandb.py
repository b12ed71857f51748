"""The run's address in a note, with the real W&B SDK: a process of its own for each way to log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SWEEP = """
import logging, math, sys, time
from pathlib import Path

import ray
from ray import tune
from ray.air.integrations.wandb import WandbLoggerCallback, setup_wandb

from gatekeeper.config import Settings
from gatekeeper_ray import GatekeeperCallback, GatekeeperStopper

work, way = Path(sys.argv[1]), sys.argv[2]


def train(config):
    run = setup_wandb(config, project="trees") if way == "setup_wandb" else None
    for step in range(1, 9):
        row = {"loss": math.nan if step >= 4 else 1.0 / step}
        if run:
            run.log(row)
        tune.report(row)


def start_ray():
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )


def make_stopper():
    return GatekeeperStopper("loss", "min", notes=work / "notes", config=Settings())


if way == "setup_wandb":  # workers take their environment at ray.init, so the Stopper comes first
    stopper = make_stopper()
    start_ray()
    loggers = []
else:  # with the logger callback the order does not matter
    start_ray()
    stopper = make_stopper()
    loggers = [WandbLoggerCallback(project="trees")]
results = tune.Tuner(
    train,
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(
        storage_path=str(work / "results"),
        stop=stopper,
        callbacks=[GatekeeperCallback(stopper), *loggers],
        verbose=0,
    ),
).fit()
assert results[0].error is None, results[0].error
assert not stopper.faults, stopper.faults
"""


def sweep(work: Path, way: str, environment: dict[str, str]) -> dict[str, Any]:
    """Run one trial that is stopped at its fourth row, and return its note."""
    from gatekeeper.notes import Journal

    (work / "sweep.py").write_text(SWEEP)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "GATEKEEPER_"))}
    quiet = {"WANDB_SILENT": "true", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0"}
    done = subprocess.run(
        [sys.executable, str(work / "sweep.py"), str(work), way],
        cwd=work,
        env={**kept, **quiet, **environment},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [note] = Journal(work / "notes").read()
    return note


@pytest.mark.parametrize("way", ["setup_wandb", "callback"])
def test_offline_the_note_says_where_the_run_is(tmp_path: Path, way: str) -> None:
    note = sweep(tmp_path, way, {"WANDB_MODE": "offline", "WANDB_API_KEY": "0" * 40})
    assert note["run_url"] is None  # W&B gives no URL offline
    said = note["extra"]["wandb"]
    assert said.startswith("offline, project trees; to upload: wandb sync ")
    directory = said.split("wandb sync ")[1]
    assert note["run_id"] in Path(directory).name
    assert "0" * 40 not in json.dumps(note)


@pytest.mark.parametrize("way", ["setup_wandb", "callback"])
def test_online_the_note_has_the_runs_url(tmp_path: Path, way: str) -> None:
    # The loopback W&B server of the W&B tests; nobody tells Ray the entity, the server does.
    sys.path.insert(0, str(Path(__file__).parent.parent / "wandb"))
    try:
        from wandb_backend import Backend
    finally:
        sys.path.pop(0)
    backend = Backend()
    try:
        note = sweep(tmp_path, way, backend.env(tmp_path))
    finally:
        backend.stop()
    [run] = backend.state.runs.values()
    assert run.name == note["run_id"]
    assert note["run_url"] == f"{backend.base_url}/{run.entity}/trees/runs/{note['run_id']}"
    assert note["extra"]["wandb"] == "online"
    assert note["run_url"] in (tmp_path / "notes" / "stops.md").read_text()
