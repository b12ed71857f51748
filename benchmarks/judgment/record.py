"""What a run leaves behind: the rows of its log, and the truth about it that the log may hide."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]


@dataclass
class Truth:
    """What became of the run, measured on the model itself. Rows count from 1."""

    mode: str  # of the objective: min or max
    chance: float  # the objective of a guess
    chance_loss: float  # the training loss of a guess; NaN where that says nothing (games, RL)
    objective: list[tuple[int, float]] = field(default_factory=list)
    loss: list[tuple[int, float]] = field(default_factory=list)
    eval_loss: list[tuple[int, float]] = field(default_factory=list)
    broke_at: int | None = None  # row of the first non-finite loss, gradient or weight
    last_broken: int | None = None  # row of the last one
    broken_at_end: bool = False  # whether the weights are non-finite at the end
    idle_at_end: bool = False  # whether the weights stood still for the last tenth of the budget
    fault_row: int | None = None  # row at which the planted fault began
    q_ratio: float | None = None  # value foretold / return got, at the end
    entropy: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Recorder:
    """Collects a run's rows and its truth."""

    truth: Truth
    rows: list[Row] = field(default_factory=list)

    def log(self, **metrics: Any) -> None:
        """Add a row; keys with a slash are passed as ``**{"train/loss": …}``. None values are kept (null)."""
        self.rows.append({key: tidy(value) for key, value in metrics.items()})

    @property
    def row(self) -> int:
        """Number of the row that is logged next."""
        return len(self.rows) + 1

    def check(self, *values: float) -> None:
        """Note the first and the last non-finite value of what the model really computed."""
        if not all(map(math.isfinite, values)):
            self.truth.last_broken = self.row
            if self.truth.broke_at is None:
                self.truth.broke_at = self.row

    def fault_begins(self) -> None:
        """Note that the planted fault acts from here on."""
        if self.truth.fault_row is None:
            self.truth.fault_row = self.row

    def write(self, path: Path) -> None:
        """Write the log as JSON Lines; NaN and Infinity as Python's json writes them."""
        with path.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)


def tidy(value: Any) -> Any:
    """Return a float to six significant digits, as most loggers print it."""
    if value is None or isinstance(value, (int, str)):
        return value
    value = float(value)
    return float(f"{value:.6g}") if math.isfinite(value) else value
