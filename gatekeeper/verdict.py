"""What the gate answers: a decision, the judgment behind it, and the evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["CurvePoint", "Decision", "Finding", "Judgment", "Verdict", "json_number"]


class Decision(str, Enum):
    """What to do with the run: end it, leave it alone, or look again sooner."""

    STOP = "STOP"
    CONTINUE = "CONTINUE"
    WAIT = "WAIT"


class Judgment(str, Enum):
    """How sure a rule is of what it saw."""

    CLEARLY_BAD = "clearly_bad"
    CLEARLY_FINE = "clearly_fine"
    UNSURE = "unsure"


def json_number(value: object) -> Any:
    """Return ``value`` as strict JSON can hold it.

    Non-finite floats become ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that had something to say, at the step where it said it."""

    rule: str
    judgment: Judgment
    metric: str | None
    step: float | None
    value: float | None
    threshold: float | None
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a strict-JSON object."""
        return {
            "rule": self.rule,
            "judgment": self.judgment.value,
            "metric": self.metric,
            "step": json_number(self.step),
            "value": json_number(self.value),
            "threshold": json_number(self.threshold),
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One point of a metric's bounded history: the mean and range of the rows it stands for."""

    row: int
    step: float | None
    mean: float
    low: float
    high: float


@dataclass(slots=True)
class Verdict:
    """The gate's answer at one row (a value.

    Nothing changes it once it is given; not frozen, since one is made every row).

    ``row`` counts from 1. ``metrics`` holds the last value of each metric that has a role, as logged (it may
    be non-finite). ``next_check_s`` is how long a periodic watcher should wait, in seconds.
    """

    decision: Decision
    judgment: Judgment | None
    rule: str | None
    reason: str
    step: float | None
    row: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    decided_by: str = "table"
    advice: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the run should end."""
        return self.decision is Decision.STOP
