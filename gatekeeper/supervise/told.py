"""Verdicts as the hook inside the child tells them: JSON from another process, taken with care."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from gatekeeper.metrics import to_float
from gatekeeper.verdict import Decision, Finding, Judgment, Verdict

__all__ = ["Told", "verdict_from_json"]


def verdict_from_json(record: object, *, fallback: Decision) -> Verdict:
    """Return the verdict that a record (the contract's, or what is there of it) describes; never raises."""
    data: Mapping[str, Any] = record if isinstance(record, Mapping) else {}
    found = data.get("findings")
    metrics = data.get("metrics")
    roles = data.get("roles")
    return Verdict(
        decision=_word(Decision, data.get("decision")) or fallback,
        judgment=_word(Judgment, data.get("judgment")),
        rule=_text(data.get("rule")),
        reason=_text(data.get("reason")) or "decided inside the command's own process",
        step=_number(data.get("step")),
        row=int(_number(data.get("row")) or 0),
        metrics={
            str(key): number
            for key, value in (metrics.items() if isinstance(metrics, Mapping) else ())
            if (number := to_float(value)) is not None
        },
        roles={str(key): str(value) for key, value in (roles.items() if isinstance(roles, Mapping) else ())},
        findings=tuple(_finding(item) for item in found if isinstance(item, Mapping))
        if isinstance(found, (list, tuple))
        else (),
        decided_by=_text(data.get("decided_by")) or "table",
        advice=_text(data.get("advice")) or "",
    )


def _finding(item: Mapping[str, Any]) -> Finding:
    return Finding(
        rule=_text(item.get("rule")) or "unnamed",
        judgment=_word(Judgment, item.get("judgment")) or Judgment.UNSURE,
        metric=_text(item.get("metric")),
        step=_number(item.get("step")),
        value=to_float(item.get("value")) if item.get("value") is not None else None,
        threshold=to_float(item.get("threshold")) if item.get("threshold") is not None else None,
        message=_text(item.get("message")) or "",
    )


def _word(kind: Any, value: object) -> Any:
    try:
        return kind(value)
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return None if value is None else str(value)[:2000]


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) and abs(value) < 2**63 else None


MAX_FAULTS = 20


class Told:
    """What has been told so far, by all of the run's processes."""

    def __init__(self) -> None:
        self.attached = False
        self.stop: Mapping[str, Any] | None = None
        self.faults: list[str] = []
        self._last: dict[object, Mapping[str, Any]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take one event."""
        kind = event["event"]
        self.attached |= kind in ("attached", "verdict", "stop")
        if kind == "fault" and len(self.faults) < MAX_FAULTS:
            self.faults.append(str(event.get("error"))[:500])
        if kind == "stop" and self.stop is None:
            self.stop = event
        elif kind == "verdict":
            self._last[event.get("run_id") or event.get("pid")] = event

    @property
    def last(self) -> Mapping[str, Any] | None:
        """The event that stands for the run: the stop, else one that waits, else the last."""
        if self.stop is not None:
            return self.stop
        events = list(self._last.values())
        waiting = [one for one in events if _decision(one) == "WAIT"]
        chosen = waiting or events
        return chosen[-1] if chosen else None

    def stopping_pid(self) -> int | None:
        """Return the process that stopped the run, where it was told and still is there."""
        pid = self.stop.get("pid") if self.stop else None
        if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1:
            return None
        try:
            os.kill(pid, 0)
        except (OSError, OverflowError):
            return None
        return pid


def _decision(event: Mapping[str, Any]) -> object:
    verdict = event.get("verdict")
    return verdict.get("decision") if isinstance(verdict, Mapping) else None
