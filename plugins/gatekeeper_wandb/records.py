"""The records of a `.wandb` file that matter for judging a run, decoded from the wire."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from gatekeeper_wandb.wire import WireError, fields, signed, text, zigzag

__all__ = ["KINDS", "RunInfo", "apply_record", "history_items", "record_kind", "system_items"]

# Field numbers of wandb_internal.proto; a test holds them against the definitions of the installed SDK.
HISTORY, CONFIG, STATS, RUN, EXIT, PREEMPTING = 2, 5, 7, 17, 18, 23
KINDS = frozenset({HISTORY, CONFIG, STATS, RUN, EXIT, PREEMPTING})


@dataclass
class RunInfo:
    """What a `.wandb` file says of its run. ``config`` is as logged: redact it before it is shown."""

    entity: str = ""
    project: str = ""
    run_id: str = ""
    display_name: str = ""
    sweep_id: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    preempting: bool = False


def record_kind(record: bytes) -> tuple[int, bytes]:
    """Return which of `KINDS` a record is and its payload, or (0, b"") for any other record."""
    for number, value in fields(record):
        if number in KINDS and isinstance(value, bytes):
            return number, value
    return 0, b""


def history_items(payload: bytes) -> dict[str, Any]:
    """Return a history record as one flat dict, nested keys joined with "/"; ``_step`` is always in it.

    Raises:
        WireError: The payload is no history record.

    """
    row: dict[str, Any] = {}
    step = 0
    for number, value in fields(payload):
        if number == 1:
            key, item = _item(value)
            if key:
                row[key] = item
        elif number == 2:
            step = next((signed(inner) for at, inner in fields(_message(value)) if at == 1), 0)
    row.setdefault("_step", step)
    return row


def system_items(payload: bytes) -> dict[str, Any]:
    """Return a stats record under the names the server gives its values: ``system.gpu.0.gpu``."""
    found: dict[str, Any] = {}
    for number, value in fields(payload):
        if number == 3:
            key, item = _item(value)
            if key:
                found[f"system.{key}"] = item
    return found


def apply_record(info: RunInfo, kind: int, payload: bytes) -> None:
    """Take what a run, config, exit or preempting record says into ``info``."""
    if kind == PREEMPTING:
        info.preempting = True
    elif kind == EXIT:
        info.exit_code = next((signed(value) for number, value in fields(payload) if number == 1), 0)
    elif kind == CONFIG:
        _apply_config(info.config, payload)
    elif kind == RUN:
        names = {1: "run_id", 2: "entity", 3: "project", 8: "display_name", 12: "sweep_id"}
        for number, value in fields(payload):
            if number in names:
                setattr(info, names[number], text(value))
            elif number == 4:
                _apply_config(info.config, _message(value))


def _apply_config(config: dict[str, Any], payload: bytes) -> None:
    for number, value in fields(payload):
        if number not in (1, 2):
            continue
        key, item = _item(value)
        if key.startswith("_wandb"):
            continue
        if number == 1:
            config[key] = item
        else:
            config.pop(key, None)


def _message(value: int | float | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise WireError("expected a nested message")
    return value


def _item(value: int | float | bytes) -> tuple[str, Any]:
    """Return key and value of a HistoryItem, StatsItem or ConfigItem, in either encoding of both."""
    key, path, found = "", [], None
    for number, part in fields(_message(value)):
        if number == 1:
            key = text(part)
        elif number == 2:
            path.append(text(part))
        elif number in (8, 16):
            found = _value(_message(part))
        elif number == 4:
            found = bool(part)
        elif number == 5:
            found = zigzag(part)
        elif number == 6:
            found = part
        elif number == 7:
            found = text(part)
    return ("/".join(path) if path else key), found


def _value(encoded: bytes) -> Any:
    """Return a JSON value; NaN and Infinity come bare, as Go and Python write them."""
    try:
        if encoded.isdigit():
            return int(encoded)
        if encoded[:1] in (b"-", b"N", b"I") or encoded[:1].isdigit():
            return float(encoded)
        return json.loads(encoded)
    except ValueError:
        raise WireError("a value is no JSON") from None
