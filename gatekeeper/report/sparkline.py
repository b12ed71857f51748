"""A curve as one line of text, with the place of the decision marked under it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gatekeeper.verdict import CurvePoint

__all__ = ["sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=+*#@"
_WIDE = 50.0  # from this ratio of its ends on, a positive curve is drawn on a logarithmic scale


def sparkline(
    curve: Sequence[CurvePoint], stop_row: int | None = None, *, unicode: bool = True, width: int = 48
) -> tuple[str, str] | None:
    """Return two lines: the curve in eight levels, and a mark under ``stop_row`` (empty where that is None).

    None where there are fewer than two points to draw. The curve has at most ``width`` characters, and one
    more where the stop came after its last point.
    """
    points = [point for point in curve if math.isfinite(point.mean)]
    if len(points) < 2:
        return None
    if len(points) > width:
        points = [points[index * (len(points) - 1) // (width - 1)] for index in range(width)]
    means = [point.mean for point in points]
    if min(means) > 0.0 and max(means) / min(means) > _WIDE:
        means = [math.log(mean) for mean in means]
    levels = _BLOCKS if unicode else _PLAIN
    low, high = min(means), max(means)
    drawn = "".join(levels[_level(mean, low, high)] for mean in means)
    if stop_row is None:
        return drawn, ""
    place = sum(point.row < stop_row for point in points)
    if place == len(points):
        drawn += "\N{MULTIPLICATION SIGN}" if unicode else "x"
    return drawn, " " * place + ("▲" if unicode else "^") + f" row {stop_row}"


def _level(value: float, low: float, high: float) -> int:
    # Halves: the difference of two finite numbers may be infinite.
    return min(7, int(8.0 * (value / 2 - low / 2) / (high / 2 - low / 2))) if high / 2 > low / 2 else 0
