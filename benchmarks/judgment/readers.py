"""The peers that read a finished log: their errors count as STOP, their warnings as a flag."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from peer_tools import PEERS, peer_command

from judgment.logs import Run

ORDER = ("CONTINUE", "WAIT", "STOP")
SEVERITY = {"error": "STOP", "critical": "STOP", "warning": "WAIT"}


def worst(severities: Sequence[str]) -> str:
    """Return the decision that a report's findings come to."""
    return max((SEVERITY.get(s, "CONTINUE") for s in severities), key=ORDER.index, default="CONTINUE")


def output(command: Sequence[str | Path]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def severities(findings: Sequence[dict[str, Any]]) -> list[str]:
    return [finding["severity"] for finding in findings]


def losslint(path: Path) -> str:
    report = json.loads(output([peer_command("losslint"), "check", "--format", "json", path]))
    return worst(severities(report["findings"]))


def runmedic(path: Path) -> str:
    report = json.loads(output([peer_command("runmedic"), "diagnose", "--json", path]))
    return worst([severity for run in report for severity in severities(run["findings"])])


def trainspotter(path: Path) -> str:
    report = json.loads(output([peer_command("trainspotter"), "analyze", "--output", "json", path]))
    return worst(severities(report["findings"]))


READERS: dict[str, Callable[[Path], str]] = {
    "losslint": losslint,
    "runmedic": runmedic,
    "trainspotter": trainspotter,
}


def read_all(runs: Sequence[Run], processes: int = 2) -> dict[str, list[str]]:
    """Return each peer's decision on every run; a log that it cannot read counts as CONTINUE, and is told."""
    decisions = {}
    for name, reader in READERS.items():
        peer_command(name)
        unread: list[str] = []

        def decide(run: Run, reader: Callable[[Path], str] = reader, unread: list[str] = unread) -> str:
            try:
                return reader(run.path)
            except (ValueError, KeyError):
                unread.append(run.path.name)
                return "CONTINUE"

        with ThreadPoolExecutor(processes) as pool:
            title = f"{name} {PEERS[name]} (reads the finished log)"
            decisions[title] = list(pool.map(decide, runs))
        if unread:
            print(f"{name} could not read {len(unread)} logs: {', '.join(unread[:5])}", file=sys.stderr)
    return decisions
