"""Logs that are one JSON document: HF's trainer_state.json, a Keras ``History``, a list of rows.

Such a document is read whole (memory grows with it) and again when it has changed; the rows already seen are
passed over. One that is still being written is read as far as it is complete.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gatekeeper.errors import SourceError
from gatekeeper.metrics import flatten, to_float
from gatekeeper.sources.base import Row, Skips, make_row
from gatekeeper.sources.steps import choose_step_key, step_value

__all__ = ["document_rows", "looks_like_document"]

_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_SPACE = re.compile(r"[\s,]*")


def looks_like_document(name: str, head: bytes) -> bool:
    """Say whether a file is one JSON document rather than a document a line."""
    lower = name.lower().removesuffix(".gz")
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    if lower.endswith("trainer_state.json"):
        return text.startswith("{")
    if text.startswith("["):
        return text[1:].lstrip().startswith(("{", "]")) or lower.endswith(".json")
    if not text.startswith("{"):
        return False
    first = text.split("\n", 1)[0]
    if _HISTORY.search(text):
        return True
    try:
        document = json.loads(first)
    except (ValueError, RecursionError):
        # An object that does not end on its line is pretty-printed, or a long line seen in part.
        return first.strip() == "{" or bool(re.match(r'\{\s*"[^"]+"\s*:\s*[\[{]', first) and "}" not in first)
    return isinstance(document, dict) and _is_history(document)


def document_rows(name: str, text: str, skips: Skips, step_key: str | None = None) -> Iterator[Row]:
    """Yield the rows of a document, as far as it is complete.

    Raises:
        SourceError: It is no log.

    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        yield from _partial(name, text, skips, step_key)
        return
    if isinstance(document, dict) and isinstance(document.get("log_history"), list):
        yield from _hf_entries(document["log_history"], skips, step_key)
        return
    if isinstance(document, dict) and isinstance(document.get("history"), (dict, list)):
        document = document["history"]
    if isinstance(document, list):
        yield from _entries(document, skips, step_key)
    elif isinstance(document, dict) and _is_history(document):
        yield from _columns(document, step_key)
    elif isinstance(document, dict):
        metrics = _numbers(flatten(document))
        if metrics:
            yield _entry(metrics, step_key)
    else:
        raise SourceError(f"{name} is JSON but no metrics log: give JSON Lines, a History or a trainer state")


def _is_history(document: Mapping[str, Any]) -> bool:
    """Say whether a document is a dict of columns, as Keras' History.history is."""
    columns = [value for value in document.values() if isinstance(value, list)]
    return bool(columns) and len(columns) * 2 >= len(document) and any(map(_is_numeric, columns))


def _is_numeric(column: list[Any]) -> bool:
    return bool(column) and all(item is None or to_float(item) is not None for item in column[:20])


def _columns(document: Mapping[str, Any], step_key: str | None) -> Iterator[Row]:
    columns = {
        key: value for key, value in document.items() if isinstance(value, list) and _is_numeric(value)
    }
    key = step_key if step_key in columns else choose_step_key(columns)
    for index in range(max(map(len, columns.values()), default=0)):
        metrics: dict[str, object] = {
            name: values[index] for name, values in columns.items() if index < len(values)
        }
        step = step_value(metrics.pop(key, None)) if key is not None else float(index)
        yield make_row(step, metrics)


def _entries(entries: list[Any], skips: Skips, step_key: str | None) -> Iterator[Row]:
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, dict):
            yield _entry(_numbers(flatten(entry)), step_key)
        else:
            skips.add(f"entry {number}", str(entry))


def _hf_entries(entries: list[Any], skips: Skips, step_key: str | None, first: int = 0) -> Iterator[Row]:
    """Yield the rows of a log_history; an entry without a step (predictions) has its index as step."""
    key = step_key or "step"
    for index, entry in enumerate(entries, first):
        if isinstance(entry, dict):
            metrics = _numbers(flatten(entry))
            step = step_value(metrics.pop(key, None))
            yield make_row(float(index) if step is None else step, metrics)
        else:
            skips.add(f"entry {index + 1}", str(entry))


def _entry(metrics: dict[str, object], step_key: str | None) -> Row:
    key = step_key if step_key in metrics else choose_step_key(metrics)
    step = step_value(metrics.pop(key)) if key is not None else None
    return make_row(step, metrics)


def _numbers(metrics: Mapping[str, object]) -> dict[str, object]:
    """Leave out texts that are no numbers ("59h:30m") and lists; null stays, as the sign that it is."""
    return {
        key: value
        for key, value in metrics.items()
        if value is None or (not isinstance(value, list) and to_float(value) is not None)
    }


def _partial(name: str, text: str, skips: Skips, step_key: str | None) -> Iterator[Row]:
    """Yield the complete entries of a document that is cut off."""
    match = _HISTORY.search(text)
    at = match.end() if match else text.find("[") + 1
    if not match and not text.lstrip("\ufeff \t\r\n").startswith("["):
        raise SourceError(
            f"{name} is incomplete or damaged JSON: wait until it is written, or give another log of this run"
        )
    decoder = json.JSONDecoder()
    index = 0
    while True:
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at >= len(text) or text[at] == "]":
            return
        try:
            entry, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return  # the entry that is being written
        if match:
            yield from _hf_entries([entry], skips, step_key, index)
        else:
            yield from _entries([entry], skips, step_key)
        index += 1
