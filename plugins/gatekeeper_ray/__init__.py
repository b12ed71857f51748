"""The gate inside a Ray Tune sweep: a Stopper, and a Callback for what a Stopper cannot see.

``from gatekeeper_ray import GatekeeperStopper, GatekeeperCallback``. Ray is imported when one of them is
first asked for, so that the command line can look into this package without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatekeeper_ray.callback import GatekeeperCallback
    from gatekeeper_ray.stopper import GatekeeperStopper

__all__ = ["GatekeeperCallback", "GatekeeperStopper"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use; a missing Ray answers with the line that installs it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "GatekeeperCallback":
            from gatekeeper_ray.callback import GatekeeperCallback as loaded
        else:
            from gatekeeper_ray.stopper import GatekeeperStopper as loaded  # type: ignore[assignment]
    except ModuleNotFoundError as fault:
        if (fault.name or "").partition(".")[0] != "ray":
            raise
        from gatekeeper.errors import MissingExtra

        raise MissingExtra("ray", "ray") from fault
    return loaded
