"""Command mode, inside the trial's own process: judge its runs, and end the process with code 0 on a stop.

Installed by ``_hook/sitecustomize.py`` as soon as the SDK is imported. Options come through the environment
(:mod:`gatekeeper_wandb.options`), events go out through files that it names
(:mod:`gatekeeper_wandb.events`); the stop is told *after* the run was finished, so a supervisor may end the
rest of a distributed job from then on.

The process ends as softly as it can: :class:`RunStopped` (a SystemExit) leaves ``log``, so ``finally``
blocks and exit handlers run; whatever they raise, the exit code is 0. A program that does not let itself be
ended like that is ended for good after ``GATEKEEPER_GRACE`` seconds (60).
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType, TracebackType

from gatekeeper.verdict import Verdict

from gatekeeper_wandb.events import tell, verdict_json
from gatekeeper_wandb.gating import Gating, activate, active, patch
from gatekeeper_wandb.options import GateOptions
from gatekeeper_wandb.threads import interrupt
from gatekeeper_wandb.trials import failure_text
from gatekeeper_wandb.watch import RunStopped, RunWatch

__all__ = ["install"]

GRACE_S = 60.0

#: Seconds until a main thread that took no exception from another thread, since it waits in C, gets a signal.
PATIENCE_S = 2.0


def install(module: ModuleType) -> None:
    """Gate the runs of this process. ``module`` is ``wandb.sdk.wandb_run``.

    Raises:
        GatekeeperError: The options cannot be used; the process then goes on ungated.

    """
    process = _Process()
    gating = Gating(GateOptions.from_environment(os.environ).resolved())
    gating.attached = process.attached
    gating.stopped = process.stopped
    gating.ended = process.ended
    patch(module.Run)
    if active() is None:
        activate(gating)
    process.watch_failures()


class _Process:
    """How this process ends: 0 once the gate stopped a run in it, else as it would have."""

    def __init__(self) -> None:
        self._stopped_in: int | None = None  # a forked child of a stopped process ends as it would have
        # Registered before anything that the program registers, hence run after all of it.
        atexit.register(self._exit)

    def attached(self, watch: RunWatch) -> None:
        tell("attached", run_id=watch.run_id)

    def ended(self, watch: RunWatch) -> None:
        tell("verdict", run_id=watch.run_id, verdict=verdict_json(watch.gate.verdict))
        self._tell_faults(watch)

    def stopped(self, watch: RunWatch, verdict: Verdict) -> None:
        self._stopped_in = os.getpid()
        tell("stop", run_id=watch.run_id, verdict=verdict_json(verdict))
        self._tell_faults(watch)
        main = threading.main_thread()
        if threading.current_thread() is not main and main.ident is not None:
            watch.leave(main.ident)
        threading.Thread(target=self._see_to_it, args=(threading.get_ident(),), daemon=True).start()

    def _tell_faults(self, watch: RunWatch) -> None:
        if watch.faults.count:
            tell("fault", run_id=watch.run_id, error=watch.faults.kinds[0], count=watch.faults.count)

    def _see_to_it(self, thread: int) -> None:
        """End the process for good if it does not end by itself."""
        grace = _seconds(os.environ.get("GATEKEEPER_GRACE"), GRACE_S)
        began = time.monotonic()
        main = threading.main_thread().ident
        if main is not None and thread != main:
            _Delivered.seen = False
            interrupt(main, _Delivered)
            time.sleep(min(PATIENCE_S, grace))
            if not _Delivered.seen:
                signal.pthread_kill(main, signal.SIGINT)
        time.sleep(max(0.0, grace - (time.monotonic() - began)))
        with suppress(Exception):  # a closed stderr
            print(f"gatekeeper: the program did not end within {grace:g} s of its stop", file=sys.stderr)
        self._exit()

    def _exit(self) -> None:
        if self._stopped_in == os.getpid():
            for stream in (sys.stdout, sys.stderr):
                try:
                    stream.flush()
                except (OSError, ValueError, AttributeError):
                    continue
            os._exit(0)

    def watch_failures(self) -> None:
        """Tell the agent what ended this process, where that is not the gate."""
        before = sys.excepthook

        def excepthook(
            kind: type[BaseException], value: BaseException, traceback: TracebackType | None
        ) -> None:
            if self._stopped_in != os.getpid() and not isinstance(value, KeyboardInterrupt):
                tell("error", error=failure_text(value))
            # The SDK's handler prints the traceback, and then calls whatever hook it found: once is enough.
            printed = type(getattr(sys.excepthook, "__self__", None)).__name__ == "ExitHooks"
            if not (printed and before is sys.__excepthook__):
                before(kind, value, traceback)

        sys.excepthook = excepthook


class _Delivered(RunStopped):
    """A stop that was logged by another thread, on its way to the main one; knows when it got there."""

    seen = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        _Delivered.seen = True


def _seconds(text: str | None, default: float) -> float:
    try:
        return max(0.0, float(text)) if text else default
    except ValueError:
        return default
