"""Runs on disk: `.wandb` files, online or offline, finished or still being written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Row, SourceOptions

from gatekeeper_wandb.logblocks import LogBlocks
from gatekeeper_wandb.records import (
    HISTORY,
    STATS,
    RunInfo,
    apply_record,
    history_items,
    record_kind,
    system_items,
)
from gatekeeper_wandb.rows import history_row, is_metric_value
from gatekeeper_wandb.wire import WireError

__all__ = ["DotWandbSource", "is_run_directory", "run_files"]

_RUN_DIRECTORY = re.compile(r"(offline-)?run-\d{8}_\d{6}-.+|latest-run")


class DotWandbSource:
    """One `.wandb` file as a source of rows; each call of `rows` yields those that are new.

    The SDK writes 32 KiB at a time, so a live run's last rows come with a delay. GPU statistics join the next
    history row. ``run`` holds the run's names, configuration and exit code as far as they were read.
    """

    def __init__(self, path: str | os.PathLike[str], options: SourceOptions | None = None) -> None:
        self.name = str(path)
        self.path = Path(path).resolve()  # latest-run is a link that moves on with the next run
        self.options = options or SourceOptions()
        self.run = RunInfo()
        self._log = LogBlocks(self.path)
        self._system: dict[str, object] = {}
        self._yielded = False

    @property
    def skipped(self) -> int:
        """How many damaged or malformed records were skipped."""
        return self._log.skips.count

    @property
    def skipped_examples(self) -> list[str]:
        """At most five of them, by their place in the file."""
        return self._log.skips.examples

    @property
    def truncated(self) -> bool:
        """Whether the file ended inside a record at the last look."""
        return self._log.truncated

    @property
    def run_state(self) -> str | None:
        """How the run ended by its own account; None while it runs, and where its writer was killed."""
        if self.run.exit_code is not None:
            return "finished" if self.run.exit_code == 0 else "failed"
        return "preempting" if self.run.preempting else None

    @property
    def run_url(self) -> str | None:
        """Where the run is on its server; None for an offline run that was not synced yet."""
        run = self.run
        if not (run.entity and run.project and run.run_id):
            return None
        synced = Path(f"{self.path}.synced").exists()
        if self.path.parent.name.startswith("offline-") and not synced:
            return None
        parts = (run.entity, run.project, "runs", run.run_id)
        return "/".join([_app_url(), *(quote(part, safe="=+&$@") for part in parts)])

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call.

        Raises:
            SourceError: The file cannot be read, is no `.wandb` file, or is at its end without a row.

        """
        for record in self._log.records():
            try:
                kind, payload = record_kind(record)
                if kind == HISTORY:
                    row = history_row(history_items(payload), self._system, self.options.step_key)
                    if row is not None:
                        self._system = {}
                        self._yielded = True
                        yield row
                elif kind == STATS:
                    found = system_items(payload).items()
                    self._system.update(
                        (key, value)
                        for key, value in found
                        if key.startswith("system.gpu.") and is_metric_value(value)
                    )
                elif kind:
                    apply_record(self.run, kind, payload)
            except (WireError, RecursionError) as fault:
                self._log.skips.add("a record", str(fault))
        if not self._yielded and not self.options.follow:
            raise SourceError(f"{self.name}: {self._why_empty()}")

    def _why_empty(self) -> str:
        if self.skipped:
            return f"no readable row, {self.skipped} damaged records; read it from its server or its own log"
        if self.run_state:
            return f"the run ended ({self.run_state}) without logging a metric"
        return (
            "no rows yet: the SDK writes 32 KiB at a time, and a run killed by SIGTERM loses what it held; "
            "look again later, or read the run from its server or its own log"
        )


def run_files(directory: Path) -> list[Path]:
    """Return the `.wandb` files of a run directory, or of those in a `wandb` folder, oldest first."""
    files = sorted(directory.glob("run-*.wandb*"))
    if not files:
        folders = (
            entry for entry in directory.iterdir() if not entry.is_symlink() and is_run_directory(entry)
        )
        files = [
            file for folder in sorted(folders, key=_started) for file in sorted(folder.glob("run-*.wandb*"))
        ]
    return [file for file in files if file.name.endswith((".wandb", ".wandb.gz"))]


def is_run_directory(directory: Path) -> bool:
    """Say whether a directory is one the SDK made for a run (``offline-run-…``, ``latest-run``)."""
    if not directory.is_dir():
        return False
    return _RUN_DIRECTORY.fullmatch(directory.name) is not None or any(directory.glob("run-*.wandb"))


def _started(folder: Path) -> str:
    return folder.name.removeprefix("offline-")


def _app_url() -> str:
    """Return where the configured server's web pages are (the SDK is not asked: it is slow to import)."""
    chosen = os.environ.get("WANDB_APP_URL") or os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    parts = urlsplit(chosen.rstrip("/"))
    host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    if host == "api.wandb.ai":
        host = "wandb.ai"
    return f"{parts.scheme}://{host}{parts.path}"
