"""The report at the end of a supervised command, in the formats of the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper import strictjson
from gatekeeper.interval import FIRST_S
from gatekeeper.judging import Judged
from gatekeeper.redact import redact_text
from gatekeeper.report import RunReport
from gatekeeper.report.record import SCHEMA, verdict_record
from gatekeeper.supervise.messages import Messages
from gatekeeper.supervise.outcome import Outcome, shell_code
from gatekeeper.verdict import CurvePoint, Decision, json_number

__all__ = ["FORMATS", "Reporter", "outcome_record"]

FORMATS = ("text", "json", "github", "markdown", "junit")
INSIDE = "the command's own process"
NOWHERE = "no metrics"


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    """Return the contract's record of what a supervised command came to, with the child's end beside it."""
    judged = _judged_here(outcome)
    record = _record(judged, outcome) if judged is not None else _told(outcome)
    if outcome.error is not None and outcome.verdict.decision is not Decision.STOP:
        # A comparison that could not be made must not read as a pass.
        record |= {"decision": "ERROR", "rule": None, "judgment": None, "error": redact_text(outcome.error)}
        record["reason"] = redact_text(outcome.verdict.reason)
    return {**record, "child_exit": shell_code(outcome.returncode)}


def _judged_here(outcome: Outcome) -> Judged | None:
    stream = outcome.stream
    if stream is None:
        return None
    return Judged(
        stream.name,
        stream.gate,
        rows=stream.gate.rows,
        run_url=stream.run_url,
        reachable=outcome.reachable,
        error=None if outcome.reachable else outcome.verdict.reason,
        skipped=stream.skipped,
        skipped_examples=tuple(stream.skipped_examples),
    )


def _record(judged: Judged, outcome: Outcome) -> dict[str, Any]:
    record = verdict_record(judged)
    if not judged.rows and outcome.reachable:
        record["reason"] = redact_text(outcome.verdict.reason)  # why there was nothing to judge
    return record


def _told(outcome: Outcome) -> dict[str, Any]:
    """Return the record of a verdict that the hook inside the child told, or of one that never came."""
    verdict = outcome.verdict
    stopped = verdict.decision is Decision.STOP
    event = outcome.told.get("verdict") if outcome.told is not None else None
    told = event if isinstance(event, dict) else {}
    return {
        "schema": SCHEMA,
        "source": INSIDE if outcome.told is not None else NOWHERE,
        "run_url": None,
        "decision": verdict.decision.value,
        "judgment": verdict.judgment.value if verdict.judgment else None,
        "rule": verdict.rule if outcome.reachable else "unreachable",
        "reason": redact_text(verdict.reason),
        "step": json_number(verdict.step) if stopped else None,
        "row": verdict.row if stopped else None,
        "rows": told.get("rows", verdict.row),
        "metrics": strictjson.finite(verdict.metrics),
        "roles": dict(verdict.roles),
        "findings": [finding.to_json() for finding in verdict.findings],
        "reachable": outcome.reachable,
        "wait_share": told.get("wait_share"),
        "next_check_s": FIRST_S,
        "decided_by": verdict.decided_by,
        "look_next": verdict.advice,
    }


class Reporter:
    """Writes the report, and shields a GitHub runner from the child's output before it."""

    def __init__(self, form: str, path: Path | None) -> None:
        self._form = form
        self._path = path
        self._shield: Any = (
            importlib.import_module("gatekeeper.report.github").Shield() if form == "github" else None
        )

    def before(self) -> None:
        """Print what comes before the child's output."""
        if self._shield is not None:
            _out(self._shield.begin)

    def after(self) -> None:
        """Print what comes after the child's output."""
        if self._shield is not None:
            _out(self._shield.end)

    def write(self, outcome: Outcome, notes_path: Path, messages: Messages) -> None:
        """Write the report to its file, or to stdout (text: to stderr, since stdout is the child's)."""
        record = outcome_record(outcome)
        judged = _judged_here(outcome)
        if judged is not None and judged.rows and judged.error is None:
            for sentence in judged.warnings():
                messages.say(f"warning: {sentence}")
        if self._form == "text" and self._path is None:
            messages.say(*_lines(outcome, record))
            return
        reports = [RunReport(record, *_curve(outcome), notes_path)]
        if self._form == "github":
            _out(_github(reports, self._path, record["child_exit"]))
            return
        text = _text(self._form, reports, outcome, record)
        if self._path is not None:
            self._path.write_text(text, encoding="utf-8")
        else:
            _out(text)


def _out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _github(reports: Sequence[RunReport], path: Path | None, child_exit: int) -> str:
    text: str = importlib.import_module("gatekeeper.report.github").write_github(
        reports, report_path=path, child_exit=child_exit
    )
    return text


def _text(form: str, reports: Sequence[RunReport], outcome: Outcome, record: dict[str, Any]) -> str:
    if form == "json":
        return strictjson.dumps(record) + "\n"
    if form == "markdown":
        text: str = importlib.import_module("gatekeeper.report.markdown").markdown_report(reports)
        return text
    if form == "junit":
        xml: str = importlib.import_module("gatekeeper.report.junit").junit_xml(reports)
        return xml
    return "".join(line + "\n" for line in _lines(outcome, record))


def _lines(outcome: Outcome, record: dict[str, Any]) -> list[str]:
    """Return verdict, sentence and end of the child for a terminal."""
    told = outcome.stream is not None or outcome.told is not None
    rows = f"{record['rows']} rows of {record['source']} judged" if told else "nothing judged"
    ended = f"the command ended with code {record['child_exit']}"
    if outcome.stopped:
        return [f"stopped by the gate: {record['rule']} ({rows}; {ended})"]
    return [f"{record['decision']}: {record['reason']} ({rows}; {ended})"]


def _curve(outcome: Outcome) -> tuple[Sequence[CurvePoint], str | None]:
    """Return the loss's history for a chart, or that of the metric which the verdict names."""
    verdict = outcome.verdict
    key = verdict.roles.get("loss") or next((item.metric for item in verdict.findings if item.metric), None)
    if outcome.stream is None or key is None:
        return (), None
    return outcome.stream.gate.curve(key), key
