"""The journal of stops: ``stops.jsonl``, the truth, and ``stops.md`` for people, rebuilt from it at will."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gatekeeper.errors import GatekeeperError
from gatekeeper.notes import markdown
from gatekeeper.notes.log import AppendLog, Entry
from gatekeeper.notes.note import SCHEMA, now
from gatekeeper.redact import redact

__all__ = ["AMENDMENT_SCHEMA", "Journal", "notes_dir"]

AMENDMENT_SCHEMA = "gatekeeper.amendment/1"
_FIXED = frozenset({"schema", "event", "id", "when", "decision"})
_ID = re.compile(r"[A-Za-z0-9_.-]{4,64}")
_RENDER_PATIENCE_S = 5.0


class Journal:
    """The notes in one directory, which is made on the first append.

    Any number of processes and threads may append at once; an entry whose ``append`` returned is on disk, and
    a process that is killed in the middle of one leaves at most a torn line that is skipped. Picklable.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = _absolute(directory)
        self.markdown_path = self.directory / "stops.md"
        self.skipped = 0
        """Torn or foreign lines that the last ``read`` passed over."""
        self._stops = AppendLog(self.directory, "stops", self._add_to_markdown)
        self._amendments = AppendLog(self.directory, "amendments")

    @property
    def path(self) -> Path:
        """The journal itself."""
        return self._stops.path

    def append(self, note: Mapping[str, Any], *, patience_s: float | None = None) -> None:
        """Write one stop, secrets redacted once more. It is durable when this returns.

        Waits at most ``patience_s`` seconds for other writers (loops that must not stall pass 0.05; by
        default half a minute), then writes a file of this process's own that the next writer or reader
        merges. Raises GatekeeperError when nothing can be written: the directory is read-only, the disk full.
        """
        if note.get("schema") != SCHEMA or note.get("event") != "stop":
            raise GatekeeperError(
                f"{self.path} holds stops only: make the note with gatekeeper.notes.stop_note"
            )
        entry = redact(note)
        if not _ID.fullmatch(str(entry.get("id") or "")):
            entry["id"] = secrets.token_hex(8)
        self._stops.append(entry, patience_s)

    def amend(self, note_id: str, *, patience_s: float | None = None, **changes: Any) -> None:
        """Add to a note what became known after the stop: the URL of an offline run, the seconds saved.

        The journal stays as it is; amendments lie beside it in ``amendments.jsonl`` and are applied on
        reading, the last one winning. ``stops.md`` shows them after the next ``render``.
        """
        if fixed := _FIXED.intersection(changes):
            raise GatekeeperError(f"a note's {', '.join(sorted(fixed))} cannot be amended")
        entry = {
            "schema": AMENDMENT_SCHEMA,
            "event": "amendment",
            "id": secrets.token_hex(8),
            "note": note_id,
            "when": now(),
            "set": redact(changes),
        }
        self._amendments.append(entry, patience_s)

    def merge(self) -> None:
        """Move notes that waited in files of single processes into the journal."""
        self._stops.merge()
        self._amendments.merge()

    def read(self) -> list[Entry]:
        """Return the notes, oldest first, each once and amended; ``skipped`` then counts torn lines."""
        return self._read(merge=True)

    def _read(self, *, merge: bool) -> list[Entry]:
        entries, self.skipped = self._stops.read(merge=merge)
        notes = {entry["id"]: entry for entry in entries if _is_stop(entry)}
        self.skipped += len(entries) - len(notes)
        for amendment in self._amendments.read(merge=merge)[0]:
            note, changes = notes.get(str(amendment.get("note"))), amendment.get("set")
            if note is not None and isinstance(changes, dict):
                _amend(note, changes)
                note["amended"] = amendment.get("when")
        return list(notes.values())

    def render(self) -> Path:
        """Rebuild ``stops.md`` and return its path; raises GatekeeperError if it cannot be written."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._stops.settled(_RENDER_PATIENCE_S):
                self._write_markdown()
        except OSError as fault:
            raise GatekeeperError(f"cannot write {self.markdown_path}: {fault.strerror or fault}") from fault
        return self.markdown_path

    def _add_to_markdown(self, entries: Sequence[Entry], first: bool) -> None:
        """Keep ``stops.md`` in step, under the lock. It is never worth failing an append for."""
        with contextlib.suppress(Exception):
            if not first and not self.markdown_path.exists():
                self._write_markdown()
                return
            with open(self.markdown_path, "w" if first else "a", encoding="utf-8") as file:
                file.write((markdown.HEADER if first else "") + "".join(map(markdown.section, entries)))

    def _write_markdown(self) -> None:
        unfinished = self.directory / f".stops.md.{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            unfinished.write_text(markdown.document(self._read(merge=False)), encoding="utf-8")
            os.replace(unfinished, self.markdown_path)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)


def notes_dir(argument: str | Path | None = None, settings: object = None) -> Path:
    """Return where notes go: ``argument``, GATEKEEPER_NOTES, ``settings.notes`` or ./gatekeeper-notes.

    The path is absolute. Call it once, in the process that starts the trials: they change
    their working directory.
    """
    configured = settings.get("notes") if isinstance(settings, Mapping) else getattr(settings, "notes", None)
    return _absolute(argument or os.environ.get("GATEKEEPER_NOTES") or configured or "gatekeeper-notes")


def _absolute(directory: str | Path) -> Path:
    return Path(os.path.abspath(os.path.expanduser(directory)))


def _amend(note: Entry, changes: Mapping[str, Any]) -> None:
    """Apply changes; mappings (``extra``) are joined key by key."""
    for key, value in changes.items():
        old = note.get(key)
        if key not in _FIXED:
            note[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value


def _is_stop(entry: Entry) -> bool:
    return str(entry.get("schema")).startswith("gatekeeper.note/") and entry.get("event") == "stop"
