"""``gatekeeper baseline``: record what healthy runs look like, and show what was recorded."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click

from gatekeeper.baseline import (
    Baseline,
    BaselineError,
    BaselinePoint,
    Direction,
    RunSeries,
    build_baseline,
    load_baseline,
    save_baseline,
)
from gatekeeper.config import Settings, load_settings
from gatekeeper.gate import Gate
from gatekeeper.metrics import to_float
from gatekeeper.roles import understand
from gatekeeper.sources import Source, open_source
from gatekeeper.text import for_terminal

__all__ = ["command"]

_RECORDED_ROLES = ("loss", "eval")
_BETTER = {"min": "lower is better", "max": "higher is better", None: "direction unknown"}
MAX_METRICS = 32


@click.group("baseline")
def command() -> None:
    """Record healthy runs as the baseline that later runs are compared with."""


@command.command("record")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("gatekeeper-baseline.json"),
    show_default=True,
    help="The file to write.",
)
@click.option("--metric", "wanted", multiple=True, metavar="KEY", help="Record KEY alone (may be repeated).")
@click.option("--mode", type=click.Choice(["min", "max"]), help="Which way is better for --metric.")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="The configuration to use.")
def record(
    sources: tuple[str, ...],
    output: Path,
    wanted: tuple[str, ...],
    mode: Direction | None,
    config_path: Path | None,
) -> None:
    """Write the baseline of several healthy runs: the same training with several seeds.

    Losses and eval metrics are recorded unless --metric names others. A run that the gate
    stops is no baseline and is refused.
    """
    settings = load_settings(config_path)
    opened = [source for spec in sources for source in open_source(spec)]
    runs = [_Recording(source, settings, wanted, mode) for source in opened]
    baseline = _combined(runs, wanted, mode)
    save_baseline(baseline, output)
    click.echo(f"{for_terminal(output)}: {len(baseline.metrics)} metrics of {_runs(len(runs))}")
    if len(runs) == 1:
        click.echo("one run: the spread is unknown, and comparisons will say so; record 8 or more", err=True)


@command.command("show")
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Print a recorded baseline: where each metric started, where it ended and its spread."""
    baseline = load_baseline(file)
    click.echo(f"{for_terminal(file)}: {_runs(baseline.runs)}")
    for name, metric in sorted(baseline.metrics.items()):
        start, end = (_shown(point, baseline.axis) for point in (metric.curve[0], metric.final))
        click.echo(f"  {for_terminal(name)} ({_BETTER[metric.direction]}): {start} to {end}")


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _shown(point: BaselinePoint, axis: str) -> str:
    spread = "spread unknown: one run" if point.spread is None else f"± {point.spread:g}, {_runs(point.n)}"
    return f"{point.mean:g} ({spread}) at {axis} {point.step:g}"


class _Recording:
    """One source's series, refused where the gate would have stopped the run."""

    def __init__(
        self, source: Source, settings: Settings, wanted: Sequence[str], mode: Direction | None
    ) -> None:
        self.name = source.name
        self.has_steps = True
        self.steps: dict[str, list[float]] = {}
        self.values: dict[str, list[float]] = {}
        gate = Gate(metric=wanted[0] if wanted else None, mode=mode if wanted else None, config=settings)
        for number, row in enumerate(source.rows(), 1):
            verdict = gate.observe(row.step, row.metrics)
            if verdict.stopped:
                raise BaselineError(
                    f"{self.name} is no baseline: the gate stops it at row {verdict.row} "
                    f"({verdict.rule}: {verdict.reason}); record runs that end well"
                )
            self.has_steps = self.has_steps and row.step is not None
            step = float(number if row.step is None else row.step)
            for key, value in row.metrics.items():
                if key in wanted or (not wanted and _is_recorded(key, settings)):
                    self._add(key, step, to_float(value))

    def _add(self, key: str, step: float, value: float | None) -> None:
        if value is None or not math.isfinite(value):
            return
        steps, values = self.steps.setdefault(key, []), self.values.setdefault(key, [])
        if steps and step <= steps[-1]:  # logged again, or a restart: what was logged last counts
            keep = bisect_left(steps, step)
            del steps[keep:], values[keep:]
        steps.append(step)
        values.append(value)


def _is_recorded(key: str, settings: Settings) -> bool:
    return key == settings.metric or understand(key).role in _RECORDED_ROLES


def _combined(runs: Sequence[_Recording], wanted: Sequence[str], mode: Direction | None) -> Baseline:
    axes: set[Literal["step", "row"]] = {"step" if run.has_steps else "row" for run in runs}
    if len(axes) > 1:
        without = next(run.name for run in runs if not run.has_steps)
        raise BaselineError(f"{without} logs no steps and others do; record runs of the same training")
    found = sorted(set().union(*(run.steps for run in runs)))
    for key in wanted:
        if missing := [run.name for run in runs if key not in run.steps]:
            raise BaselineError(f"{missing[0]} has no finite value of {key!r}; correct --metric")
    keys = [key for key in found if all(key in run.steps for run in runs)]
    if not keys:
        raise BaselineError("no loss or eval metric is in all of the runs; name one with --metric")
    if len(keys) > MAX_METRICS:
        raise BaselineError(f"{len(keys)} metrics are too many to review; name some with --metric")
    series = {key: [RunSeries(run.steps[key], run.values[key]) for run in runs] for key in keys}
    directions = {key: mode if key in wanted and mode else _direction(key) for key in keys}
    return build_baseline(series, directions, runs=len(runs), axis=axes.pop())


def _direction(key: str) -> Direction | None:
    direction = understand(key).direction
    return None if direction == 0 else ("min" if direction > 0 else "max")
