"""A training short enough for every pull request: a small classifier, 100 steps, about a second.

It writes one JSON line a step to --log: step, train/loss, grad_norm, and each 10 steps eval/loss and
eval/accuracy. --fault breaks it the way trainings break, to see the gate answer.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

CLASSES, FEATURES, HIDDEN, BATCH = 10, 20, 64, 50
FAULTS = ("none", "nan", "diverging", "frozen", "shuffled-labels")


def make_data(rng: np.random.Generator, centers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points around one center for each class, and their classes."""
    labels = rng.integers(CLASSES, size=count)
    return centers[labels] + rng.normal(size=(count, FEATURES)), labels


class Model:
    """One hidden layer, softmax, cross-entropy."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = [
            rng.normal(scale=FEATURES**-0.5, size=(FEATURES, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(scale=0.1 * HIDDEN**-0.5, size=(HIDDEN, CLASSES)),
            np.zeros(CLASSES),
        ]

    def loss(self, x: np.ndarray, y: np.ndarray) -> tuple[float, float, list[np.ndarray]]:
        """Return mean loss, accuracy and the gradient."""
        w1, b1, w2, b2 = self.weights
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores = scores - scores.max(axis=1, keepdims=True)
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        rows = np.arange(len(y))
        slope = np.exp(log_p)
        slope[rows, y] -= 1
        slope /= len(y)
        back = (slope @ w2.T) * (hidden > 0)
        gradient = [x.T @ back, back.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)]
        return float(-log_p[rows, y].mean()), float((scores.argmax(axis=1) == y).mean()), gradient


def train(log: Path, *, seed: int = 0, steps: int = 100, lr: float = 0.03, fault: str = "none") -> None:
    """Train one model and write its log."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(7).normal(scale=0.8, size=(CLASSES, FEATURES))
    x, y = make_data(rng, centers, 4000)
    eval_x, eval_y = make_data(rng, centers, 1000)
    if fault == "nan":
        x[rng.integers(len(x)), 0] = np.nan  # one corrupt record
    if fault == "shuffled-labels":
        y = rng.permutation(y)
    if fault == "diverging":
        lr *= 60
    model = Model(rng)
    velocity = [np.zeros_like(weight) for weight in model.weights]
    with log.open("w") as file:
        for step in range(steps):
            start = step * BATCH % len(x)
            if start == 0:
                order = rng.permutation(len(x))  # a new epoch
            batch = order[start : start + BATCH]
            loss, _, gradient = model.loss(x[batch], y[batch])
            if fault == "frozen":
                gradient = [
                    np.zeros_like(part) for part in gradient
                ]  # as after detach() or requires_grad=False
            norm = float(np.sqrt(sum(float((part**2).sum()) for part in gradient)))
            velocity = [0.9 * speed - lr * part for speed, part in zip(velocity, gradient, strict=True)]
            model.weights = [weight + speed for weight, speed in zip(model.weights, velocity, strict=True)]
            row = {"step": step, "train/loss": loss, "grad_norm": norm}
            if step % 10 == 9:
                row["eval/loss"], row["eval/accuracy"], _ = model.loss(eval_x, eval_y)
            file.write(json.dumps(row) + "\n")
            file.flush()
    print(f"{steps} steps, last train/loss {loss:.4f}")


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, default=Path("train.jsonl"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    options = parser.parse_args()
    try:
        train(options.log, seed=options.seed, steps=options.steps, fault=options.fault)
    except KeyboardInterrupt:  # how the gate stops a training; its rows are written already
        sys.exit(130)


if __name__ == "__main__":
    main()
