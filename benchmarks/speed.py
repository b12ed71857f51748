"""How fast the gate is: each figure a ratio to something people pay for already, both measured in this run.

    python benchmarks/speed.py [--quick] [--only observe|log|cold]

Needs `ray[tune]` for the first part; losslint is installed into a cache directory of its own on first use.
The two sides of each ratio take turns, and each part's figure is the median over its repeats, so that a busy
machine slows both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from peer_tools import PEERS, peer_command

BLOCK = 100  # calls between two turns


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    what: str
    against: str
    ours: str
    theirs: str
    ratio: float
    target: float

    def markdown(self) -> str:
        """Return the line as a Markdown table row."""
        cells = (self.what, self.against, self.ours, self.theirs, f"{self.ratio:.2f}", f"≤ {self.target:g}")
        return f"| {' | '.join(cells)} |"


def make_rows(n: int, seed: int = 0) -> list[dict[str, float]]:
    """Return a healthy run's rows: six metrics each, floats of full precision as a trainer logs them."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    curve = 0.6 + 2.4 * (1 + t / 60) ** -0.55
    columns = {
        "loss": curve * np.exp(0.05 * rng.standard_normal(n)),
        "eval/loss": curve * 1.03 + 0.02 * rng.standard_normal(n),
        "eval/accuracy": 1 - 0.3 * curve + 0.01 * rng.standard_normal(n),
        "grad_norm": (0.5 + 0.4 * curve) * np.exp(0.3 * rng.standard_normal(n)),
        "lr": 3e-4 * np.minimum(1, (t + 1) / 200) * (0.5 + 0.5 * np.cos(np.pi * t / n)) + 1e-6,
        "entropy": 1.2 * curve / 3 + 0.02 * rng.standard_normal(n),
    }
    names = list(columns)
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [dict(zip(names, row, strict=True)) for row in values]


def time_observe(rows: Sequence[dict[str, float]]) -> tuple[float, float]:
    """Return seconds of CPU per call: the gate's on the whole row, Ray's stopper's on one metric."""
    from gatekeeper import Gate
    from ray.tune.stopper import TrialPlateauStopper

    gate = Gate(metric="eval/loss", mode="min")
    stopper = TrialPlateauStopper(metric="eval/loss")
    ours = theirs = 0
    clock = time.thread_time_ns
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        begin = clock()
        for step, row in enumerate(block, start):
            gate.observe(step, row)
        middle = clock()
        for row in block:
            stopper("trial", row)
        ours += middle - begin
        theirs += clock() - middle
    if gate.verdict.stopped:
        raise SystemExit(f"the healthy run was stopped: {gate.verdict.reason}")
    return ours / len(rows) / 1e9, theirs / len(rows) / 1e9


def observe_lines(quick: bool) -> list[Line]:
    """Compare one call of the gate with one call of the stopper, on runs of three lengths."""
    lines = []
    for n, repeats in ((200, 41), (2_000, 15), (20_000, 5)):
        rows = make_rows(n)
        pairs = [time_observe(rows) for _ in range(3 if quick else repeats)]
        ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        what = f"`Gate.observe`, 6 metrics, all rules, run of {n:,} rows"
        against = "Ray `TrialPlateauStopper`, 1 metric"
        lines.append(Line(what, against, f"{ours * 1e6:.1f} µs", f"{theirs * 1e6:.1f} µs", ratio, 1.0))
    return lines


def planted_nans(rows: int = 20_000, plants: int = 25, seed: int = 1) -> tuple[int, int, list[str]]:
    """Plant one NaN per run at a random row; return (seen at exactly that row, planted, what went wrong)."""
    from gatekeeper import Gate

    healthy, rng, wrong = make_rows(rows), random.Random(seed), []
    for _ in range(plants):
        at = int(
            10 ** rng.uniform(0, np.log10(rows))
        )  # early rows as likely as late ones, by order of magnitude
        gate = Gate(metric="eval/loss", mode="min")
        for step, row in enumerate(healthy[:at], 1):
            verdict = gate.observe(step, {**row, "loss": float("nan")} if step == at else row)
        if not (verdict.stopped and verdict.row == at):
            wrong.append(f"NaN at row {at}: {verdict.decision.value} at row {verdict.row} ({verdict.rule})")
    return plants - len(wrong), plants, wrong


