"""The logs in a directory: known names and suffixes, and tables with a metric; not every text file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from gatekeeper.errors import SourceError
from gatekeeper.roles import understand

__all__ = ["find_logs"]

MAX_DEPTH = 8
_SKIPPED_DIRS = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "env"})
_NAMES = frozenset(
    {
        "evaluations.npz",
        "eval.csv",
        "eval_results.csv",
        "history.csv",
        "history.json",
        "log.csv",
        "log.txt",
        "log_history.json",
        "logs.csv",
        "measurements.csv",
        "metrics.csv",
        "metrics.json",
        "monitor.csv",
        "output.log",
        "progress.csv",
        "progress.json",
        "progress.txt",
        "result.json",
        "results.csv",
        "stdout",
        "stdout.txt",
        "train_log.csv",
        "train_log.txt",
        "trainer_state.json",
        "training_log.csv",
    }
)
_SUFFIXES = (".jsonl", ".ndjson", ".log", ".out", ".monitor.csv", "_metrics.csv", "_history.json", "_log.csv")
_HEADER = 16 * 1024
_TELLING = frozenset({"loss", "aux_loss", "value_loss", "eval", "train_metric", "grad_norm"})
_CHECKPOINT = re.compile(r"^checkpoint-(\d+)$")


def is_event_file(name: str) -> bool:
    """Say whether a file name is that of a TensorBoard event file."""
    return "tfevents" in name and not name.endswith((".profile-empty", ".lock"))


def is_log_name(name: str) -> bool:
    """Say whether a file of this name is a log that a directory stands for."""
    lower = name.lower().removesuffix(".gz")
    return lower in _NAMES or lower.endswith(_SUFFIXES) or is_event_file(lower)


def find_logs(root: Path, suffixes: tuple[str, ...] = ()) -> list[Path]:
    """Return the logs under ``root``, sorted, one for each run and format.

    Where a Ray trial wrote the same rows three times, its result.json is taken; where a directory has a
    progress.csv beside event files, the former; of the checkpoints of one HF run, the newest state.
    ``suffixes`` are those that plugins read.

    Raises:
        SourceError: There is no log, or the directory cannot be read.

    """
    try:
        os.listdir(root)
    except OSError as error:
        raise SourceError(f"{root} cannot be read: {error.strerror or error}") from None
    found: list[Path] = []
    for folder, subdirs, files in os.walk(root):
        here = Path(folder)
        if len(here.relative_to(root).parts) >= MAX_DEPTH:
            subdirs[:] = []
        subdirs[:] = sorted(
            name for name in subdirs if not name.startswith(".") and name not in _SKIPPED_DIRS
        )
        names = {
            name
            for name in files
            if not name.startswith(".")
            and (is_log_name(name) or name.endswith(suffixes) or _is_metrics_table(here / name))
        }
        if "trainer_state.json" in names:  # the run's own; its checkpoints hold shorter copies
            subdirs[:] = [name for name in subdirs if not _CHECKPOINT.match(name)]
        else:
            subdirs[:] = _newest_checkpoint(here, subdirs)
        found.extend(here / name for name in sorted(_one_of_each(names, set(files))))
    if not found:
        raise SourceError(
            f"{root} holds no metrics log{_unknown(root)}: give the log's own path, or a directory with "
            "metrics.csv, *.jsonl, trainer_state.json, event files or the like"
        )
    return found


def _is_metrics_table(path: Path) -> bool:
    """Say whether a CSV or TSV of any name has a loss or a score among its columns: a log, no data set."""
    if path.suffix.lower() not in (".csv", ".tsv"):
        return False
    try:
        with path.open("rb") as file:
            head = file.readline(_HEADER).decode("utf-8-sig", "replace")
    except OSError:
        return False
    return any(understand(cell.strip().strip('"')).role in _TELLING for cell in re.split("[,\t;]", head))


def _unknown(root: Path) -> str:
    """Name one of the tables that may be logs, but are not known by their names."""
    tables = sorted(name for name in os.listdir(root) if name.lower().removesuffix(".gz").endswith(".csv"))
    return f" of a known name ({tables[0]} is none)" if tables else ""


def _one_of_each(names: set[str], files: set[str]) -> set[str]:
    """Leave out what repeats another log of the same directory."""
    if "result.json" in names and files & {"params.json", "params.pkl"}:
        names = names - {"progress.csv"}
        names = {name for name in names if not is_event_file(name)}
    elif "progress.csv" in names:
        names = {name for name in names if not is_event_file(name)}
        names -= {"log.txt", "progress.json"}
    return names


def _newest_checkpoint(here: Path, subdirs: list[str]) -> list[str]:
    numbered = [(int(match.group(1)), name) for name in subdirs if (match := _CHECKPOINT.match(name))]
    with_state = [
        (number, name) for number, name in numbered if (here / name / "trainer_state.json").exists()
    ]
    newest = max(with_state)[1] if with_state else None
    return [name for name in subdirs if not _CHECKPOINT.match(name) or name == newest]
