"""GatekeeperCallback: what a Stopper is never told."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper.text import for_terminal, shorten
from ray.tune import Callback

from gatekeeper_ray.active import STALL, Link, TrialFacts, link, newest

if TYPE_CHECKING:
    from ray.tune.experiment import Trial

    from gatekeeper_ray.stopper import GatekeeperStopper

__all__ = ["GatekeeperCallback"]

logger = logging.getLogger("gatekeeper_ray")

LINES_OF_SUMMARY = 20
STALL_S = 60.0


class GatekeeperCallback(Callback):
    """Tells the Stopper which trials start, end, fail and save, and says at the end what the gate did.

    With it a trial's state is dropped as soon as the trial ends, notes carry the trial's name, the
    experiment and the W&B run's URL, and the sweep ends with a summary on stderr. It never raises.

    Args:
        stopper: The GatekeeperStopper of the same sweep. None takes the one that was made last in this
            process.
        wandb: The sweep's WandbLoggerCallback. None finds it among the sweep's callbacks.
        summary: Whether to print the summary at the end.

    """

    def __init__(
        self, stopper: GatekeeperStopper | None = None, *, wandb: Any = None, summary: bool = True
    ) -> None:
        self._uid = stopper.uid if stopper is not None else newest()
        self._wandb = wandb
        self._summary = summary
        self._errors: dict[str, str] = {}
        self._counts = {"started": 0, "ended": 0, "failed": 0, "recovered": 0}
        self._faults = 0
        self._results_seen = 0
        self._quiet_since = 0.0
        self._stall_said = False

    # What Ray calls

    def setup(self, *args: Any, **info: Any) -> None:
        """Find the Stopper's side and the W&B logger."""
        with self._guarded():
            if self._uid is None:
                self._uid = newest()
            here = self._link()
            if here is None:
                logger.error(
                    "gatekeeper: the callback found no GatekeeperStopper; use GatekeeperCallback(stopper)"
                )
                return
            here.has_callback = True
            here.facts.clear()
            found = self._wandb if self._wandb is not None else _logger_beside(self)
            if found is not None:
                here.runs.watch(found)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Take down what the trial is called; also after a pause or a restart."""
        with self._guarded():
            here = self._link()
            if here is not None:
                self._counts["started"] += trial.trial_id not in here.facts
                here.facts[trial.trial_id] = TrialFacts(
                    str(trial), trial.experiment_dir_name, _directory(trial)
                )

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Drop the state of a trial that has ended."""
        with self._guarded():
            self._counts["ended"] += 1
            here = self._link()
            if here is not None:
                if here.stopper is not None:
                    here.stopper.trial_ended(trial.trial_id)
                here.facts.pop(trial.trial_id, None)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Take down a trial that failed for good."""
        with self._guarded():
            self._counts["failed"] += 1
            if len(self._errors) < LINES_OF_SUMMARY:
                self._errors[str(trial)] = _last_error(trial)
            here = self._link()
            if here is not None:
                if here.stopper is not None:
                    here.stopper.trial_failed(trial.trial_id)
                here.facts.pop(trial.trial_id, None)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Count a trial that failed and is tried again."""
        with self._guarded():
            self._counts["recovered"] += 1

    def on_checkpoint(
        self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Any, **info: Any
    ) -> None:
        """Tell the Stopper about a checkpoint; with class trainables it comes after its result."""
        with self._guarded():
            here = self._link()
            if here is not None and here.stopper is not None:
                here.stopper.trial_saved(trial.trial_id, str(checkpoint.path))

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Say so when nothing goes on any more because a scheduler waits for a trial that was stopped."""
        with self._guarded():
            here = self._link()
            stopper = here.stopper if here is not None else None
            if stopper is None or self._stall_said:
                return
            if stopper.results_seen != self._results_seen:
                self._results_seen = stopper.results_seen
                self._quiet_since = time.monotonic()
            elif time.monotonic() - self._quiet_since > STALL_S and stopper.stopped_by:
                self._quiet_since = time.monotonic()
                live = {trial.status for trial in trials} - {"TERMINATED", "ERROR"}
                if live == {"PAUSED"}:
                    self._stall_said = True
                    logger.error("%s; to go on, press Ctrl-C once and restore the experiment", STALL)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Say what was stopped, when and why, and what went wrong."""
        with self._guarded():
            here = self._link()
            if here is None or here.stopper is None:
                return
            here.stopper.experiment_ended()
            if self._summary:
                print(self.summary(), file=sys.stderr, flush=True)
            here.facts.clear()

    def get_state(self) -> dict[str, Any] | None:
        """Return what a snapshot needs."""
        return {
            "uid": self._uid,
            "errors": dict(self._errors),
            "counts": dict(self._counts),
            "faults": self._faults,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take a snapshot's state back."""
        with self._guarded():
            self._uid = state["uid"]
            self._errors = dict(state["errors"])
            self._counts.update(state["counts"])
            self._faults = state["faults"]

    # What it says

    def summary(self) -> str:
        """Return the sweep's summary: one line on the whole, one per stop, then errors and faults."""
        here = self._link()
        stopper = here.stopper if here is not None else None
        if stopper is None:
            return "gatekeeper: no GatekeeperStopper was asked in this sweep"
        stopped = sum(stopper.stopped_by.values())
        counts = self._counts
        lines = [
            f"gatekeeper: {counts['started']} trials started, {stopped} stopped, {counts['failed']} failed"
            + (f", {counts['recovered']} restarts after a failure" if counts["recovered"] else "")
        ]
        if stopper.given_up:
            lines.append(f"  gave up the experiment: {for_terminal(stopper.given_up)}")
        stops = stopper.stops
        if stopped > LINES_OF_SUMMARY:
            lines.append(f"  the latest {min(LINES_OF_SUMMARY, len(stops))} of {stopped} stops:")
        for stop in stops[-LINES_OF_SUMMARY:]:
            lines.append(
                f"  STOP  {for_terminal(shorten(stop.name, 40))}  iteration {_number(stop.iteration)}  "
                f"{for_terminal(stop.rule)}: {for_terminal(shorten(stop.reason, 160))}"
            )
        for name, error in self._errors.items():
            lines.append(f"  ERROR {for_terminal(shorten(name, 40))}  {for_terminal(shorten(error, 160))}")
        if stopped:
            lines.append(f"  notes: {for_terminal(str(stopper.notes_directory))}")
        faults = sum(stopper.faults.values()) + self._faults
        if faults:
            doing = ", ".join(f"{count}x {what}" for what, count in stopper.faults.items())
            lines.append(
                f"  {faults} faults of the gate itself, no trial was stopped for one: "
                f"{for_terminal(doing or 'in the callback')}"
            )
        return "\n".join(lines)

    # Inside

    def _link(self) -> Link | None:
        return None if self._uid is None else link(self._uid)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:
            self._faults += 1
            if self._faults == 1:
                logger.exception(
                    "gatekeeper: a fault of its own in the callback, the sweep goes on: %s", fault
                )


def _logger_beside(callback: Callback) -> Any:
    """Return the WandbLoggerCallback in the list of callbacks that holds ``callback``, if there is one.

    Ray tells a callback nothing of its neighbours; the list that refers to it does.
    """
    if "wandb" not in sys.modules:
        return None
    from ray.air.integrations.wandb import WandbLoggerCallback

    for holder in gc.get_referrers(callback):
        if isinstance(holder, list):
            for item in holder:
                if isinstance(item, WandbLoggerCallback):
                    return item
    return None


def _directory(trial: Trial) -> str | None:
    path = getattr(trial, "path", None) or getattr(trial, "local_path", None)
    return str(path) if path else None


def _last_error(trial: Trial) -> str:
    """Return the last line of the trial's error, from the driver's file: storage may not have it yet."""
    path = getattr(trial, "error_file", None)
    try:
        lines = Path(path).read_text(errors="replace").strip().splitlines() if path else []
    except OSError:
        lines = []
    return lines[-1].strip() if lines else "failed"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
