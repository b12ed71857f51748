"""What became of an agent's trials; where all failed alike it is the machine, not the gate."""

from __future__ import annotations

import re
import socket
from collections import Counter
from dataclasses import dataclass, field

from gatekeeper.redact import redact_text
from gatekeeper.text import for_terminal, shorten

from gatekeeper_wandb.watch import Faults

__all__ = ["Trial", "Trials", "failure_text"]

MIN_ALIKE = 2  # one failed trial says nothing about the machine

#: What differs between two tellings of the same failure: addresses, sizes, counters, paths' random parts.
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?")


@dataclass
class Trial:
    """One trial: how it ended.

    ``stopped_by`` is the rule that stopped it, ``error`` what it failed with by itself, ``killed`` whether
    a signal
    from outside ended it (a stop from the server, Ctrl-C), ``gated`` whether any row of it was judged.
    """

    run_id: str
    stopped_by: str | None = None
    error: str | None = None
    killed: bool = False
    gated: bool = False


@dataclass
class Trials:
    """All trials of one agent, in order."""

    trials: list[Trial] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)

    def begin(self, run_id: str) -> Trial:
        """Note a trial that starts."""
        self.trials.append(Trial(run_id))
        return self.trials[-1]

    @property
    def stopped(self) -> list[Trial]:
        """The trials that the gate stopped."""
        return [trial for trial in self.trials if trial.stopped_by is not None]

    @property
    def failed(self) -> list[Trial]:
        """The trials that ended with an error of their own."""
        return [trial for trial in self.trials if trial.error is not None and trial.stopped_by is None]

    @property
    def common_error(self) -> str | None:
        """The error that every trial failed with, where there were several and all failed alike."""
        errors = [trial.error for trial in self.failed if trial.error is not None]
        if len(errors) < MIN_ALIKE or len(errors) != len(self.trials):
            return None
        alike = {_VARYING.sub("#", error) for error in errors}
        return errors[-1] if len(alike) == 1 else None

    def lines(self) -> list[str]:
        """Return the report for the terminal."""
        if not self.trials:
            return ["no trial ran"]
        rules = Counter(trial.stopped_by for trial in self.stopped)
        by = f" ({', '.join(f'{rule}: {count}' for rule, count in rules.most_common())})" if rules else ""
        total, stopped, failed = len(self.trials), len(self.stopped), len(self.failed)
        killed = sum(trial.killed and trial.stopped_by is None for trial in self.trials)
        told = [
            f"{total} trial{'' if total == 1 else 's'}: {stopped} stopped by the gate{by}, "
            f"{total - stopped - failed - killed} ran to their end, {failed} failed by themselves"
            + (f", {killed} ended from outside" if killed else "")
        ]
        if self.common_error is not None:
            told.append(
                f"all {total} trials failed with the same error: {for_terminal(self.common_error)}; not the "
                f"gate: look at this machine ({socket.gethostname()}), its drivers, data and environment"
            )
        ungated = [
            trial for trial in self.trials if not trial.gated and trial.error is None and not trial.killed
        ]
        if ungated:
            told.append(
                f"{len(ungated)} of the trials that did not fail logged no metrics that could be judged; "
                "see docs/wandb.md, 'When a trial is not gated'"
            )
        if self.faults.count:
            first = for_terminal(shorten(redact_text(self.faults.kinds[0]), 300))
            told.append(
                f"faults of the gate itself: {self.faults.count}, the runs went on; the first: {first}"
            )
        return told


def failure_text(fault: BaseException) -> str:
    """Return what a failure says, in one line, secrets redacted."""
    message = redact_text(str(fault)).strip().splitlines()
    return shorten(f"{type(fault).__name__}: {message[0]}" if message else type(fault).__name__, 300)
