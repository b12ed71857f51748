"""``gatekeeper check``: judge logs and runs as they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from gatekeeper.cli.options import Objective, PositiveNumber, deadline_option, with_objective
from gatekeeper.cli.output import complain, say, unicode_output
from gatekeeper.cli.progress import progress
from gatekeeper.config import Settings
from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.judging import Judged, judge_source
from gatekeeper.redact import redact_text
from gatekeeper.report import RunReport
from gatekeeper.report.record import verdict_record
from gatekeeper.report.terminal import clean, run_text
from gatekeeper.sources import SourceOptions, open_with_fallback

__all__ = ["command"]

FORMATS = ("text", "json", "github", "markdown", "junit")
EXIT_CODES = {"STOP": 1, "ERROR": 2, "WAIT": 3}  # of several sources the first of these that was answered


@click.command("check", short_help="Judge logs and runs: STOP, CONTINUE or WAIT, with evidence.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@with_objective
@click.option("--budget-steps", type=PositiveNumber(), metavar="N", help="Steps the run is planned for.")
@click.option(
    "--fallback",
    multiple=True,
    metavar="SOURCE",
    help="Read this where SOURCE is unreachable (one SOURCE only; repeatable, in order).",
)
@deadline_option
@click.option(
    "--notes",
    "notes_path",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a note of each STOP to this directory.",
)
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print."
)
@click.option("--exit-zero", is_flag=True, help="Exit 0 also for STOP and WAIT: for reports.")
def command(
    *,
    sources: tuple[str, ...],
    objective: Objective,
    budget_steps: float | None,
    fallback: tuple[str, ...],
    deadline: float,
    notes_path: Path | None,
    form: str,
    exit_zero: bool,
) -> int:
    """Judge each SOURCE from its first row, as if live.

    SOURCE is a log file (.gz too), a directory of logs, - for standard input, a W&B run
    (entity/project/run_id or its URL), or ssh://[user@]host/path.

    Exit codes: 0 CONTINUE, 1 STOP, 2 wrong usage or an unreadable source, 3 WAIT (too little evidence, or
    unreachable); of several sources 1 before 2 before 3 before 0.
    """
    settings = objective.settings()
    if budget_steps is not None:
        settings = replace(settings, budget_steps=budget_steps)
    chain = fallback or settings.fallback
    if chain and len(sources) > 1:
        raise click.UsageError("--fallback goes with one SOURCE, since it is another way to the same run")
    reports: list[RunReport] = []
    for judged in _judged(sources, chain, SourceOptions(deadline_s=deadline), settings):
        _warn(judged)
        reports.append(_report(judged, notes_path, settings))
        _print(reports, form)
    _finish(reports, form)
    decisions = {report.record["decision"] for report in reports}
    if exit_zero:
        decisions -= {"STOP", "WAIT"}
    return next((code for decision, code in EXIT_CODES.items() if decision in decisions), 0)


def _judged(
    specs: Iterable[str], chain: Sequence[str], options: SourceOptions, settings: Settings
) -> Iterator[Judged]:
    """Judge one source after the other; one that cannot be opened is answered in its place."""
    for spec in specs:
        gate = Gate(config=settings)
        try:
            sources = open_with_fallback(spec, chain, options=options)
        except GatekeeperError as fault:
            yield Judged(spec, gate, reachable=not isinstance(fault, Unreachable), error=str(fault))
            continue
        for source in sources:
            gate = Gate(config=settings)
            with progress(partial(_so_far, source.name, gate)):
                judged = judge_source(source, gate)
            yield judged


def _so_far(name: str, gate: Gate) -> str:
    return f"{clean(name, 60)}: {gate.rows:,} rows judged"


def _warn(judged: Judged) -> None:
    """Say on standard error what would be missed in the report of another format."""
    if judged.error is not None and judged.reachable:
        complain("error", judged.error)
    elif judged.error is None:
        for sentence in judged.warnings():
            complain("warning", sentence)


def _report(judged: Judged, notes_path: Path | None, settings: Settings) -> RunReport:
    name = judged.charted()
    note = None
    if notes_path is not None and judged.gate.verdict.stopped:
        note = _note(judged, notes_path, settings)
    curve = judged.gate.curve(name) if name else ()
    return RunReport(verdict_record(judged), curve, redact_text(name) if name else None, note)


def _note(judged: Judged, directory: Path, settings: Settings) -> Path | None:
    from gatekeeper.notes import Journal, notes_dir, stop_note

    row = judged.gate.verdict.row
    note = stop_note(
        judged.gate.verdict,
        gate=judged.gate,
        source=judged.source,
        run_url=judged.run_url,
        rows_used=row,
        rows_saved=judged.rows - row,
    )
    try:
        journal = Journal(notes_dir(directory, settings))
        journal.append(note)
    except (OSError, GatekeeperError) as fault:  # the verdict stands
        whole = isinstance(fault, GatekeeperError)
        complain("error", str(fault) if whole else f"cannot write a note to {directory}: {fault}")
        return None
    return journal.path


def _print(reports: Sequence[RunReport], form: str) -> None:
    """Print the latest report if the format needs no other; as text, an error is on standard error."""
    report = reports[-1]
    if form == "json":
        from gatekeeper.strictjson import dumps

        say(dumps(report.record, ascii_only=True))
    elif form == "text" and report.record["decision"] != "ERROR":
        first = all(earlier.record["decision"] == "ERROR" for earlier in reports[:-1])
        say(("" if first else "\n") + run_text(report, unicode=unicode_output()))


def _finish(reports: Sequence[RunReport], form: str) -> None:
    if form == "text" and len(reports) > 1:
        decisions = [report.record["decision"] for report in reports]
        counts = (f"{decisions.count(name)} {name}" for name in dict.fromkeys(decisions))
        say(f"\n{len(reports)} sources: {', '.join(counts)}")
    elif form == "github":
        from gatekeeper.report.github import write_github

        say(write_github(reports), nl=False)
    elif form == "markdown":
        from gatekeeper.report.markdown import markdown_report

        say(markdown_report(reports), nl=False)
    elif form == "junit":
        from gatekeeper.report.junit import junit_xml

        say(junit_xml(reports), nl=False)
