"""The contract's JSON: one verdict object a source."""

from __future__ import annotations

from typing import Any

from gatekeeper.interval import FIRST_S, next_interval
from gatekeeper.judging import Judged
from gatekeeper.redact import redact_text, redact_url
from gatekeeper.strictjson import finite
from gatekeeper.verdict import Decision

__all__ = ["SCHEMA", "verdict_record"]

SCHEMA = "gatekeeper.verdict/1"


def verdict_record(judged: Judged) -> dict[str, Any]:
    """Return the verdict object of DESIGN's contract: strict JSON, no secret, ``row`` and ``step`` null unless STOP."""
    gate = judged.gate
    verdict = gate.verdict
    decision = verdict.decision.value
    reason: str = verdict.reason
    rule = verdict.rule
    judgment = verdict.judgment.value if verdict.judgment is not None else None
    if not judged.reachable and not verdict.stopped:
        decision, rule, judgment = Decision.WAIT.value, "unreachable", None
        reason = f"unreachable: {judged.error}"
    elif judged.error is not None and not verdict.stopped:
        decision, rule, judgment, reason = "ERROR", None, None, judged.error
    stopped = verdict.stopped
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "source": redact_text(judged.source),
        "run_url": redact_url(judged.run_url) if judged.run_url else None,
        "decision": decision,
        "judgment": judgment,
        "rule": rule,
        "reason": redact_text(reason),
        "step": verdict.step if stopped else None,
        "row": verdict.row if stopped else None,
        "rows": judged.rows,
        "metrics": finite(verdict.metrics if stopped else gate.values()),
        "roles": dict(gate.roles),
        "findings": [finding.to_json() for finding in verdict.findings],
        "reachable": judged.reachable,
        "wait_share": round(gate.wait_share, 4),
        "next_check_s": next_interval(FIRST_S, verdict),
        "decided_by": verdict.decided_by,
        "look_next": verdict.advice,
    }
    if judged.run_state is not None:
        record["run_state"] = judged.run_state
    if judged.skipped:
        record["skipped_lines"] = judged.skipped
        record["skipped_examples"] = [redact_text(example) for example in judged.skipped_examples]
    if judged.error is not None:
        record["error"] = redact_text(judged.error)
    return record
