"""Null runs: learning curves that end well, under noise of several shapes. A STOP on any is a false alarm.

    python benchmarks/null_runs.py                            # 3,000 runs of 20,000 rows, two processes
    python benchmarks/null_runs.py --only 17 --dump x.jsonl   # one run again, written for `gatekeeper check`

Run ``i`` is made from ``(seed, i)`` alone; shape, noise and layout go round so that every pair is met
equally often. Exit code 1 when any run was stopped.
"""

from __future__ import annotations

import argparse
import collections
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISES = (
    "gaussian", "student-t3", "student-t2", "ar1-0.5", "ar1-0.9", "ar1-0.99", "bimodal", "variance-drift",
)  # fmt: skip
CURVES = ("power-law", "exponential", "stepwise", "warm-restarts", "flat")
LAYOUTS = ("loss", "loss+eval", "loss+grad")


@dataclass(frozen=True)
class NullRun:
    """One made-up run: how it was drawn, and its columns (NaN where a sparse column has no value)."""

    index: int
    noise: str
    curve: str
    layout: str
    metric: str | None
    columns: dict[str, Floats]

    def rows(self) -> Iterator[tuple[int, dict[str, float]]]:
        """Yield (step, metrics) as a training loop would log them."""
        names = list(self.columns)
        columns = (column.tolist() for column in self.columns.values())
        for step, values in enumerate(zip(*columns, strict=True)):
            yield step, {name: value for name, value in zip(names, values, strict=True) if value == value}


def draw_noise(kind: str, rng: np.random.Generator, n: int) -> Floats:
    """Return ``n`` draws with unit scale (unit standard deviation where that exists)."""
    if kind == "gaussian":
        return rng.standard_normal(n)
    if kind.startswith("student-t"):
        df = float(kind.removeprefix("student-t"))
        return np.asarray(rng.standard_t(df, n))
    if kind.startswith("ar1-"):
        phi = float(kind.removeprefix("ar1-"))
        shocks = rng.standard_normal(n) * math.sqrt(1 - phi * phi)
        shocks[0] /= math.sqrt(1 - phi * phi)  # starts in its stationary law
        return autoregress(shocks, phi)
    if kind == "bimodal":  # two kinds of batch, as mixup or mixed lengths give
        share, gap = rng.uniform(0.1, 0.5), rng.uniform(2.0, 6.0)
        mixed = rng.standard_normal(n) + gap * (rng.random(n) < share)
        return np.asarray((mixed - mixed.mean()) / math.sqrt(1 + share * (1 - share) * gap * gap))
    if kind == "variance-drift":
        factor = rng.uniform(1.5, 3.0)
        time_ = np.linspace(0.0, 1.0, n)
        path = (time_, 1 - time_, np.sin(math.pi * time_))[rng.integers(3)]
        return np.asarray(rng.standard_normal(n) * np.sqrt(1 + (factor - 1) * path))
    raise ValueError(f"no noise is called {kind!r}")


def autoregress(shocks: Floats, phi: float) -> Floats:
    """Return x with ``x[t] = phi * x[t-1] + shocks[t]``, by doubling (log2(n) vector passes)."""
    x: Floats = shocks.copy()
    power, lag = phi, 1
    while lag < len(x) and power > 1e-18:
        x[lag:] = x[lag:] + power * x[:-lag]
        power, lag = power * power, lag * 2
    return x


def draw_curve(kind: str, rng: np.random.Generator, n: int) -> Floats:
    """Return a learning curve from 1 (untrained) towards 0 (all that can be learned)."""
    t = np.arange(n, dtype=float)
    if kind == "power-law":
        return np.asarray((1 + t / rng.uniform(5, 10 + n / 50)) ** -rng.uniform(0.3, 1.0))
    if kind == "exponential":
        return np.asarray(np.exp(-t / rng.uniform(n / 100, n / 4)))
    if kind == "stepwise":  # the learning rate is cut a few times
        curve = 0.5 * np.exp(-t / rng.uniform(n / 200, n / 40))
        for cut in np.sort(rng.uniform(0.15, 0.9, rng.integers(2, 5))) * n:
            after = t >= cut
            curve += (0.5 / 4) * np.where(after, np.exp(-(t - cut) / (n / 200)), 1.0)
        return np.asarray(curve)
    if kind == "warm-restarts":  # each restart gives some of the gain back, less every time
        cycle = n / rng.integers(3, 9)
        phase = (t % cycle) / cycle
        envelope = np.exp(-t / (n / rng.uniform(2, 5)))
        bump = rng.uniform(0.05, 0.25) * envelope * (0.5 + 0.5 * np.cos(math.pi * phase)) * (t >= cycle)
        return np.asarray(0.1 * envelope + 0.9 * np.exp(-t / (cycle / 5)) + bump)
    if kind == "flat":  # already converged: a fine-tune that starts at its floor
        return np.zeros(n)
    raise ValueError(f"no curve is called {kind!r}")


