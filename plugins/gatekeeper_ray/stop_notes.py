"""The note of a stopped trial: written at once, and amended when its W&B run's address becomes known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gatekeeper_ray.wandb_runs import RunAddress, WandbRuns

if TYPE_CHECKING:
    from gatekeeper.notes import Journal

__all__ = ["Savings", "StopNotes"]

PATIENCE_S = 0.05  # Ray's loop waits no longer than this for the journal
URL_PATIENCE_S = 60.0  # how long a W&B run that is just being created is waited for
FINAL_PATIENCE_S = 3.0  # the same, once the sweep is over


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


class StopNotes:
    """Writes the notes of one sweep. Picklable: holds no file and no lock between two notes of a snapshot."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._journal: Journal | None = None
        # Notes whose run's address was not known yet: (give up at, trial id, note id).
        self._waiting: list[tuple[float, str, str]] = []

    @property
    def waiting(self) -> bool:
        """Whether a note still lacks its run's address."""
        return bool(self._waiting)

    def write(
        self, make: Callable[..., dict[str, Any]], trial_id: str, runs: WandbRuns, siblings: list[str]
    ) -> None:
        """Make a note by ``make(run_url=…, extra=…)`` and append it."""
        address = runs.address(trial_id, siblings)
        in_use = address.state != "unknown" or runs.in_use(siblings)
        note = make(run_url=address.url, extra={"wandb": describe(address)} if in_use else None)
        self._open().append(note, patience_s=PATIENCE_S)
        if address.state == "unknown" and in_use:
            self._waiting.append((time.time() + URL_PATIENCE_S, trial_id, note["id"]))

    def amend(self, runs: WandbRuns, siblings: Iterable[str]) -> None:
        """Add the addresses that have become known since."""
        siblings = list(siblings)
        waiting, self._waiting = self._waiting, []
        for deadline, trial_id, note_id in waiting:
            address = runs.address(trial_id, siblings)
            if address.state != "unknown":
                self._open().amend(
                    note_id, patience_s=PATIENCE_S, run_url=address.url, extra={"wandb": describe(address)}
                )
            elif time.time() < deadline:
                self._waiting.append((deadline, trial_id, note_id))

    def finish(self, runs: WandbRuns, siblings: Iterable[str]) -> None:
        """Wait a little for the last addresses."""
        deadline = time.monotonic() + FINAL_PATIENCE_S
        while self._waiting and time.monotonic() < deadline:
            self.amend(runs, siblings)
            if self._waiting:
                time.sleep(0.1)
        self._waiting = []

    def _open(self) -> Journal:
        if self._journal is None:
            from gatekeeper.notes import Journal

            self._journal = Journal(self.directory)
        return self._journal

    def __getstate__(self) -> dict[str, Any]:
        return {"directory": str(self.directory), "waiting": self._waiting}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.directory = Path(state["directory"])
        self._journal = None
        self._waiting = state["waiting"]


def describe(address: RunAddress) -> str:
    """Return what a person needs to find the run."""
    if address.state == "online":
        return "online"
    if address.state == "offline":
        project = f", project {address.project}" if address.project else ""
        upload = f"; to upload: wandb sync {address.directory}" if address.directory else ""
        return f"offline{project}{upload}"
    return "the run's address is not known"
