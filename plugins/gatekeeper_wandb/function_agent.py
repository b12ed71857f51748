"""Function mode: ``wandb.agent(sweep_id, function=train)`` with every run behind the gate."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatekeeper.verdict import Verdict

from gatekeeper_wandb.ending import release_globals
from gatekeeper_wandb.gating import Gating, gated
from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.trials import Trials, failure_text
from gatekeeper_wandb.watch import RunStopped, RunWatch

__all__ = ["interrupt_thread", "run_function_agent"]


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

    So the agent counts no failure and takes the next trial. What the function raises on its own account passes
    through, and the agent counts it as ever.
    """

    def __init__(self, function: Callable[[], Any], gating: Gating, trials: Trials) -> None:
        self._function = function
        self._gating = gating
        self._trials = trials
        self._lock = threading.Lock()
        self._thread: int | None = None
        self.__name__ = getattr(function, "__name__", "train")
        gating.stopped = self._take_out

    def __call__(self) -> None:
        trial = self._trials.begin(os.environ.get("WANDB_RUN_ID", ""))
        gating = self._gating
        gating.current = None
        with self._lock:
            self._thread = threading.get_ident()
        try:
            self._function()
        except KeyboardInterrupt:
            raise
        except BaseException as fault:
            # The run that was opened last decides: after a stop, what is still raised is its echo.
            if gating.current is None or gating.current.stopped is None:
                trial.error = failure_text(fault)
                raise
        finally:
            self._close()
            watch = gating.current
            if watch is not None:
                trial.gated = watch.gate.rows > 0
                trial.stopped_by = watch.stopped.rule or "stopped" if watch.stopped else None

    def _close(self) -> None:
        """End the trial: no stop that another thread made may reach this one from here on."""
        with suppress(RunStopped):
            with self._lock:
                thread, self._thread = self._thread, None
            if thread is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)
        release_globals()

    def _take_out(self, watch: RunWatch, verdict: Verdict) -> None:
        """Stop the function as well where the bad row was logged by another thread than its own."""
        with self._lock:
            if self._thread is not None and self._thread != threading.get_ident():
                watch.leave(self._thread)
                interrupt_thread(self._thread, RunStopped)


def interrupt_thread(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in another thread at its next bytecode."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
