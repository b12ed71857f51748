"""Stopping a run from outside, and looking whether it really stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.text import for_terminal

from gatekeeper_wandb.client import Client
from gatekeeper_wandb.reading import ALIVE, RunFacts, load_facts
from gatekeeper_wandb.specs import parse

__all__ = ["StopOutcome", "command", "stop_run"]

#: The SDK of a running trial asks every 15 to 45 s whether it should stop, then ends the run and uploads the
#: rest.
DEFAULT_DEADLINE_S = 120.0
_POLL_S = 2.0
_ASK_S = 60.0


@dataclass(frozen=True)
class StopOutcome:
    """What came of a request to stop.

    Attributes:
        run: entity/project/run_id.
        run_url: Its web page.
        state_before: The run's state before the request.
        state: The last state seen.
        requested: Whether the server took the request (False where the run had already ended).
        confirmed: Whether the run was seen to have ended.
        message: The outcome in one sentence.
        facts: What the server says of the run (name, sweep, config: redact before it is shown).

    """

    run: str
    run_url: str | None
    state_before: str
    state: str
    requested: bool
    confirmed: bool
    message: str
    facts: RunFacts | None = None


def stop_run(
    spec: str, deadline_s: float = DEFAULT_DEADLINE_S, *, progress: Callable[[str], None] | None = None
) -> StopOutcome:
    """Ask a run's server to stop it, and watch until it did or the deadline is over.

    Nothing is written to the run itself: its own process may still write tags, notes and summary, and whoever
    writes them from outside overwrites them. What is to be kept belongs in the notes.

    Args:
        spec: A run, as `gatekeeper check` takes it.
        deadline_s: Seconds from the request until the run must have ended.
        progress: Called with each new state.

    Raises:
        GatekeeperError: The spec is no run, or the server refuses (credentials, permission, no such run).
        Unreachable: The server did not take the request. Where it is lost later, nothing is confirmed.
        outcome.

    """
    named = parse(spec)
    if named.run_id is None:
        raise GatekeeperError(f"{for_terminal(spec)}: a project, not a run; name one run to stop")
    client = Client(named, min(_ASK_S, max(deadline_s, 1.0)))
    before = client.ask(lambda api: load_facts(api, named)[1])
    if before.state not in ALIVE:
        text = f"{named.path} had already ended ({before.state}); nothing to stop"
        return StopOutcome(named.path, before.url, before.state, before.state, False, True, text, before)
    client.ask(lambda api: _request_stop(api.run(named.path)))

    end = time.monotonic() + deadline_s
    facts, lost = before, None
    while True:
        left = end - time.monotonic()
        if left <= 0:
            break
        try:
            seen = client.ask(lambda api: load_facts(api, named)[1], left)
        except Unreachable as error:
            lost = str(error)
            continue
        lost = None
        if seen.state != facts.state and progress is not None:
            progress(seen.state)
        facts = seen
        if facts.state not in ALIVE:
            text = f"{named.path} stopped ({before.state}, now {facts.state})"
            return StopOutcome(named.path, facts.url, before.state, facts.state, True, True, text, facts)
        time.sleep(max(0.0, min(_POLL_S, end - time.monotonic())))
    why = f"the server did not answer any more: {lost}" if lost else f"the run still says {facts.state!r}"
    text = (
        f"{named.path}: the stop was requested but is not confirmed after {deadline_s:g} s: {why}; a process "
        "that is dead or does not ask the server never stops this way: end it on its machine"
    )
    return StopOutcome(named.path, facts.url, before.state, facts.state, True, False, text, facts)


def _request_stop(run: Any) -> None:
    stop = getattr(run, "stop", None)
    if not callable(stop):
        raise GatekeeperError(
            "the installed wandb cannot stop a run from outside; upgrade it: pip install --upgrade wandb"
        )
    stop()


@click.command("stop")
@click.argument("run")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_DEADLINE_S,
    show_default=True,
    metavar="S",
    help="Seconds within which the run must have ended.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why, for the note.")
@click.option("--notes", metavar="DIR", help="Where the note is written.")
def command(run: str, deadline: float, reason: str, notes: str | None) -> int:
    """Stop a W&B run from outside and verify that it stopped.

    RUN is ENTITY/PROJECT/RUN_ID or the URL of a run. Exit codes: 0 stopped, or had already ended; 3 not
    confirmed within the deadline, or unreachable; 2 usage, credentials or permission.
    """

    def progress(state: str) -> None:
        click.echo(f"gatekeeper: {for_terminal(state)}", err=True)

    outcome = stop_run(run, deadline, progress=progress)
    click.echo(outcome.message, err=not outcome.confirmed)
    if outcome.requested and outcome.confirmed:
        _note(outcome, reason, notes)
    return 0 if outcome.confirmed else 3


def _note(outcome: StopOutcome, reason: str, directory: str | None) -> None:
    """Write the note of a stop that a person made; a run that was not seen to stop gets none."""
    from gatekeeper.config import load_settings
    from gatekeeper.notes import Journal, notes_dir, stop_note
    from gatekeeper.verdict import Decision, Verdict

    verdict = Verdict(
        decision=Decision.STOP,
        judgment=None,
        rule=None,
        reason=reason or "stopped from outside with `gatekeeper stop`",
        step=None,
        row=0,
        decided_by="user",
    )
    facts = outcome.facts
    note = stop_note(
        verdict,
        source=outcome.run,
        run_id=outcome.run.rsplit("/", 1)[-1],
        run_name=facts.name if facts else None,
        run_url=outcome.run_url,
        sweep=facts.sweep if facts else None,
        config=dict(facts.config) if facts else None,
    )
    where = notes_dir(directory, load_settings())
    Journal(where).append(note)
    click.echo(f"noted in {where}")
