"""The gate (interim: stops on a non-finite loss; the judgment table follows)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gatekeeper.config import Settings
from gatekeeper.metrics import to_float
from gatekeeper.verdict import CurvePoint, Decision, Finding, Judgment, Verdict

__all__ = ["Gate"]


class Gate:
    """Judges one run's metric stream row by row."""

    def __init__(
        self,
        metric: str | None = None,
        mode: str | None = None,
        roles: Mapping[str, str] | None = None,
        config: Settings | Mapping[str, Any] | None = None,
        reviewer: object = None,
    ) -> None:
        self.metric, self.mode, self.roles = metric, mode, dict(roles or {})
        self.reset("start")
        self.rows = 0
        self._waits = 0

    def reset(self, reason: str) -> None:
        """Forget the baselines; keep the counts."""
        self.verdict = Verdict(Decision.WAIT, None, None, "no rows yet", None, 0)
        self._points: list[CurvePoint] = []
        self._last_finite: tuple[int, float | None] | None = None

    def observe(self, step: float | None, metrics: Mapping[str, object]) -> Verdict:
        """Judge one row."""
        self.rows += 1
        if self.verdict.stopped:
            return self.verdict
        keys = [self.metric] if self.metric in metrics else []
        keys += [key for key in metrics if "loss" in key.lower() and key not in keys]
        values = {key: value for key in keys if (value := to_float(metrics[key])) is not None}
        for key, value in values.items():
            if not math.isfinite(value):
                finding = Finding(
                    "nonfinite-loss", Judgment.CLEARLY_BAD, key, step, value, None, f"{key} is {value} at step {step}"
                )
                self.verdict = Verdict(
                    Decision.STOP, Judgment.CLEARLY_BAD, finding.rule, finding.message, step, self.rows,
                    dict(values), {"loss": key}, (finding,),
                )
                return self.verdict
        if values:
            first = next(iter(values.values()))
            self._last_finite = (self.rows, step)
            self._points = [*self._points[-127:], CurvePoint(self.rows, step, first, first, first)]
        decision = Decision.CONTINUE if self.rows > 5 else Decision.WAIT
        self._waits += decision is Decision.WAIT
        self.verdict = Verdict(decision, Judgment.UNSURE, "loss-flat", "nothing to object to", step, self.rows, dict(values))
        return self.verdict

    @property
    def wait_share(self) -> float:
        """Share of the rows at which the answer was WAIT."""
        return self._waits / self.rows if self.rows else 1.0

    def curve(self, metric: str) -> Sequence[CurvePoint]:
        """Return a bounded history of a metric."""
        return self._points

    def last_finite(self) -> tuple[int, float | None] | None:
        """Return row and step of the last row at which everything decisive was finite."""
        return self._last_finite

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON-able values."""
        return {"rows": self.rows, "waits": self._waits}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state back."""
        self.rows, self._waits = state["rows"], state["waits"]
