"""What is remembered of each trial: its gate and its place, packed small once it has been silent for long."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gatekeeper.gate import Gate

__all__ = ["TrialState", "TrialStore"]


class TrialState:
    """One live trial. Ids, not processes: with ``reuse_actors`` one process runs several trials."""

    __slots__ = ("checkpoint", "config", "gate", "heard", "iteration", "since_restore", "stopped")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.iteration: float | None = None
        self.since_restore: float | None = None
        self.config: bytes | None = None
        self.checkpoint: str | None = None
        self.stopped = False
        self.heard = 0

    @property
    def healthy(self) -> bool:
        """Whether the gate's last answer was CONTINUE."""
        return not self.stopped and self.gate.verdict.decision.value == "CONTINUE"

    def pack(self) -> bytes:
        """Return the state as bytes."""
        fields = (self.iteration, self.since_restore, self.config, self.checkpoint, self.stopped, self.heard)
        # The gate's own JSON-able state, not the object: it holds no reviewer and survives a newer version.
        return pickle.dumps((fields, self.gate.state_dict()), protocol=5)

    @classmethod
    def unpack(cls, blob: bytes, gate: Gate) -> TrialState:
        """Return the state that ``pack`` made; ``gate`` is a new one that takes the old one's state."""
        fields, gate_state = pickle.loads(blob)  # noqa: S301 - our own bytes, from the experiment's own snapshot
        state = cls(gate)
        state.iteration, state.since_restore, state.config, state.checkpoint, state.stopped, state.heard = (
            fields
        )
        gate.load_state_dict(gate_state)
        return state


class TrialStore:
    """All trials that have not ended, under a cap.

    Ray never tells a Stopper that a scheduler ended a trial. Without the callback such trials would stay for
    ever, so beyond ``cap`` the tenth that was silent longest is packed (compressed, some 1-2 KB each), and
    beyond four times the cap the longest packed are dropped. A dropped trial that speaks again starts over
    with a new gate: it can be stopped late, but not wrongly.
    """

    def __init__(self, cap: int, make_gate: Callable[[], Gate]) -> None:
        self.cap = max(1, cap)
        self.live: dict[str, TrialState] = {}
        self.packed: dict[str, bytes] = {}  # in the order in which they fell silent
        self._make_gate = make_gate

    def __len__(self) -> int:
        return len(self.live) + len(self.packed)

    def admit(self, trial_id: str) -> TrialState:
        """Return a trial that is not live: unpacked where it is known, else new."""
        state = None
        blob = self.packed.pop(trial_id, None)
        if blob is not None:
            state = TrialState.unpack(_expanded(blob), self._make_gate())
        if state is None:
            state = TrialState(self._make_gate())
        self.live[trial_id] = state
        if len(self.live) > self.cap:
            self._compact()
        return state

    def drop(self, trial_id: str) -> TrialState | None:
        """Forget a trial that has ended; return what was live of it."""
        self.packed.pop(trial_id, None)
        return self.live.pop(trial_id, None)

    def healthy(self) -> int:
        """Return how many live trials were last answered with CONTINUE."""
        return sum(state.healthy for state in self.live.values())

    def _compact(self) -> None:
        newest = next(reversed(self.live))
        silent = sorted(
            (state.heard, trial_id) for trial_id, state in self.live.items() if trial_id != newest
        )
        for _, trial_id in silent[: max(1, self.cap // 10)]:
            self.packed[trial_id] = zlib.compress(self.live.pop(trial_id).pack(), 1)
        while len(self.packed) > 4 * self.cap:
            self.packed.pop(next(iter(self.packed)))

    def snapshot(self) -> Iterator[tuple[str, bytes]]:
        """Yield every trial as bytes."""
        yield from self.packed.items()
        for trial_id, state in self.live.items():
            yield trial_id, state.pack()


def _expanded(blob: bytes) -> bytes:
    """Return packed bytes uncompressed (a pickle begins with 0x80, a zlib stream never does)."""
    return blob if blob[:1] == b"\x80" else zlib.decompress(blob)
