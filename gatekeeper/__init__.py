"""The gate a training sweep runs behind: ``Gate`` judges a metric stream, ``Verdict`` is its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatekeeper.gate import Gate
    from gatekeeper.verdict import CurvePoint, Decision, Finding, Judgment, Verdict

__all__ = ["CurvePoint", "Decision", "Finding", "Gate", "Judgment", "Verdict", "__version__"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that the command can answer for a broken installation."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gatekeeper import gate, verdict

    return gate.Gate if name == "Gate" else getattr(verdict, name)
