"""The circuit breaker: when trial after trial dies of the same thing, the experiment itself is broken."""

from __future__ import annotations

from typing import Any

__all__ = ["RULE", "CircuitBreaker"]

RULE = "circuit-breaker"


class CircuitBreaker:
    """Counts trials in a row that the same rule stopped, and trips when no trial is healthy beside them.

    ``limit`` None never trips. A trial that ends without a STOP while its last answer was CONTINUE is
    healthy and ends the row; a stop by another rule starts a new row.
    """

    __slots__ = ("limit", "reason", "row", "rule", "stopped_after")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.rule: str | None = None
        self.row = 0
        self.reason: str | None = None
        self.stopped_after = 0

    @property
    def tripped(self) -> bool:
        """Whether the experiment is given up."""
        return self.reason is not None

    def trial_stopped(self, rule: str | None, *, healthy: int) -> bool:
        """Count one stopped trial beside ``healthy`` live ones; return True when it trips the breaker."""
        if self.limit is None or self.tripped:
            return False
        self.row = self.row + 1 if rule == self.rule else 1
        self.rule = rule
        if self.row < self.limit or healthy:
            return False
        self.reason = (
            f"{self.row} trials in a row were stopped by {rule} and no other trial is healthy: the "
            "experiment itself is broken (data, code or search space), so the rest of it is not run"
        )
        return True

    def trial_ended(self, *, healthy: bool) -> None:
        """Count one trial that ended by itself."""
        if healthy:
            self.row = 0
            self.rule = None

    def state(self) -> tuple[Any, ...]:
        """Return what a snapshot needs."""
        return self.rule, self.row, self.reason, self.stopped_after

    def load(self, state: tuple[Any, ...]) -> None:
        """Take a snapshot's state back."""
        self.rule, self.row, self.reason, self.stopped_after = state
