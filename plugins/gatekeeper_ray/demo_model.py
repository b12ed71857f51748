"""The demo's model: a small neural network in NumPy, trained by stochastic gradient descent with momentum.

Nothing here is faked. The broken trials break because of what they are configured with: learning rates at
which float32 overflows, a momentum above one, a weight decay with the wrong sign, and a data fault in the
middle of the training.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EPOCHS", "TRIALS", "epochs"]

EPOCHS = 81
FEATURES, HIDDEN, BATCH = 6, 32, 100
TRAINING_ROWS, EVAL_ROWS = 2000, 600

Array = NDArray[np.float32]

# What the sweep tries. The first eight are sound; the names of the others say what is wrong with them.
TRIALS: tuple[dict[str, Any], ...] = (
    {"name": "lr 0.003", "lr": 0.003},
    {"name": "lr 0.01", "lr": 0.01},
    {"name": "lr 0.02", "lr": 0.02},
    {"name": "lr 0.45, too high", "lr": 0.45},
    {"name": "lr 0.03", "lr": 0.03},
    {"name": "momentum 1.02", "lr": 0.01, "momentum": 1.02},
    {"name": "lr 0.05", "lr": 0.05},
    {"name": "sensor fault at epoch 13", "lr": 0.03, "fault_epoch": 13},
    {"name": "lr 0.1", "lr": 0.1},
    {"name": "weight decay, wrong sign", "lr": 0.03, "weight_decay": -0.1},
    {"name": "lr 100, absurd", "lr": 100.0},
    {"name": "lr 0.2", "lr": 0.2},
    {"name": "weight decay, very wrong", "lr": 0.03, "weight_decay": -0.3},
    {"name": "lr 0.2, no momentum", "lr": 0.2, "momentum": 0.0},
)


def make_data() -> tuple[Array, Array, Array, Array]:
    """Return training inputs and targets, then those for evaluation; the same for every trial."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(TRAINING_ROWS + EVAL_ROWS, FEATURES)).astype(np.float32)
    direction = rng.normal(size=FEATURES) / 2
    targets = np.sin(inputs @ direction) + 0.5 * np.tanh(inputs[:, 0] * inputs[:, 1])
    targets = (targets + 0.2 * rng.normal(size=len(targets))).astype(np.float32)[:, None]
    return inputs[:TRAINING_ROWS], targets[:TRAINING_ROWS], inputs[TRAINING_ROWS:], targets[TRAINING_ROWS:]


class Network:
    """One hidden layer of tanh units and a linear output, for regression under squared error."""

    def __init__(self, rng: np.random.Generator) -> None:
        def weights(rows: int, columns: int) -> Array:
            drawn: Array = (rng.normal(size=(rows, columns)) / np.sqrt(rows)).astype(np.float32)
            return drawn

        self.parameters: list[Array] = [
            weights(FEATURES, HIDDEN),
            np.zeros(HIDDEN, np.float32),
            weights(HIDDEN, 1),
            np.zeros(1, np.float32),
        ]

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return predictions and the hidden layer's activations."""
        first, first_bias, second, second_bias = self.parameters
        hidden = np.tanh(inputs @ first + first_bias)
        return hidden @ second + second_bias, hidden

    def gradients(self, inputs: Array, targets: Array) -> tuple[float, list[Array]]:
        """Return the mean squared error of a batch and its gradients."""
        predictions, hidden = self.predict(inputs)
        residuals = predictions - targets
        outer = 2 * residuals / np.float32(len(inputs))
        inner = (outer @ self.parameters[2].T) * (1 - hidden * hidden)
        gradients = [inputs.T @ inner, inner.sum(axis=0), hidden.T @ outer, outer.sum(axis=0)]
        return float((residuals**2).mean()), gradients


def epochs(config: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Train one network and yield the metrics of each epoch."""
    inputs, targets, eval_inputs, eval_targets = make_data()
    rng = np.random.default_rng(1)
    network = Network(rng)
    velocity = [np.zeros_like(parameter) for parameter in network.parameters]
    lr, momentum, decay = (
        np.float32(config.get(key, default))
        for key, default in (("lr", 0.03), ("momentum", 0.9), ("weight_decay", 0))
    )
    for epoch in range(1, EPOCHS + 1):
        if epoch == config.get("fault_epoch"):
            inputs[17, 3] = np.nan  # what a broken sensor delivers
        losses, norms = [], []
        with np.errstate(all="ignore"):  # overflow is what some of these trials are about
            for batch in np.array_split(rng.permutation(TRAINING_ROWS), TRAINING_ROWS // BATCH):
                loss, gradients = network.gradients(inputs[batch], targets[batch])
                losses.append(loss)
                norms.append(float(np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients))))
                for index, gradient in enumerate(gradients):
                    parameter = network.parameters[index]
                    velocity[index] = momentum * velocity[index] - lr * (gradient + decay * parameter)
                    network.parameters[index] = parameter + velocity[index]
            eval_loss = float(((network.predict(eval_inputs)[0] - eval_targets) ** 2).mean())
            yield {
                "loss": float(np.mean(losses)),
                "eval_loss": eval_loss,
                "grad_norm": float(np.mean(norms)),
                "lr": float(lr),
            }
