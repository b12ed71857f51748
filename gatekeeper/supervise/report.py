"""The report at the end of a supervised command, in the formats of the command line."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gatekeeper import strictjson
from gatekeeper.report import RunReport
from gatekeeper.supervise.messages import Messages
from gatekeeper.supervise.outcome import Outcome, shell_code
from gatekeeper.verdict import CurvePoint, Decision, json_number

__all__ = ["FORMATS", "Reporter", "outcome_record"]

FORMATS = ("text", "json", "github", "markdown", "junit")
INSIDE = "the command's own process"


def outcome_record(outcome: Outcome) -> dict[str, Any]:
    """Return the contract's record of what a supervised command came to, with the child's end beside it."""
    verdict, stream = outcome.verdict, outcome.stream
    stopped = verdict.decision is Decision.STOP
    told = outcome.told.get("verdict") if outcome.told is not None and stream is None else None
    told = told if isinstance(told, dict) else {}
    gate = stream.gate if stream is not None else None
    return {
        "schema": "gatekeeper.verdict/1",
        "source": stream.name if stream is not None else INSIDE if outcome.told is not None else "output",
        "run_url": stream.run_url if stream is not None else told.get("run_url"),
        "decision": verdict.decision.value,
        "judgment": verdict.judgment.value if verdict.judgment else None,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "step": json_number(verdict.step) if stopped else None,
        "row": verdict.row if stopped else None,
        "rows": gate.rows if gate is not None else told.get("rows", verdict.row),
        "metrics": dict(verdict.metrics),
        "roles": dict(verdict.roles),
        "findings": [finding.to_json() for finding in verdict.findings],
        "reachable": True,
        "wait_share": gate.wait_share if gate is not None else told.get("wait_share"),
        "next_check_s": told.get("next_check_s"),
        "child_exit": shell_code(outcome.returncode),
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
    rows = f"{record['rows']} rows of {record['source']} judged"
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
