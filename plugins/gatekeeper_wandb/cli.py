"""Commands: ``gatekeeper agent`` and ``gatekeeper stop``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from gatekeeper.errors import GatekeeperError, Unreachable
from gatekeeper.text import for_terminal

__all__ = ["agent", "stop"]

FAILED_ALIKE = 2


def _roles(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    from gatekeeper_wandb.options import parse_roles

    try:
        return parse_roles(";".join(values))
    except GatekeeperError as fault:
        raise click.BadParameter(str(fault)) from None


@click.command(short_help="Run a W&B sweep agent whose trials are gated.")
@click.argument("sweep", metavar="[ENTITY/][PROJECT/]SWEEP")
@click.option(
    "--count", type=click.IntRange(min=1), help="How many trials to run; all of the sweep's otherwise."
)
@click.option("-e", "--entity", help="Where SWEEP does not say so.")
@click.option("-p", "--project", help="Where SWEEP does not say so.")
@click.option("--metric", metavar="KEY", help="The objective; the sweep's own by default.")
@click.option(
    "--mode", type=click.Choice(["min", "max"]), help="Its direction; the sweep's own goal by default."
)
@click.option(
    "--role", "roles", metavar="ROLE=KEY", multiple=True, callback=_roles, help="Declare a metric's role."
)
@click.option(
    "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A gatekeeper.toml."
)
@click.option(
    "--notes", type=click.Path(file_okay=False, path_type=Path), help="Where notes of stops are written."
)
@click.option("--forward-signals", is_flag=True, help="As in wandb agent: pass signals on to the trials.")
def agent(
    *,
    sweep: str,
    count: int | None,
    entity: str | None,
    project: str | None,
    metric: str | None,
    mode: str | None,
    roles: dict[str, str],
    config: Path | None,
    notes: Path | None,
    forward_signals: bool,
) -> None:
    """Run the trials of a W&B sweep behind the gate, with the sweep's configuration as it is.

    A trial that is clearly broken is stopped: its rows are uploaded, its run ends with exit code 0, a note
    says why, and the next trial starts. Everything else is what `wandb agent` does. Exits 2 where every
    trial failed with the same error, which is the machine's fault and not the gate's.
    """
    from gatekeeper_wandb.agents import agent as run_agent

    arguments: dict[str, Any] = {"forward_signals": True} if forward_signals else {}
    try:
        trials = run_agent(
            sweep,
            entity=entity,
            project=project,
            count=count,
            metric=metric,
            mode=mode,
            roles=roles,
            notes=notes,
            config=config,
            **arguments,
        )
    except GatekeeperError:
        raise
    except Exception as fault:
        raise _said(sweep, fault) from fault
    if trials.common_error is not None:
        raise SystemExit(FAILED_ALIKE)


def _said(sweep: str, fault: Exception) -> Exception:
    """Return what the SDK could not do, as a sentence; an error that is not the SDK's comes back as it is."""
    from gatekeeper_wandb.errors import classify

    if not (isinstance(fault, ValueError) or type(fault).__module__.startswith("wandb")):
        return fault
    classified = classify(fault)
    name = for_terminal(sweep)
    if classified.retryable:
        return Unreachable(f"the agent of {name} got no answer from the server ({classified.message})")
    remedy = "check ENTITY/PROJECT/SWEEP, and `wandb login` for the account and the server"
    return GatekeeperError(f"the agent of {name} could not run: {classified.message}; {remedy}")


class _Delivered(click.Command):
    """Stands in for a command of another module, which is imported only when it is used."""

    def _real(self) -> click.Command:
        from gatekeeper_wandb.stopping import command

        return command

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the real command's parameters."""
        return self._real().get_params(ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the real command."""
        return self._real().invoke(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the real command's help."""
        self._real().format_help_text(ctx, formatter)


stop = _Delivered("stop", short_help="Stop a live W&B run from outside, and make sure that it stopped.")
