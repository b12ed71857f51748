"""``gatekeeper demo``: see the gate at work in two minutes, with no account and no network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click
from gatekeeper.errors import GatekeeperError, MissingExtra

__all__ = ["demo"]


@click.command()
def demo() -> None:
    """Run a real Ray Tune sweep here, some of it broken, and show what is stopped and why.

    Trains 14 small networks under ASHA on two processors, in about half a minute, without an account, a
    network or a GPU. Writes only to gatekeeper-demo/ in the working directory.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
    from gatekeeper_ray.demo import report, run
    from gatekeeper_ray.demo_model import TRIALS

    directory = Path.cwd() / "gatekeeper-demo"
    try:
        directory.mkdir(exist_ok=True)
    except OSError as fault:
        raise GatekeeperError(
            f"cannot write to {directory}: {fault.strerror}; run the demo in a directory of your own"
        ) from fault
    click.echo(f"Training {len(TRIALS)} small networks under ASHA on two processors …", err=True)
    result = run(directory)
    click.echo(report(result, directory))
    if any(trial.failed for trial in result.trials):
        raise GatekeeperError(
            f"a trial failed, which it should not; Ray's record of it is in {directory / 'ray_results'}"
        )