def make_run(index: int, rows: int, seed: int) -> NullRun:
    """Draw run number ``index``: the same (index, rows, seed) give the same run."""
    noise = NOISES[index % len(NOISES)]
    curve = CURVES[(index // len(NOISES)) % len(CURVES)]
    layout = LAYOUTS[(index // (len(NOISES) * len(CURVES))) % len(LAYOUTS)]
    rng = np.random.default_rng([seed, index])

    drop = 10 ** rng.uniform(-3, 3)  # what there is to learn, in the loss's own unit
    floor = drop * rng.choice([0.05, 0.5, 3.0, -2.0])  # below zero: a log-likelihood
    sigma = drop * 10 ** rng.uniform(-2.0, -0.7)  # the noise: 1% to 20% of it
    clean = draw_curve(curve, rng, rows)
    loss = floor + drop * clean
    if floor > 0 and rng.random() < 0.5:  # a positive loss whose noise is in proportion to it
        relative = np.clip(draw_noise(noise, rng, rows) * rng.uniform(0.02, 0.15), -0.9, None)
        columns = {"loss": loss * (1 + relative)}
    else:
        columns = {"loss": loss + sigma * draw_noise(noise, rng, rows)}
    if layout == "loss+eval":
        every = min(int(rng.integers(20, 400)), rows // 8)
        column = np.full(rows, np.nan)
        at = np.arange(every - 1, rows, every)
        column[at] = loss[at] + drop * 0.02 + 0.3 * sigma * draw_noise(noise, rng, len(at))
        columns["eval/loss"] = column
    elif layout == "loss+grad":
        level = 10 ** rng.uniform(-2, 4) * (0.3 + 0.7 * clean)
        columns["grad_norm"] = level * (1 + rng.uniform(0.05, 0.4) * np.abs(draw_noise(noise, rng, rows)))
    metric = (None, "eval/loss" if layout == "loss+eval" else "loss")[int(rng.integers(2))]
    return NullRun(index, noise, curve, layout, metric, columns)


def judge(task: tuple[int, int, int]) -> dict[str, Any]:
    """Drive the gate through one null run; return its last decision, and where and why it stopped."""
    from gatekeeper import Gate

    index, rows, seed = task
    run = make_run(index, rows, seed)
    gate = Gate(metric=run.metric, mode="min" if run.metric else None)
    out: dict[str, Any] = {"index": index, "noise": run.noise, "curve": run.curve, "layout": run.layout}
    verdict = gate.verdict
    for step, metrics in run.rows():
        verdict = gate.observe(step, metrics)
        if verdict.stopped:
            return {**out, "last": "STOP", "row": verdict.row, "rule": verdict.rule, "reason": verdict.reason}
    return {**out, "last": verdict.decision.value, "wait_share": gate.wait_share}


def upper_bound(hits: int, trials: int, confidence: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound for a rate: with no hits, about 3 / trials."""
    if hits >= trials:
        return 1.0

    def at_most(p: float) -> float:
        logs = (
            math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
            + k * math.log(p) + (trials - k) * math.log1p(-p)
            for k in range(hits + 1)
        )  # fmt: skip
        return math.fsum(map(math.exp, logs))

    low, high = hits / trials, 1.0 - 1e-12
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(middle) > 1 - confidence else (low, middle)
    return high


def table(results: list[dict[str, Any]], field: str, names: tuple[str, ...]) -> list[str]:
    """Return Markdown lines: how the runs of each kind ended."""
    lines = [f"| {field} | runs | STOP | last WAIT | last CONTINUE |", "|---|---|---|---|---|"]
    for name in names:
        last = collections.Counter(r["last"] for r in results if r[field] == name)
        counts = " | ".join(str(last[decision]) for decision in ("STOP", "WAIT", "CONTINUE"))
        lines.append(f"| {name} | {sum(last.values())} | {counts} |")
    return lines


def report(results: list[dict[str, Any]], rows: int, seed: int) -> str:
    """Return the whole result as Markdown."""
    stops = [r for r in results if r["last"] == "STOP"]
    lines = [*table(results, "noise", NOISES), "", *table(results, "curve", CURVES), ""]
    lines += [*table(results, "layout", LAYOUTS), ""]
    bound = upper_bound(len(stops), len(results))
    lines.append(
        f"{len(stops)} of {len(results):,} null runs of {rows:,} rows were stopped; with 95% "
        f"confidence the false-alarm rate per run is below {bound:.2%} (Clopper-Pearson, one-sided)."
    )
    for rule, count in collections.Counter(r["rule"] for r in stops).most_common():
        lines.append(f"- {rule}: {count}")
    for r in stops[:40]:
        lines.append(
            f"  - --seed {seed} --rows {rows} --only {r['index']}: {r['rule']} at row {r['row']} "
            f"({r['curve']}, {r['noise']}, {r['layout']}): {r['reason']}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; return its exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", type=int, metavar="INDEX", help="this run alone, in full")
    parser.add_argument("--dump", type=Path, metavar="FILE.jsonl", help="with --only: write its rows here")
    options = parser.parse_args()

    if options.only is not None:
        run = make_run(options.only, options.rows, options.seed)
        if options.dump:
            with options.dump.open("w") as file:
                for step, metrics in run.rows():
                    file.write(json.dumps({"step": step, **metrics}) + "\n")
        result = judge((options.only, options.rows, options.seed))
        print(json.dumps({**result, "metric": run.metric}, indent=1))
        return 0

    tasks = [(index, options.rows, options.seed) for index in range(options.runs)]
    results: list[dict[str, Any]] = []
    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        for result in pool.map(judge, tasks, chunksize=8):
            results.append(result)
            if len(results) % 100 == 0:
                stops = sum(r["last"] == "STOP" for r in results)
                seconds = time.perf_counter() - started
                print(f"{len(results)}/{len(tasks)} runs, {stops} stopped, {seconds:.0f} s", file=sys.stderr)
    print(report(results, options.rows, options.seed))
    return int(any(r["last"] == "STOP" for r in results))


if __name__ == "__main__":
    sys.exit(main())
