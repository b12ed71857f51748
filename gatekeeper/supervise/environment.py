"""The child's environment: how its processes are told from others, and how plugins get a foot in the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from gatekeeper.supervise.control import CONTROL
from gatekeeper.supervise.processes import MARKER

__all__ = ["GROUP", "child_environment"]

#: Entry points that prepare a child's environment: callables (env: dict) -> dict.
GROUP = "gatekeeper.child_env"


def child_environment(
    base: Mapping[str, str],
    *,
    marker: str,
    control: Path | None,
    notes: Path,
    objective: Mapping[str, str | None],
    unbuffered: bool,
    report: Callable[[str], None],
) -> dict[str, str]:
    """Return the environment to start the command with.

    Args:
        base: This process's environment.
        marker: What every process of the run carries.
        control: The control file, for the hook inside the child.
        notes: Where notes go, also those that the hook writes.
        objective: What the user declared (``GATEKEEPER_METRIC`` …); None leaves a variable as it is.
        unbuffered: Python is to print each line at once, since a pipe makes it keep 8 KB back and the gate is
            to see a row when it is printed. Not where the user decided otherwise.
        report: Takes sentences for the user.

    """
    environment = {**base, MARKER: marker, "GATEKEEPER_NOTES": str(notes)}
    environment.update({key: value for key, value in objective.items() if value is not None})
    if unbuffered:
        environment.setdefault("PYTHONUNBUFFERED", "1")
    if control is None:
        environment.pop(CONTROL, None)
        return environment
    environment[CONTROL] = str(control)
    for point in entry_points(group=GROUP):
        try:
            environment = {str(key): str(value) for key, value in point.load()(dict(environment)).items()}
        except Exception as fault:  # noqa: BLE001 - a broken plugin must not keep the command from running
            report(
                f"the plugin {point.name!r} cannot prepare the environment: {type(fault).__name__}: {fault}"
            )
    return environment
