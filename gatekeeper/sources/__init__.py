"""Readers: every kind of log as a stream of rows."""

from __future__ import annotations

from gatekeeper.sources.base import Row, Source, SourceOptions
from gatekeeper.sources.fallback import FallbackSource, open_with_fallback
from gatekeeper.sources.specs import open_path, open_source

__all__ = [
    "FallbackSource",
    "Row",
    "Source",
    "SourceOptions",
    "open_path",
    "open_source",
    "open_with_fallback",
]
