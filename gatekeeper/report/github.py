"""GitHub Actions: annotations, the step summary, the step's outputs, and a shield around a child's output.

Text that came from a log never becomes a workflow command: annotations are escaped, and whatever a training
prints is shown between ``::stop-commands::`` tokens that it cannot know.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from gatekeeper.report import RunReport
from gatekeeper.report._record import by_severity, decision, findings, number, place, reason, redacted
from gatekeeper.report.markdown import MAX_BYTES, markdown_report
from gatekeeper.strictjson import dumps
from gatekeeper.text import for_terminal, for_workflow_data, for_workflow_property, shorten

__all__ = ["Shield", "annotation_lines", "outputs", "shield", "summary", "write_github"]

MAX_ANNOTATIONS = 10  # of each level in a step; GitHub drops the rest
_WAIT_LEVEL = {"pass": "notice", "warn": "warning", "fail": "error"}
_MAX_MESSAGE, _MAX_TITLE = 2000, 120


def annotation_lines(reports: Sequence[RunReport], *, on_wait: str = "warn") -> str:
    """Return what to print on stdout: annotations for the worst findings, a plain line for a pass.

    ``on_wait`` is what a WAIT means for the job and so how loud it is: ``pass`` a notice, ``warn`` a warning,
    ``fail`` an error.
    """
    ordered = by_severity(redacted(reports))
    levels: dict[str, list[str]] = {"error": [], "warning": [], "notice": []}
    plain = []
    for report in ordered:
        if decision(report.record) == "CONTINUE":
            source, why = report.record.get("source"), reason(report.record)
            plain.append(for_terminal(shorten(f"gatekeeper: CONTINUE {source}: {why}", _MAX_MESSAGE)))
    for level, title, message in _worst_first(ordered, _WAIT_LEVEL.get(on_wait, "warning")):
        head = for_workflow_property(shorten(title, _MAX_TITLE))
        levels[level].append(f"::{level} title={head}::{for_workflow_data(shorten(message, _MAX_MESSAGE))}")
    return "".join(f"{line}\n" for level in levels for line in _capped(level, levels[level])) + "".join(
        f"{line}\n" for line in plain
    )


def _worst_first(reports: Sequence[RunReport], wait_level: str) -> Iterator[tuple[str, str, str]]:
    """Yield (level, title, message), every verdict first: the cap must not hide a run behind another."""
    for report in reports:
        record, word = report.record, decision(report.record)
        if word != "CONTINUE":
            level = wait_level if word == "WAIT" else "error"
            where = place(record)
            yield (
                level,
                f"gatekeeper {word}: {record.get('rule') or 'no verdict'}",
                f"{reason(record)} ({record.get('source')}{', ' + where if where else ''})",
            )
    for report in reports:
        record = report.record
        for item in findings(record):
            if item.get("judgment") == "clearly_fine" or item.get("rule") == record.get("rule"):
                continue
            bad = item.get("judgment") == "clearly_bad" and decision(record) == "STOP"
            where = f"{record.get('source')}, step {number(item.get('step')) or 'unknown'}"
            message = f"{item.get('message')} ({where})"
            yield ("error" if bad else "warning", f"gatekeeper: {item.get('rule')}", message)


def _capped(level: str, lines: list[str]) -> list[str]:
    if len(lines) <= MAX_ANNOTATIONS:
        return lines
    left_out = len(lines) - MAX_ANNOTATIONS + 1
    return [
        *lines[: MAX_ANNOTATIONS - 1],
        f"::{level} title=gatekeeper::{left_out} more are in the step summary",
    ]


def summary(reports: Sequence[RunReport], *, max_bytes: int = MAX_BYTES) -> str:
    """Return the step summary: verdict, chart and tables, in at most ``max_bytes`` of UTF-8."""
    return markdown_report(reports, max_bytes=max_bytes)


def outputs(reports: Sequence[RunReport], *, report_path: Path | str | None = None) -> str:
    """Return what goes to ``$GITHUB_OUTPUT``: decision, rule, reason, step, report of the worst run."""
    ordered = by_severity(redacted(reports))
    record = ordered[0].record if ordered else {}
    values = {
        "decision": decision(record),
        "rule": record.get("rule") or "",
        "reason": shorten(reason(record), _MAX_MESSAGE),
        "step": number(record.get("step")),
        "report": "" if report_path is None else report_path,
    }
    return "".join(_output(name, " ".join(str(value).split())) for name, value in values.items())


def _output(name: str, value: str) -> str:
    delimiter = f"gatekeeper_{secrets.token_hex(16)}"
    while delimiter in value:  # only if the random numbers are broken, but then it would matter
        delimiter = f"gatekeeper_{secrets.token_hex(16)}"
    return f"{name}<<{delimiter}\n{value}\n{delimiter}\n"


class Shield:
    """A pair of lines between which GitHub's runner takes nothing for a command.

    Print :attr:`begin` before a child's output and :attr:`end` after it, which starts a line of its own
    whatever the child left unfinished.
    """

    def __init__(self) -> None:
        token = secrets.token_hex(32)
        self.begin = f"::stop-commands::{token}\n"
        self.end = f"\n::{token}::\n"


def shield(text: str) -> str:
    """Return untrusted text as it can be printed in a job's log without issuing commands."""
    guard = Shield()
    return f"{guard.begin}{text}{guard.end}"


