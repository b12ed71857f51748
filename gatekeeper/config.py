"""Configuration (interim)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper.errors import GatekeeperError

__all__ = ["ConfigError", "Settings", "load_settings"]


class ConfigError(GatekeeperError, ValueError):
    """A configuration that cannot be used; the text names the file, the key and the remedy."""


@dataclass(frozen=True)
class Settings:
    """Everything a gate and the tools around it can be told."""

    metric: str | None = None
    mode: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    budget_steps: float | None = None
    notes: Path | None = None
    fallback: tuple[str, ...] = ()
    smoke: bool = False


def load_settings(path: Path | None = None, start: Path | None = None) -> Settings:
    """Return the settings in force (interim: the defaults)."""
    return Settings()
