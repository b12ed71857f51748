"""A bounded history of one metric: equal-width bins that merge in pairs when the table is full."""

from __future__ import annotations

from array import array
from typing import Any

__all__ = ["LIMIT", "Curve"]

LIMIT = 48
"""Bins kept at most; a full table merges pairwise, so between 32 and 64 bins always cover the whole run."""


class Curve:
    """Means and ranges of up to ``limit`` (even) equal groups of values, from the first value to the latest.

    ``push`` is the hot path: it only adds to the open bin. ``n`` counts the finite values seen.
    """

    __slots__ = (
        "_high",
        "_left",
        "_low",
        "_sum",
        "ends",
        "highs",
        "limit",
        "lows",
        "means",
        "n",
        "steps",
        "width",
    )

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.n = 0
        self.width = 1
        self.means = array("d")
        self.lows = array("d")
        self.highs = array("d")
        self.ends = array("I")  # row at which each bin closed
        self.steps = array("f")  # step at which each bin closed; single precision is enough to draw it
        self._open()

    def _open(self) -> None:
        self._left = self.width
        self._sum = 0.0
        self._low = float("inf")
        self._high = float("-inf")

    def push(self, value: float, row: int, step: float) -> None:
        """Take one finite value."""
        self.n += 1
        self._sum += value
        self._low = min(self._low, value)
        self._high = max(self._high, value)
        self._left -= 1
        if not self._left:
            self._close(row, step)

    def _close(self, row: int, step: float) -> None:
        self.means.append(self._sum / self.width)
        self.lows.append(self._low)
        self.highs.append(self._high)
        self.ends.append(row)
        self.steps.append(step)
        if len(self.means) == self.limit:
            means, lows, highs = self.means, self.lows, self.highs
            self.means = array("d", [(a + b) / 2.0 for a, b in zip(means[::2], means[1::2], strict=True)])
            self.lows = array("d", map(min, lows[::2], lows[1::2]))
            self.highs = array("d", map(max, highs[::2], highs[1::2]))
            self.ends = self.ends[1::2]
            self.steps = self.steps[1::2]
            self.width *= 2
        self._open()

    def tail(self) -> tuple[float, int]:
        """Return mean and count of the values in the open bin (count 0: none)."""
        count = self.width - self._left
        return (self._sum / count if count else 0.0), count

    def state(self) -> list[Any]:
        """Return the state as JSON-able values."""
        return [
            self.n, self.width, self._left, self._sum, self._low, self._high,
            list(self.means), list(self.lows), list(self.highs), list(self.ends),
            list(self.steps), self.limit,
        ]  # fmt: skip

    @classmethod
    def from_state(cls, state: list[Any]) -> Curve:
        """Rebuild a curve from ``state()``."""
        curve = cls(state[11])
        curve.n, curve.width, curve._left, curve._sum, curve._low, curve._high = state[:6]
        curve.means, curve.lows, curve.highs = (array("d", part) for part in state[6:9])
        curve.steps = array("f", state[10])
        curve.ends = array("I", state[9])
        return curve
