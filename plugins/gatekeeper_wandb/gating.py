"""Put the gate into the SDK: every row passes ``Run._log``, whichever way it was logged.

``run.log``, ``wandb.log``, integrations, step-less, partial (``commit=False``) and ``define_metric`` rows
all meet in ``Run._log``; TensorBoard-synced ones pass :mod:`gatekeeper_wandb.tboard`. The class is patched
once in a process and asks each time which :class:`Gating` is in force, if any: without one it behaves as
the SDK made it.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gatekeeper.notes import notes_dir
from gatekeeper.redact import redact_text
from gatekeeper.text import for_terminal
from gatekeeper.verdict import Verdict

from gatekeeper_wandb import tboard
from gatekeeper_wandb.ending import end_run, is_stopped
from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.watch import Faults, RunStopped, RunWatch

__all__ = ["Gating", "active", "gated", "patch"]

_lock = threading.RLock()
_active: Gating | None = None


class Gating:
    """The gates of this process's runs, one a run id, and what else happens around a stop.

    ``attached`` is called with a run's watch at its first row, ``stopped`` once a run was ended (in the
    thread that logged the bad row, before the stop leaves ``log``), ``ended`` when a run finished
    otherwise.
    """

    def __init__(self, options: GateOptions) -> None:
        self.options = options
        self.notes = options.notes or notes_dir()
        self.current: RunWatch | None = None
        self.faults = Faults()
        self.attached: Callable[[RunWatch], None] = _ignore
        self.stopped: Callable[[RunWatch, Verdict], None] = _ignore
        self.ended: Callable[[RunWatch], None] = _ignore
        self._watches: dict[str, tuple[RunWatch, weakref.ref[Any]]] = {}

    def watch(self, run: Any) -> RunWatch | None:
        """Return the watch of a run; None where it cannot be had (the run then goes on ungated)."""
        try:
            run_id = str(run._settings.run_id) if hasattr(run, "_settings") else str(run.id)
            with _lock:
                known = self._watches.get(run_id)
                if known is not None and known[1]() is run:
                    return known[0]
                return self._begin(run, run_id)
        except Exception as fault:  # noqa: BLE001 - a plugin never raises into a run
            self.faults.add(f"a run could not be gated: {type(fault).__name__}: {fault}")
            return None

    def _begin(self, run: Any, run_id: str) -> RunWatch:
        watch = RunWatch(run_id, self.options.make_gate())
        self._watches[run_id] = (watch, weakref.ref(run))
        self.current = watch
        self.attached(watch)
        return watch

    def finished(self, run: Any) -> None:
        """Forget a run that has ended."""
        try:
            with _lock:
                known = self._watches.pop(str(run._settings.run_id), None)
            if known is not None and known[0].stopped is None:
                self.faults.take(known[0].faults)
                self.ended(known[0])
        except Exception as fault:  # noqa: BLE001 - a plugin never raises into a run
            self.faults.add(f"after a run: {type(fault).__name__}: {fault}")

    def stop(self, run: Any, watch: RunWatch, verdict: Verdict) -> None:
        """End the run and raise :class:`RunStopped`; only the first caller does."""
        if not watch.claim(verdict):
            return
        watch.leave()
        with suppress(Exception):  # a closed stderr
            _say(run, verdict)
        end_run(run, watch, verdict, self.notes)
        self.faults.take(watch.faults)
        try:
            self.stopped(watch, verdict)
        except Exception as fault:  # noqa: BLE001 - the run is finished: nothing may come between it and its end
            self.faults.add(f"after a stop: {type(fault).__name__}: {fault}")
        raise RunStopped(verdict.reason)

    def row(self, run: Any, step: float | None, metrics: Any, send: Callable[[], Any]) -> Any:
        """Judge a row, send it, and end the run if it was the one row too bad."""
        watch = self.watch(run)
        if watch is None:
            return send()
        if watch.stopped is not None:
            return watch.after_stop()
        verdict = watch.judge(step, metrics)
        if watch.stopped is not None:  # another thread stopped the run meanwhile
            return watch.after_stop()
        sent = send()
        if verdict is not None and verdict.stopped:
            self.stop(run, watch, verdict)
        return sent


def _say(run: Any, verdict: Verdict) -> None:
    where = f" at step {verdict.step:g}" if verdict.step is not None else ""
    reason = for_terminal(redact_text(verdict.reason))
    name = for_terminal(run.name or run.id)
    print(f"gatekeeper: STOP {name}{where}: {reason} ({verdict.rule})", file=sys.stderr, flush=True)


def _ignore(*args: Any) -> None:
    """Do nothing."""


def active() -> Gating | None:
    """Return the gating in force in this process."""
    return _active


def activate(gating: Gating | None) -> Gating | None:
    """Put a gating in force and return the one before."""
    global _active
    with _lock:
        before, _active = _active, gating
    return before


@contextmanager
def gated(gating: Gating) -> Iterator[Gating]:
    """Gate every run of this process for as long as the context lasts."""
    from wandb.sdk import wandb_run

    import wandb  # noqa: F401 - makes sure that the class exists

    patch(wandb_run.Run)
    before = activate(gating)
    try:
        yield gating
    finally:
        activate(before)


def patch(run_class: Any) -> None:
    """Wrap the methods of the SDK's Run class that rows and endings pass; once is enough."""
    if getattr(run_class, "_gatekeeper_patched", False):
        return
    original_log, original_exit = run_class._log, run_class.__exit__
    original_finish = getattr(run_class, "_finish", None) or run_class.finish

    @functools.wraps(original_log)
    def _log(self: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        gating = _active
        if gating is None or getattr(self, "disabled", False):
            return original_log(self, data, *args, **kwargs)
        step = kwargs.get("step", args[0] if args else None)
        if step is None:
            step = getattr(self, "_local_step", None)
        return gating.row(self, step, data, lambda: original_log(self, data, *args, **kwargs))

    @functools.wraps(original_exit)
    def __exit__(self: Any, kind: Any, value: Any, traceback: Any) -> Any:
        if is_stopped(self):
            return None  # finished with 0 already; the SDK would print the stop as a traceback
        return original_exit(self, kind, value, traceback)

    @functools.wraps(original_finish)
    def _finish(self: Any, *args: Any, **kwargs: Any) -> Any:
        gating = _active
        ending = gating is not None and not getattr(self, "_is_finished", False)
        result = original_finish(self, *args, **kwargs)
        if ending and gating is not None:
            gating.finished(self)
        return result

    run_class._log = _log
    run_class.__exit__ = __exit__
    setattr(run_class, original_finish.__name__, _finish)
    tboard.patch(run_class, active)
    run_class._gatekeeper_patched = True
