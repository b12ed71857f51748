"""The note of a stopped trial: written at once, and amended when its W&B run's address becomes known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gatekeeper_ray.wandb_runs import RunAddress, WandbRuns

if TYPE_CHECKING:
    from gatekeeper.notes import Journal

__all__ = ["Savings", "StopNotes"]

PATIENCE_S = 0.05  # Ray's loop waits no longer than this for the journal
URL_PATIENCE_S = 60.0  # how long a W&B run that is just being created is listened for
FINAL_PATIENCE_S = 20.0  # the same once the sweep is over; the W&B logger waits for its runs then, too


@dataclass(frozen=True)
class Savings:
    """What a stopped trial has used, and what it would still have used where its length is known."""

    rows: int
    seconds: float | None
    rows_saved: int | None
    seconds_saved: float | None

    @classmethod
    def of(cls, rows: int, seconds: object, budget_rows: float | None) -> Savings:
        """Count from the rows seen, Ray's ``time_total_s`` and the number of results of a whole trial."""
        used = float(seconds) if isinstance(seconds, (int, float)) else None
        if not budget_rows:
            return cls(rows, used, None, None)
        saved = max(0, int(budget_rows) - rows)
        return cls(rows, used, saved, used / rows * saved if used is not None and rows else None)


class Waiting(NamedTuple):
    """A note whose W&B run has not said yet where it is."""

    until: float
    trial_id: str
    note_id: str
    written: RunAddress


class StopNotes:
    """Writes the notes of one sweep. Picklable: holds no file and no lock between two notes of a snapshot."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._journal: Journal | None = None
        self._waiting: list[Waiting] = []
        self._amended = False

    @property
    def waiting(self) -> bool:
        """Whether a run has not said yet where it is."""
        return bool(self._waiting)

    def write(
        self, make: Callable[..., dict[str, Any]], trial_id: str, runs: WandbRuns, siblings: list[str]
    ) -> None:
        """Make a note by ``make(run_url=…, extra=…)`` and append it."""
        address = runs.address(trial_id, siblings)
        in_use = address.state != "unknown" or runs.in_use(siblings)
        note = make(run_url=address.url, extra={"wandb": describe(address)} if in_use else None)
        self._open().append(note, patience_s=PATIENCE_S)
        if runs.in_use(siblings) and not address.heard:
            self._waiting.append(Waiting(time.time() + URL_PATIENCE_S, trial_id, note["id"], address))

    def amend(self, runs: WandbRuns, siblings: Iterable[str], *, final: bool = False) -> None:
        """Add what the runs have said since; what is known without their word once the wait is over."""
        siblings = list(siblings)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            address = runs.address(one.trial_id, siblings)
            if not (address.heard or final or time.time() > one.until):
                self._waiting.append(one)
            elif (address.url, address.directory) != (one.written.url, one.written.directory):
                changes = {"run_url": address.url, "extra": {"wandb": describe(address)}}
                self._open().amend(one.note_id, patience_s=PATIENCE_S, **changes)
                self._amended = True

    def finish(self, runs: WandbRuns, siblings: Iterable[str]) -> None:
        """Wait a little for the last runs, and have the readable notes show what was added."""
        siblings = list(siblings)
        deadline = time.monotonic() + FINAL_PATIENCE_S
        while self._waiting and time.monotonic() < deadline:
            self.amend(runs, siblings)
            if self._waiting:
                time.sleep(0.1)
        self.amend(runs, siblings, final=True)
        if self._amended:
            self._open().render()
            self._amended = False

    def _open(self) -> Journal:
        if self._journal is None:
            from gatekeeper.notes import Journal

            self._journal = Journal(self.directory)
        return self._journal

    def __getstate__(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "waiting": self._waiting, "amended": self._amended}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.directory = Path(state["directory"])
        self._journal = None
        self._waiting = state["waiting"]
        self._amended = state["amended"]


def describe(address: RunAddress) -> str:
    """Return what a person needs to find the run."""
    if address.state == "online":
        return "online"
    if address.state == "offline":
        project = f", project {address.project}" if address.project else ""
        upload = f"; to upload: wandb sync {address.directory}" if address.directory else ""
        return f"offline{project}{upload}"
    return "the run's address is not known"
