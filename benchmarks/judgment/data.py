"""Made-up data sets, each drawn from a seed: images of glyphs, spirals, regression, text, ratings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Split(NamedTuple):
    """Training and held-out examples."""

    x: Array
    y: Array
    test_x: Array
    test_y: Array


def glyphs(seed: int, train: int = 1024, test: int = 512, classes: int = 10, noise: float = 0.35) -> Split:
    """Return 8x8 images of ten smooth random shapes, shifted by a pixel and noisy."""
    rng = np.random.default_rng(seed)
    coarse = rng.standard_normal((classes, 4, 4))
    shapes = np.kron(coarse, np.ones((2, 2)))
    y = rng.integers(classes, size=train + test)
    x = shapes[y]
    for axis in (1, 2):
        moves = rng.integers(-1, 2, size=len(y))
        for move in (-1, 1):
            x[moves == move] = np.roll(x[moves == move], move, axis=axis)
    x = (x + noise * rng.standard_normal(x.shape)).reshape(len(y), 64).astype(np.float32)
    return Split(x[:train], y[:train], x[train:], y[train:])


def spirals(seed: int, train: int = 900, test: int = 450, arms: int = 3) -> Split:
    """Return three interleaved spirals in the plane: flat at first, then learned."""
    rng = np.random.default_rng(seed)
    n = train + test
    y = rng.integers(arms, size=n)
    radius = np.sqrt(rng.random(n))
    angle = radius * 7.0 + y * 2 * np.pi / arms + 0.15 * rng.standard_normal(n)
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32) * 2
    return Split(x[:train], y[:train], x[train:], y[train:])


def friedman(seed: int, train: int = 800, test: int = 400, noise: float = 1.0) -> Split:
    """Return Friedman's first regression function of ten inputs, standardised."""
    rng = np.random.default_rng(seed)
    x = rng.random((train + test, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    y = (y + noise * rng.standard_normal(len(y)) - 14.4) / 5.0
    x32, y32 = (2 * x - 1).astype(np.float32), y.astype(np.float32)[:, None]
    return Split(x32[:train], y32[:train], x32[train:], y32[train:])


def noisy_linear(seed: int, train: int = 2000, test: int = 1000, flipped: float = 0.15) -> Split:
    """Return a linear two-class problem with flipped labels: the loss soon sits on its noise floor."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((train + test, 30)).astype(np.float32)
    y = (x @ rng.standard_normal(30) > 0).astype(int)
    y = np.where(rng.random(len(y)) < flipped, 1 - y, y)
    return Split(x[:train], y[:train], x[train:], y[train:])


def text(seed: int, length: int = 20_000, symbols: int = 27) -> Array:
    """Return a text from a random source that looks back two symbols, as symbol numbers."""
    rng = np.random.default_rng(seed)
    followers = rng.integers(symbols, size=(3, symbols, 4))
    draws, strays = rng.choice(4, size=length, p=(0.55, 0.25, 0.15, 0.05)), rng.random(length) < 0.05
    random_symbols = rng.integers(symbols, size=length)
    out = np.zeros(length, dtype=int)
    for i in range(2, length):
        out[i] = random_symbols[i] if strays[i] else followers[out[i - 2] % 3, out[i - 1], draws[i]]
    return out


def contexts(seed: int, width: int = 3, test: int = 1500) -> Split:
    """Return the text as (previous symbols, next symbol) examples."""
    symbols = text(seed)
    x = np.stack([symbols[i : len(symbols) - width + i] for i in range(width)], 1)
    y = symbols[width:]
    return Split(x[:-test], y[:-test], x[-test:], y[-test:])


def sequences(seed: int, train: int = 1500, test: int = 400, length: int = 16) -> Split:
    """Return sums of two phase-shifted waves; the next value is to be foretold."""
    rng = np.random.default_rng(seed)
    n = train + test
    t = np.arange(length + 1)
    slow, fast = rng.uniform(0.2, 0.5, (n, 1)), rng.uniform(0.6, 1.2, (n, 1))
    waves = np.sin(slow * t + rng.uniform(0, 6, (n, 1))) + 0.5 * np.sin(fast * t + rng.uniform(0, 6, (n, 1)))
    waves = (waves + 0.05 * rng.standard_normal(waves.shape)).astype(np.float32)
    x, y = waves[:, :-1], waves[:, -1:]
    return Split(x[:train], y[:train], x[train:], y[train:])


def ratings(seed: int, users: int = 120, items: int = 80, rank: int = 4) -> Split:
    """Return noisy entries of a low-rank matrix: (user, item) -> rating."""
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((users, rank)) @ rng.standard_normal((rank, items)) / np.sqrt(rank)
    full += 0.3 * rng.standard_normal(full.shape)
    cells = rng.permutation(users * items)[:6000]
    x = np.stack([cells // items, cells % items], 1)
    y = full.ravel()[cells].astype(np.float32)
    return Split(x[:4800], y[:4800], x[4800:], y[4800:])


def low_dimensional(seed: int, train: int = 1500, test: int = 500, size: int = 16, inner: int = 3) -> Split:
    """Return points near a curved three-dimensional sheet in 16 dimensions (targets are the points)."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((train + test, inner))
    x = np.tanh(z @ rng.standard_normal((inner, size))) * 0.3 + 0.02 * rng.standard_normal(
        (train + test, size)
    )
    x = x.astype(np.float32)
    return Split(x[:train], x[:train], x[train:], x[train:])


def pairs(seed: int, train: int = 1500, test: int = 64, size: int = 20, inner: int = 6) -> Split:
    """Return two noisy views of the same hidden points, for contrastive learning."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((train + test, inner))
    views = []
    for _ in range(2):
        view = np.tanh(z @ rng.standard_normal((inner, size)))
        views.append((view + 0.3 * rng.standard_normal(view.shape)).astype(np.float32))
    return Split(views[0][:train], views[1][:train], views[0][train:], views[1][train:])
