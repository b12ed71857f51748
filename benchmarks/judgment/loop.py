"""The training loop: one task, one set of hyperparameters, at most one planted fault, every step recorded."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from judgment import autograd as ag
from judgment.autograd import Array, Node, Params
from judgment.layouts import LAYOUTS
from judgment.record import Recorder, Truth
from judgment.tasks import Task, task

Rng = np.random.Generator


@dataclass(frozen=True)
class Fault:
    """What goes wrong, from which step on, and how strongly (``for_steps`` None: to the end)."""

    kind: str
    at: int = 0
    factor: float = 1.0
    for_steps: int | None = None

    def active(self, step: int) -> bool:
        return step >= self.at and (self.for_steps is None or step < self.at + self.for_steps)


@dataclass(frozen=True)
class Config:
    """Hyperparameters and habits of one supervised run."""

    task: str
    lr: float
    optimizer: str = "adam"  # adam, momentum, sgd
    batch: int = 32
    steps: int = 1000
    eval_every: int = 25
    schedule: str = "constant"  # constant, cosine, step, restarts, cyclic
    warmup: int = 0
    clip: float | None = None
    weight_decay: float = 0.0
    objective: str = "loss"  # loss or accuracy
    layout: str = "plain"
    grads: bool = True
    fault: Fault | None = None
    loss_scaling: bool = False  # float16 style: the first steps overflow and are skipped
    rewind: int | None = None  # the job dies at this step and resumes from 40 steps before
    curriculum: str | None = None  # easy-to-hard: training data gets noisier


def schedule(config: Config, step: int) -> float:
    """Return the learning rate at a step, without any fault."""
    t = step / config.steps
    shapes: dict[str, Callable[[], float]] = {
        "constant": lambda: 1.0,
        "cosine": lambda: 0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * t)),
        "step": lambda: 0.1 ** sum(t >= cut for cut in (0.5, 0.75)),
        "restarts": lambda: 0.01 + 0.99 * (0.5 + 0.5 * math.cos(math.pi * ((t * 4) % 1))),
        "cyclic": lambda: 0.1 + 0.9 * abs(2 * ((t * 8) % 1) - 1),
    }
    return config.lr * shapes[config.schedule]() * min(1.0, (step + 1) / max(1, config.warmup))


class Optimizer:
    """SGD, SGD with momentum, or Adam, in float32."""

    def __init__(self, kind: str, params: Params, weight_decay: float) -> None:
        self.kind, self.decay, self.steps = kind, weight_decay, 0
        self.first = {name: np.zeros_like(value) for name, value in params.items()}
        self.second = {name: np.zeros_like(value) for name, value in params.items()}

    def update(self, params: Params, grads: Params, lr: float) -> None:
        """Change the parameters in place of the dictionary's entries."""
        self.steps += 1
        rate = np.float32(lr)
        for name, grad in grads.items():
            g = grad + np.float32(self.decay) * params[name] if self.decay else grad
            if self.kind == "sgd":
                params[name] = params[name] - rate * g
            elif self.kind == "momentum":
                self.first[name] = np.float32(0.9) * self.first[name] + g
                params[name] = params[name] - rate * self.first[name]
            else:
                self.first[name] = np.float32(0.9) * self.first[name] + np.float32(0.1) * g
                self.second[name] = np.float32(0.999) * self.second[name] + np.float32(0.001) * g * g
                m = self.first[name] / np.float32(1 - 0.9**self.steps)
                v = self.second[name] / np.float32(1 - 0.999**self.steps)
                params[name] = params[name] - rate * m / (np.sqrt(v) + np.float32(1e-8))


def norm(grads: Params) -> float:
    """Return the global gradient norm in float32, as frameworks do."""
    with np.errstate(all="ignore"):
        return float(np.sqrt(sum((np.square(g).sum() for g in grads.values()), start=np.float32(0))))


def gradients(nodes: dict[str, Node]) -> Params:
    return {n: node.grad if node.grad is not None else np.zeros_like(node.value) for n, node in nodes.items()}


def spoil_batch(fault: Fault, x: Array, y: Array, rng: Rng) -> tuple[Array, Array]:
    """Return the batch as a data fault leaves it."""
    if fault.kind == "scale_inputs" and x.dtype.kind == "f":
        return x * np.float32(fault.factor), y
    if fault.kind == "scale_targets" and y.dtype.kind == "f":
        return x, y * np.float32(fault.factor)
    if fault.kind == "permute_labels":
        return x, y[rng.permutation(len(y))]
    if fault.kind == "one_class":
        return x, np.zeros_like(y)
    if fault.kind in ("nan_batch", "nan_skipped") and x.dtype.kind == "f":
        x = x.copy()
        x[0] = np.nan
    return x, y


