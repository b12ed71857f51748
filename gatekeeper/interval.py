"""How long a periodic check waits: 10, 20, 30, then 60 minutes while healthy, 10 again after any anomaly."""

from __future__ import annotations

from gatekeeper.verdict import Decision, Judgment, Verdict

__all__ = ["FIRST_S", "INTERVALS_S", "next_interval"]

INTERVALS_S = (600, 1200, 1800, 3600)
FIRST_S = INTERVALS_S[0]


def next_interval(previous_s: float, verdict: Verdict) -> int:
    """Return the seconds to the next check.

    Longer after a clearly fine verdict, the first interval otherwise.

    A CONTINUE by second opinion keeps the interval. Source: the training check's rules.
    """
    if verdict.decision is not Decision.CONTINUE:
        return FIRST_S
    if verdict.judgment is not Judgment.CLEARLY_FINE:
        return max(FIRST_S, min(INTERVALS_S[-1], int(previous_s)))
    return next((notch for notch in INTERVALS_S if notch > previous_s), INTERVALS_S[-1])
