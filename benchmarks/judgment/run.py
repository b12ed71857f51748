"""The judgment benchmark: train the suite, label it by outcome, score the gate and what people use instead.

    python benchmarks/judgment/run.py [--out DIR] [--peers] [--misses] [--reuse]

Prints one Markdown table. The logs and ``manifest.csv`` stay in DIR (``build/judgment`` unless told
otherwise), so that ``gatekeeper backtest DIR/manifest.csv`` can be run on them. ``--peers`` adds the log
readers from PyPI.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that this file can be run by its path

from judgment.generate import generate
from judgment.logs import read_manifest
from judgment.scoreboard import Answer, Answers, gate_answers, misses, policy_answers, table
from judgment.suite import all_specs

DEFAULT_OUT = Path(__file__).resolve().parents[2] / "build" / "judgment"
LEGEND = """\
caught: NaN and diverged runs stopped, not long before they went bad. false: runs that ended well and were
stopped; hurt: those of them that had less than 95% of their final gain. flagged: never learned, lost,
overfitted, overestimating: last decision not CONTINUE. quiet: runs that ended well, last decision
CONTINUE. saved: rows after the first bad one that the caught did not spend. delay: median rows from the
first bad one to the STOP. The last two columns count the trials of whole sweeps; the median rule and ASHA
are scored on these alone, and cut by rank and budget on purpose."""

FRESH = 90_000
"""Gate and labels were worked on with the seeds from 0 on; published figures come from seeds scored after."""


def main() -> int:
    """Run the benchmark and print its table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="where logs and manifest go")
    parser.add_argument("--peers", action="store_true", help="also losslint, runmedic and trainspotter")
    parser.add_argument("--reuse", action="store_true", help="score the logs that are in DIR already")
    parser.add_argument("--misses", action="store_true", help="list what the gate got wrong, on stderr")
    parser.add_argument("--auto", action="store_true", help="also the gate with names and directions hidden")
    parser.add_argument("--no-gate", action="store_true", help="the other policies alone")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--seed",
        type=int,
        default=FRESH,
        help=f"added to every run's seed (default {FRESH}; see docs/benchmarks.md)",
    )
    options = parser.parse_args()

    started = time.perf_counter()
    manifest = options.out / "manifest.csv"
    if not options.reuse:
        specs = [replace(spec, seed=spec.seed + options.seed) for spec in all_specs()]
        manifest = generate(specs, options.out, options.processes)
    runs = read_manifest(manifest)
    answers: dict[str, Answers] = {}
    if not options.no_gate:
        answers["**gatekeeper**"] = gate_answers(manifest)
        if options.auto:
            answers["gatekeeper, nothing declared"] = gate_answers(hide_names(manifest))
        if options.misses:
            for name, each in answers.items():
                print("\n".join([name, *misses(runs, each)]), file=sys.stderr)
    answers.update(policy_answers(runs))
    if options.peers:
        from judgment.readers import read_all

        for name, decisions in read_all(runs, options.processes).items():
            answers[name] = [Answer(decision) for decision in decisions]
    print(table(runs, answers))
    kinds = Counter(run.expected or "not scored" for run in runs)
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in ("stop", "continue", "flag", "not scored"))
    minutes = (time.perf_counter() - started) / 60
    print(f"\n{LEGEND}\n\n{len(runs)} runs by outcome: {counts}. {date.today()}, {minutes:.1f} minutes.")
    return 0


def hide_names(manifest: Path) -> Path:
    """Write the manifest again without metric, mode and roles."""
    import csv

    with manifest.open(newline="") as file:
        lines = list(csv.DictReader(file))
    hidden = manifest.with_name("manifest-auto.csv")
    with hidden.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows({**line, "metric": "", "mode": "", "roles": ""} for line in lines)
    return hidden


if __name__ == "__main__":
    sys.exit(main())
