"""Streams of rows and ways to play them, shared by the engine's tests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.verdict import Verdict

Rows = Iterable[tuple[Any, Mapping[str, Any]]]


@pytest.fixture
def play() -> Callable[..., list[Verdict]]:
    """Feed rows to a new gate (or to ``gate``); return the verdict at each row."""

    def run(rows: Rows, *, gate: Gate | None = None, **options: Any) -> list[Verdict]:
        judge = gate if gate is not None else Gate(**options)
        return [judge.observe(step, metrics) for step, metrics in rows]

    return run


@pytest.fixture
def noise() -> Callable[[float], float]:
    """Seeded Gaussian noise of a standard deviation."""
    source = random.Random(20)
    return lambda deviation: source.gauss(0.0, deviation)


@pytest.fixture
def falling() -> Callable[..., list[float]]:
    """A learning curve of ``n`` values from ``start`` to ``end`` with Gaussian noise."""

    def curve(
        n: int, start: float = 2.5, end: float = 0.3, spread: float = 0.02, seed: int = 1
    ) -> list[float]:
        source = random.Random(seed)
        return [end + (start - end) * math.exp(-5.0 * i / n) + source.gauss(0.0, spread) for i in range(n)]

    return curve
