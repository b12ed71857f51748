"""The life of a spike: it opens, and then it recovers, lingers or diverges."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Spike"]


@dataclass(slots=True)
class Spike:
    """An excursion of a loss above its normal range.

    ``base``: the level before it; ``scale``: the larger of the loss's starting level and the range it had
    covered; heights are counted in it. ``before``: values seen before it opened; ``far``: values beyond the
    far height, ``missed``: those since then that were not.
    """

    row: int
    step: float
    before: int
    base: float
    scale: float
    first: float
    peak: float
    total: float = 0.0
    square: float = 0.0
    values: int = 0
    far: int = 0
    missed: int = 0
    calm: int = 0
    recent: float = 0.0

    def feed(self, cost: float, far_height: float) -> None:
        """Take one more value of the excursion (as a cost: lower is better)."""
        self.values += 1
        above = (cost - self.base) / self.scale
        self.total += above
        self.square += above * above
        self.peak = max(self.peak, cost)
        self.recent = above if self.values == 1 else 0.7 * self.recent + 0.3 * above
        if above > far_height:
            self.far += 1
        elif self.far:
            self.missed += 1

    @property
    def height(self) -> float:
        """The latest (smoothed) height, in units of ``scale``."""
        return self.recent

    @property
    def level(self) -> float:
        """The mean cost since it opened."""
        return self.base + self.scale * self.total / max(1, self.values)

    def proven(self, height: float, witnesses: int, few: int = 8) -> bool:
        """Whether its height is no accident of a base that rests on a few values.

        With ``few`` values before it or more it is. With less it must be very steady (its mean is eight
        standard deviations), or pass ``height`` and be steady (four) or not alone (``witnesses``: how many
        losses are far off, itself included).
        """
        if self.before >= few:
            return True
        mean = self.total / self.values
        steadiness = mean / max(1e-12, self.square / self.values - mean * mean) ** 0.5
        return steadiness > 8.0 or (mean > height and (steadiness > 4.0 or witnesses > 1))

    @property
    def stayed(self) -> int:
        """How many values it has stayed far; 0 if more than a tenth since the first far one were not."""
        return self.far if self.missed <= self.far // 9 else 0

    @property
    def fading(self) -> bool:
        """Whether it is coming down: the latest height is below a fifth of its own mean."""
        return self.recent < 0.2 * self.total / self.values

    @property
    def growth(self) -> float:
        """How many times higher its peak is than its first value, above the base."""
        rise = self.first - self.base
        return (self.peak - self.base) / rise if rise > 0.0 else float("inf")

    @property
    def from_nothing(self) -> bool:
        """Whether all that came before it is one value next to nothing, and it does not grow.

        The first level, not a spike.
        """
        return self.before <= 1 and abs(self.base) < 1e-6 * abs(self.first) and self.growth < 10.0

    def state(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return asdict(self)
