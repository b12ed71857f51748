"""Where a metric stands in its own history, judged against its own noise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot

from gatekeeper.signals.curve import Curve

__all__ = ["Trend", "trend_of", "value_deviation"]


@dataclass(frozen=True, slots=True)
class Trend:
    """A metric's course so far, as a cost: lower is better whatever the metric's own direction.

    A window is an eighth of the bins. ``best``: the lowest mean of a window; ``level``: the median of the
    latest one; ``previous``: the mean of the window before it, ``before``: of one a quarter of the run ago;
    ``worst``: the level that an eighth of the bins, or the start, lie above (a spike that came back is none).
    ``start``: the first values (at most eight) or the first window, whichever tells the gain more surely;
    ``start_error``: its standard error. ``noise``: robust standard deviation of one bin around its
    neighbours. ``window``: bins in a window, ``bins``: in all. ``best_at``: where the best window lies, 0
    (first) to 1 (now). ``rises``: how many of the latest checkpoints rose in a row, ``climb``: the median of
    these rises. ``row`` and ``step``: the middle of the latest window, where ``level`` stands.
    """

    n: int
    bins: int
    window: int
    start: float
    best: float
    level: float
    worst: float
    noise: float
    best_at: float
    rises: int
    before: float
    previous: float
    start_error: float
    climb: float
    row: float
    step: float

    @property
    def gain(self) -> float:
        """What was won from the start to the best window (same unit as the metric)."""
        return self.start - self.best

    @property
    def gain_share(self) -> float:
        """The gain as a share of the larger of the start and the best level.

        Free of scale; 0 where nothing was won.
        """
        size = max(abs(self.start), abs(self.best))
        return self.gain / size if size > 0.0 else 0.0

    @property
    def gain_z(self) -> float:
        """The gain in its own standard errors: how sure it is that anything was won."""
        return _ratio(self.gain, hypot(self.start_error, self.noise / self.window**0.5))

    @property
    def relapse(self) -> float:
        """How much of the gain is lost again.

        0 at the best, 1 back at the start, above 1 worse than at the start.
        """
        return _ratio(self.level - self.best, self.gain)

    @property
    def walk_z(self) -> float:
        """The rise since the best window in standard deviations of a random walk with the bins' own steps.

        Correlated noise wanders.
        """
        bins = (1.0 - self.best_at) * (self.bins - self.window)
        return _ratio(self.level - self.best, self.noise * (2.0 * max(1.0, bins)) ** 0.5)

    @property
    def relapse_z(self) -> float:
        """The loss since the best window in standard errors."""
        return _ratio(self.level - self.best, self.noise * (2.0 / self.window) ** 0.5)


def _ratio(over: float, under: float) -> float:
    if over <= 0.0:
        return 0.0
    return over / under if under > 0.0 else float("inf")


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) & 1 else (ordered[middle - 1] + ordered[middle]) / 2.0


def _middle(marks: Sequence[float], window: int, width: int) -> float:
    index = len(marks) - 1 - window // 2
    return (marks[index] + marks[index - 1]) / 2.0 if index > 0 and width > 1 else float(marks[index])


# Expected range of 2, 4, 8, … normal values in standard deviations (order statistics of the normal
# distribution).
_RANGE = (1.13, 2.06, 2.85, 3.53, 4.13, 4.66, 5.14, 5.58, 5.99, 6.38)


def value_deviation(curve: Curve, noise: float) -> float:
    """Return the standard deviation of single values, from the median range of the recent bins."""
    if curve.width == 1:
        return noise
    ranges = sorted([high - low for high, low in zip(curve.highs[-16:], curve.lows[-16:], strict=True)])
    return ranges[len(ranges) // 2] / _RANGE[min(len(_RANGE), curve.width.bit_length() - 1) - 1]


def trend_of(curve: Curve, sign: float, head: list[float]) -> Trend | None:
    """Return the trend of a curve; ``sign`` is -1.0 where higher is better; None before three values.

    The noise is 1.4826 times the median absolute difference of neighbouring bins around its median, over √2,
    in the later half: a robust estimate that trends barely touch. It is too small for strongly correlated
    noise, which is why relapses must also be a share of the gain.
    """
    costs = [sign * mean for mean in curve.means]
    mean, count = curve.tail()
    if count * 2 > curve.width:
        costs.append(sign * mean)
    bins = len(costs)
    if bins < 3:
        return None
    window = max(1, bins >> 3)
    total = sum(costs[:window])
    sums = [total]
    for index in range(window, bins):
        total += costs[index] - costs[index - window]
        sums.append(total)
    exact = sum(costs[-window:])
    if not abs(total - exact) <= 1e-9 * abs(
        exact
    ):  # a huge value passed through and left its rounding behind
        sums = [sum(costs[index : index + window]) for index in range(bins - window + 1)]
    best_sum = min(sums)
    places = len(sums)
    best_index = places - 1 - sums[::-1].index(best_sum)
    steps = [after - here for here, after in itertools.pairwise(costs)]
    later = sorted(steps[len(steps) // 2 :] if len(steps) >= 10 else steps)
    middle = later[len(later) // 2]
    noise = 1.0483 * sorted([abs(step - middle) for step in later])[len(later) // 2]

    stride = window
    rises = 0
    while (
        rises + 2 <= (places - 1) // stride + 1
        and sums[places - 1 - rises * stride] > sums[places - 1 - (rises + 1) * stride]
    ):
        rises += 1
    ends = sums[places - 1 - rises * stride :: stride] if rises else []
    climb = _median([after - here for here, after in itertools.pairwise(ends)]) / window if rises else 0.0
    back = max(0, places - 1 - max(window, bins // 4))
    best = best_sum / window
    # A fast learner is past its start within the first bin, so the first values count; a noisy one shows it
    # in the first window.
    opening = head[: max(1, min(len(head), curve.n >> 3))]
    start = sign * (sum(opening) / len(opening))
    start = min(start, sign * head[0])
    start_error = value_deviation(curve, noise) / len(opening) ** 0.5
    if window > 1:
        first = _median(costs[:window])
        error = noise / window**0.5
        if (first - best) * (start_error + error) > (start - best) * 2.0 * error and first - best > 0.0:
            start, start_error = first, error
    return Trend(
        n=curve.n,
        bins=bins,
        window=window,
        start=start,
        best=best,
        level=_median(costs[-window:]),
        worst=max(sorted(costs)[-window], start),
        noise=noise,
        best_at=best_index / (places - 1) if places > 1 else 1.0,
        rises=rises,
        before=sums[back] / window,
        previous=sums[max(0, places - 1 - window)] / window,
        start_error=start_error,
        climb=climb,
        row=_middle(curve.ends, window, curve.width),
        step=_middle(curve.steps, window, curve.width),
    )