def write_github(
    reports: Sequence[RunReport],
    env: Mapping[str, str] = os.environ,
    report_path: Path | str | None = None,
    *,
    child_exit: int | None = None,
) -> str:
    """Write summary, outputs and report where the runner's variables say; return what to print on stdout.

    ``GITHUB_STEP_SUMMARY`` and ``GITHUB_OUTPUT`` are appended to. The report (one JSON verdict a line) goes
    to ``report_path``, by default to a new file in ``RUNNER_TEMP``. What is not set is not written; a file
    that cannot be written is a warning, since the verdict stands without it. ``child_exit`` is the code
    with which a supervised training ended; it becomes a line of the summary and the output ``child-exit``.
    ``GATEKEEPER_ON_WAIT`` (``pass``, ``warn``, ``fail``) is how loud a WAIT is.
    """
    reports, faults = redacted(reports), []
    path: Path | None = None
    try:
        path = Path(report_path) if report_path is not None else _new_report(env.get("RUNNER_TEMP"))
        if path is not None:
            lines = "".join(dumps(report.record) + "\n" for report in reports)
            path.write_text(
                lines, encoding="utf-8", errors="backslashreplace"
            )  # a lone surrogate, as in JSON
    except OSError as fault:
        faults.append(f"cannot write the report {path}: {fault.strerror}")
        path = None
    failed = f"The training command ended with code {child_exit}."
    ended = f"❌ {failed}\n\n" if _child_failed(reports, child_exit) else ""
    pieces = {
        "GITHUB_STEP_SUMMARY": lambda room: f"{ended}{summary(reports, max_bytes=room)}",
        "GITHUB_OUTPUT": lambda _: (
            outputs(reports, report_path=path)
            + (_output("child-exit", str(child_exit)) if child_exit is not None else "")
        ),
    }
    for variable, text in pieces.items():
        if target := env.get(variable):
            try:
                _append(Path(target), text)
            except OSError as fault:
                faults.append(f"cannot write {variable}: {fault.strerror}")
    warnings = [f"::warning title=gatekeeper::{for_workflow_data(fault)}\n" for fault in faults]
    on_wait = env.get("GATEKEEPER_ON_WAIT", "warn")
    lines = annotation_lines(reports, on_wait=on_wait) + "".join(warnings)
    return (f"::error title=training failed::{failed}\n" if ended else "") + lines


def _child_failed(reports: Sequence[RunReport], child_exit: int | None) -> bool:
    """Whether the training failed by itself: one that the gate stopped ends as it was told to."""
    return bool(child_exit) and all(decision(report.record) != "STOP" for report in reports)


def _new_report(folder: str | None) -> Path | None:
    if not folder:
        return None
    handle, name = tempfile.mkstemp(prefix="gatekeeper-report-", suffix=".jsonl", dir=folder)
    os.close(handle)
    return Path(name)


def _append(path: Path, text: Callable[[int], str]) -> None:
    """Append the text for the room that is left, on a line of its own whatever stands in the file already."""
    with path.open("a+b") as file:
        size = file.seek(0, os.SEEK_END)
        unfinished = False
        if size:
            file.seek(-1, os.SEEK_END)
            unfinished = file.read(1) != b"\n"
        file.write(b"\n" * unfinished + text(max(0, MAX_BYTES - size)).encode("utf-8", "replace"))
