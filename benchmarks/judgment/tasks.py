"""The supervised and self-supervised tasks: data, a model, its loss, and what a guess scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from judgment import autograd as ag
from judgment import data
from judgment.autograd import Array, Node, Params

Nodes = Mapping[str, Node]
Rng = np.random.Generator


@dataclass(frozen=True)
class Task:
    """One thing to learn. ``chance`` is the loss of the best guess that ignores the input."""

    name: str
    data: data.Split
    init: Callable[[Rng], Params]
    loss: Callable[[Nodes, Array, Array, Rng | None], Node]  # the generator is given in training only
    chance: float
    accuracy: Callable[[Nodes, Array, Array], float] | None = None
    chance_accuracy: float = 0.0


def he(rng: Rng, fan_in: int, fan_out: int) -> Array:
    """Return a weight matrix with He's scale."""
    return (rng.standard_normal((fan_in, fan_out)) * math.sqrt(2 / fan_in)).astype(np.float32)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, dtype=np.float32)


def dense(nodes: Nodes, layer: str, x: Node) -> Node:
    return ag.add(ag.matmul(x, nodes[f"{layer}.w"]), nodes[f"{layer}.b"])


def dense_params(rng: Rng, sizes: tuple[int, ...], prefix: str = "l") -> Params:
    """Return the parameters of a stack of dense layers."""
    params: Params = {}
    for i, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        params[f"{prefix}{i}.w"], params[f"{prefix}{i}.b"] = he(rng, fan_in, fan_out), zeros(fan_out)
    params[f"{prefix}{len(sizes) - 2}.w"] *= np.float32(0.5)
    return params


def stack(
    nodes: Nodes,
    x: Node,
    depth: int,
    act: Callable[[Node], Node],
    prefix: str = "l",
    keep: float = 1.0,
    rng: Rng | None = None,
) -> Node:
    """Apply dense layers with an activation (and dropout, in training) between them."""
    for i in range(depth):
        x = dense(nodes, f"{prefix}{i}", x)
        if i < depth - 1:
            x = act(x)
            if keep < 1.0 and rng is not None:
                x = ag.mul(x, ag.constant((rng.random(x.value.shape) < keep) / keep))
    return x


def hits(logits: Array, y: Array) -> float:
    return float((logits.argmax(1) == y).mean())


def classifier(
    name: str,
    split: data.Split,
    sizes: tuple[int, ...],
    act: Callable[[Node], Node] = ag.relu,
    keep: float = 1.0,
) -> Task:
    """Return a classification task for a dense network."""
    depth, classes = len(sizes) - 1, sizes[-1]

    def loss(nodes: Nodes, x: Array, y: Array, rng: Rng | None) -> Node:
        return ag.cross_entropy(stack(nodes, ag.constant(x), depth, act, keep=keep, rng=rng), y)

    def accuracy(nodes: Nodes, x: Array, y: Array) -> float:
        return hits(stack(nodes, ag.constant(x), depth, act).value, y)

    def init(rng: Rng) -> Params:
        return dense_params(rng, sizes)

    return Task(name, split, init, loss, math.log(classes), accuracy, 1 / classes)


def convolutional() -> Task:
    split, channels = data.glyphs(11, noise=0.6), 8

    def forward(nodes: Nodes, x: Array) -> Node:
        patches = ag.patches3(ag.constant(x.reshape(-1, 8, 8)))
        maps = ag.relu(dense(nodes, "conv", patches))
        return dense(nodes, "head", ag.reshape(maps, len(x), 36 * channels))

    def init(rng: Rng) -> Params:
        head = he(rng, 36 * channels, 10) * np.float32(0.5)
        return {
            "conv.w": he(rng, 9, channels),
            "conv.b": zeros(channels),
            "head.w": head,
            "head.b": zeros(10),
        }

    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        return ag.cross_entropy(forward(nodes, x), y)

    def accuracy(nodes: Nodes, x: Array, y: Array) -> float:
        return hits(forward(nodes, x).value, y)

    return Task("conv", split, init, loss, math.log(10), accuracy, 0.1)


def regression(name: str, split: data.Split, sizes: tuple[int, ...]) -> Task:
    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        return ag.squared_error(stack(nodes, ag.constant(x), len(sizes) - 1, ag.relu), y)

    def init(rng: Rng) -> Params:
        return dense_params(rng, sizes)

    return Task(name, split, init, loss, float(split.test_y.var()))


def char_lm() -> Task:
    """Guess the next symbol from the three before it."""
    split, symbols, size, width = data.contexts(3), 27, 12, 3

    def forward(nodes: Nodes, x: Array) -> Node:
        embedded = ag.reshape(ag.take(nodes["embed"], x), len(x), size * width)
        return stack(nodes, embedded, 2, ag.tanh)

    def init(rng: Rng) -> Params:
        embed = rng.standard_normal((symbols, size)).astype(np.float32) * np.float32(0.3)
        return {"embed": embed, **dense_params(rng, (size * width, 96, symbols))}

    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        return ag.cross_entropy(forward(nodes, x), y)

    counts = np.bincount(split.y, minlength=symbols) / len(split.y)
    return Task("charlm", split, init, loss, float(-(counts * np.log(counts + 1e-12)).sum()))


