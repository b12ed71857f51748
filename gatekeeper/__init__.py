"""The gate a training sweep runs behind."""

from __future__ import annotations

from gatekeeper.gate import Gate
from gatekeeper.verdict import CurvePoint, Decision, Finding, Judgment, Verdict

__all__ = ["CurvePoint", "Decision", "Finding", "Gate", "Judgment", "Verdict", "__version__"]

__version__ = "0.1.0"
