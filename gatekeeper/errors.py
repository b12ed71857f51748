"""Errors whose text is the one sentence a user reads."""

from __future__ import annotations

__all__ = ["GatekeeperError", "MissingExtra", "SourceError", "Unreachable"]


class GatekeeperError(Exception):
    """Bad usage, configuration or input. The command prints the text and exits 2."""


class SourceError(GatekeeperError):
    """A source that cannot be read: the text names the file, the place and the remedy."""


class Unreachable(GatekeeperError):
    """A source that did not answer in time. It is a WAIT (exit 3), never a failure of the run."""


class MissingExtra(GatekeeperError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'sweep-gatekeeper[{extra}]'")
        self.package = package
        self.extra = extra
