"""What every rule is: a named function from a run's state to a finding, documented where it stands."""

from __future__ import annotations

from collections.abc import Callable

from gatekeeper.run_state import RunState
from gatekeeper.signals.track import Track
from gatekeeper.verdict import Finding, Judgment

__all__ = ["RULES", "Rule", "bad", "fine", "number", "rule", "unsure"]

Rule = Callable[[RunState], "Finding | None"]

RULES: dict[str, Rule] = {}


def rule(name: str) -> Callable[[Rule], Rule]:
    """Register a rule under its name."""

    def register(check: Rule) -> Rule:
        RULES[name] = check
        check.__dict__["rule_name"] = name
        return check

    return register


def number(value: float) -> str:
    """Return a number as people read it: four significant digits."""
    return f"{value:.4g}"


def _finding(
    judgment: Judgment,
    name: str,
    run: RunState,
    track: Track | None,
    value: float | None,
    threshold: float | None,
    message: str,
) -> Finding:
    return Finding(
        name, judgment, track.name if track is not None else None, run.step, value, threshold, message
    )


def bad(
    name: str, run: RunState, track: Track | None, value: float | None, threshold: float | None, message: str
) -> Finding:
    """Return a clearly bad finding."""
    return _finding(Judgment.CLEARLY_BAD, name, run, track, value, threshold, message)


def unsure(
    name: str, run: RunState, track: Track | None, value: float | None, threshold: float | None, message: str
) -> Finding:
    """Return a finding that needs a second opinion."""
    return _finding(Judgment.UNSURE, name, run, track, value, threshold, message)


def fine(
    name: str, run: RunState, track: Track | None, value: float | None, threshold: float | None, message: str
) -> Finding:
    """Return a clearly fine finding."""
    return _finding(Judgment.CLEARLY_FINE, name, run, track, value, threshold, message)
