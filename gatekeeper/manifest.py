"""A manifest: the CSV file that lists recorded runs and what became of each."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper.config import settings_from
from gatekeeper.errors import GatekeeperError

__all__ = ["EXPECTED", "Case", "is_manifest", "read_manifest"]

EXPECTED = ("stop", "continue", "flag", "")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True)
class Case:
    """One recorded run and what became of it (``expected`` empty: not known)."""

    source: str
    expected: str = ""
    first_bad_step: float | None = None
    metric: str | None = None
    mode: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    budget_steps: float | None = None


def is_manifest(path: Path) -> bool:
    """Say whether a CSV file lists runs (it has a column ``source``) rather than metrics."""
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as stream:
            head = next(csv.reader(stream), [])
    except (OSError, csv.Error):
        return False
    return "source" in [cell.strip() for cell in head]


def read_manifest(path: Path) -> list[Case]:
    """Return the cases of a manifest, in its order; their sources are relative to it.

    Raises:
        GatekeeperError: It cannot be used; the text names the file, line and column.

    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            cases = [_Line(path, reader.line_num, row).case() for row in reader]
    except OSError as fault:
        raise GatekeeperError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    except UnicodeDecodeError as fault:
        raise GatekeeperError(f"{path} is no UTF-8 text (byte {fault.start}): save it as UTF-8") from fault
    except csv.Error as fault:
        raise GatekeeperError(f"{path}, line {reader.line_num}: no CSV: {fault}") from fault
    if not cases:
        raise GatekeeperError(f"{path} lists no runs: it needs a line for each, with its log under `source`")
    return cases


class _Line:
    """One line of a manifest: its cells, and where to say that one of them is wrong."""

    def __init__(self, path: Path, number: int, row: Mapping[str | None, object]) -> None:
        self._path = path
        self._number = number
        self._cells = {str(key).strip(): cell.strip() for key, cell in row.items() if isinstance(cell, str)}

    def case(self) -> Case:
        """Return what the line says."""
        return Case(
            source=self._source(),
            expected=self._one_of("expected", EXPECTED),
            first_bad_step=self._number_in("first_bad_step"),
            metric=self._cells.get("metric") or None,
            mode=self._one_of("mode", ("min", "max", "")) or None,
            roles=self._roles(),
            group=self._cells.get("group", ""),
            budget_steps=self._number_in("budget_steps"),
        )

    def _source(self) -> str:
        source = self._cells.get("source", "")
        if not source:
            raise self._wrong("source", "is empty: give the run's log, relative to this file")
        local = self._path.parent / source
        if os.path.exists(local):
            return str(local)
        # A run on a server: a URL, a prefix, or three parts without a file extension.
        parts = source.count("/") in (2, 3) and not Path(source).suffix and not os.path.exists(source)
        return source if parts or _SCHEME.match(source) else str(local)

    def _one_of(self, column: str, known: tuple[str, ...]) -> str:
        text = self._cells.get(column, "").lower()
        if text not in known:
            raise self._wrong(column, f"{text!r} must be {', '.join(filter(None, known))} or empty")
        return text

    def _number_in(self, column: str) -> float | None:
        text = self._cells.get(column, "")
        try:
            number = float(text) if text else None
        except ValueError:
            number = math.nan
        if number is not None and not math.isfinite(number):
            raise self._wrong(column, f"{text!r} must be a finite number or empty")
        return number

    def _roles(self) -> Mapping[str, str]:
        roles = {}
        for part in filter(None, (part.strip() for part in self._cells.get("roles", "").split(";"))):
            role, mark, name = (piece.strip() for piece in part.partition("="))
            if not (role and mark and name):
                raise self._wrong("roles", f"{part!r} is not ROLE=KEY, as in loss=train/loss;eval=val/loss")
            roles[role] = name
        return settings_from({"roles": roles}, self._where("roles")).roles

    def _where(self, column: str) -> str:
        return f"{self._path}, line {self._number}, column {column}"

    def _wrong(self, column: str, why: str) -> GatekeeperError:
        return GatekeeperError(f"{self._where(column)}: {why}")
