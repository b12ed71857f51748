"""Small worlds to act in: a vectorised cart-pole, a slippery grid, and a noisy bandit with contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rng = np.random.Generator


class CartPole:
    """``n`` cart-poles at once (the usual equations), each restarted when it falls or its time is over."""

    def __init__(self, rng: Rng, n: int, limit: int = 200) -> None:
        self.rng, self.n, self.limit = rng, n, limit
        self.state = rng.uniform(-0.05, 0.05, (n, 4))
        self.age = np.zeros(n, dtype=int)

    def step(self, action: Array) -> tuple[Array, Array, Array, list[int]]:
        """Push left (0) or right (1); return next states, who fell, who timed out, finished lengths."""
        x, v, a, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(a), np.cos(a)
        push = (force + 0.05 * w * w * sin) / 1.1
        spin = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        slide = push - 0.05 * spin * cos / 1.1
        after = np.stack([x + 0.02 * v, v + 0.02 * slide, a + 0.02 * w, w + 0.02 * spin], 1)
        self.age += 1
        fell = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.2095)
        late = ~fell & (self.age >= self.limit)
        over = fell | late
        lengths = self.age[over].tolist()
        self.state = after.copy()
        if over.any():
            self.state[over] = self.rng.uniform(-0.05, 0.05, (int(over.sum()), 4))
            self.age[over] = 0
        return after, fell, late, lengths


class Grid:
    """A slippery ``size`` x ``size`` grid: +1 at the far corner, -1 in pits, a small cost per step."""

    def __init__(self, seed: int, size: int = 6, slip: float = 0.1, limit: int = 60) -> None:
        rng = np.random.default_rng(seed)
        self.size, self.slip, self.limit = size, slip, limit
        self.goal = size * size - 1
        self.pits = set(rng.choice(np.arange(2, self.goal - size), 4, replace=False).tolist()) - {1, size}

    def move(self, state: int, action: int, luck: float) -> tuple[int, float, bool]:
        """Return (next state, reward, finished); ``luck`` below the slip turns the action."""
        if luck < self.slip:
            action = (action + 1) % 4
        row, column = divmod(state, self.size)
        row = min(self.size - 1, max(0, row + (0, 1, 0, -1)[action]))
        column = min(self.size - 1, max(0, column + (1, 0, -1, 0)[action]))
        after = row * self.size + column
        if after == self.goal:
            return after, 1.0, True
        return (after, -1.0, True) if after in self.pits else (after, -0.01, False)


class Bandit:
    """Contexts in the plane, ``arms`` arms, each best somewhere; rewards are very noisy."""

    def __init__(self, seed: int, arms: int = 5, noise: float = 0.7) -> None:
        rng = np.random.default_rng(seed)
        self.centres, self.noise = rng.standard_normal((arms, 2)) * 1.2, noise

    def contexts(self, rng: Rng, n: int) -> Array:
        return np.asarray(rng.standard_normal((n, 2)).astype(np.float32))

    def value(self, x: Array) -> Array:
        """Return every arm's expected reward."""
        return np.asarray(np.exp(-((x[:, None] - self.centres[None]) ** 2).sum(-1) / 2))

    def pull(self, x: Array, action: Array, rng: Rng) -> Array:
        expected = self.value(x)[np.arange(len(x)), action]
        return np.asarray((expected + self.noise * rng.standard_normal(len(x))).astype(np.float32))
