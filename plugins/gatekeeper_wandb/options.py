"""What a gated agent was told, and how it travels to the trials' processes: through the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gatekeeper.config import Settings, load_settings, overridden, settings_from
from gatekeeper.errors import GatekeeperError
from gatekeeper.gate import Gate
from gatekeeper.notes import notes_dir

__all__ = ["GateOptions", "parse_roles"]

METRIC = "GATEKEEPER_METRIC"
MODE = "GATEKEEPER_MODE"
ROLES = "GATEKEEPER_ROLES"
CONFIG = "GATEKEEPER_CONFIG"
NOTES = "GATEKEEPER_NOTES"
BASELINE = "GATEKEEPER_BASELINE"
SMOKE = "GATEKEEPER_SMOKE"


def parse_roles(text: str) -> dict[str, str]:
    """Return ``ROLE=KEY;ROLE=KEY`` as a mapping from role to metric.

    Raises:
        GatekeeperError: A part is no ``ROLE=KEY``.

    """
    roles: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        role, equals, key = part.partition("=")
        if not (equals and role.strip() and key.strip()):
            raise GatekeeperError(f"{ROLES}: {part!r} is not ROLE=KEY; write for example loss=train/loss")
        roles[role.strip()] = key.strip()
    return roles


@dataclass(frozen=True)
class GateOptions:
    """How runs are judged and where notes go.

    Attributes:
        metric: The objective's name; None: inferred, or taken from the sweep. mode: ``min`` or ``max``.
        roles: Metrics whose role was declared, by role. config: Settings, a mapping of them, a
        configuration file, or None: the file found from the working directory. notes: The notes' directory,
        absolute. baseline: a number or a baseline file; smoke: judge as a short run (both as `gatekeeper run`
        was told).

    """

    metric: str | None = None
    mode: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    config: Settings | Mapping[str, Any] | Path | None = None
    notes: Path | None = None
    baseline: str | None = None
    smoke: bool = False

    def __post_init__(self) -> None:
        if self.mode not in (None, "min", "max"):
            raise GatekeeperError(f"mode is {self.mode!r}; use 'min' or 'max'")

    def resolved(self) -> GateOptions:
        """Return the options with the configuration read and the notes' directory made absolute.

        Raises:
            GatekeeperError: The options or the configuration cannot be used.

        """
        config = self.config
        if config is None or isinstance(config, Path):
            config = load_settings(config, Path.cwd())
        if self.baseline is not None or self.smoke:
            config = config if isinstance(config, Settings) else settings_from(config)
            config = overridden(config, self.baseline, self.smoke)
        options = replace(self, config=config, notes=notes_dir(self.notes, config))
        options.make_gate()  # what is wrong with them is to be said now, not at the first row
        return options

    def with_objective(self, metric: str | None, mode: str | None) -> GateOptions:
        """Return the options with the sweep's objective where the user named none."""
        given = self.config
        configured = given.get("metric") if isinstance(given, Mapping) else getattr(given, "metric", None)
        if self.metric is not None or configured is not None or metric is None:
            return self
        return replace(self, metric=metric, mode=self.mode or mode)

    def make_gate(self) -> Gate:
        """Return a gate for one run."""
        config = None if isinstance(self.config, Path) else self.config
        return Gate(metric=self.metric, mode=self.mode, roles=self.roles, config=config)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> GateOptions:
        """Return what the environment tells.

        Raises:
            GatekeeperError: A variable cannot be used.

        """
        config, notes = environment.get(CONFIG), environment.get(NOTES)
        return cls(
            metric=environment.get(METRIC) or None,
            mode=environment.get(MODE) or None,
            roles=parse_roles(environment.get(ROLES, "")),
            config=Path(config) if config else None,
            notes=Path(notes) if notes else None,
            baseline=environment.get(BASELINE) or None,
            smoke=environment.get(SMOKE) == "1",
        )

    def to_environment(self) -> dict[str, str]:
        """Return the variables that tell another process these options; of settings only a file travels."""
        told = {
            METRIC: self.metric,
            MODE: self.mode,
            ROLES: ";".join(f"{role}={key}" for role, key in self.roles.items()),
            CONFIG: str(self.config.absolute()) if isinstance(self.config, Path) else None,
            NOTES: str(self.notes) if self.notes else None,
            BASELINE: self.baseline,
            SMOKE: "1" if self.smoke else None,
        }
        return {key: value for key, value in told.items() if value}
