"""What a supervised command comes to: its exit code, and what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gatekeeper.supervise.judging import Stream
from gatekeeper.verdict import Verdict

__all__ = ["NOT_EXECUTABLE", "NOT_FOUND", "SWEEP_ID", "Outcome", "exit_code", "shell_code", "stop_code"]

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as shells say it
WAITING = 3

#: Set by a sweep agent in its trials' environment.
SWEEP_ID = "WANDB_SWEEP_ID"


@dataclass(frozen=True)
class Outcome:
    """How the command ended and what the gate made of it.

    Attributes:
        returncode: The child's end as ``subprocess`` gives it: its exit code, or minus the signal that ended
            it.
        stopped: The gate stopped it.
        verdict: The last verdict, or the STOP.
        stream: The stream of rows that the verdict is about; None where it came from inside the child, or no
            row came.
        told: The verdict as the hook inside the child told it.
        note: Where the stop's note was written.
        error: Why there is no verdict, where the judging failed.
        reachable: The source of the metrics answered.
        dropped: Lines of output that were passed on but came too fast to be judged.

    """

    returncode: int
    stopped: bool
    verdict: Verdict
    stream: Stream | None = None
    told: Mapping[str, Any] | None = None
    note: str | None = None
    error: str | None = None
    reachable: bool = True
    dropped: int = 0


def shell_code(returncode: int) -> int:
    """Return a child's end as a shell gives it: 128 + N for a death by signal N."""
    return returncode if returncode >= 0 else 128 - returncode


def stop_code(chosen: int | None, environment: Mapping[str, str]) -> int:
    """Return a stop's exit code: the chosen one, else 0 inside a sweep agent (it counts failures), else 1."""
    if chosen is not None:
        return chosen
    return 0 if environment.get(SWEEP_ID) else 1


def exit_code(returncode: int, *, stopped: bool, on_stop: int, waiting: bool, verdict_exit: bool) -> int:
    """Return the exit code of ``run``.

    Args:
        returncode: The child's end, as ``subprocess`` gives it.
        stopped: The gate stopped the child.
        on_stop: The code for that.
        waiting: The last answer was WAIT.
        verdict_exit: A last WAIT is to be seen (3) where the child itself ended well.

    """
    if stopped:
        return on_stop
    code = shell_code(returncode)
    return WAITING if code == 0 and waiting and verdict_exit else code
