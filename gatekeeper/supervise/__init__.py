"""Run a training command under the gate: pass its output on, judge its metrics, end it cleanly on a STOP."""

from __future__ import annotations

from gatekeeper.supervise.outcome import Outcome, exit_code
from gatekeeper.supervise.supervisor import Supervisor, SupervisorOptions

__all__ = ["Outcome", "Supervisor", "SupervisorOptions", "exit_code"]
