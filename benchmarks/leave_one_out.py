"""Leave one source out: how the gate does on each source of a labelled manifest, and on all the others.

    python benchmarks/leave_one_out.py MANIFEST.csv [--config gatekeeper.toml]... [--auto]

A source is what stands before the first "/" of the column ``group``. With one configuration (or none: the
defaults) the table shows each source beside the rest. With several, each source is judged by the
configuration that did best on all the *other* sources (fewest false, then most caught, flagged, quiet), and
the last line sums those: what choosing among them on known sources is worth on an unknown one.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

Line = dict[str, str]
COLUMNS = ("caught", "false", "flagged", "quiet")


def verdicts(manifest: Path, config: Path | None) -> list[dict[str, object]]:
    """Replay a manifest through ``gatekeeper backtest`` and return its verdicts in order."""
    command: list[str | Path] = [Path(sys.executable).with_name("gatekeeper"), "backtest", manifest]
    command += ["--format", "json", *(("--config", config) if config else ())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = [each for each in objects if str(each.get("schema")).startswith("gatekeeper.verdict/")]
    if not found:
        raise SystemExit(
            f"gatekeeper backtest gave no verdicts (exit {done.returncode}): {done.stderr[-1000:]}"
        )
    return found


def tally(line: Line, verdict: dict[str, object], rows_of_luck: float = 0.02) -> Counter[str]:
    """Return what one run adds to the figures: its kind, and whether the gate was right."""
    decision, expected = verdict["decision"], line["expected"]
    out = Counter({expected: 1} if expected else {})
    if expected == "stop" and decision == "STOP":
        bad = int(line.get("fair_row") or line.get("first_bad_row") or 0)
        slack = max(5.0, rows_of_luck * float(str(verdict.get("rows") or 1)))
        out["caught"] += float(str(verdict["row"])) >= bad - slack
    out["false"] += expected == "continue" and decision == "STOP"
    out["quiet"] += expected == "continue" and decision == "CONTINUE"
    out["flagged"] += expected == "flag" and decision in ("STOP", "WAIT")
    return out


def merit(figures: Counter[str]) -> tuple[int, int, int, int]:
    """Return what makes one configuration better than another."""
    return (-figures["false"], figures["caught"], figures["flagged"], figures["quiet"])


def total(parts: Iterable[Counter[str]]) -> Counter[str]:
    return sum(parts, Counter())


def cells(figures: Counter[str]) -> list[str]:
    """Return the four figures, each with what it is out of."""
    out_of = {"caught": "stop", "false": "continue", "flagged": "flag", "quiet": "continue"}
    return [
        f"{figures[column]}/{figures[out_of[column]]}" if figures[out_of[column]] else "-"
        for column in COLUMNS
    ]


def table(by_source: dict[str, list[Counter[str]]], names: Sequence[str]) -> list[str]:
    """Return the Markdown table: ``by_source[source][k]`` are the figures of configuration ``k``."""
    several = len(names) > 1
    head = [
        "source",
        *(["chosen on the others"] if several else []),
        *COLUMNS,
        *(f"others: {c}" for c in COLUMNS),
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    left_out = []
    for source, figures in sorted(by_source.items()):
        others = [total(f[k] for s, f in by_source.items() if s != source) for k in range(len(names))]
        best = max(range(len(names)), key=lambda k: merit(others[k]))
        left_out.append(figures[best])
        row = [source, *([names[best]] if several else []), *cells(figures[best]), *cells(others[best])]
        lines.append(f"| {' | '.join(row)} |")
    row = [
        "all, each left out once",
        *([""] if several else []),
        *cells(total(left_out)),
        *[""] * len(COLUMNS),
    ]
    lines.append(f"| {' | '.join(row)} |")
    if several:
        for k, name in enumerate(names):
            row = [
                f"all, by {name}",
                "",
                *cells(total(f[k] for f in by_source.values())),
                *[""] * len(COLUMNS),
            ]
            lines.append(f"| {' | '.join(row)} |")
    return lines


def hide_names(manifest: Path, lines: Sequence[Line]) -> Path:
    """Write the manifest again, without metric, mode and roles, in a temporary file."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False, newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        for line in lines:
            source = str(manifest.parent.resolve() / line["source"])
            writer.writerow({**line, "source": source, "metric": "", "mode": "", "roles": ""})
    return Path(file.name)


def main() -> int:
    """Print the table."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--config", type=Path, action="append", default=[], help="may be given several times")
    parser.add_argument("--auto", action="store_true", help="hide the declared names and directions")
    options = parser.parse_args()
    with options.manifest.open(newline="") as file:
        lines = list(csv.DictReader(file))
    manifest = hide_names(options.manifest, lines) if options.auto else options.manifest
    configs: list[Path | None] = options.config or [None]
    by_source: dict[str, list[Counter[str]]] = defaultdict(lambda: [Counter() for _ in configs])
    try:
        for k, config in enumerate(configs):
            for line, verdict in zip(lines, verdicts(manifest, config), strict=True):
                by_source[line["group"].split("/")[0]][k].update(tally(line, verdict))
    finally:
        if options.auto:
            manifest.unlink()
    names = [config.name if config else "defaults" for config in configs]
    print("\n".join(table(by_source, names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
