"""A small GAN: two losses that are a game, judged by the distance of its samples from the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgment import autograd as ag
from judgment.autograd import Array
from judgment.loop import Fault, Optimizer, gradients, norm
from judgment.record import Recorder, Truth
from judgment.tasks import dense_params, stack

Rng = np.random.Generator
MODES, NOISE = 6, 4


@dataclass(frozen=True)
class GanConfig:
    """Hyperparameters of one GAN run."""

    lr_d: float = 1e-3
    lr_g: float = 1e-3
    steps: int = 2000
    batch: int = 64
    eval_every: int = 50
    fault: Fault | None = None


def ring(rng: Rng, n: int) -> Array:
    """Return points around six centres on a circle."""
    angle = rng.integers(MODES, size=n) * 2 * np.pi / MODES
    centres = np.stack([np.cos(angle), np.sin(angle)], 1) * 2
    return np.asarray(centres + 0.15 * rng.standard_normal((n, 2))).astype(np.float32)


def energy_distance(a: Array, b: Array) -> float:
    """Return the energy distance between two samples."""

    def spread(x: Array, y: Array) -> float:
        return float(np.sqrt(((x[:, None] - y[None]) ** 2).sum(-1)).mean())

    return 2 * spread(a, b) - spread(a, a) - spread(b, b)


def train_gan(config: GanConfig, seed: int) -> tuple[Recorder, str, str]:
    """Train both players; the objective is ``eval/energy_distance``, lower is better."""
    rng = np.random.default_rng(seed)
    real = ring(rng, 300)
    blob = (0.1 * rng.standard_normal((300, 2))).astype(np.float32)
    out = Recorder(Truth("min", energy_distance(real, blob), float("nan")))
    g, d = dense_params(rng, (NOISE, 48, 48, 2)), dense_params(rng, (2, 48, 48, 1))
    g_opt, d_opt = Optimizer("adam", g, 0.0), Optimizer("adam", d, 0.0)
    fault = config.fault or Fault("none", at=config.steps + 1)

    def fake(params: dict[str, ag.Node], n: int) -> ag.Node:
        return stack(params, ag.constant(rng.standard_normal((n, NOISE))), 3, ag.relu)

    for step in range(config.steps):
        broken = fault.active(step)
        factor = fault.factor if broken and fault.kind == "lr" else 1.0
        if broken:
            out.fault_begins()
        if step % config.eval_every == 0:
            samples = fake(ag.leaves(g), 300).value
            distance = energy_distance(real, samples)
            out.truth.objective.append((out.row, distance))
            out.log(**{"step": step, "eval/energy_distance": distance})
        made = fake(ag.leaves(g), config.batch).value
        nodes = ag.leaves(d)
        on_real = stack(nodes, ag.constant(ring(rng, config.batch)), 3, ag.relu)
        on_fake = stack(nodes, ag.constant(made), 3, ag.relu)
        loss_d = ag.add(ag.mean(ag.softplus(ag.scale(on_real, -1.0))), ag.mean(ag.softplus(on_fake)))
        ag.backward(loss_d)
        d_grads = gradients(nodes)
        d_opt.update(d, d_grads, config.lr_d * factor)

        g_nodes = ag.leaves(g)
        fixed = {name: ag.Node(value) for name, value in d.items()}
        loss_g = ag.mean(ag.softplus(ag.scale(stack(fixed, fake(g_nodes, config.batch), 3, ag.relu), -1.0)))
        ag.backward(loss_g)
        g_grads = gradients(g_nodes)
        if broken and fault.kind == "frozen":
            g_grads = {name: np.zeros_like(value) for name, value in g_grads.items()}
        g_opt.update(g, g_grads, config.lr_g * factor)
        out.check(float(loss_d.value), float(loss_g.value), norm(d_grads), norm(g_grads))
        if step % 2 == 0:
            out.log(
                step=step, loss_dis=float(loss_d.value), loss_gen=float(loss_g.value), lr=config.lr_g * factor
            )
    out.truth.broken_at_end = not all(np.isfinite(v).all() for v in (*g.values(), *d.values()))
    return out, "eval/energy_distance", "min"
