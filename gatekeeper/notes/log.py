"""An append-only JSON Lines file that many processes write at once.

An entry is on disk (``fsync``) when ``append`` returns: after a killed process or a crashed machine it is
still there, as far as disk and file system keep that promise. An append that does not get the lock in time
writes a file of its own, complete and under its final name by an atomic rename; whoever holds the lock next
moves it into the log. Entries are told apart by their ``id``, so that a move that was interrupted and done
again counts once.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gatekeeper import strictjson
from gatekeeper.errors import GatekeeperError
from gatekeeper.notes.lock import exclusive

__all__ = ["AppendLog", "Entry"]

Entry = dict[str, Any]

# Longer than any append takes: a lock is then taken for stuck, and nothing is lost by not waiting for it.
_DEFAULT_PATIENCE_S = 30.0
_READ_PATIENCE_S = 0.5
_STALE_S = 3600.0
# What JSON allows inside a string and other tools take for a line break, or cannot encode.
_AWKWARD = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def encode(entry: Entry) -> bytes:
    """Return the entry as one line of strict JSON, newline included."""
    text = _AWKWARD.sub(lambda match: f"\\u{ord(match.group()):04x}", strictjson.dumps(entry))
    return text.encode("utf-8") + b"\n"


class AppendLog:
    """``<stem>.jsonl`` in ``directory``, its lock and the files of processes that did not get the lock."""

    def __init__(
        self, directory: Path, stem: str, on_commit: Callable[[Sequence[Entry], bool], None] | None = None
    ) -> None:
        self.path = directory / f"{stem}.jsonl"
        self._directory, self._stem = directory, stem
        self._lock = directory / f".{stem}.lock"
        self._own_file = re.compile(rf"{re.escape(stem)}\.[^.]+\.[^.]+\.jsonl")
        self._on_commit = on_commit

    def append(self, entry: Entry, patience_s: float | None = None) -> None:
        """Write one entry, durable on return. Raises GatekeeperError when it cannot be written anywhere."""
        patience = _DEFAULT_PATIENCE_S if patience_s is None else max(0.0, patience_s)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            with exclusive(self._lock, patience) as held:
                if held and self._commit([entry]):
                    return
            self._write_own_file(entry)  # also where the log itself is another user's
        except OSError as fault:
            raise GatekeeperError(
                f"cannot write a note to {self._directory}: {fault.strerror or fault}; "
                "free space, make it writable, or name another place with --notes DIR or GATEKEEPER_NOTES"
            ) from fault

    def merge(self, patience_s: float | None = None) -> None:
        """Move what processes wrote to files of their own into the log, if the lock is had in time."""
        if self._own_files():
            with exclusive(self._lock, _DEFAULT_PATIENCE_S if patience_s is None else patience_s) as held:
                if held:
                    self._commit([])

    @contextlib.contextmanager
    def settled(self, patience_s: float) -> Iterator[bool]:
        """Hold the lock, if it is had in time, with everything merged."""
        with exclusive(self._lock, patience_s) as held:
            if held:
                self._commit([])
            yield held

    def read(self, *, merge: bool = True) -> tuple[list[Entry], int]:
        """Return every entry once, in the order written, and the number of torn or foreign lines skipped."""
        if merge:
            self.merge(_READ_PATIENCE_S)
        # Own files first: one that is merged meanwhile is seen twice, which counts once, and never missed.
        waiting = list(self._waiting().values())
        try:
            written = _read_bytes(self.path)
            if merge and not written.endswith(b"\n") and written:  # torn, or another process is just writing
                with exclusive(self._lock, _READ_PATIENCE_S):
                    written = _read_bytes(self.path)
        except OSError as fault:
            raise GatekeeperError(
                f"cannot read {self.path}: {fault.strerror or fault}; check that it is a readable file"
            ) from fault
        return _parse([written, *waiting])

    def _own_files(self) -> list[Path]:
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        return [self._directory / name for name in sorted(names) if self._own_file.fullmatch(name)]

    def _waiting(self) -> dict[Path, bytes]:
        """Return what the own files hold, those left out that were merged meanwhile or cannot be read."""
        found: dict[Path, bytes] = {}
        for path in self._own_files():
            with contextlib.suppress(OSError):
                found[path] = _read_bytes(path)
        return found

    def _commit(self, entries: Sequence[Entry]) -> bool:
        """Add entries and the waiting own files to the log, all or none. The caller holds the lock."""
        try:
            self._write(entries)
        except OSError:
            return False
        return True

    def _write(self, entries: Sequence[Entry]) -> None:
        waiting = {path: found for path, text in self._waiting().items() if (found := _parse([text])[0])}
        merged = self._not_yet_written([entry for found in waiting.values() for entry in found])
        new = [*merged, *entries]
        if new:
            first = self._write_lines(b"".join(map(encode, new)))
            if self._on_commit is not None:
                self._on_commit(new, first)
        for path in waiting:
            with contextlib.suppress(OSError):
                path.unlink()
        if waiting:
            self._sweep()

    def _not_yet_written(self, entries: list[Entry]) -> list[Entry]:
        if not entries:
            return []
        ids = {str(entry.get("id")) for entry in entries}
        marks = [identity.encode() for identity in ids]
        lines = [line for line in _read_bytes(self.path).split(b"\n") if any(mark in line for mark in marks)]
        written = {str(entry.get("id")) for entry in _parse(lines)[0]}
        return [entry for entry in entries if str(entry.get("id")) not in written]

    def _write_lines(self, lines: bytes) -> bool:
        """Append whole lines, all or none; returns whether the log was empty before."""
        with open(self.path, "a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # the tail of a killed process: leave it, start on a fresh line
                    lines = b"\n" + lines
            try:
                view = memoryview(lines)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)
                raise
        if not size:
            _sync_directory(self._directory)
        return not size

    def _write_own_file(self, entry: Entry) -> None:
        host = re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname())[:40] or "host"
        name = f"{self._stem}.{host}-{os.getpid()}.{secrets.token_hex(8)}.jsonl"
        unfinished = self._directory / f"{name}.tmp"
        try:
            with open(unfinished, "xb") as file:
                file.write(encode(entry))
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self._directory / name)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        _sync_directory(self._directory)

    def _sweep(self) -> None:
        """Remove what killed processes left unfinished."""
        for path in self._directory.glob(f"{self._stem}.*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_S:
                    path.unlink()


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _parse(chunks: Iterable[bytes]) -> tuple[list[Entry], int]:
    entries: dict[str, Entry] = {}
    skipped = 0
    for line in (line for chunk in chunks for line in chunk.split(b"\n") if line.strip()):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # torn, or not text at all
            entry = None
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            entries.setdefault(entry["id"], entry)
        else:
            skipped += 1
    return list(entries.values()), skipped


def _sync_directory(directory: Path) -> None:
    """Make a new name in ``directory`` durable, where the platform can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
