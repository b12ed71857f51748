"""The finished suite as the scoreboard reads it: manifest lines, rows, objective, training loss."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

LOSS_KEYS = ("train/loss", "train_loss_step", "train_loss", "loss", "losses/value_loss", "train/value_loss",
             "policy_loss", "td_loss", "loss_dis")  # fmt: skip
Series = list[tuple[int, float]]  # (row, value); rows count from 1


@dataclass
class Run:
    """One run of the manifest."""

    path: Path
    line: dict[str, str]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        with self.path.open() as file:
            return [json.loads(line) for line in file]

    @property
    def expected(self) -> str:
        return self.line["expected"]

    @property
    def first_bad_row(self) -> int | None:
        return int(self.line["first_bad_row"]) if self.line["first_bad_row"] else None

    @property
    def rank(self) -> int | None:
        return int(self.line["rank"]) if self.line["rank"] else None

    @cached_property
    def objective(self) -> Series:
        """The objective where it is logged, turned so that lower is better; a null counts as NaN."""
        sign = -1.0 if self.line["mode"] == "max" else 1.0
        key = self.line["metric"]
        found = ((n, row[key]) for n, row in enumerate(self.rows, 1) if key in row)
        return [(n, math.nan if value is None else sign * value) for n, value in found]

    @cached_property
    def loss(self) -> Series:
        """The training loss where it is logged."""
        key = next((key for key in LOSS_KEYS if any(key in row for row in self.rows[:60])), "")
        found = ((n, row[key]) for n, row in enumerate(self.rows, 1) if key in row)
        return [(n, math.nan if value is None else value) for n, value in found]


def read_manifest(path: Path) -> list[Run]:
    """Return the runs of a manifest in its order."""
    with path.open(newline="") as file:
        return [Run(path.parent / line["source"], line) for line in csv.DictReader(file)]
