"""A small network, really trained with NumPy. It knows nothing of the gate; large learning rates break it."""

from __future__ import annotations

import numpy as np

import wandb

STEPS = 300
DEFAULTS = {"lr": 0.1, "hidden": 32, "seed": 0}


def train(parameters: dict[str, object] | None = None) -> None:
    """Train once. In a sweep the parameters come from W&B."""
    with wandb.init(project="gatekeeper-example", config={**DEFAULTS, **(parameters or {})}) as run:
        rng = np.random.default_rng(run.config["seed"])
        x = rng.normal(size=(512, 8))
        y = np.sin(x @ rng.normal(size=8))[:, None] + 0.05 * rng.normal(size=(512, 1))
        w1 = rng.normal(size=(8, run.config["hidden"])) / np.sqrt(8)
        w2 = rng.normal(size=(run.config["hidden"], 1)) / np.sqrt(run.config["hidden"])
        with np.errstate(over="ignore", invalid="ignore"):  # a broken trial is the gate's to end
            for _ in range(STEPS):
                batch = rng.integers(0, len(x), size=64)
                hidden = np.maximum(x[batch] @ w1, 0)
                error = hidden @ w2 - y[batch]
                loss = float(np.mean(error**2))
                grad2 = 2 * hidden.T @ error / len(batch)
                grad1 = 2 * x[batch].T @ ((error @ w2.T) * (hidden > 0)) / len(batch)
                norm = float(np.sqrt(np.sum(grad1**2) + np.sum(grad2**2)))
                run.log({"train/loss": loss, "train/grad_norm": norm})
                w1 -= run.config["lr"] * grad1
                w2 -= run.config["lr"] * grad2


if __name__ == "__main__":
    train()
