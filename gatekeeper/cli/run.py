"""``gatekeeper run``: a training command under the gate."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

import click

from gatekeeper import notes
from gatekeeper.cli.options import objective_options, settings_for
from gatekeeper.errors import GatekeeperError
from gatekeeper.gate import Gate
from gatekeeper.supervise import Outcome, Supervisor, SupervisorOptions, exit_code
from gatekeeper.supervise.outcome import SWEEP_ID, stop_code
from gatekeeper.supervise.report import FORMATS, Reporter
from gatekeeper.supervise.supervisor import CommandError
from gatekeeper.text import for_terminal
from gatekeeper.verdict import Decision

__all__ = ["command"]


@click.command(
    "run",
    short_help="Run a training command under the gate.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--log",
    metavar="PATH",
    help="Metrics file or directory that the command writes (default: what it prints).",
)
@objective_options
@click.option(
    "--notes", "notes_path", type=click.Path(path_type=Path), help="Directory for the notes of stops."
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Seconds from SIGINT to SIGTERM when the command is stopped.",
)
@click.option(
    "--poll",
    type=click.FloatRange(min=0.05),
    default=1.0,
    show_default=True,
    help="Seconds between looks at --log.",
)
@click.option(
    "--exit-on-stop",
    type=click.IntRange(0, 255),
    metavar="CODE",
    help="Exit code when the gate stopped the command (default: 1; 0 inside a sweep agent).",
)
@click.option(
    "--verdict-exit", is_flag=True, help="Exit 3 where the command ended well but the last answer is WAIT."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="The report written at the end.",
)
@click.option(
    "--report",
    "report_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report here (default: stdout, after the command's own output; text: stderr).",
)
@click.argument("arguments", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    *,
    log: str | None,
    metric: str | None,
    mode: str | None,
    roles: dict[str, str],
    config: Path | None,
    baseline: str | None,
    smoke: bool,
    notes_path: Path | None,
    grace: float,
    poll: float,
    exit_on_stop: int | None,
    verdict_exit: bool,
    form: str,
    report_path: Path | None,
    arguments: tuple[str, ...],
) -> int:
    """Run COMMAND, judge what it logs, and stop it when the gate says STOP.

    Its output passes through unchanged. On a STOP it gets SIGINT, the time to write its rows, and then
    whatever is left of it is ended.

    Exit codes: 1 where the gate stopped it (0 inside a sweep agent), else the command's own (128 + N for a
    death by signal N, 127 not found, 126 not executable); with --verdict-exit 3 for a last WAIT; 2 for wrong
    usage.
    """
    if sys.platform == "win32":
        raise GatekeeperError(
            "gatekeeper run needs process groups and signals: use it on Linux, macOS or in WSL"
        )
    settings = settings_for(config, baseline, smoke)

    def make_gate() -> Gate:
        return Gate(metric=metric, mode=mode, roles=roles or None, config=settings)

    make_gate()  # a wrong role or rule is to be said before the training starts
    directory = notes.notes_dir(notes_path, settings)
    options = SupervisorOptions(
        log=log,
        poll_s=poll,
        grace_s=grace,
        notes=directory,
        objective={
            "GATEKEEPER_METRIC": metric,
            "GATEKEEPER_MODE": mode,
            "GATEKEEPER_ROLES": ";".join(f"{role}={key}" for role, key in roles.items()) or None,
            "GATEKEEPER_CONFIG": str(config.resolve()) if config else None,
            "GATEKEEPER_BASELINE": str(Path(baseline).resolve())
            if settings.baseline and baseline
            else baseline,
            "GATEKEEPER_SMOKE": "1" if smoke else None,
        },
    )
    reporter = Reporter(form, report_path)
    supervisor = Supervisor(arguments, make_gate, options)
    reporter.before()
    try:
        outcome = supervisor.run()
    except CommandError as fault:
        reporter.after()
        click.echo(f"gatekeeper: error: {for_terminal(fault)}", err=True)
        return fault.returncode
    reporter.after()
    code = exit_code(
        outcome.returncode,
        stopped=outcome.stopped,
        on_stop=stop_code(exit_on_stop, os.environ),
        waiting=outcome.verdict.decision is Decision.WAIT,
        verdict_exit=verdict_exit,
    )
    try:
        reporter.write(outcome, directory, supervisor.messages)
    except Exception as fault:  # noqa: BLE001 - a report that fails must not change what the command came to
        why = fault.strerror if isinstance(fault, OSError) and fault.strerror else repr(fault)
        supervisor.messages.say(
            f"the report could not be written to {report_path or 'standard output'}: {why}"
        )
    _end_as_the_child(outcome)
    return code


def _end_as_the_child(outcome: Outcome) -> None:
    """Inside a sweep agent die of the child's signal: the agent counts exit codes, not deaths by signal."""
    if outcome.stopped or outcome.returncode >= 0 or not os.environ.get(SWEEP_ID):
        return
    signum = -outcome.returncode
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with suppress(OSError, ValueError):
        signal.signal(signum, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(os.getpid(), signum)
