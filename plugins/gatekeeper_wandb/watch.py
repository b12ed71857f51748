"""One run under the gate: what was seen of it, whether it was stopped, and who has to hear of that."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping

from gatekeeper.gate import Gate
from gatekeeper.metrics import flatten
from gatekeeper.verdict import Verdict

__all__ = ["Faults", "RunStopped", "RunWatch"]

logger = logging.getLogger("gatekeeper.wandb")


class RunStopped(SystemExit):
    """Raised by ``run.log`` when the gate stopped the run; the run is finished by then, its note written.

    A ``SystemExit`` with code 0: code that catches ``Exception`` does not swallow it, an interpreter that
    nobody caught it in exits 0, and a thread ends without a traceback.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(0)
        self.reason = str(args[0]) if args else "the gate stopped the run"

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[type[RunStopped], tuple[str]]:
        return type(self), (self.reason,)


class Faults:
    """Faults of the gate itself: counted, and the first few kinds kept."""

    KEPT = 10

    def __init__(self) -> None:
        self.count = 0
        self.kinds: list[str] = []

    def add(self, text: str, count: int = 1) -> bool:
        """Count a fault; True where it is of a new kind."""
        self.count += count
        new = text not in self.kinds and len(self.kinds) < self.KEPT
        if new:
            self.kinds.append(text)
        return new

    def take(self, other: Faults) -> None:
        """Count another's faults as well."""
        for text in other.kinds:
            self.add(text, 0)
        self.count += other.count


class RunWatch:
    """The gate of one run. Never raises into the run: a fault of the gate is counted and the run goes on."""

    def __init__(self, run_id: str, gate: Gate) -> None:
        self.run_id = run_id
        self.gate = gate
        self.stopped: Verdict | None = None
        self.faults = Faults()
        self.began = time.monotonic()
        self._lock = threading.RLock()
        self._threads: set[int] = set()

    def judge(self, step: float | None, metrics: object) -> Verdict | None:
        """Return the verdict on one logged dict; None where there is none to be had."""
        if not isinstance(metrics, Mapping):
            return None  # the SDK raises TypeError in a moment: the user's to hear
        with self._lock:
            if self.stopped is not None:
                return None
            try:
                row = {key: _scalar(value) for key, value in flatten(metrics).items()}
                return self.gate.observe(step, row)
            except Exception as fault:  # noqa: BLE001 - a plugin never raises into a run
                self.fault("the gate could not judge a row", fault)
                return None

    def claim(self, verdict: Verdict) -> bool:
        """Take the stop on; False where another thread has it already."""
        with self._lock:
            if self.stopped is not None:
                return False
            self.stopped = verdict
            return True

    def fault(self, what: str, fault: BaseException) -> None:
        """Count a fault of the gate and log it (each kind once as a warning, then quietly)."""
        text = f"{what}: {type(fault).__name__}: {fault}"
        level = logging.WARNING if self.faults.add(text) else logging.DEBUG
        logger.log(level, "%s (run %s; the run goes on)", text, self.run_id)

    def leave(self, thread: int | None = None) -> None:
        """Note a thread that is being taken out of the run with :class:`RunStopped`."""
        self._threads.add(threading.get_ident() if thread is None else thread)

    def after_stop(self) -> None:
        """Answer a call on the stopped run: nothing, unless code swallowed the stop and went on training.

        Calls from ``finally`` blocks, context managers and ``except BaseException`` while the stop is on
        its way out do nothing, and so do other threads' calls. Where no stop is on its way any more in a
        thread that it was raised in, a bare ``except:`` has swallowed it, and it is raised again.
        """
        if self.stopped is None or threading.get_ident() not in self._threads:
            return
        under_way: BaseException | None = sys.exc_info()[1]
        while under_way is not None:
            if isinstance(under_way, RunStopped):
                return
            under_way = under_way.__context__
        raise RunStopped(self.stopped.reason)


def _scalar(value: object) -> object:
    """Return the number in a tensor or array of one element, as W&B stores it; anything else as it is."""
    item = getattr(value, "item", None)
    if item is None:
        return value
    count = getattr(value, "numel", None) or getattr(value, "size", None)
    return item() if (count() if callable(count) else count) == 1 else value
