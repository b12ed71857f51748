"""What a gated process tells those that started it: one strict-JSON object a line, appended whole.

Two files may be asked for. ``GATEKEEPER_CONTROL`` is the supervisor's: it is told when a process's metrics
are judged inside it, and of a stop *after* the run was finished and its note written, so that the
supervisor can end the rest of a distributed job. ``GATEKEEPER_REPORT`` is the agent's: the same events from
all its trials, and how a trial failed.

``{"event": "attached", "pid": 12, "run_id": "…"}``
``{"event": "verdict", "pid": 12, "run_id": "…", "verdict": {…}}``  at the end of a run that was not stopped
``{"event": "stop", "pid": 12, "run_id": "…", "verdict": {…}}``
``{"event": "error", "pid": 12, "run_id": "…", "error": "RuntimeError: …"}``  what the process failed with
``{"event": "fault", "pid": 12, "run_id": "…", "error": "…", "count": 1}``  faults of the gate itself
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gatekeeper import strictjson
from gatekeeper.redact import redact_text
from gatekeeper.verdict import Verdict

__all__ = ["CONTROL", "REPORT", "read", "tell", "verdict_json"]

CONTROL = "GATEKEEPER_CONTROL"
REPORT = "GATEKEEPER_REPORT"
RUN_ID = "WANDB_RUN_ID"


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as strict JSON, with the contract's names."""
    told: dict[str, Any] = strictjson.finite(
        {
            "decision": verdict.decision.value,
            "judgment": verdict.judgment.value if verdict.judgment else None,
            "rule": verdict.rule,
            "reason": redact_text(verdict.reason),
            "step": verdict.step,
            "row": verdict.row,
            "metrics": dict(verdict.metrics),
            "roles": dict(verdict.roles),
            "findings": [finding.to_json() for finding in verdict.findings],
            "decided_by": verdict.decided_by,
            "advice": verdict.advice,
        }
    )
    return told


def tell(event: str, environment: Mapping[str, str] | None = None, **fields: Any) -> None:
    """Append an event to the files that the environment names. Never raises: a trial does not end for it."""
    environment = os.environ if environment is None else environment
    run_id = environment.get(RUN_ID)
    line = strictjson.dumps({"event": event, "pid": os.getpid(), "run_id": run_id, **fields}) + "\n"
    for variable in (CONTROL, REPORT):
        path = environment.get(variable)
        if not path:
            continue
        try:
            # O_APPEND and one write: lines of several processes do not mix.
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError:
            continue


def read(path: Path) -> list[dict[str, Any]]:
    """Return the events in a file; what is no event is passed over."""
    events: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return events
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            events.append(event)
    return events
