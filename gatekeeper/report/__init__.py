"""What is shown of a verdict: terminal text, JSON, Markdown, GitHub, JUnit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.verdict import CurvePoint

__all__ = ["RunReport"]


@dataclass(frozen=True)
class RunReport:
    """One judged run, as every report format gets it: the contract's record and the loss curve beside it."""

    record: dict[str, Any]
    curve: Sequence[CurvePoint] = ()
    curve_metric: str | None = None
    notes_path: Path | None = None
