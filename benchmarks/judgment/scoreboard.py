"""Scores every policy on the same runs, by the same rules, in one Markdown table."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from judgment.logs import Run
from judgment.policies import ALONE, TOGETHER, objective_so_far


@dataclass(frozen=True)
class Answer:
    """What a policy made of one run: its last decision, and the row of its STOP (None where it has none)."""

    decision: str
    row: int | None = None
    rule: str | None = None


Answers = list[Answer | None]  # in manifest order; None where the policy does not apply


def gate_answers(manifest: Path, *options: str) -> Answers:
    """Replay the manifest through ``gatekeeper backtest``."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("gatekeeper"),
        "backtest",
        manifest,
        "--format",
        "json",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    verdicts = [line for line in lines if line["schema"].startswith("gatekeeper.verdict/")]
    if not verdicts:
        raise SystemExit(
            f"gatekeeper backtest gave no verdicts (exit {done.returncode}): {done.stderr[-1000:]}"
        )
    return [Answer(v["decision"], v.get("row"), v.get("rule")) for v in verdicts]


def policy_answers(runs: Sequence[Run]) -> dict[str, Answers]:
    """Return the answers of the re-expressed policies."""
    answers: dict[str, Answers] = {}
    for name, policy in ALONE.items():
        rows = [policy(run) for run in runs]
        answers[name] = [Answer("CONTINUE" if row is None else "STOP", row) for row in rows]
    sweeps: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.line["sweep"]:
            sweeps[run.line["sweep"]].append(run)
    for name, rule in TOGETHER.items():
        stops: dict[str, int | None] = {}
        for trials in sweeps.values():
            stops.update(rule(trials))
        answers[name] = [
            Answer("CONTINUE" if stops[str(run.path)] is None else "STOP", stops[str(run.path)])
            if str(run.path) in stops
            else None
            for run in runs
        ]
    return answers


def share(part: int, whole: int) -> str:
    return f"{part}/{whole}" if whole else "-"


def too_early(run: Run, answer: Answer) -> bool:
    """Whether a STOP came so long before the first bad row (5 rows and 2% of the run) that it was luck."""
    bad = run.first_bad_row
    return answer.row is not None and bad is not None and answer.row < bad - max(5, 0.02 * len(run.rows))


def hurt(run: Run, answer: Answer) -> bool:
    """Whether a sound run was stopped before it had 95% of what it gained in the end."""
    if answer.row is None:
        return False
    first = next((v for _, v in run.objective if math.isfinite(v)), math.nan)
    final = objective_so_far(run.objective, len(run.rows))
    return objective_so_far(run.objective, answer.row) > final + 0.05 * (first - final)


def score(runs: Sequence[Run], answers: Answers) -> list[str]:
    """Return one policy's cells, in the order of ``HEADER``."""
    count: Counter[str] = Counter()
    delays = []
    sizes = Counter(run.line["sweep"] for run in runs)
    live = False
    for run, answer in zip(runs, answers, strict=True):
        if answer is None:
            continue
        stopped = answer.decision == "STOP"
        live |= answer.row is not None
        count[run.expected] += 1
        if run.expected == "stop":
            bad, last = run.first_bad_row or 1, len(run.rows)
            caught = stopped and not too_early(run, answer)
            count["caught"] += caught
            count["waste"] += last - bad
            if caught and answer.row is not None:
                delays.append(max(0, answer.row - bad))
                count["spared"] += last - max(bad, answer.row)
        elif run.expected == "continue":
            count["false"] += stopped
            count["hurt"] += stopped and hurt(run, answer)
            count["quiet"] += answer.decision == "CONTINUE"
        elif run.expected == "flag":
            count["flagged"] += answer.decision != "CONTINUE"
        upper = run.rank is not None and run.rank <= sizes[run.line["sweep"]] / 2
        if upper and run.expected != "stop":  # where most trials broke, the upper half holds broken ones
            count["better"] += 1
            count["better_lost"] += stopped
        if run.rank == 1:
            count["best"] += 1
            count["best_lost"] += stopped
    return [
        share(count["caught"], count["stop"]),
        share(count["false"], count["continue"]),
        str(count["hurt"]) if live else "-",
        share(count["flagged"], count["flag"]),
        share(count["quiet"], count["continue"]),
        f"{count['spared'] / count['waste']:.0%}" if live and count["waste"] else "-",
        f"{statistics.median(delays):g}" if delays else "-",
        share(count["better_lost"], count["better"]),
        share(count["best_lost"], count["best"]),
    ]


HEADER = (
    "| policy | caught | false | hurt | flagged | quiet | saved | delay "
    "| better half lost | best trial lost |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def table(runs: Sequence[Run], answers: dict[str, Answers]) -> str:
    """Return the scoreboard as Markdown."""
    lines = [HEADER]
    lines += [f"| {name} | {' | '.join(score(runs, each))} |" for name, each in answers.items()]
    return "\n".join(lines)


def misses(runs: Sequence[Run], answers: Answers) -> list[str]:
    """Return one line per run that the gate got wrong."""
    lines = []
    for run, answer in zip(runs, answers, strict=True):
        if answer is None:
            continue
        early = run.expected == "stop" and answer.decision == "STOP" and too_early(run, answer)
        wrong = {
            "stop": "early" if early else "missed" if answer.decision != "STOP" else "",
            "continue": {"STOP": "false", "WAIT": "loud"}.get(answer.decision, ""),
            "flag": "unflagged" if answer.decision == "CONTINUE" else "",
        }.get(run.expected, "")
        if wrong:
            where = f"row {answer.row} of {len(run.rows)}, first bad {run.first_bad_row}"
            lines.append(
                f"{wrong}: {run.line['label']} {run.path}: {answer.decision} by {answer.rule}, {where}"
            )
    return sorted(lines)
