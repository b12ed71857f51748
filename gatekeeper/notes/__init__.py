"""Why a run was stopped: one entry a stop, in a journal that is safe to write from many processes."""

from __future__ import annotations

from gatekeeper.notes.journal import Journal, notes_dir
from gatekeeper.notes.note import SCHEMA, stop_note

__all__ = ["SCHEMA", "Journal", "notes_dir", "stop_note"]
