"""The Markdown that people read in the repository: a header and a section a stop, growing at its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gatekeeper.notes.facts import config_lines, facts, findings, metrics, run_label, title
from gatekeeper.text import for_markdown, markdown_link

__all__ = ["HEADER", "document", "section"]

HEADER = """# Stopped runs

Why the gate stopped these runs, newest last. Built from `stops.jsonl`: `gatekeeper notes render` builds
it again, so changes made here are lost.
"""


def document(notes: Iterable[Mapping[str, Any]]) -> str:
    """Return the whole file."""
    return HEADER + "".join(map(section, notes))


def section(note: Mapping[str, Any]) -> str:
    """Return one stop, beginning and ending with a line break."""
    parts = [
        f"## {for_markdown(title(note))}",
        f"**{for_markdown(note.get('decision'))}**: {for_markdown(note.get('reason'))}",
    ]
    if note.get("next"):
        parts.append(f"Look at next: {for_markdown(note['next'])}")
    lines = [("Run", markdown_link(run_label(note), note.get("run_url")))]
    lines += [(label, markdown_link(value, value)) for label, value in facts(note)]
    lines.append(("Note", for_markdown(note.get("id"))))
    parts.append(_table(["", ""], [[for_markdown(label), value] for label, value in lines]))
    if values := metrics(note):
        parts.append(
            _table(["Metric", "At the stop", "Before it"], [list(map(for_markdown, row)) for row in values])
        )
    if seen := findings(note):
        rows = [
            [for_markdown(finding.get(key)) for key in ("rule", "judgment", "message")] for finding in seen
        ]
        parts.append(_table(["Rule", "Judgment", "What it saw"], rows))
    config = [[for_markdown(key), for_markdown(value)] for key, value in config_lines(note.get("config"))]
    if config:
        table = _table(["Key", "Value"], config)
        parts.append(f"<details><summary>Configuration</summary>\n\n{table}\n\n</details>")
    return "\n" + "\n\n".join(parts) + "\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
