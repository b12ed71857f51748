"""``gatekeeper check``: judge logs and runs as they stand."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gatekeeper.cli.options import objective_options, settings_for
from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.gate import Gate
from gatekeeper.judging import Judged, judge_source
from gatekeeper.report import RunReport
from gatekeeper.report.record import verdict_record
from gatekeeper.sources import SourceOptions, open_with_fallback

if TYPE_CHECKING:
    from gatekeeper.config import Settings

__all__ = ["command", "exit_code"]

FORMATS = ("text", "json", "github", "markdown", "junit")


@click.command("check", short_help="Judge logs and runs: STOP, CONTINUE or WAIT, with evidence.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@objective_options
@click.option("--budget-steps", type=float, metavar="N", help="Steps the run is planned for.")
@click.option("--fallback", multiple=True, metavar="SOURCE", help="Read this where SOURCE is unreachable (one SOURCE only; repeatable, in order).")
@click.option("--deadline", type=click.FloatRange(min=0.1), default=60.0, show_default=True, metavar="S", help="Seconds after which a source counts as unreachable.")
@click.option("--notes", "notes_path", type=click.Path(path_type=Path), help="Write a note of each STOP to this directory.")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True, help="How to print.")
@click.option("--exit-zero", is_flag=True, help="Exit 0 whatever the verdict: for reports.")
def command(
    *,
    sources: tuple[str, ...],
    metric: str | None,
    mode: str | None,
    roles: dict[str, str],
    config: Path | None,
    baseline: str | None,
    smoke: bool,
    budget_steps: float | None,
    fallback: tuple[str, ...],
    deadline: float,
    notes_path: Path | None,
    form: str,
    exit_zero: bool,
) -> int:
    """Judge each SOURCE from its first row, as if live.

    SOURCE is a log file (.gz too), a directory of logs, - for standard input, a W&B run (entity/project/run_id or its URL), or
    ssh://[user@]host/path.

    Exit codes: 0 CONTINUE, 1 STOP, 2 usage or unreadable, 3 WAIT or unreachable; of several the worst in the order 1, 2, 3, 0.
    """
    settings = settings_for(config, baseline, smoke)
    if budget_steps is not None:
        settings = replace(settings, budget_steps=budget_steps)
    chain = fallback or settings.fallback
    if chain and len(sources) > 1:
        raise click.UsageError("--fallback goes with one SOURCE: a chain of several would not say which run it falls back to")
    options = SourceOptions(deadline_s=deadline)

    def new_gate() -> Gate:
        return Gate(metric, mode, roles, settings)

    new_gate()  # a wrong role or rule is said before anything is read
    judged: list[Judged] = []
    reports: list[RunReport] = []
    for spec in sources:
        for outcome in _judge(spec, chain, options, new_gate):
            judged.append(outcome)
            reports.append(_report(outcome, notes_path, settings))
            if form in ("text", "json"):
                _echo(reports[-1], form, first=len(reports) == 1)
    _finish(reports, form)
    return 0 if exit_zero else exit_code(report.record["decision"] for report in reports)


def exit_code(decisions: object) -> int:
    """Return the exit code of several decisions: 1 if any STOP, else 2 for an error, else 3 for a WAIT, else 0."""
    seen = set(decisions)  # type: ignore[call-overload]
    return next((code for code, name in ((1, "STOP"), (2, "ERROR"), (3, "WAIT")) if name in seen), 0)


def _judge(spec: str, chain: tuple[str, ...], options: SourceOptions, new_gate: object) -> list[Judged]:
    make = new_gate
    try:
        found = open_with_fallback(spec, chain, options=options)
    except Unreachable as fault:
        return [Judged(spec, make(), reachable=False, error=str(fault))]  # type: ignore[operator]
    except GatekeeperError as fault:
        return [Judged(spec, make(), error=str(fault))]  # type: ignore[operator]
    return [judge_source(source, make()) for source in found]  # type: ignore[operator]


def _report(judged: Judged, notes_path: Path | None, settings: Settings) -> RunReport:
    gate = judged.gate
    shown = gate.roles.get("loss") or gate.settings.metric or next(iter(gate.roles.values()), None)
    deciding = next((finding.metric for finding in gate.verdict.findings if finding.rule == gate.verdict.rule), None)
    name = deciding if gate.verdict.stopped and deciding and len(gate.curve(deciding)) > 1 else shown
    written = _note(judged, notes_path, settings) if notes_path is not None and gate.verdict.stopped else None
    return RunReport(verdict_record(judged), gate.curve(name) if name else (), name, written)


def _note(judged: Judged, notes_path: Path, settings: Settings) -> Path:
    from gatekeeper.notes import Journal, notes_dir, stop_note

    journal = Journal(notes_dir(notes_path, settings))
    verdict = judged.gate.verdict
    journal.append(
        stop_note(
            verdict, gate=judged.gate, source=judged.source, run_url=judged.run_url, rows_used=verdict.row, rows_saved=judged.rows - verdict.row
        )
    )
    return journal.path


def _echo(report: RunReport, form: str, *, first: bool) -> None:
    if form == "json":
        from gatekeeper.strictjson import dumps

        click.echo(dumps(report.record))
        return
    from gatekeeper.report.terminal import run_text

    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower()
    click.echo(("" if first else "\n") + run_text(report, unicode="utf" in encoding))


def _finish(reports: list[RunReport], form: str) -> None:
    if form == "github":
        from gatekeeper.report.github import write_github

        click.echo(write_github(reports), nl=False)
    elif form == "markdown":
        from gatekeeper.report.markdown import markdown_report

        click.echo(markdown_report(reports))
    elif form == "junit":
        from gatekeeper.report.junit import junit_xml

        click.echo(junit_xml(reports))
