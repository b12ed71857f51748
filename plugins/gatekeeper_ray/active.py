"""How a Stopper and its Callback find each other, also after ``Tuner.restore``.

Ray saves the two separately: the Stopper with the experiment's snapshot, the Callback with the Tuner. Both
carry the same id, and what they share while the sweep runs hangs on that id in the process in which Ray's
controller runs. Of the several copies of a Stopper that a restore makes, the one that Ray really asks
(``stop_all`` is polled in every step, before the first result) enters itself here; a copy that was only
unpickled on the way never does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gatekeeper_ray.wandb_runs import WandbRuns

if TYPE_CHECKING:
    from gatekeeper_ray.stopper import GatekeeperStopper

__all__ = ["Link", "TrialFacts", "announce", "link", "newest"]


@dataclass(frozen=True)
class TrialFacts:
    """What only a Callback is told about a trial."""

    name: str
    experiment: str | None
    directory: str | None


@dataclass
class Link:
    """What a Stopper and its Callback share in the controller's process. Never saved."""

    _stopper: Callable[[], GatekeeperStopper | None] = lambda: None
    has_callback: bool = False
    facts: dict[str, TrialFacts] = field(default_factory=dict)  # trials that have started and not ended
    runs: WandbRuns = field(default_factory=WandbRuns)

    @property
    def stopper(self) -> GatekeeperStopper | None:
        """The Stopper that Ray asks, while it lives."""
        return self._stopper()

    def enter(self, stopper: GatekeeperStopper) -> None:
        """Make ``stopper`` the one that Ray asks."""
        self._stopper = weakref.ref(stopper)


STALL = (
    "gatekeeper: Ray's synchronous PopulationBasedTraining (synch=True) waits for ever when a trial is "
    "stopped, by whatever stopper, while all others already wait for it; use synch=False"
)

_LINKS: dict[str, Link] = {}
_announced: list[str] = []


def announce(uid: str) -> None:
    """Remember that a Stopper with this id exists in this process."""
    _announced[:] = [uid]


def newest() -> str | None:
    """Return the id of the Stopper that was made or restored last in this process."""
    return _announced[-1] if _announced else None


def link(uid: str) -> Link:
    """Return what the Stopper and the Callback with this id share."""
    return _LINKS.setdefault(uid, Link())
