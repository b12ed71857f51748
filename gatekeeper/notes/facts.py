"""What a note says, as labelled lines: one choice and order of facts for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["config_lines", "duration", "facts", "findings", "metrics", "number", "run_label", "title"]

Note = Mapping[str, Any]


def run_label(note: Note) -> str:
    """Return the name a person knows the run by."""
    return str(note.get("run_name") or note.get("run_id") or note.get("source") or "unnamed run")


def title(note: Note) -> str:
    """Return the headline: which run, which rule, where."""
    where = f" at step {number(note['step'])}" if note.get("step") is not None else ""
    return f"{run_label(note)}: {note.get('rule') or 'stopped'}{where}"


def facts(note: Note) -> Iterator[tuple[str, str]]:
    """Yield what is known of the stop beside its reason: label and value."""
    decided = str(note.get("decided_by") or "")
    known: list[tuple[str, object]] = [
        ("When", note.get("when")),
        ("Run id", note.get("run_id") if note.get("run_id") != run_label(note) else None),
        ("Run URL", note.get("run_url")),
        ("Sweep", note.get("sweep")),
        ("Experiment", note.get("experiment")),
        ("Source", note.get("source") if note.get("source") != run_label(note) else None),
        (
            "Decided by",
            {"table": "the judgment table", "self-review": "the self-review"}.get(decided, decided),
        ),
        ("Used", _amount(note.get("rows_used"), note.get("seconds_used"))),
        ("Saved", _amount(note.get("rows_saved"), note.get("seconds_saved"))),
        ("Last finite", _last_finite(note)),
    ]
    for key, value in _mapping(note.get("extra")).items():
        known.append((str(key).replace("_", " ").capitalize(), value))
    for label, value in known:
        if value not in (None, ""):
            yield label, str(value)


def metrics(note: Note) -> list[tuple[str, str, str]]:
    """Return each key metric with its value at the stop and those before it, oldest first."""
    earlier = _mapping(note.get("before"))
    return [
        (
            str(key),
            number(value),
            ", ".join(number(point.get("mean")) for point in _mappings(earlier.get(key))),
        )
        for key, value in _mapping(note.get("metrics")).items()
    ]


def findings(note: Note) -> list[Mapping[str, Any]]:
    """Return what the rules saw, where that is more than the reason already says."""
    found = _mappings(note.get("findings"))
    return found if len(found) > 1 else []


def config_lines(value: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield a nested configuration as dotted keys and values."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from config_lines(item, f"{prefix}.{key}" if prefix else str(key))
    elif prefix or value:
        yield prefix or "config", number(value)


def number(value: object) -> str:
    """Return a number as short as it stays meaningful; anything else as its text."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.5g}"
    return str(value)


def duration(seconds: float) -> str:
    """Return seconds as people say them: 42 s, 7 min, 3.2 h, 2.1 days."""
    for size, unit in ((86400, "days"), (3600, "h")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.3g} s"


def _amount(rows: object, seconds: object) -> str:
    parts = []
    if isinstance(rows, (int, float)):
        parts.append(f"{number(rows)} row{'' if rows == 1 else 's'}")
    if isinstance(seconds, (int, float)):
        parts.append(duration(seconds))
    return ", ".join(parts)


def _last_finite(note: Note) -> str:
    place, checkpoint = note.get("last_finite"), note.get("last_finite_checkpoint")
    parts = []
    if isinstance(place, Mapping):
        step = f" (step {number(place['step'])})" if place.get("step") is not None else ""
        parts.append(f"row {place.get('row')}{step}")
    if checkpoint:
        parts.append(f"checkpoint {checkpoint}")
    return ", ".join(parts)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
