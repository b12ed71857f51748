"""The note itself: everything about one stop that someone needs to understand it later."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gatekeeper import strictjson
from gatekeeper.redact import redact, redact_text
from gatekeeper.text import shorten

if TYPE_CHECKING:
    from gatekeeper.gate import Gate
    from gatekeeper.verdict import Verdict

__all__ = ["SCHEMA", "now", "stop_note"]

SCHEMA = "gatekeeper.note/1"

_CURVES = 4  # metrics shown with their points before the stop …
_POINTS = 8  # … and how many points
_FINDINGS = 20
_METRICS = 64
_TEXT = 2000
_CONFIG_CHARACTERS = 50_000


def now() -> str:
    """Return the present time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def stop_note(
    verdict: Verdict,
    *,
    gate: Gate | None = None,
    source: object = None,
    run_id: object = None,
    run_name: object = None,
    run_url: object = None,
    sweep: object = None,
    experiment: object = None,
    config: object = None,
    rows_used: float | None = None,
    rows_saved: float | None = None,
    seconds_used: float | None = None,
    seconds_saved: float | None = None,
    last_finite_checkpoint: object = None,
    extra: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """Return the note of a stop as a strict-JSON object, secrets redacted.

    ``gate`` adds the points before the stop, the last finite row and the rows used; ``source`` is a reader or
    its name; ``config`` any nesting of containers. Times are in seconds. What is unknown stays None.
    """
    roles = dict(verdict.roles)
    metrics = dict(list(verdict.metrics.items())[:_METRICS])
    last_finite = _attempt(gate.last_finite) if gate is not None else None
    if rows_used is None:
        rows_used = gate.rows if gate is not None else verdict.row
    note: dict[str, Any] = {
        "schema": SCHEMA,
        "event": "stop",
        "id": secrets.token_hex(8),
        "when": now(),
        "run_id": _text(run_id),
        "run_name": _text(run_name),
        "run_url": _url(run_url if run_url is not None else getattr(source, "run_url", None)),
        "sweep": _text(sweep),
        "experiment": _text(experiment),
        "source": _text(getattr(source, "name", source)),
        "decision": verdict.decision.value,
        "judgment": verdict.judgment.value if verdict.judgment else None,
        "rule": verdict.rule,
        "reason": _text(verdict.reason),
        "decided_by": _text(verdict.decided_by),
        "next": _text(verdict.advice) or "",
        "step": verdict.step,
        "row": verdict.row,
        "metrics": metrics,
        "roles": roles,
        "before": _before(verdict, gate),
        "findings": [finding.to_json() for finding in list(verdict.findings)[:_FINDINGS]],
        "rows_used": rows_used,
        "rows_saved": rows_saved,
        "seconds_used": seconds_used,
        "seconds_saved": seconds_saved,
        "last_finite": {"row": last_finite[0], "step": last_finite[1]} if last_finite else None,
        "last_finite_checkpoint": _text(last_finite_checkpoint),
        "config": _config(config),
    }
    if extra:
        note["extra"] = redact(extra, limit=_CONFIG_CHARACTERS)
    finite: dict[str, Any] = strictjson.finite(redact(note))
    return finite


def _before(verdict: Verdict, gate: Gate | None) -> dict[str, list[dict[str, Any]]]:
    """Return the last points of the metrics that the verdict speaks of, those of its rule first."""
    if gate is None:
        return {}
    named = [finding.metric for finding in verdict.findings if finding.metric]
    own = [finding.metric for finding in verdict.findings if finding.metric and finding.rule == verdict.rule]
    keys = list(dict.fromkeys([*own, *verdict.roles.values(), *named]))[:_CURVES]
    curves = {key: list(_attempt(gate.curve, key) or ())[-_POINTS:] for key in keys}
    return {
        key: [
            {"row": point.row, "step": point.step, "mean": point.mean, "low": point.low, "high": point.high}
            for point in points
        ]
        for key, points in curves.items()
        if points
    }


def _attempt(call: Callable[..., Any], *arguments: object) -> Any:
    """Return what ``call`` answers, None if it raises: a poorer note is better than none."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - see above
        return None


def _text(value: object) -> str | None:
    return None if value is None else _plain(value)


def _url(value: object) -> str | None:
    return _plain(value) if value else None


def _plain(value: object) -> str:
    text: str = _attempt(str, value) or ""
    return shorten(redact_text(text[: 2 * _TEXT]), _TEXT)


def _config(config: object) -> Any:
    found = redact(config, limit=_CONFIG_CHARACTERS)
    if isinstance(found, dict):
        found.pop("_wandb", None)  # what the SDK notes about itself
    return found
