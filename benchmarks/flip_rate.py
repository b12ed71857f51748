"""How often does the default smoke verdict flip? Seeded repeats of a real small training, healthy and broken.

    python benchmarks/flip_rate.py            # 200 repeats of each kind, a few minutes on one core
    python benchmarks/flip_rate.py --repeats 20

Each repeat trains examples/github_smoke with a seed of its own: other data, other order, other initial
weights. A flip is a verdict other than the kind's expected one. The verdicts are those of `gatekeeper check
--smoke` with default rules, without and with the example's baseline.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gatekeeper.baseline import Baseline, load_baseline
from gatekeeper.config import Settings
from gatekeeper.gate import Gate
from gatekeeper.verdict import Verdict

EXAMPLE = Path(__file__).parents[1] / "examples" / "github_smoke"
FIRST_SEED = 1000  # the baseline's runs have the seeds from 0 on

#: kind: (fault, steps, the decisions that are right without a baseline, and with one)
KINDS = {
    "healthy": ("none", 100, {"CONTINUE"}, {"CONTINUE"}),
    "NaN": ("nan", 100, {"STOP"}, {"STOP"}),
    "diverging": ("diverging", 100, {"STOP"}, {"STOP"}),
    "frozen": ("frozen", 100, {"STOP"}, {"STOP"}),
    "shuffled labels": ("shuffled-labels", 100, {"WAIT"}, {"STOP"}),
    "shuffled labels, 30 steps": ("shuffled-labels", 30, {"WAIT"}, {"WAIT"}),
}


def trainer() -> Any:
    """Return the example's training module."""
    spec = importlib.util.spec_from_file_location("smoke_train", EXAMPLE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(log: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the log's rows."""
    for line in log.read_text().splitlines():
        row = json.loads(line)
        yield row.pop("step"), row


def judge(log: Path, baseline: Baseline | None) -> Verdict:
    """Return the last verdict of a smoke run, or its STOP."""
    gate = Gate(config=Settings(smoke=True, baseline=baseline))
    for step, metrics in rows(log):
        if gate.observe(step, metrics).stopped:
            break
    return gate.verdict


def main() -> None:
    """Train, judge, count, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--kind", choices=sorted(KINDS), help="this kind alone")
    parser.add_argument("--list-flips", action="store_true", help="print each flip's seed and reason")
    options = parser.parse_args()
    module, baseline = trainer(), load_baseline(EXAMPLE / "gatekeeper-baseline.json")
    module.print = lambda *_: None
    print("| training | baseline | expected | flips | verdicts | by |")
    print("|---|---|---|---|---|---|")
    for kind, (fault, steps, *expected) in KINDS.items():
        if options.kind not in (None, kind):
            continue
        counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        rules: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        flips: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "train.jsonl"
            for seed in range(options.first_seed, options.first_seed + options.repeats):
                module.train(log, seed=seed, steps=steps, fault=fault)
                for i, against in enumerate((None, baseline)):
                    verdict = judge(log, against)
                    counts[i][verdict.decision.value] += 1
                    rules[i][verdict.rule or "no finding"] += 1
                    if verdict.decision.value not in expected[i]:
                        flips.append(f"{kind}, seed {seed}, baseline {i}: {verdict.rule}: {verdict.reason}")
        for i, name in enumerate(("no", "yes")):
            wrong = sum(count for word, count in counts[i].items() if word not in expected[i])
            seen = ", ".join(f"{count} {word}" for word, count in counts[i].most_common())
            by = ", ".join(f"{count} {rule}" for rule, count in rules[i].most_common())
            wanted = "/".join(sorted(expected[i]))
            print(
                f"| {kind} | {name} | {wanted} | {wrong} of {options.repeats} | {seen} | {by} |", flush=True
            )
        if options.list_flips:
            print(*flips, sep="\n")


if __name__ == "__main__":
    main()
