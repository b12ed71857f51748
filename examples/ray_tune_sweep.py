"""A Ray Tune sweep behind the gate: a linear model in NumPy, some learning rates of which cannot work.

    python examples/ray_tune_sweep.py

Needs `pip install 'sweep-gatekeeper[ray]'`. Writes Ray's results to ./ray_results and the notes of what was
stopped to ./gatekeeper-notes.
"""

from pathlib import Path
from typing import Any

import numpy as np
from ray.tune.schedulers import ASHAScheduler

from gatekeeper_ray import GatekeeperCallback, GatekeeperStopper
from ray import tune


def train(config: dict[str, Any]) -> None:
    """Fit a line by gradient descent and report every epoch."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(256, 8)).astype(np.float32)
    targets = inputs @ rng.normal(size=8).astype(np.float32) + 0.1 * rng.normal(size=256).astype(np.float32)
    weights = np.zeros(8, np.float32)
    for _ in range(100):
        with np.errstate(all="ignore"):
            residuals = inputs @ weights - targets
            gradient = 2 * inputs.T @ residuals / len(inputs)
            weights -= np.float32(config["lr"]) * gradient
            tune.report({"loss": float((residuals**2).mean()), "grad_norm": float(np.linalg.norm(gradient))})


def main() -> None:
    """Run the sweep and show its best trial."""
    tune_config = tune.TuneConfig(
        metric="loss", mode="min", num_samples=12, scheduler=ASHAScheduler(max_t=100, grace_period=20)
    )
    gate = GatekeeperStopper.for_tune(tune_config, report_objective="worst", circuit_breaker=6)
    results = tune.Tuner(
        train,
        param_space={"lr": tune.loguniform(1e-3, 10.0)},
        tune_config=tune_config,
        run_config=tune.RunConfig(
            stop=gate,
            callbacks=[GatekeeperCallback(gate)],
            storage_path=str(Path("ray_results").resolve()),
            verbose=0,
        ),
    ).fit()
    best = results.get_best_result()
    print(f"best: lr {best.config['lr']:.3g}, loss {best.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
