"""CSV logs: Lightning, Keras, Ultralytics, Stable-Baselines3, baselines, monitor, AlgoPerf, Ray and kin."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator

from gatekeeper.sources.base import Row, Skips, make_row
from gatekeeper.sources.jsonl import drop_ray_keys, looks_like_ray
from gatekeeper.sources.steps import choose_step_key, step_value

__all__ = ["CsvLog", "cell_number", "delimiter_of"]

MAX_QUOTED_LINES = 200  # a quoted cell that runs on for longer is a stray quote
_TENSOR = re.compile(r"tensor\(\s*\[?\s*([^\s,\])]+)")
_EPISODE = {"r", "l", "t"}


def cell_number(cell: str) -> float | None:
    """Return a cell as a number; blank and text cells are None (a printed ``tensor(0.5)`` is its value)."""
    try:
        return float(cell)
    except ValueError:
        match = _TENSOR.match(cell.strip())
        try:
            return float(match.group(1)) if match else None
        except ValueError:
            return None


def delimiter_of(header: str) -> str:
    """Return the delimiter that a header line uses."""
    return max(",\t;", key=header.count)


class CsvLog:
    """Decodes CSV a block of whole lines at a time. Blank cells are absent keys; text cells are left out.

    A row's step is its step column. Without one the step is the row's index, from 0 (Keras' CSVLogger without
    an epoch column), and in a monitor file the cumulative episode length.
    """

    returns = False

    def __init__(self, skips: Skips, step_key: str | None = None) -> None:
        self._skips = skips
        self._declared = step_key
        self._header: list[str] | None = None
        self._columns: list[tuple[int, str]] = []
        self._delimiter = ","
        self._step_at: int | None = None
        self._monitor = False
        self._ray = False
        self._index = 0
        self._played = 0.0  # a monitor file's environment steps so far
        self._line = 0
        self._open: list[str] = []  # the lines of a row whose quoted cell is not closed yet

    def finish(self) -> Iterator[Row]:
        """Hold nothing back."""
        return iter(())

    def feed(self, text: str) -> Iterator[Row]:
        """Yield the rows of ``text``, which holds whole lines."""
        quoted = '"' in text or bool(self._open)
        for line in text.split("\n")[:-1]:
            self._line += 1
            if quoted and (self._open or line.count('"') % 2):
                whole = self._quoted(line)
                if whole is None:
                    continue
                line = whole  # noqa: PLW2901
            if not line or line.isspace():
                continue
            if line[0] == "#":
                self._monitor = self._monitor or line.startswith("#{")
                continue
            row = self._row(line)
            if row is not None:
                yield row

    def _quoted(self, line: str) -> str | None:
        """Collect the lines of a row whose quoted cell holds a line break; None until it is whole."""
        if self._open and not line.count('"') % 2:
            self._open.append(line)
            if len(self._open) > MAX_QUOTED_LINES:
                self._skips.add(f"line {self._line - MAX_QUOTED_LINES}", self._open[0])
                self._open = []
            return None
        self._open.append(line)
        if len(self._open) == 1:
            return None
        whole, self._open = "\n".join(self._open), []
        return whole

    def _cells(self, line: str) -> list[str] | None:
        if '"' not in line:
            return line.rstrip("\r").split(self._delimiter)
        try:
            return next(csv.reader([line], delimiter=self._delimiter, skipinitialspace=True))
        except (csv.Error, StopIteration):
            return None

    def _row(self, line: str) -> Row | None:
        if self._header is None:
            self._delimiter = delimiter_of(line)
            self._start(self._cells(line) or [line])
            return None
        cells = self._cells(line)
        if cells is None:
            self._skips.add(f"line {self._line}", line)
            return None
        width = len(self._header)
        if len(cells) != width or (cells[-1] and cell_number(cells[-1]) is None):
            # The odd shapes only: a header in the middle (a resumed or concatenated log), a torn row.
            if self._is_header(cells):
                self._start(cells)
                return None
            if len(cells) < width or any(cell.strip() for cell in cells[width:]):
                self._skips.add(f"line {self._line}", line)
                return None
        return self._numbers(cells, line)

    def _numbers(self, cells: list[str], line: str) -> Row | None:
        metrics: dict[str, object] = {}
        for at, name in self._columns:
            cell = cells[at]
            if cell:
                try:
                    metrics[name] = float(cell)
                except ValueError:
                    number = cell_number(cell)
                    if number is not None:
                        metrics[name] = number
        step: float | None
        if self._step_at is not None:
            cell = cells[self._step_at].strip()
            step = step_value(cell)
            if cell and step is None:
                if self._is_header(cells):
                    self._start(cells)
                else:
                    self._skips.add(f"line {self._line}", line)
                return None
        elif self._monitor:
            length = metrics.get("l")
            self._played += length if isinstance(length, float) and math.isfinite(length) else 0.0
            step = self._played
        else:
            if not metrics:
                if self._is_header(cells):
                    self._start(cells)
                return None
            step = float(self._index)
        self._index += 1
        if self._ray:
            drop_ray_keys(metrics)
        return make_row(step, metrics) if metrics or step is not None else None

    def _is_header(self, cells: list[str]) -> bool:
        """Say whether a row in the middle is a header: named cells, no numbers."""
        named = [cell.strip() for cell in cells if cell.strip()]
        return len(named) > 1 and all(cell_number(cell) is None for cell in named)

    def _start(self, cells: list[str]) -> None:
        """Begin a table with these column names."""
        names = [cell.strip() for cell in cells]
        self._header = names
        self._monitor = self._monitor or (set(names) >= _EPISODE and len(names) <= 8)
        key = self._declared if self._declared in names else None
        if key is None:
            key = choose_step_key(name for name in names if name)
        self._step_at = names.index(key) if key is not None else None
        self._columns = [(at, name) for at, name in enumerate(names) if name and at != self._step_at]
        self._ray = looks_like_ray(names)
