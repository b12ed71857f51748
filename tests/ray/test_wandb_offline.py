"""The run's address in a note, with the real W&B SDK, offline: in a process of its own for each way to log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
        storage_path=str(work / "results"), stop=stopper, callbacks=[*loggers, GatekeeperCallback(stopper)], verbose=0
    ),
).fit()
assert results[0].error is None, results[0].error
assert not stopper.faults, stopper.faults
"""


@pytest.mark.parametrize("way", ["setup_wandb", "callback"])
def test_offline_the_note_says_where_the_run_is(tmp_path: Path, way: str) -> None:
    from gatekeeper.notes import Journal

    (tmp_path / "sweep.py").write_text(SWEEP)
    environment = {
        **os.environ,
        "WANDB_MODE": "offline",
        "WANDB_API_KEY": "0" * 40,
        "WANDB_SILENT": "true",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
    }
    done = subprocess.run(
        [sys.executable, str(tmp_path / "sweep.py"), str(tmp_path), way],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [note] = Journal(tmp_path / "notes").read()
    assert note["run_url"] is None  # W&B gives no URL offline
    said = note["extra"]["wandb"]
    assert said.startswith("offline, project trees; to upload: wandb sync ")
    directory = said.split("wandb sync ")[1]
    assert note["run_id"] in Path(directory).name
    assert "0" * 40 not in json.dumps(note)
