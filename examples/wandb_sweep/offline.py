"""The sweep's trials in a loop, offline: no account, no network. ``python examples/wandb_sweep/offline.py``

Needs `pip install 'sweep-gatekeeper[wandb]'`. Writes the runs to ./wandb and why some were stopped to
./gatekeeper-notes. With an account the loop is W&B's: ``gatekeeper_wandb.agent(sweep_id, function=train)``.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import yaml

os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")

from train import train

import gatekeeper_wandb


def main() -> None:
    parameters = yaml.safe_load((Path(__file__).parent / "sweep.yaml").read_text())["parameters"]
    outcomes = []
    for values in itertools.product(*(spec["values"] for spec in parameters.values())):
        trial = dict(zip(parameters, values, strict=True))
        with gatekeeper_wandb.gate_run(metric="train/loss", mode="min") as trials:
            train(trial)
        outcomes.append((trial, trials.stopped))
    print()
    for trial, stopped in outcomes:
        print(f"{trial}: {f'stopped by {stopped[0].stopped_by}' if stopped else 'ran to its end'}")
    print("why: gatekeeper-notes/stops.md; the runs: wandb sync wandb/offline-run-*")


if __name__ == "__main__":
    main()
