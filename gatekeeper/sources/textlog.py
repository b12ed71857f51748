"""Plain stdout logs."""

from __future__ import annotations

from collections.abc import Iterator

from gatekeeper.sources.base import Row, Skips

__all__ = ["TextLog"]


class TextLog:
    """Decodes printed lines (not yet)."""

    def __init__(self, skips: Skips, step_key: str | None = None) -> None:
        self._skips = skips

    def feed(self, text: str) -> Iterator[Row]:
        """Yield the rows of ``text``."""
        yield from ()
