"""Function mode: ``wandb.agent(sweep_id, function=train)`` with every run behind the gate."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from gatekeeper_wandb.ending import release_globals
from gatekeeper_wandb.gating import Gating, gated
from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.threads import TrainingThread
from gatekeeper_wandb.trials import Trials, failure_text

__all__ = ["run_function_agent"]


def run_function_agent(
    sweep_id: str, function: Callable[[], Any], options: GateOptions, agent_arguments: dict[str, Any]
) -> Trials:
    """Run the SDK's own agent with the function wrapped, and return what became of the trials.

    Raises:
        Whatever ``wandb.agent`` raises.

    """
    import wandb

    gating = Gating(options)
    trials = Trials(faults=gating.faults)
    with gated(gating):
        wandb.agent(sweep_id, function=_Wrapped(function, gating, trials), **agent_arguments)
    return trials


class _Wrapped:
    """The trial function as the agent gets it: it returns normally from a trial that the gate stopped.

    So the agent counts no failure and takes the next trial. What the function raises on its own account
    passes through, and the agent counts it as ever.
    """

    def __init__(self, function: Callable[[], Any], gating: Gating, trials: Trials) -> None:
        self._function = function
        self._gating = gating
        self._trials = trials
        self._thread = TrainingThread()
        self.__name__ = getattr(function, "__name__", "train")
        gating.stopped = lambda watch, verdict: self._thread.take_out(watch)

    def __call__(self) -> None:
        trial = self._trials.begin(os.environ.get("WANDB_RUN_ID", ""))
        gating = self._gating
        gating.current = None
        self._thread.enter()
        try:
            self._function()
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            # The run that was opened last decides: after a stop, what is still raised is its echo.
            if gating.current is None or gating.current.stopped is None:
                if not (isinstance(fault, SystemExit) and not fault.code):
                    trial.error = failure_text(fault)
                raise
        finally:
            self._thread.leave()
            release_globals()
            watch = gating.current
            if watch is not None:
                trial.gated = watch.gate.rows > 0
                trial.stopped_by = watch.stopped.rule or "stopped" if watch.stopped else None
