"""What the searcher and the scheduler are told about a trial that the gate stopped."""

from __future__ import annotations

import math
import sys
from typing import Any, Literal

from gatekeeper.metrics import to_float
from gatekeeper.strictjson import finite

from gatekeeper_ray.results import locate, missing_values

__all__ = ["Objective", "ReportObjective"]

ReportObjective = Literal["keep", "worst"]

# Reported for a stopped trial while no finite objective was seen at all: far from anything plausible, and
# yet small enough for a searcher that squares it in float32.
NOTHING_SEEN = 1e9


class Objective:
    """Follows the objective over all trials of a sweep and rewrites the last result of a stopped one."""

    __slots__ = ("best", "metric", "mode", "report", "worst")

    def __init__(self, metric: str | None, mode: str | None, report: ReportObjective) -> None:
        self.metric = metric
        self.mode = mode
        self.report: ReportObjective = report
        self.worst: float | None = None
        self.best: float | None = None

    def see(self, value: object) -> None:
        """Remember one reported objective; what is no finite number is left out."""
        number = to_float(value)
        if number is None or not math.isfinite(number):
            return
        if self.mode == "max":
            number = -number
        if self.worst is None or number > self.worst:
            self.worst = number
        if self.best is None or number < self.best:
            self.best = number

    def worse_than_any(self) -> float:
        """Return a finite value worse than every objective seen, by the range seen and at least a tenth."""
        if self.worst is None or self.best is None:
            badness = NOTHING_SEEN
        else:
            margin = max(self.worst - self.best, 0.1 * abs(self.worst), 1e-6)
            badness = min(self.worst + margin, sys.float_info.max)
        return -badness if self.mode == "max" else badness

    def rewrite(self, result: dict[str, Any]) -> object:
        """Change the objective in a stopped trial's last result; return what was reported if it changed.

        With ``"keep"`` only a None is replaced, by NaN: schedulers that rank trials (ASHA, Median) raise on
        None when the trial completes, which would turn the stopped trial into a failed one.
        """
        if self.metric is None:
            # Which of them the scheduler ranks by is not known here, so none may stay None.
            for container, key in missing_values(result):
                container[key] = math.nan
            return None
        place = locate(result, self.metric)
        if place is None:
            return None
        container, key = place
        reported = container[key]
        if self.report == "worst":
            container[key] = self.worse_than_any()
            return "missing" if reported is None else finite(reported)
        if reported is None:
            container[key] = math.nan
            return "missing"
        return None

    def state(self) -> tuple[float | None, float | None]:
        """Return what a snapshot needs."""
        return self.worst, self.best

    def load(self, state: tuple[float | None, float | None]) -> None:
        """Take a snapshot's state back."""
        self.worst, self.best = state
