"""One metric's streaming state: what every rule reads, kept in constant work per value and bounded memory."""

from __future__ import annotations

from typing import Any

from gatekeeper.roles import Guess
from gatekeeper.signals.curve import Curve
from gatekeeper.signals.spike import Spike
from gatekeeper.signals.trend import Trend, trend_of, value_deviation

__all__ = ["HEAD", "Track"]

HEAD = 8
"""First values kept: the start that every gain and every height is measured from."""

_INFINITY = float("inf")
_CLOSE_AFTER = 3  # calm values in a row that end a spike
_NEW_LEVEL_AFTER = 100
_LEVEL_ONLY = frozenset({"grad_norm", "lr", "gpu_util", "entropy"})  # no rule asks for their trend


class Track:
    """A metric with a role. ``sign`` turns its values into costs (lower is better); 0 is treated as 1.

    ``alarm`` is the cost above which a value opens a spike (or keeps one open); it is renewed at each
    checkpoint.
    """

    __slots__ = (
        "alarm", "curve", "first_row", "gap", "guess", "head", "last", "last_row", "look_at", "name",
        "nonfinite", "nonfinite_row", "nonfinite_run", "nulls", "odd", "previous", "sign",
        "spike", "trend", "watch", "zeros",
    )  # fmt: skip

    def __init__(self, name: str, guess: Guess) -> None:
        self.name = name
        self.guess = guess
        self.sign = -1.0 if guess.direction < 0 else 1.0
        self.watch = guess.role in ("loss", "eval") and guess.kind == "loss"
        self.clear()

    def clear(self) -> None:
        """Forget everything seen (a restore, an exploit, another seed in the same file)."""
        self.curve = Curve(16) if self.guess.role in _LEVEL_ONLY else Curve()
        self.head: list[float] = []
        self.alarm = _INFINITY
        self.look_at = 3
        self.trend: Trend | None = None
        self.spike: Spike | None = None
        self.last = self.previous = 0.0
        self.first_row = self.last_row = self.gap = 0
        self.nonfinite = self.nonfinite_run = self.nonfinite_row = 0
        self.odd = 0.0
        self.nulls = 0
        self.zeros = 0

    def checkpoint(self) -> None:
        """Renew the trend and the alarm.

        Called on a geometric schedule, so its cost per value is constant.
        """
        curve = self.curve
        count = curve.n
        self.look_at = count + (
            1 if count < 16 else count >> 3 if count < 128 else count >> 4 if count < 1024 else count >> 5
        )
        if self.guess.role in _LEVEL_ONLY:
            return
        self.trend = trend = trend_of(curve, self.sign, self.head)
        if trend is None or not self.watch or self.spike is not None:
            return
        # Ten standard deviations above the level, but never out of sight: far is far, however noisy the run.
        deviation = max(trend.noise, value_deviation(curve, trend.noise))
        level = max(trend.level, trend.before)
        self.alarm = level + min(10.0 * deviation, 10.0 * self.scale()) + 1e-9 * abs(level)

    def usual(self) -> float:
        """Return the median of the bins (infinity before the first): what is usual for a level."""
        means = sorted(self.curve.means)
        return means[len(means) // 2] if means else _INFINITY

    def begin(self, value: float, row: int) -> None:
        """Take the first value: until more is known, ten times its size above it is out of range."""
        self.first_row = row
        if self.watch and value != 0.0:
            self.alarm = self.sign * value + 10.0 * abs(value)

    def scale(self) -> float:
        """Return what the loss is measured in.

        The larger of its starting level and of the range it has covered.
        """
        head = [abs(value) for value in self.head]
        start = head[0] if head else 0.0
        if len(head) == HEAD:
            start = max(start, sorted(head)[HEAD // 2])
        trend = self.trend
        covered = trend.worst - trend.best if trend is not None else 0.0
        return max(start, covered, 1e-300)

    def alarmed(self, cost: float, row: int, step: float, far_height: float) -> None:
        """Take a value above the alarm, or any value while a spike is open."""
        spike = self.spike
        if spike is None:
            trend = self.trend
            base = min(trend.level, trend.before) if trend is not None else self.sign * self.head[0]
            spike = self.spike = Spike(row, step, self.curve.n - 1, base, self.scale(), cost, cost)
        if cost <= self.alarm:
            spike.calm += 1
            if spike.calm >= _CLOSE_AFTER:
                self._close()
                return
        elif spike.values > _NEW_LEVEL_AFTER + spike.before and (
            spike.far < spike.values >> 1 or spike.from_nothing
        ):
            self._close()  # it never went far and it has lasted as long as all before it: a new level
            return
        else:
            spike.calm = 0
        spike.feed(cost, far_height)

    def _close(self) -> None:
        self.spike = None
        self.checkpoint()

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        plain = {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in _DERIVED and hasattr(self, name)
        }
        plain["curve"] = self.curve.state()
        plain["head"] = list(self.head)
        plain["spike"] = self.spike.state() if self.spike is not None else None
        plain["guess"] = list(self.guess)
        return plain

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Track:
        """Rebuild a track from ``state()``."""
        track = cls(state["name"], Guess(*state["guess"]))
        for name, value in state.items():
            if name not in ("guess", "curve", "spike"):
                setattr(track, name, value)
        track.curve = Curve.from_state(state["curve"])
        track.spike = Spike(**state["spike"]) if state["spike"] is not None else None
        return track


_DERIVED = frozenset({"curve", "head", "spike", "guess", "trend"})
