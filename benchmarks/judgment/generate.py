"""Trains the suite and writes its logs with a manifest that ``gatekeeper backtest`` reads."""

from __future__ import annotations

import csv
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from judgment.outcome import Outcome, judge, yardstick
from judgment.record import Truth
from judgment.suite import Spec

COLUMNS = (
    "source", "expected", "label", "first_bad_step", "first_bad_row", "metric", "mode", "roles", "group",
    "budget_steps", "sweep", "rank",
)  # fmt: skip
STEP_KEYS = (  # the first that a row has is its step
    "step", "iter", "global_step", "time/total_timesteps", "iteration", "training_iteration",
    "episode", "epoch",
)  # fmt: skip

Made = tuple[Truth, str, str, list[float | None]]


def make(job: tuple[Spec, Path]) -> Made:
    """Train one run and write its log; return its truth, its objective and every row's step."""
    spec, folder = job
    with np.errstate(all="ignore"):
        record, metric, mode = spec.make()
    record.write(folder / f"{spec.name}.jsonl")
    steps = [next((row[key] for key in STEP_KEYS if key in row), None) for row in record.rows]
    return record.truth, metric, mode, steps


def in_parallel(jobs: Sequence[tuple[Spec, Path]], processes: int) -> Iterator[Made]:
    """Make the runs in several processes, one thread each; yield them in order."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(make, jobs, chunksize=4)


def generate(specs: Sequence[Spec], out: Path, processes: int = 2) -> Path:
    """Train every run, label them by their outcomes, and return the manifest's path."""
    folder = out / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [(spec, folder) for spec in specs]
    made: list[Made] = []
    started = time.perf_counter()
    for result in map(make, jobs) if processes == 1 else in_parallel(jobs, processes):
        made.append(result)
        if len(made) % 50 == 0:
            print(f"{len(made)}/{len(specs)} runs in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    by_task: dict[str, list[Truth]] = defaultdict(list)
    for spec, (truth, *_) in zip(specs, made, strict=True):
        by_task[spec.task].append(truth)
    yards = {task: yardstick(truths) for task, truths in by_task.items()}
    outcomes = [judge(m[0], yards[spec.task], len(m[3])) for spec, m in zip(specs, made, strict=True)]
    ranks = rank(specs, outcomes, [m[0].mode for m in made])
    manifest = out / "manifest.csv"
    with manifest.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for spec, (_, metric, mode, steps), ended in zip(specs, made, outcomes, strict=True):
            bad = ended.first_bad_row
            line = {"source": f"runs/{spec.name}.jsonl", "expected": ended.expected, "label": ended.label}
            line |= {"first_bad_row": "" if bad is None else str(bad), "metric": metric, "mode": mode}
            line |= {"first_bad_step": "" if bad is None else str(steps[min(bad, len(steps)) - 1])}
            line |= {"group": f"{spec.task}/{spec.variety}", "budget_steps": str(budget(steps))}
            line |= {"sweep": spec.sweep, "rank": str(ranks.get(spec.name, ""))}
            writer.writerow(line)
    return manifest


def budget(steps: list[float | None]) -> float:
    return max((s for s in steps if s is not None), default=len(steps))


def rank(specs: Sequence[Spec], outcomes: Sequence[Outcome], modes: Sequence[str]) -> dict[str, int]:
    """Return each sweep trial's rank by its end level: 1 is best, NaN is last."""
    ranks = {}
    for sweep in {spec.sweep for spec in specs if spec.sweep}:
        trials = [
            (
                (o.end if o.end == o.end else np.inf) * (-1 if mode == "max" and o.end == o.end else 1),
                spec.name,
            )
            for spec, o, mode in zip(specs, outcomes, modes, strict=True)
            if spec.sweep == sweep
        ]
        ranks.update({name: place for place, (_, name) in enumerate(sorted(trials), 1)})
    return ranks
