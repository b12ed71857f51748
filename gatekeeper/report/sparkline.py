"""A curve as one line of text, with the place of the decision marked under it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gatekeeper.verdict import CurvePoint

__all__ = ["sparkline"]

_BLOCKS = "▁▂▃▄▅▆▇█"
_PLAIN = "_.-=+*#@"


def sparkline(curve: Sequence[CurvePoint], stop_row: int | None = None, *, unicode: bool = True, width: int = 48) -> tuple[str, str] | None:
    """Return two lines: the curve in eight levels (logarithmic where it spans more than 50-fold), and the mark under ``stop_row``.

    None where there are fewer than two points to draw.
    """
    points = [point for point in curve if math.isfinite(point.mean)]
    if len(points) < 2:
        return None
    if len(points) > width:
        points = [points[index * len(points) // width] for index in range(width)]
    means = [point.mean for point in points]
    low, high = min(means), max(means)
    if low > 0.0 and high / low > 50.0:
        means = [math.log(mean) for mean in means]
        low, high = math.log(low), math.log(high)
    levels = _BLOCKS if unicode else _PLAIN
    span = high - low
    drawn = "".join(levels[min(7, int((mean - low) / span * 8.0))] if span > 0.0 else levels[0] for mean in means)
    mark = ""
    if stop_row is not None:
        place = sum(1 for point in points if point.row < stop_row)
        if place == len(points):
            drawn += "×" if unicode else "x"
        mark = " " * place + ("▲" if unicode else "^") + f" row {stop_row}"
    return drawn, mark
