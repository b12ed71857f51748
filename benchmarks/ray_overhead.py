"""What the gate costs a Ray Tune sweep: processor time in the Stopper, and memory per trial.

python benchmarks/ray_overhead.py [--results 6000] [--trials 10000] [--rows 150]

The first part runs a real sweep of trivial trials and counts the processor time spent in the Stopper (its
calls, ``stop_all``, its part of the experiment's snapshots) against all that the controller's process spent
in the same run. The second part feeds one Stopper 10,000 trials at once, without Ray, and looks at the memory
of the process while they live and at what is left after they have ended.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import logging
import os
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

CPU_TARGET, MEMORY_TARGET = 0.02, 16.0


def sweep(results: int, directory: Path) -> list[tuple[str, str, str, str]]:
    from gatekeeper.config import Settings

    import ray
    from gatekeeper_ray import GatekeeperCallback, GatekeeperStopper
    from ray import cloudpickle, tune

    spent = {"calls": 0, "stop_all": 0, "snapshots": 0, "measuring": 0, "watch": 0}
    counts = dict.fromkeys(spent, 0)

    class Timed(GatekeeperStopper):
        """The Stopper with a watch on every way into it."""

        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            begin = time.thread_time_ns()
            answer = super().__call__(trial_id, result)
            end = time.thread_time_ns()
            spent["calls"] += end - begin
            counts["calls"] += 1
            spent["watch"] += time.thread_time_ns() - end
            return answer

        def stop_all(self) -> bool:
            begin = time.thread_time_ns()
            answer = super().stop_all()
            end = time.thread_time_ns()
            spent["stop_all"] += end - begin
            counts["stop_all"] += 1
            spent["watch"] += time.thread_time_ns() - end
            return answer

        def __getstate__(self) -> dict[str, Any]:
            begin = time.thread_time_ns()
            state = super().__getstate__()
            middle = time.thread_time_ns()
            cloudpickle.dumps(state).hex()  # what Ray does with it, done once more to know its cost
            end = time.thread_time_ns()
            spent["snapshots"] += end - begin
            spent["measuring"] += end - middle
            counts["snapshots"] += 1
            return state

    per_trial = 300

    def train(config: dict[str, Any]) -> None:
        noise = random.Random(config["seed"])
        for step in range(1, per_trial + 1):
            loss = 2 / step**0.5 + noise.gauss(0, 0.01)
            tune.report(
                {
                    "loss": loss,
                    "eval_loss": loss * 1.1,
                    "accuracy": 1 - loss / 4,
                    "grad_norm": 1 + noise.random(),
                    "lr": 0.1,
                    "samples": step * 64,
                }
            )

    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
    )
    stopper = Timed("loss", "min", notes=directory / "notes", config=Settings())
    tuner = tune.Tuner(
        train,
        param_space={"seed": tune.grid_search(list(range(max(2, results // per_trial))))},
        tune_config=tune.TuneConfig(metric="loss", mode="min", reuse_actors=True),
        run_config=tune.RunConfig(
            storage_path=str(directory / "results"),
            stop=stopper,
            callbacks=[GatekeeperCallback(stopper, summary=False)],
            verbose=0,
        ),
    )
    for key in spent:
        spent[key] = counts[key] = 0
    wall, cpu, main = time.monotonic(), time.process_time_ns(), time.thread_time_ns()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        tuner.fit()
    wall = time.monotonic() - wall
    cpu, main = (time.process_time_ns() - cpu, time.thread_time_ns() - main)
    cpu, main = cpu - spent["measuring"], main - spent["measuring"]
    ray.shutdown()
    assert not stopper.faults
    assert not stopper.stops

    # Looking at the clock is no part of the Stopper: one look lies within each measured span, two beside it.
    looks = counts["calls"] + counts["stop_all"]
    for key in ("calls", "stop_all"):
        spent[key] -= spent["watch"] * counts[key] // looks
    cpu, main = cpu - 3 * spent["watch"], main - 3 * spent["watch"]
    ours = spent["calls"] + spent["stop_all"] + spent["snapshots"]
    calls = max(1, counts["calls"])
    share = ours / cpu
    return [
        ("results", f"{counts['calls']}", "", f"in {wall:.0f} s"),
        ("Stopper, per result", f"{spent['calls'] / calls / 1e3:.1f} us", "", ""),
        ("stop_all, per poll", f"{spent['stop_all'] / max(1, counts['stop_all']) / 1e3:.2f} us", "", ""),
        (
            "snapshot, our part",
            f"{spent['snapshots'] / max(1, counts['snapshots']) / 1e3:.0f} us",
            "",
            f"{counts['snapshots']} snapshots",
        ),
        (
            "controller, per result",
            f"{cpu / calls / 1e6:.2f} ms",
            "",
            f"its main thread {main / calls / 1e6:.2f} ms",
        ),
        ("Stopper / controller", f"{share:.2%}", f"<= {CPU_TARGET:.0%}", verdict(share <= CPU_TARGET)),
        ("Stopper / its main thread", f"{ours / main:.2%}", "", "for comparison"),
    ]


def memory(trials: int, rows: int, directory: Path) -> list[tuple[str, str, str, str]]:
    from gatekeeper.config import Settings

    from gatekeeper_ray import GatekeeperStopper

    def result(step: int, value: float) -> dict[str, Any]:
        return {
            "loss": value,
            "eval_loss": value * 1.1,
            "accuracy": 1 - value / 4,
            "grad_norm": 1 + value,
            "lr": 0.1,
            "samples": step * 64,
            "training_iteration": step,
            "iterations_since_restore": step,
            "done": False,
            "config": {"lr": 0.1, "width": 64},
            "time_total_s": step * 0.1,
            "checkpoint_dir_name": None,
        }

    def fill(stopper: GatekeeperStopper, trials: int) -> None:
        noise = random.Random(0)
        for step in range(1, rows + 1):
            for trial in range(trials):
                stopper(f"{trial:05d}", result(step, 2 / step**0.5 + noise.gauss(0, 0.01)))

    def fresh(cap: int) -> GatekeeperStopper:
        return GatekeeperStopper("loss", "min", notes=directory / "notes", config=Settings(), max_trials=cap)

    warm = fresh(1)
    for step in range(1, rows + 1):
        warm("warm", result(step, 2 / step**0.5))
    sample = min(trials, 2000)
    stopper = fresh(sample)
    pages = resident()
    fill(stopper, sample)
    pages = (resident() - pages) / sample
    assert not stopper.faults

    stopper = fresh(trials)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fill(stopper, trials)
    gc.collect()
    live = (tracemalloc.get_traced_memory()[0] - before) / trials / 1024
    for trial in range(trials):
        stopper.trial_ended(f"{trial:05d}")
    gc.collect()
    left_over = (tracemalloc.get_traced_memory()[0] - before) / trials / 1024
    tracemalloc.stop()
    assert not stopper.faults

    capped = fresh(100)
    for trial in range(min(trials, 2000)):
        for step in range(1, 11):
            capped(f"{trial:05d}", result(step, 2 / step**0.5))
    return [
        ("live trials", f"{trials}", "", f"{rows} rows of 6 metrics each"),
        (
            "memory per live trial",
            f"{live:.1f} KB",
            f"<= {MEMORY_TARGET:.0f} KB",
            verdict(live <= MEMORY_TARGET),
        ),
        ("the same in pages", f"{pages:.1f} KB", "", "resident, with what the allocator holds in reserve"),
        ("memory after the end", f"{left_over:.3f} KB", "0", verdict(left_over < 0.01)),
        (
            "no callback, max_trials=100",
            f"{len(capped._trials.live)} live",
            "<= 100",
            f"{len(capped._trials)} known",
        ),
    ]


def resident() -> float:
    """Return the process's memory in KB, after everything that can be given back was."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, default=6000, help="results of the real sweep")
    parser.add_argument(
        "--trials", type=int, default=10_000, help="trials that live at once in the second part"
    )
    parser.add_argument("--rows", type=int, default=150, help="rows of each of them")
    arguments = parser.parse_args()
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AIR_NEW_OUTPUT="0")
    with tempfile.TemporaryDirectory() as name:
        table = memory(arguments.trials, arguments.rows, Path(name))
        table = sweep(arguments.results, Path(name)) + table
    print(f"{'':30} {'measured':>14} {'to reach':>10}")
    for what, measured, target, remark in table:
        print(f"{what:30} {measured:>14} {target:>10}  {remark}")
    sys.exit(any(row[3] == "MISSED" for row in table))


if __name__ == "__main__":
    main()
