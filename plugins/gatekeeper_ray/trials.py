"""What is remembered of each trial: its gate and its place, packed small once it has been silent for long."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gatekeeper.gate import Gate

__all__ = ["Packed", "TrialState", "TrialStore"]


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
        fields, gate_state = pickle.loads(_expanded(blob))  # noqa: S301 - our own bytes, out of Ray's snapshot
        state = cls(gate)
        state.iteration, state.since_restore, state.config = fields[:3]
        state.checkpoint, state.stopped, state.heard = fields[3:]
        gate.load_state_dict(gate_state)
        return state


class Packed(NamedTuple):
    """A trial that has been silent: its state as bytes, and what must be known without unpacking it."""

    blob: bytes
    healthy: bool
    stopped: bool


class TrialStore:
    """All trials that have not ended, under a cap.

    Ray never tells a Stopper that a scheduler ended a trial; without the callback such trials would stay for
    ever. A trial that was silent from one snapshot to the next is packed (compressed, some 2 KB), and so is
    the tenth that was silent longest when more than ``cap`` are not. Beyond four times ``cap`` the longest
    packed are dropped. A dropped trial that speaks again starts over with a new gate: it can be stopped late,
    but not wrongly.
    """

    def __init__(self, cap: int, make_gate: Callable[[], Gate]) -> None:
        self.cap = cap
        self.live: dict[str, TrialState] = {}
        self.packed: dict[str, Packed] = {}  # in the order in which they fell silent
        self._make_gate = make_gate
        self._heard_before = 0

    def __len__(self) -> int:
        return len(self.live) + len(self.packed)

    def admit(self, trial_id: str) -> TrialState:
        """Return a trial that is not live: unpacked where it is known, else new."""
        gate = self._make_gate()
        packed = self.packed.pop(trial_id, None)
        state = TrialState(gate) if packed is None else TrialState.unpack(packed.blob, gate)
        self.live[trial_id] = state
        if len(self.live) > self.cap:
            self._make_room(trial_id)
        return state

    def drop(self, trial_id: str) -> bool | None:
        """Forget a trial that has ended; return whether it was healthy, None if nothing was known of it."""
        packed = self.packed.pop(trial_id, None)
        state = self.live.pop(trial_id, None)
        if not self.live:
            self.live.clear()  # an empty dict keeps the table that it had at its largest
        if state is not None:
            return state.healthy
        return None if packed is None else packed.healthy

    def healthy(self) -> int:
        """Return how many trials were last answered with CONTINUE."""
        live = sum(state.healthy for state in self.live.values())
        return live + sum(packed.healthy for packed in self.packed.values())

    def all_stopped(self) -> bool:
        """Return whether no trial is known that goes on."""
        live = all(state.stopped for state in self.live.values())
        return live and all(packed.stopped for packed in self.packed.values())

    def snapshot(self) -> dict[str, Packed]:
        """Return every trial as bytes, and pack those that said nothing since the last snapshot."""
        silent = [trial_id for trial_id, state in self.live.items() if state.heard <= self._heard_before]
        for trial_id in silent:
            self._pack(trial_id)
        self._heard_before = max((state.heard for state in self.live.values()), default=self._heard_before)
        speaking = {
            trial_id: Packed(state.pack(), state.healthy, state.stopped)
            for trial_id, state in self.live.items()
        }
        return {**self.packed, **speaking}

    def _make_room(self, newest: str) -> None:
        silent = sorted(
            (state.heard, trial_id) for trial_id, state in self.live.items() if trial_id != newest
        )
        for _, trial_id in silent[: max(1, self.cap // 10)]:
            self._pack(trial_id)

    def _pack(self, trial_id: str) -> None:
        state = self.live.pop(trial_id)
        self.packed[trial_id] = Packed(zlib.compress(state.pack(), 1), state.healthy, state.stopped)
        while len(self.packed) > 4 * self.cap:
            del self.packed[next(iter(self.packed))]


def _expanded(blob: bytes) -> bytes:
    """Return bytes as they were pickled (a pickle begins with 0x80, a zlib stream never does)."""
    return blob if blob[:1] == b"\x80" else zlib.decompress(blob)
