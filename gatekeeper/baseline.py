"""What healthy runs looked like: per metric the final value and a curve, each with its spread over runs.

A baseline is a file in the repository that people review like code: keys in a stable order, rounded numbers,
one curve point a line. The dataclasses do no I/O; :func:`load_baseline` and :func:`save_baseline` do.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gatekeeper.errors import GatekeeperError

__all__ = [
    "MAX_CURVE_POINTS",
    "SCHEMA",
    "Baseline",
    "BaselineError",
    "BaselineMetric",
    "BaselinePoint",
    "Expected",
    "RunSeries",
    "build_baseline",
    "dump_baseline",
    "load_baseline",
    "parse_baseline",
    "save_baseline",
]

SCHEMA = "gatekeeper.baseline/1"
MAX_CURVE_POINTS = 64
_DIGITS = 6  # significant digits kept: finer differences are no review matter

Direction = Literal["min", "max"]


class BaselineError(GatekeeperError, ValueError):
    """A baseline that cannot be read or made; the text names the file, the key and the remedy."""


class Expected(NamedTuple):
    """What the recorded runs had at one step.

    ``spread`` is the standard deviation over runs of single logged values (not of means), None where one run
    alone was recorded; ``n`` is how many runs had a value there.
    """

    mean: float
    spread: float | None
    n: int

    def margin(self, z: float) -> float | None:
        """Return how far from the mean one more run of the same kind may well be; None without a spread.

        A new run lies farther off on one side with the probability of ``z`` standard normal deviations. The
        spread is itself an estimate from ``n`` runs, so few runs give a wide margin: Student's t with n - 1
        degrees of freedom (Wallace's approximation) times the spread times sqrt(1 + 1/n).
        """
        if self.spread is None or self.n < 2:
            return None
        dof = self.n - 1
        exponent = (z * (8 * dof + 3) / (8 * dof + 1)) ** 2 / dof
        t = math.sqrt(dof * math.expm1(min(exponent, 300.0)))
        return t * self.spread * math.sqrt(1.0 + 1.0 / self.n)


@dataclass(frozen=True, slots=True)
class BaselinePoint:
    """The recorded runs' value at one step (see :class:`Expected` for what the numbers are)."""

    step: float
    mean: float
    spread: float | None
    n: int


@dataclass(frozen=True, slots=True)
class BaselineMetric:
    """One metric: which way is better (None: not known), where the runs ended, and the way there."""

    direction: Direction | None
    final: BaselinePoint
    curve: tuple[BaselinePoint, ...]

    def at(self, step: float) -> Expected | None:
        """Return what to expect at ``step``, linear between recorded steps; None outside of them."""
        curve = self.curve
        right = bisect_left(curve, step, key=lambda point: point.step)
        if right == len(curve) or not math.isfinite(step):
            return None
        after = curve[right]
        if after.step == step:
            return Expected(after.mean, after.spread, after.n)
        if right == 0:
            return None
        before = curve[right - 1]
        share = (step - before.step) / (after.step - before.step)
        spread = None
        if before.spread is not None and after.spread is not None:
            spread = before.spread + share * (after.spread - before.spread)
        return Expected(before.mean + share * (after.mean - before.mean), spread, min(before.n, after.n))


@dataclass(frozen=True, slots=True)
class Baseline:
    """What ``runs`` recorded runs looked like, by metric.

    ``axis`` says what a point's ``step`` counts: the logged step, or rows from 1 where the runs logged none.
    """

    runs: int
    metrics: Mapping[str, BaselineMetric] = field(default_factory=dict)
    axis: Literal["step", "row"] = "step"

    def expected_at(self, metric: str, step: float) -> Expected | None:
        """Return the recorded runs' (mean, spread, n) at ``step``; None where there is nothing to compare."""
        known = self.metrics.get(metric)
        return None if known is None else known.at(step)

    def final(self, metric: str) -> Expected | None:
        """Return where the recorded runs ended; None for a metric that was not recorded."""
        known = self.metrics.get(metric)
        return None if known is None else Expected(known.final.mean, known.final.spread, known.final.n)

    def gap(self, metric: str, step: float | None = None) -> str | None:
        """Return the sentence why ``metric`` (at ``step``) cannot be compared, or None where it can."""
        known = self.metrics.get(metric)
        if known is None:
            names = ", ".join(sorted(self.metrics)) or "nothing"
            return f"the baseline has no metric {metric!r} (it has {names}); record it again with that metric"
        if step is not None and known.at(step) is None:
            first, last = known.curve[0].step, known.curve[-1].step
            covers = f"{self.axis}s {first:g} to {last:g}"
            return f"the baseline of {metric!r} covers {covers}, not {self.axis} {step:g}"
        if known.final.spread is None:
            return (
                f"the baseline of {metric!r} is one run: its spread is unknown; record it from several runs"
            )
        return None


# --- recording ---


@dataclass(frozen=True, slots=True)
class RunSeries:
    """One run's finite values of one metric, by ascending step."""

    steps: Sequence[float]
    values: Sequence[float]


def build_baseline(
    series: Mapping[str, Sequence[RunSeries]],
    directions: Mapping[str, Direction | None],
    *,
    runs: int,
    axis: Literal["step", "row"] = "step",
) -> Baseline:
    """Return the baseline of several runs' series.

    At each recorded step every run gives the one value it last logged there or before, so the spread over
    runs holds the noise between logged values too: it is what a single new value has to be compared with. A
    step that not all runs reached is left out. Raises BaselineError where the runs have no step in common.
    """
    metrics = {
        name: BaselineMetric(directions.get(name), _final(series[name]), _curve(name, series[name]))
        for name in sorted(series)
    }
    return Baseline(runs, metrics, axis)


def _final(runs: Sequence[RunSeries]) -> BaselinePoint:
    return _point(max(run.steps[-1] for run in runs), [run.values[-1] for run in runs])


def _curve(name: str, runs: Sequence[RunSeries]) -> tuple[BaselinePoint, ...]:
    first, last = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    if first > last:
        raise BaselineError(
            f"the runs' {name!r} have no step in common (one starts at {first:g}, one ends at {last:g}); "
            "record runs of the same length"
        )
    grid = _thin(sorted({step for run in runs for step in run.steps if first <= step <= last}))
    return tuple(
        _point(step, [run.values[bisect_right(run.steps, step) - 1] for run in runs]) for step in grid
    )


def _thin(steps: list[float]) -> list[float]:
    """Return at most MAX_CURVE_POINTS of the steps, evenly by rank, first and last always among them."""
    if len(steps) <= MAX_CURVE_POINTS:
        return steps
    return [steps[round(i * (len(steps) - 1) / (MAX_CURVE_POINTS - 1))] for i in range(MAX_CURVE_POINTS)]


def _point(step: float, values: Sequence[float]) -> BaselinePoint:
    mean = math.fsum(values) / len(values)
    spread = None
    if len(values) > 1:
        spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return BaselinePoint(
        _round(step, 15), _round(mean), None if spread is None else _round(spread, 3), len(values)
    )


def _round(value: float, digits: int = _DIGITS) -> float:
    return float(f"{value:.{digits}g}")


# --- the file ---


def dump_baseline(baseline: Baseline) -> str:
    """Return the baseline as JSON text to commit: stable order, one curve point a line."""
    lines = [
        "{",
        f'  "schema": {_json(SCHEMA)},',
        f'  "runs": {baseline.runs},',
        f'  "axis": {_json(baseline.axis)},',
    ]
    lines.append('  "metrics": {')
    names = sorted(baseline.metrics)
    for name in names:
        metric = baseline.metrics[name]
        lines.append(f"    {_json(name)}: {{")
        lines.append(f'      "direction": {_json(metric.direction)},')
        lines.append(f'      "final": {_point_json(metric.final)},')
        lines.append('      "curve": [')
        lines.extend(
            f"        {_point_json(point)}{',' if i < len(metric.curve) else ''}"
            for i, point in enumerate(metric.curve, 1)
        )
        lines.append("      ]")
        lines.append(f"    }}{'' if name == names[-1] else ','}")
    lines += ["  }", "}"]
    return "\n".join(lines) + "\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)


def _point_json(point: BaselinePoint) -> str:
    step = int(point.step) if float(point.step).is_integer() and abs(point.step) < 1e15 else point.step
    return _json({"step": step, "mean": point.mean, "spread": point.spread, "n": point.n})


def save_baseline(baseline: Baseline, path: str | Path) -> None:
    """Write the baseline's file. Raises BaselineError where that is impossible."""
    try:
        Path(path).write_text(dump_baseline(baseline), encoding="utf-8")
    except OSError as fault:
        raise BaselineError(f"cannot write the baseline {path}: {fault.strerror or fault}") from fault


def load_baseline(path: str | Path) -> Baseline:
    """Read a baseline's file. Raises BaselineError, which names the file, the key and the remedy."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as fault:
        raise BaselineError(
            f"there is no baseline {path}; make it with: gatekeeper baseline record RUN_LOG... -o {path}"
        ) from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise BaselineError(f"cannot read the baseline {path}: {fault}") from fault
    return parse_baseline(text, str(path))


def parse_baseline(text: str, name: str = "baseline") -> Baseline:
    """Return the baseline that ``text`` holds; ``name`` is the file's name in an error's text."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise BaselineError(f"{name} is not JSON: {fault}; record it again") from fault
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise BaselineError(f'{name}: "schema" must be "{SCHEMA}", found {found!r:.60}; record it again')
    runs, axis, metrics = data.get("runs"), data.get("axis", "step"), data.get("metrics")
    if not isinstance(runs, int) or isinstance(runs, bool) or runs < 1:
        raise BaselineError(f'{name}: "runs" must be a whole number from 1 on, found {runs!r:.60}')
    if axis not in ("step", "row"):
        raise BaselineError(f'{name}: "axis" must be "step" or "row", found {axis!r:.60}')
    if not isinstance(metrics, dict) or not metrics:
        raise BaselineError(f'{name}: "metrics" must hold at least one metric; record it again')
    return Baseline(
        runs, {key: _read_metric(value, f"{name}: metrics.{key}") for key, value in metrics.items()}, axis
    )


def _read_metric(data: Any, where: str) -> BaselineMetric:
    if not isinstance(data, dict):
        raise BaselineError(f"{where} must be an object with final and curve; record it again")
    direction, curve = data.get("direction"), data.get("curve")
    if direction not in ("min", "max", None):
        raise BaselineError(f'{where}.direction must be "min", "max" or null, found {direction!r:.60}')
    if not isinstance(curve, list) or not 1 <= len(curve) <= 4 * MAX_CURVE_POINTS:
        raise BaselineError(
            f"{where}.curve must be a list of 1 to {4 * MAX_CURVE_POINTS} points; record it again"
        )
    points = tuple(_read_point(point, f"{where}.curve[{i}]") for i, point in enumerate(curve))
    if any(a.step >= b.step for a, b in pairwise(points)):
        raise BaselineError(f"{where}.curve: the steps must rise; record it again")
    return BaselineMetric(direction, _read_point(data.get("final"), f"{where}.final"), points)


def _read_point(data: Any, where: str) -> BaselinePoint:
    if not isinstance(data, dict):
        raise BaselineError(f"{where} must be an object with step, mean, spread and n")
    for key in ("step", "mean"):
        if not _is_finite(data.get(key)):
            raise BaselineError(f"{where}.{key} must be a finite number, found {data.get(key)!r:.60}")
    spread, n = data.get("spread"), data.get("n")
    if spread is not None and (not _is_finite(spread) or spread < 0):
        raise BaselineError(
            f"{where}.spread must be a finite number from 0 on, or null, found {spread!r:.60}"
        )
    if not isinstance(n, int) or isinstance(n, bool) or n < 1:
        raise BaselineError(f"{where}.n must be a whole number from 1 on, found {n!r:.60}")
    return BaselinePoint(
        float(data["step"]), float(data["mean"]), None if spread is None else float(spread), n
    )


def _is_finite(value: object) -> bool:
    # Python's json reads NaN, Infinity and integers of any size.
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