def run_timed(command: Sequence[str | Path], cwd: Path) -> float:
    """Run a command to its end and return its CPU seconds, user and system; exit code 2 is a failure."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 3):
        raise SystemExit(
            f"{' '.join(map(str, command))} exited {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def alternate(pair: Sequence[Callable[[], float]], repeats: int) -> tuple[float, float, float]:
    """Let the two take turns; return both medians and the median ratio."""
    times = [(pair[0](), pair[1]()) for _ in range(repeats)]
    ours, theirs = (statistics.median(side) for side in zip(*times, strict=True))
    return ours, theirs, statistics.median(a / b for a, b in times)


def write_log(path: Path, rows: int) -> Path:
    """Write a healthy run as JSON Lines."""
    with path.open("w") as file:
        for step, row in enumerate(make_rows(rows), 1):
            file.write(json.dumps({"step": step, **row}) + "\n")
    return path


def gatekeeper_command() -> Path:
    """Return the installed console script of this environment."""
    command = Path(sys.executable).with_name("gatekeeper")
    if not command.exists():
        raise SystemExit(f"no `gatekeeper` beside {sys.executable}: install the project there first")
    return command


def log_line(folder: Path, quick: bool) -> Line:
    """Judge a long log from its file, beside losslint."""
    log = write_log(folder / "long.jsonl", 100_000)
    ours: list[str | Path] = [gatekeeper_command(), "check", log]
    theirs: list[str | Path] = [peer_command("losslint"), "check", log]
    sides = (lambda: run_timed(ours, folder), lambda: run_timed(theirs, folder))
    mine, other, ratio = alternate(sides, 3 if quick else 7)
    what = "`gatekeeper check`, 100,000-row JSONL, 6 metrics"
    return Line(what, f"losslint {PEERS['losslint']} `check`", f"{mine:.2f} s", f"{other:.2f} s", ratio, 1.0)


def cold_line(folder: Path, quick: bool) -> Line:
    """Judge a short log in a new process, beside the import of numpy and click alone."""
    log = write_log(folder / "short.jsonl", 1_000)
    ours: list[str | Path] = [gatekeeper_command(), "check", log]
    theirs: list[str | Path] = [sys.executable, "-c", "import numpy, click"]
    sides = (lambda: run_timed(ours, folder), lambda: run_timed(theirs, folder))
    mine, other, ratio = alternate(sides, 5 if quick else 21)
    what = "`gatekeeper check`, 1,000-row log, new process"
    against = '`python -c "import numpy, click"`'
    return Line(what, against, f"{mine * 1e3:.0f} ms", f"{other * 1e3:.0f} ms", ratio, 2.0)


def describe() -> str:
    """Name the machine and the versions."""
    import ray

    parts: dict[str, Any] = {
        "Python": platform.python_version(),
        "numpy": np.__version__,
        "Ray": ray.__version__,
    }
    versions = ", ".join(f"{name} {version}" for name, version in parts.items())
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {versions}; CPU time, medians."


def main() -> int:
    """Run the benchmark; return 1 when a target is missed or a planted NaN is not seen at its row."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--only", choices=("observe", "log", "cold"))
    options = parser.parse_args()
    lines: list[Line] = []
    wrong: list[str] = []
    notes = []
    if options.only in (None, "observe"):
        lines += observe_lines(options.quick)
        seen, planted, wrong = planted_nans()
        notes.append(f"A NaN planted at a random row: STOP at exactly that row in {seen} of {planted} runs.")
        notes += [f"- {line}" for line in wrong]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only in (None, "log"):
            lines.append(log_line(folder, options.quick))
        if options.only in (None, "cold"):
            lines.append(cold_line(folder, options.quick))
    print("| what | against | ours | theirs | ratio | to reach |\n|---|---|---|---|---|---|")
    print("\n".join(line.markdown() for line in lines))
    print("\n" + "\n".join([*notes, describe()]))
    return int(bool(wrong) or any(line.ratio > line.target for line in lines))


if __name__ == "__main__":
    sys.exit(main())
