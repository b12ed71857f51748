"""Weights & Biases behind the gate: sweep agents, runs, live and offline.

``gatekeeper_wandb.agent`` is a drop-in for ``wandb.agent``; see docs/wandb.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatekeeper_wandb.agents import agent, gate_run
    from gatekeeper_wandb.watch import RunStopped

__all__ = ["RunStopped", "agent", "gate_run"]


def __getattr__(name: str) -> Any:
    """Import on demand: entry points must load without the SDK."""
    if name in ("agent", "gate_run"):
        from gatekeeper_wandb import agents

        return getattr(agents, name)
    if name == "RunStopped":
        from gatekeeper_wandb.watch import RunStopped

        return RunStopped
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
