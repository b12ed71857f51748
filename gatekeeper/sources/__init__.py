"""Readers: every kind of log as a stream of rows."""

from __future__ import annotations

from gatekeeper.sources.base import Row, Source, SourceOptions
from gatekeeper.sources.specs import open_path, open_source

__all__ = ["Row", "Source", "SourceOptions", "open_path", "open_source"]
