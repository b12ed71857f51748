"""A metric's curve as a Mermaid xychart: what GitHub and GitLab draw inside Markdown without an image host.

The notation takes fixed-point numbers alone, no holes, and evenly spaced points; so the curve is put on an
even grid, scaled where its numbers are very large or small, and split where it is not finite.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise

from gatekeeper.verdict import CurvePoint

__all__ = ["MAX_POINTS", "curve_charts"]

MAX_POINTS = 200
MAX_CHARTS = 3
_GRID = 128  # a power of two: see _axis
_MAX_LABEL = 60
_STOP_COLOR, _CURVE_COLOR = "#cf222e", "#2f81f7"  # readable on GitHub's light and dark pages

Point = tuple[float, float]


def curve_charts(
    curve: Sequence[CurvePoint],
    metric: str | None,
    *,
    stop_step: float | None = None,
    stop_row: int | None = None,
) -> list[str]:
    """Return Mermaid sources (without the fence), one for each of the last ``MAX_CHARTS`` finite stretches.

    A red needle marks the stop; a stop after the last finite point is marked at that point. A curve with
    fewer than two finite points has no chart.
    """
    by_step = _rising([point.step for point in curve])
    x_label, stop = ("step", stop_step) if by_step else ("row", stop_row)
    stretches = [stretch for stretch in _finite_stretches(curve, by_step) if len(stretch) > 1][-MAX_CHARTS:]
    begun = [i for i, stretch in enumerate(stretches) if stop is not None and stretch[0][0] <= stop]
    marked = begun[-1] if begun else None
    return [
        _chart(stretch, _label(metric or "loss"), x_label, stop if i == marked else None)
        for i, stretch in enumerate(stretches)
    ]


def _rising(steps: Sequence[float | None]) -> bool:
    """Whether the steps can be an axis: all there, rising (a restart rewinds them) and well apart."""
    known = [step for step in steps if step is not None and math.isfinite(step)]
    if len(known) < len(steps) or any(a >= b for a, b in pairwise(known)):
        return False
    return len(known) < 2 or known[-1] - known[0] > 1e-6 * abs(known[-1])


def _finite_stretches(curve: Sequence[CurvePoint], by_step: bool) -> list[list[Point]]:
    stretches: list[list[Point]] = [[]]
    for point in curve:
        if math.isfinite(point.mean):
            x = float(point.step if by_step and point.step is not None else point.row)
            if not stretches[-1] or x > stretches[-1][-1][0]:
                stretches[-1].append((x, point.mean))
        elif stretches[-1]:
            stretches.append([])
    return stretches


def _chart(points: list[Point], metric: str, x_label: str, stop: float | None) -> str:
    values, y_label = _scaled([y for _, y in points])
    xs = [x for x, _ in points]
    low, high, count = _axis(xs)
    grid = [low + i * (high - low) / (count - 1) for i in range(count)]
    line = _on_grid(xs, values, grid)
    bottom, top = _range(line)
    colors = f"{_STOP_COLOR}, {_CURVE_COLOR}" if stop is not None else _CURVE_COLOR
    lines = [
        '%%{init: {"xyChart": {"width": 760, "height": 300}, '
        f'"themeVariables": {{"xyChart": {{"plotColorPalette": "{colors}"}}}}}}}}%%',
        "xychart-beta",
        f'  title "{metric}{_stopped(stop, x_label, xs[-1])}"',
        f'  x-axis "{x_label}" {Decimal(low):f} --> {Decimal(high):f}',
        f'  y-axis "{y_label}" {_fixed(bottom)} --> {_fixed(top)}',
    ]
    if stop is not None:
        at = min(range(count), key=lambda i: abs(grid[i] - stop))
        lines.append(f"  line [{', '.join(_fixed(top if i == at else bottom) for i in range(count))}]")
    lines.append(f"  line [{', '.join(_fixed(value) for value in line)}]")
    return "\n".join(lines)


def _stopped(stop: float | None, x_label: str, last: float) -> str:
    if stop is None:
        return ""
    after = f", last point at {last:.15g}" if stop > last else ""
    return f" (red: stopped at {x_label} {stop:.15g}{after})"


def _axis(xs: list[float]) -> tuple[float, float, int]:
    """Return (low, high, number of points) of an even grid over ``xs``.

    Mermaid adds the spacing up from ``low`` in binary floating point and drops a last point that lands past
    ``high``; ends on a binary fraction and a power of two of intervals make that sum exact.
    """
    low, high = xs[0], xs[-1]
    spacing, intervals = xs[1] - xs[0], len(xs) - 1
    even = low.is_integer() and spacing.is_integer() and all(b - a == spacing for a, b in pairwise(xs))
    if even and len(xs) <= MAX_POINTS:  # the rows as they are; between few rows, halves of halves
        return low, high, intervals * 2 ** max(0, math.floor(math.log2(_GRID / intervals))) + 1
    unit = min(1.0, 2.0 ** math.floor(math.log2((high - low) / 4096)))
    return math.floor(low / unit) * unit, math.ceil(high / unit) * unit, _GRID + 1


def _on_grid(xs: list[float], values: list[float], grid: list[float]) -> list[float]:
    """Return the value at each grid point: the highest of those nearest to it, else between neighbours."""
    nearest: dict[int, float] = {}
    width = grid[1] - grid[0]
    for x, value in zip(xs, values, strict=True):
        i = min(len(grid) - 1, max(0, round((x - grid[0]) / width)))
        nearest[i] = max(value, nearest.get(i, value))
    return [nearest[i] if i in nearest else _between(xs, values, x) for i, x in enumerate(grid)]


def _between(xs: list[float], values: list[float], x: float) -> float:
    right = bisect_right(xs, x)
    if right == 0 or right == len(xs):
        return values[0 if right == 0 else -1]
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return values[right - 1] + share * (values[right] - values[right - 1])


def _scaled(values: list[float]) -> tuple[list[float], str]:
    """Return values that fixed point shows well, and the axis label that says what was done to them."""
    low, high = min(values), max(values)
    if low > 0 and high / low > 1000:
        return [math.log10(value) for value in values], "log10 of value"
    size = max(abs(low), abs(high))
    if size == 0 or 1e-2 <= size < 1e5:
        return values, "value"
    exponent = max(-300, min(300, math.floor(math.log10(size))))
    scale = 10.0**exponent
    return [value / scale for value in values], f"value in 1e{exponent}"


def _range(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _fixed(value: float) -> str:
    """Return a fixed-point number with about six significant digits: Mermaid rejects 1e-5."""
    if value == 0:
        return "0"
    if float(value).is_integer():
        return str(int(value))
    decimals = max(0, 6 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(decimals, 17)}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _label(text: str) -> str:
    """Return ``text`` as a label can hold it: letters, digits and a few marks; all else becomes ``_``."""
    kept = "".join(char if char.isalnum() or char in " _./:()-" else "_" for char in text)
    return kept if len(kept) <= _MAX_LABEL else kept[: _MAX_LABEL - 3] + "..."
