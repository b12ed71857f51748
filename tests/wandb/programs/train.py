"""A trial's program for command mode; prints its arguments for the tests to see."""

import sys

from trials import train

import wandb

print("ARGUMENTS", sys.argv[1:], flush=True)
with wandb.init() as run:
    train(run)
print("RAN TO THE END", flush=True)
