"""Run a function-mode agent: ``function_sweep.py SWEEP COUNT [plain]``; prints the report as JSON."""

import json
import os
import sys

from trials import train
from wandb.agents.pyagent import Agent

import gatekeeper_wandb
import wandb

Agent.HEARTBEAT_SLEEP_SECONDS = 0.1  # the SDK's own knob for tests


def trial() -> None:
    if os.environ.get("TRIAL_STYLE") == "with":
        with wandb.init() as run:
            train(run)
    else:
        train(wandb.init())


sweep, count = sys.argv[1], int(sys.argv[2])
if sys.argv[3:] == ["plain"]:
    wandb.agent(sweep, function=trial, count=count)
else:
    trials = gatekeeper_wandb.agent(sweep, function=trial, count=count)
    told = [[one.run_id, one.stopped_by, one.error, one.gated] for one in trials.trials]
    print(
        "REPORT", json.dumps({"trials": told, "faults": trials.faults.kinds, "common": trials.common_error})
    )