def spoil_start(fault: Fault, params: Params) -> None:
    """Change the initial weights as an initialisation fault does."""
    for name in list(params):
        if fault.kind == "bad_init":
            params[name] = params[name] * np.float32(fault.factor)
        elif fault.kind == "dead_relu" and name.endswith(".b") and not name.startswith(("out", "head")):
            params[name] = params[name] - np.float32(fault.factor)


def spoil_gradients(fault: Fault, params: Params, grads: Params) -> Params:
    """Return the gradients as a fault in the loop leaves them."""
    if fault.kind == "ascent":
        return {name: -g for name, g in grads.items()}
    if fault.kind == "frozen":
        keep = list(params)[-1:] if fault.factor < 1 else []
        return {name: g if name in keep else np.zeros_like(g) for name, g in grads.items()}
    if fault.kind == "reset_weights":
        for name in params:
            params[name] = params[name] * np.float32(fault.factor)
    return grads


def start(config: Config, work: Task) -> Recorder:
    """Return an empty record for the run."""
    by_accuracy = config.objective == "accuracy"
    chance = work.chance_accuracy if by_accuracy else work.chance
    return Recorder(Truth("max" if by_accuracy else "min", chance, work.chance))


def train(config: Config, seed: int) -> tuple[Recorder, str, str]:
    """Train to the end of the budget, whatever happens; return the record, the objective's key, its mode."""
    rng = np.random.default_rng(seed)
    work = task(config.task)
    out = start(config, work)
    per_epoch = max(1, len(work.data.x) // config.batch)
    layout = LAYOUTS[config.layout](out, config.objective == "accuracy", per_epoch, config.grads)
    params = work.init(rng)
    fault = config.fault or Fault("none", at=config.steps + 1)
    if fault.active(0):
        spoil_start(fault, params)
    optimizer = Optimizer(config.optimizer, params, config.weight_decay)
    late: Params = {}
    saved: tuple[Params, int] | None = None
    rewound = False
    step = 0
    while step < config.steps:
        if step % config.eval_every == 0:
            evaluate(config, work, params, step, out, layout)
        lr = schedule(config, step)
        x, y = draw(config, work, step, rng)
        broken = fault.active(step)
        if broken:
            out.fault_begins()
            if fault.kind == "lr":
                lr *= fault.factor
            x, y = spoil_batch(fault, x, y, rng)
        nodes = ag.leaves(params)
        loss = work.loss(nodes, x, y, rng)
        ag.backward(loss)
        grads = gradients(nodes)
        if broken:
            grads = spoil_gradients(fault, params, grads)
        size = norm(grads)
        skip = fault.kind == "nan_skipped" and not math.isfinite(size)
        if config.loss_scaling and step < 6:  # the scale is still too high: inf, and the step is skipped
            size, skip = math.inf, True
        else:
            out.check(float(loss.value), size)
        if config.clip is not None and size > config.clip:
            grads = {name: g * np.float32(config.clip / size) for name, g in grads.items()}
        if not skip:
            optimizer.update(params, grads, lr)
        if step == config.steps - config.steps // 10:
            late = dict(params)
        out.truth.loss.append((out.row, float(loss.value)))
        step += 1
        layout.train(step, float(loss.value), size, lr)
        if config.rewind is not None:
            if step == config.rewind - 40:
                saved = (dict(params), step)
            elif step == config.rewind and saved and not rewound:
                params, step, rewound = dict(saved[0]), saved[1], True
    evaluate(config, work, params, step, out, layout)
    layout.finish(step)
    out.truth.broken_at_end = not all(np.isfinite(value).all() for value in params.values())
    out.truth.idle_at_end = all(np.array_equal(value, params[name]) for name, value in late.items())
    return out, layout.metric, layout.mode


def draw(config: Config, work: Task, step: int, rng: Rng) -> tuple[Array, Array]:
    """Return a training batch."""
    index = rng.integers(len(work.data.x), size=config.batch)
    x, y = work.data.x[index], work.data.y[index]
    if config.curriculum == "noisier":
        x = x + (np.float32(1.6 * step / config.steps) * rng.standard_normal(x.shape)).astype(np.float32)
    elif config.curriculum == "easy_first" and step < config.steps // 3:
        easy = work.data.y < 2 + 2 * (4 * step // config.steps)
        index = rng.choice(np.flatnonzero(easy), size=config.batch)
        x, y = work.data.x[index], work.data.y[index]
    return x, y


def evaluate(config: Config, work: Task, params: Params, step: int, out: Recorder, layout: object) -> None:
    """Measure the model on held-out data, and log it."""
    nodes = ag.leaves(params)
    loss = float(work.loss(nodes, work.data.test_x, work.data.test_y, None).value)
    accuracy = work.accuracy(nodes, work.data.test_x, work.data.test_y) if work.accuracy else None
    ag.leaves({})
    value = accuracy if config.objective == "accuracy" and accuracy is not None else loss
    out.truth.objective.append((out.row, value))
    out.truth.eval_loss.append((out.row, loss))
    layout.evaluate(step, loss, accuracy)  # type: ignore[attr-defined]