def recurrent() -> Task:
    split, size = data.sequences(4), 24

    def init(rng: Rng) -> Params:
        inner = np.linalg.qr(rng.standard_normal((size, size)))[0].astype(np.float32)
        out = {"out0.w": he(rng, size, 1), "out0.b": zeros(1)}
        return {"in.w": he(rng, 1, size), "inner.w": inner, "inner.b": zeros(size), **out}

    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        hidden = ag.constant(np.zeros((len(x), size)))
        for t in range(x.shape[1]):
            seen = ag.matmul(ag.constant(x[:, t : t + 1]), nodes["in.w"])
            hidden = ag.tanh(ag.add(seen, dense(nodes, "inner", hidden)))
        return ag.squared_error(dense(nodes, "out0", hidden), y)

    return Task("rnn", split, init, loss, float(split.test_y.var()))


def factorisation() -> Task:
    split, rank = data.ratings(5), 4

    def init(rng: Rng) -> Params:
        def small(n: int) -> Array:
            return (0.1 * rng.standard_normal((n, rank))).astype(np.float32)

        return {"users": small(120), "items": small(80), "mean": zeros(1)}

    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        users, items = ag.take(nodes["users"], x[:, 0]), ag.take(nodes["items"], x[:, 1])
        return ag.squared_error(ag.add(ag.total(ag.mul(users, items), 1), nodes["mean"]), y)

    return Task("matfac", split, init, loss, float(split.test_y.var()))


def variational() -> Task:
    """Return a VAE with a learned output scale: its loss, the negative ELBO, goes far below zero."""
    split, inner, size = data.low_dimensional(6), 3, 16
    half_log_2pi = 0.5 * math.log(2 * math.pi)

    def init(rng: Rng) -> Params:
        encoder = dense_params(rng, (size, 32, 2 * inner), "enc")
        return {**encoder, **dense_params(rng, (inner, 32, size), "dec"), "log_sigma": zeros(1)}

    def loss(nodes: Nodes, x: Array, _: Array, rng: Rng | None) -> Node:
        code = stack(nodes, ag.constant(x), 2, ag.tanh, "enc")
        mu, log_var = ag.columns(code, 0, inner), ag.columns(code, inner, 2 * inner)
        z = mu
        if rng is not None:
            z = ag.add(
                mu, ag.mul(ag.exp(ag.scale(log_var, 0.5)), ag.constant(rng.standard_normal(mu.value.shape)))
            )
        error = ag.mean(ag.square(ag.sub(ag.constant(x), stack(nodes, z, 2, ag.tanh, "dec"))))
        precision = ag.exp(ag.scale(nodes["log_sigma"], -2.0))
        fit = ag.add(
            ag.scale(ag.mul(error, precision), 0.5), ag.add(nodes["log_sigma"], ag.constant(half_log_2pi))
        )
        kl = ag.sub(ag.add(ag.square(mu), ag.exp(log_var)), ag.add(log_var, ag.constant(1.0)))
        return ag.mean(ag.add(ag.scale(fit, size), ag.scale(ag.mean(kl), 0.5 * inner)))

    scale = float(split.test_x.std())
    return Task("vae", split, init, loss, size * (0.5 + math.log(scale) + half_log_2pi))


def autoencoder() -> Task:
    split = data.glyphs(7, classes=12, noise=0.15)
    plain = data.Split(split.x, split.x, split.test_x, split.test_x)
    return regression("autoencoder", plain, (64, 32, 12, 32, 64))


def contrastive() -> Task:
    split = data.pairs(8)

    def embed(nodes: Nodes, x: Array, view: str) -> Node:
        return ag.unit_rows(stack(nodes, ag.constant(x), 2, ag.relu, view))

    def logits(nodes: Nodes, x: Array, y: Array) -> Node:
        return ag.scale(ag.matmul(embed(nodes, x, "a"), ag.transpose(embed(nodes, y, "b"))), 10.0)

    def init(rng: Rng) -> Params:
        return {**dense_params(rng, (20, 48, 12), "a"), **dense_params(rng, (20, 48, 12), "b")}

    def loss(nodes: Nodes, x: Array, y: Array, _: Rng | None) -> Node:
        return ag.cross_entropy(logits(nodes, x, y), np.arange(len(x)))

    def accuracy(nodes: Nodes, x: Array, y: Array) -> float:
        return hits(logits(nodes, x, y).value, np.arange(len(x)))

    return Task("contrastive", split, init, loss, math.log(64), accuracy, 1 / 64)


MAKERS: dict[str, Callable[[], Task]] = {
    "mlp": lambda: classifier("mlp", data.glyphs(1, noise=0.7), (64, 48, 10)),
    "dropout": lambda: classifier("dropout", data.glyphs(2, noise=0.5), (64, 48, 48, 10), keep=0.6),
    "deep": lambda: classifier("deep", data.glyphs(12, noise=0.5), (64, *(32,) * 6, 10)),
    "small": lambda: classifier("small", data.noisy_linear(2, train=400, flipped=0.1), (30, 64, 2)),
    "spirals": lambda: classifier("spirals", data.spirals(1), (2, 32, 32, 3), ag.tanh),
    "logistic": lambda: classifier("logistic", data.noisy_linear(1), (30, 2)),
    "conv": convolutional,
    "friedman": lambda: regression("friedman", data.friedman(1), (10, 32, 32, 1)),
    "smallreg": lambda: regression("smallreg", data.friedman(2, train=100, noise=4.0), (10, 64, 64, 1)),
    "noisyreg": lambda: regression("noisyreg", data.friedman(3, train=80, noise=6.0), (10, 64, 64, 1)),
    "charlm": char_lm,
    "rnn": recurrent,
    "matfac": factorisation,
    "vae": variational,
    "autoencoder": autoencoder,
    "contrastive": contrastive,
}


@cache
def task(name: str) -> Task:
    """Return a task by name, its data drawn once per process."""
    return MAKERS[name]()
