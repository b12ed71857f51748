"""What kind of log some bytes are: by content first, by the file's name where that leaves it open."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Skips, SourceOptions
from gatekeeper.sources.csvlog import CsvLog, cell_number, delimiter_of
from gatekeeper.sources.jsonl import JsonLines
from gatekeeper.sources.lines import Decoder

__all__ = ["decoder_for", "kind_of_lines"]

ENOUGH = 64 * 1024  # bytes after which the kind must be decided
LINES = 20
_HEADER_NAME = re.compile(r"^[\w\s./:@()\-\[\]%^+#,']*$")


def decoder_for(
    name: str, options: SourceOptions
) -> Callable[[bytes, bool], Callable[[Skips], Decoder] | None]:
    """Return the function that a LineSource calls to choose its decoder."""

    def choose(head: bytes, final: bool) -> Callable[[Skips], Decoder] | None:
        kind = kind_of_lines(name, head[:ENOUGH], final=final or len(head) >= ENOUGH)
        if kind is None:
            return None
        key = options.step_key
        if kind == "jsonl":
            return lambda skips: JsonLines(skips, key)
        if kind == "csv":
            return lambda skips: CsvLog(skips, key)
        from gatekeeper.sources.textlog import TextLog  # whose patterns take a while to compile

        return lambda skips: TextLog(skips, key)

    return choose


def kind_of_lines(name: str, head: bytes, *, final: bool) -> str | None:
    """Return "jsonl", "csv" or "text", or None where more bytes are needed to tell.

    Raises:
        SourceError: The bytes are no text.

    """
    if b"\x00" in head[:1024]:
        raise SourceError(
            f"{name} is binary and no known log format: give a metrics log (JSON Lines, CSV, text)"
        )
    lower = name.lower().removesuffix(".gz")
    complete = head if final else head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
    lines = [line for line in complete.decode("utf-8", "replace").splitlines() if line.strip()][:LINES]
    if not lines:
        return None
    objects = sum(_is_object(line) for line in lines)
    if objects * 2 > len(lines):
        return "jsonl"
    table = _is_table(lines)
    if table is None and not final:
        return None
    if table:
        return "csv"
    if lower.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if lower.endswith((".csv", ".tsv")):
        return "csv"
    return "jsonl" if objects and not _dict_prints(lines) else "text"


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _dict_prints(lines: list[str]) -> int:
    count = 0
    for line in lines:
        if line.lstrip().startswith("{'"):
            try:
                count += isinstance(ast.literal_eval(line.strip()), dict)
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    return count


def _is_table(lines: list[str]) -> bool | None:
    """Say whether the lines are a CSV header with numeric rows; None where only the header is there."""
    if lines[0].startswith("#{"):
        lines = lines[1:]
        if not lines:
            return None
    names = [name.strip() for name in lines[0].split(delimiter_of(lines[0]))]
    named = [name for name in names if name]
    if len(named) < 2 or any(cell_number(name) is not None or not _HEADER_NAME.match(name) for name in named):
        return False
    if len(lines) == 1:
        return None
    cells = lines[1].split(delimiter_of(lines[0]))
    numbers = sum(cell_number(cell) is not None for cell in cells)
    return len(cells) == len(names) and numbers * 2 >= sum(bool(cell.strip()) for cell in cells)
