"""The contract's JSON: one verdict object a source."""

from __future__ import annotations

from typing import Any

from gatekeeper.interval import FIRST_S, next_interval
from gatekeeper.judging import Judged
from gatekeeper.redact import redact
from gatekeeper.strictjson import finite

__all__ = ["SCHEMA", "verdict_record"]

SCHEMA = "gatekeeper.verdict/1"


def verdict_record(judged: Judged) -> dict[str, Any]:
    """Return the verdict object: strict JSON, no secret, ``row`` and ``step`` null unless STOP.

    A source that could not be read has the decision ``ERROR`` and one that did not answer ``WAIT``, unless
    what was read of it before is a STOP.
    """
    gate = judged.gate
    verdict = gate.verdict
    stopped = verdict.stopped
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "source": judged.source,
        "run_url": judged.run_url,
        "decision": verdict.decision.value,
        "judgment": verdict.judgment.value if verdict.judgment is not None else None,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "step": verdict.step if stopped else None,
        "row": verdict.row if stopped else None,
        "rows": judged.rows,
        "metrics": verdict.metrics if stopped else gate.values(),
        "roles": dict(gate.roles),
        "findings": [finding.to_json() for finding in verdict.findings],
        "reachable": judged.reachable,
        "wait_share": round(gate.wait_share, 4),
        "next_check_s": next_interval(FIRST_S, verdict),
        "decided_by": verdict.decided_by,
        "look_next": verdict.advice,
    }
    if judged.error is not None and not stopped:
        if judged.reachable:
            record |= {"decision": "ERROR", "rule": None, "reason": judged.error, "wait_share": None}
        else:
            record |= {"decision": "WAIT", "rule": "unreachable", "reason": f"unreachable: {judged.error}"}
        record["judgment"] = None
    if judged.run_state is not None:
        record["run_state"] = judged.run_state
    if judged.skipped:
        record["skipped_lines"] = judged.skipped
        record["skipped_examples"] = list(judged.skipped_examples)
    if missing := judged.missing():
        record["missing"] = missing
    if judged.error is not None:
        record["error"] = judged.error
    safe: dict[str, Any] = redact(finite(record))
    return safe
