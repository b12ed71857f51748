"""Plain stdout logs: printed pairs, dict prints, tables, nanoGPT lines, Keras and tqdm progress bars.

What a line holds is read by the first of these that knows it:

* a dict print (``{'loss': 0.5, 'epoch': 1.0}``, JSON too), as the HF Trainer prints it;
* a Keras progress bar: one row an epoch, from its finished bar. A bar that still moves shows running means
  and is passed over, unless it shows NaN or infinity, which is a row at once;
* a tqdm bar: one row for each refresh whose postfix holds metrics, numbered on across bars;
* a table of ``| name | value |`` lines, as Stable-Baselines3 and baselines print it: one row a table;
* pairs (``loss=0.5``, ``loss: 0.5``, ``val loss 0.5``) on a line that also counts steps or names a metric.

A row's step is the line's own counter; else that of the row before; else the epoch of the last ``Epoch 3/20``
header; else the index of the row, from 0. What no line reader knows is not malformed: stdout holds anything.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator

from gatekeeper.metrics import flatten
from gatekeeper.sources.base import Row, Skips, make_row
from gatekeeper.sources.printed import NUMBER, Counters, number, printed_pairs, read_counters
from gatekeeper.sources.steps import choose_step_key, step_value

__all__ = ["TextLog"]

MAX_DICT = 256 * 1024  # characters of a printed dict
MAX_TEXT = 4096  # characters; longer lines are dumps, not logged rows

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
_GAPS = re.compile(r"\s{3,}")
_BREAKS = re.compile(r"[\r\x08]+")
_PREFIXES = re.compile(
    r"""^\s*(?:
        \((?:\w+\s+)?pid=\d+[^)]*\)                                    # Ray workers
      | \[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?\]?     # dates with time
      | \[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?(?=[\s|-])
      | [IWEF]\d{4}\ \d\d:\d\d:\d\d\.\d+\s+\d+\s+\S+\]                  # glog
      | \[?(?:DEBUG|INFO|WARNING|WARN|ERROR)\]?(?::[\w.]+:)?
      | \[(?:default|rank)?\d+\]:?(?=\s*\[?[A-Za-z])                    # ranks of a launcher
    )[\s:|-]*""",
    re.VERBOSE,
)
_DICT = re.compile(r"\{\s*['\"]")
_ITEM = re.compile(
    rf"['\"](?P<key>[^'\"{{}}]+)['\"]\s*:\s*(?:np\.\w+\(|tensor\(\[?|array\()?\s*['\"]?(?P<value>{NUMBER})['\"]?\s*[\])]*\s*(?=[,}}\]])",
    re.IGNORECASE,
)
_KERAS = re.compile(
    r"^\s*(?:(?P<n>\d+)/(?P<total>\d+|Unknown|None)\s*)?"
    r"(?P<bar>\[[=>.\s]*\]|[━╸╺─\s]*)?\s*(?:-\s*)?(?P<rest>(?:ETA:|\d+(?:\.\d+)?(?:s|ms|us|µs)\b|\d+:\d\d|-\s*\w+:).*)$"
)
_KERAS_ITEM = re.compile(
    rf"(?:^|\s-\s)\s*(?P<key>[A-Za-z_][\w./@() -]*?):\s*(?P<value>{NUMBER})(?=\s|$)", re.IGNORECASE
)
_EPOCH_HEADER = re.compile(r"^\s*Epoch:?\s+\[?(\d+)\s*/\s*(\d+)\]?\s*:?\s*$", re.IGNORECASE)
_TQDM = re.compile(
    r"^(?P<desc>[^|%]*?)\s*\d{1,3}%\|[^|]*\|\s*(?P<n>[\d.]+)(?P<nu>[kMG]?)/(?P<total>[\d.]+)(?P<tu>[kMG]?)\s*"
    r"\[(?P<inside>[^\]]*)\]?(?P<rest>.*)$"
)
_TQDM_OPEN = re.compile(r"^(?P<desc>.*?)\b(?P<n>\d+)it\s*\[(?P<inside>\d[^\]]*)\]?(?P<rest>.*)$")
_TQDM_ITEM = re.compile(
    rf"(?:^|,)\s*(?P<key>[A-Za-z_][\w./@ -]*?)\s*[=:]\s*(?P<value>{NUMBER})\s*%?\s*(?=,|$)", re.IGNORECASE
)
_RULE = re.compile(r"^\s*[-+=]{6,}\s*$")
_CELL = re.compile(r"^\s*\|\s*(?P<key>[^|]+?)\s*\|\s*(?P<value>[^|]*?)\s*\|\s*$")
_SCALE = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_NO_METRICS = frozenset({"v_num", "eta"})


class TextLog:
    """Decodes printed lines. A carriage return ends a line like a line break: it is how bars are redrawn."""

    returns = True

    def __init__(self, skips: Skips, step_key: str | None = None) -> None:
        self._skips = skips
        self._declared = step_key
        self._counters = Counters(step_key)
        self._index = 0
        self._epoch: int | None = None  # of the last header "Epoch 3/20"
        self._epoch_total: str | None = None  # batches of that epoch's finished bar
        self._epoch_keys: frozenset[str] = frozenset()  # and its metrics
        self._alarmed = False  # this epoch's moving bar showed NaN already
        self._redrawn: tuple[dict[str, object], str] | None = (
            None  # a finished bar that may be drawn once more
        )
        self._bar: tuple[float, float, dict[str, object]] | None = None
        self._bar_base = 0.0
        self._table: dict[str, object] | None = None
        self._section = ""

    def feed(self, text: str) -> Iterator[Row]:
        """Yield the rows of ``text``, which holds whole lines."""
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        for line in text.split("\n"):
            if "\r" in line or "\x08" in line:
                pieces = [piece for piece in _BREAKS.split(line) if piece.strip()]
                for at, piece in enumerate(pieces):
                    last = at == len(pieces) - 1 and not line.endswith(("\r", "\x08"))
                    yield from self._line(piece, redrawn=not last)
            else:
                yield from self._line(line, redrawn=False)

    def finish(self) -> Iterator[Row]:
        """Yield a finished bar that was not drawn once more, and a table that was not closed."""
        yield from self._flush()
        row = self._end_table()
        if row is not None:
            yield row

    def _line(self, line: str, *, redrawn: bool) -> Iterator[Row]:
        if not line or line.isspace():
            return
        if len(line) > (MAX_DICT if line.lstrip().startswith("{") else MAX_TEXT):
            return
        if "   " in line or "\t" in line:  # padding carries nothing, and bars are full of it
            line = _GAPS.sub(lambda gap: "\t" if "\t" in gap.group() else "  ", line)
        if self._table is not None or line.lstrip().startswith(("|", "---", "+--")):
            row, taken = self._table_line(line)
            if row is not None:
                yield row
            if taken:
                return
        while True:
            cut = _PREFIXES.sub("", line, count=1)
            if cut == line:
                break
            line = cut
        header = _EPOCH_HEADER.match(line)
        if self._redrawn is not None and not _KERAS.match(line):
            yield from self._flush()
        if header:
            self._epoch, self._epoch_total, self._alarmed = int(header.group(1)), None, False
            return
        if "{" in line and _DICT.search(line):
            row = self._dict_print(line)
            if row is not None:
                yield row
            return
        if "%|" in line or "it [" in line:
            match = _TQDM.match(line) or _TQDM_OPEN.match(line)
            if match:
                row = self._bar_row(match)
                if row is not None:
                    yield row
                line = match.group("rest") or ""
                if not line.strip():
                    return
        keras = _KERAS.match(line)
        if keras and (keras.group("n") or keras.group("rest").startswith(("-", "ETA")) or " - " in line):
            yield from self._keras(keras, redrawn=redrawn)
            return
        row = self._pairs(line)
        if row is not None:
            yield row

    # -- steps ---------------------------------------------------------------------------------------------

    def _row(self, metrics: dict[str, object], step: float | None = None) -> Row:
        """Make the row, with the step of the context where the line has none."""
        if step is None:
            step = self._counters.last
        else:
            self._counters.last = step
        if step is None and self._epoch is not None:
            step = self._epoch
        if step is None:
            step = self._index
        self._index += 1
        return make_row(step, metrics)

    # -- dict prints ---------------------------------------------------------------------------------------

    def _dict_print(self, line: str) -> Row | None:
        start = line.index("{")
        metrics: dict[str, object] = {}
        try:
            parsed = json.loads(line[start:].strip())
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            for key, value in flatten(parsed).items():
                found = value if isinstance(value, (int, float)) else number(str(value))
                if found is not None and not isinstance(value, bool):
                    metrics[key] = found
        else:
            for item in _ITEM.finditer(line, start):
                metrics[item.group("key")] = number(item.group("value"))
        if not metrics:
            return None
        step_key = self._declared if self._declared in metrics else choose_step_key(metrics)
        step = None
        if step_key is not None:
            step = step_value(metrics.pop(step_key))
        else:
            counts = read_counters(line[:start])
            if counts:
                step = self._counters.step(counts)
        return self._row(metrics, step) if metrics else None

    # -- progress bars -------------------------------------------------------------------------------------

    def _keras(self, match: re.Match[str], *, redrawn: bool) -> Iterator[Row]:
        rest = match.group("rest")
        metrics: dict[str, object] = {
            item.group("key").strip(): number(item.group("value"))
            for item in _KERAS_ITEM.finditer(rest)
            if item.group("key") != "ETA"
        }
        total = match.group("total")
        if not metrics:
            return
        if match.group("n") not in (total, None) or "ETA:" in rest:
            self._redrawn = None
            broken = any(isinstance(value, float) and not math.isfinite(value) for value in metrics.values())
            if broken and not self._alarmed:
                self._alarmed = True
                yield self._keras_row(metrics)
            return
        if redrawn:
            self._redrawn = (metrics, total or "")
            return
        self._redrawn = None
        yield self._keras_finished(metrics, total or "")

    def _flush(self) -> Iterator[Row]:
        if self._redrawn is not None:
            metrics, total = self._redrawn
            self._redrawn = None
            yield self._keras_finished(metrics, total)

    def _keras_finished(self, metrics: dict[str, object], total: str) -> Row:
        again = self._epoch is not None and self._epoch_total is not None
        if again and (self._epoch_total != total or not self._epoch_keys <= metrics.keys()):
            # A second finished bar under the same header, of another length or with less in it: evaluate().
            metrics = {
                key if key.startswith("val_") else f"eval_{key}": value for key, value in metrics.items()
            }
        else:
            self._epoch_total, self._epoch_keys = total, frozenset(metrics)
        return self._keras_row(metrics)

    def _keras_row(self, metrics: dict[str, object]) -> Row:
        return self._row(metrics, self._epoch)

    def _bar_row(self, match: re.Match[str]) -> Row | None:
        metrics: dict[str, object] = {
            item.group("key").strip(): number(item.group("value"))
            for item in _TQDM_ITEM.finditer(match.group("inside"))
            if item.group("key").strip() not in _NO_METRICS
        }
        counts = read_counters(match.group("desc"))
        for key, value, _ in printed_pairs(
            counts.rest if counts else match.group("desc"), counted=bool(counts)
        ):
            metrics.setdefault(key, value)
        if not metrics:
            return None
        groups = match.groupdict()
        at = float(groups["n"]) * _SCALE[groups.get("nu") or ""]
        if self._bar is not None:
            before, _, shown = self._bar
            if before == at and shown == metrics:
                return None
            if at < before:
                self._bar_base += before
        self._bar = (at, 0.0, dict(metrics))
        return self._row(metrics, self._bar_base + at)

    # -- tables --------------------------------------------------------------------------------------------

    def _table_line(self, line: str) -> tuple[Row | None, bool]:
        """Read one line of a table; the row when the table ends, and whether the line belonged to it."""
        if _RULE.match(line):
            row = self._end_table()
            self._table, self._section = {}, ""
            return row, True
        cell = _CELL.match(line)
        if cell is None or self._table is None:
            return self._end_table(), False
        key, value = cell.group("key"), cell.group("value")
        if not value:
            self._section = key if key.endswith("/") else f"{key}/"
            return None, True
        found = number(value)
        if found is not None:
            self._table[(self._section if line.lstrip("| ") and line.startswith("|  ") else "") + key] = found
        return None, True

    def _end_table(self) -> Row | None:
        table, self._table = self._table, None
        if not table:
            return None
        key = self._declared if self._declared in table else choose_step_key(table)
        step = step_value(table.pop(key)) if key is not None else None
        return self._row(table, step) if table else None

    # -- pairs ---------------------------------------------------------------------------------------------

    def _pairs(self, line: str) -> Row | None:
        counts = read_counters(line)
        rest = line
        if counts:
            rest = counts.rest
        pairs = printed_pairs(rest, counted=bool(counts))
        if not pairs:
            return None
        metrics: dict[str, object] = {}
        for key, value, _ in pairs:
            metrics.setdefault(key, value)
        if counts and counts.nanogpt_eval and {"train_loss", "val_loss"} <= metrics.keys():
            # nanoGPT's estimate over eval_iters batches is not the loss that its "iter" lines print.
            metrics = {
                "train_loss_est" if key == "train_loss" else key: value for key, value in metrics.items()
            }
        if self._declared in metrics:
            return self._row(metrics, step_value(metrics.pop(self._declared)))
        return self._row(metrics, self._counters.step(counts) if counts else None)


def _eval_name(key: str) -> str:
    return key if key.startswith("val_") else f"eval_{key}"


def _estimate_name(key: str) -> str:
    return "train_loss_est" if key == "train_loss" else key
