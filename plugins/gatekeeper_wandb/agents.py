"""The gated sweep agent, a drop-in for ``wandb.agent``: with a function, or for the sweep's own command."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper.errors import MissingExtra

from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.trials import Trials

if TYPE_CHECKING:
    from gatekeeper.config import Settings

__all__ = ["agent", "gate_run"]

logger = logging.getLogger("gatekeeper.wandb")


def agent(
    sweep_id: str,
    function: Callable[[], Any] | None = None,
    entity: str | None = None,
    project: str | None = None,
    count: int | None = None,
    *,
    metric: str | None = None,
    mode: str | None = None,
    roles: Mapping[str, str] | None = None,
    notes: str | Path | None = None,
    config: Settings | Mapping[str, Any] | str | Path | None = None,
    **agent_arguments: Any,
) -> Trials:
    """Run a W&B sweep agent whose trials are judged as they log, and stopped when they are clearly broken.

    A stopped trial is tagged, its summary says why, all its rows are uploaded, its run is finished with
    exit code 0 and a note is written; the agent takes the next trial and counts no failure. Everything else
    is ``wandb.agent``'s.

    Args:
        sweep_id: As ``wandb.agent`` takes it: ``SWEEP``, ``PROJECT/SWEEP`` or ``ENTITY/PROJECT/SWEEP``.
        function: The trial. None: the sweep's own ``command`` is run.
        entity: Where ``sweep_id`` does not say so.
        project: Where ``sweep_id`` does not say so.
        count: How many trials to run.
        metric: The objective; by default the sweep's own, else inferred.
        mode: ``"min"`` or ``"max"``; by default the sweep's own goal.
        roles: Metrics whose role is declared, by role: ``{"loss": "train/loss"}``.
        notes: The notes' directory.
        config: Settings, a mapping of them, or a configuration file.
        agent_arguments: Passed on to ``wandb.agent``.

    Returns:
        What became of the trials; the same is printed on stderr at the end.

    Raises:
        GatekeeperError: Bad options or configuration, before any trial.

    """
    _need_wandb()
    given = Path(config) if isinstance(config, str) else config
    asked = GateOptions(metric, mode, dict(roles or {}), given, Path(notes) if notes is not None else None)
    options = asked.resolved().with_objective(*_objective(sweep_id, entity, project))
    arguments = {"entity": entity, "project": project, "count": count, **agent_arguments}
    if function is not None:
        from gatekeeper_wandb.function_agent import run_function_agent

        return _reported(run_function_agent(sweep_id, function, options, arguments))
    from gatekeeper_wandb.command_agent import run_command_agent

    return _reported(run_command_agent(sweep_id, options, asked.config, arguments))


@contextmanager
def gate_run(
    *,
    metric: str | None = None,
    mode: str | None = None,
    roles: Mapping[str, str] | None = None,
    notes: str | Path | None = None,
    config: Settings | Mapping[str, Any] | str | Path | None = None,
) -> Iterator[Trials]:
    """Gate the runs of a script that no agent started, within a ``with`` block.

    A stop ends the run as in a sweep, and leaves the ``with`` block quietly: what follows it goes on. The
    value of the context tells, once it has ended, whether there was a stop. Takes :func:`agent`'s options.
    """
    _need_wandb()
    from gatekeeper_wandb.ending import release_globals
    from gatekeeper_wandb.gating import Gating, gated
    from gatekeeper_wandb.threads import TrainingThread
    from gatekeeper_wandb.watch import RunStopped

    given = Path(config) if isinstance(config, str) else config
    options = GateOptions(metric, mode, dict(roles or {}), given, Path(notes) if notes is not None else None)
    gating = Gating(options.resolved())
    trials = Trials(faults=gating.faults)
    thread = TrainingThread()

    def note(watch: Any, verdict: Any) -> None:
        trial = trials.begin(watch.run_id)
        trial.stopped_by, trial.gated = verdict.rule or "stopped", True
        thread.take_out(watch)

    gating.stopped = note
    with gated(gating):
        thread.enter()
        try:
            yield trials
        except RunStopped:
            logger.info("left the gated block: the gate stopped the run")
        finally:
            thread.leave()
            release_globals()


def _need_wandb() -> None:
    """Say it in one sentence, before anything starts, where the SDK is not installed."""
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise MissingExtra("wandb", "wandb") from None


def _objective(sweep_id: str, entity: str | None, project: str | None) -> tuple[str | None, str | None]:
    """Return the sweep's metric and mode; nothing where they cannot be had: the gate infers them then."""
    try:
        import wandb

        api: Any = wandb.Api()
        parts = [part for part in (entity, project) if part] if "/" not in sweep_id else []
        configured = api.sweep("/".join([*parts, sweep_id])).config.get("metric") or {}
        mode = {"minimize": "min", "maximize": "max"}.get(str(configured.get("goal", "")).lower())
        name = configured.get("name")
    except Exception as fault:  # noqa: BLE001 - the agent itself will say what is wrong with the sweep
        logger.debug("the sweep's objective is not known: %s", fault)
        return None, None
    return (str(name), mode) if name else (None, None)


def _reported(trials: Trials) -> Trials:
    for line in trials.lines():
        print(f"gatekeeper: {line}", file=sys.stderr, flush=True)
    return trials
