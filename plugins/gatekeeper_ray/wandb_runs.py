"""Which W&B run a trial is, seen from the driver.

With Ray a run lives in another process (the logger callback's actor, or the trial itself with
``setup_wandb``), so the driver cannot ask it. Ray calls a hook there with every run
(``WANDB_PROCESS_RUN_INFO_HOOK``); ours writes the run's address to a small file that the driver reads when a
trial is stopped. What has not been heard of yet is put together from what is known: the run's id is the
trial's id, project and entity are those of the sweep's other runs, of WandbLoggerCallback's arguments or of
the environment.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

__all__ = ["RunAddress", "WandbRuns", "install_hook", "record_run"]

HOOK = "WANDB_PROCESS_RUN_INFO_HOOK"
DIRECTORY = "GATEKEEPER_WANDB_RUNS"
NEXT_HOOK = "GATEKEEPER_WANDB_NEXT_HOOK"
OFFLINE_MODES = ("offline", "dryrun")
OFF_MODES = ("disabled",)


@dataclass(frozen=True)
class RunAddress:
    """Where a W&B run is: ``url`` is None offline, where ``directory`` is what ``wandb sync`` takes."""

    url: str | None
    state: str  # "online", "offline" or "unknown"
    project: str | None = None
    entity: str | None = None
    directory: str | None = None
    heard: bool = False  # by the run's own word, not put together from what is known of others


def record_run(run: Any) -> None:
    """Write a run's address to the driver's directory; Ray calls this in the process that holds the run."""
    directory = os.environ.get(DIRECTORY)
    if directory and os.path.isdir(directory):
        write_address(directory, run)
    following = os.environ.get(NEXT_HOOK)
    if following:
        module, _, name = following.rpartition(".")
        getattr(importlib.import_module(module), name)(run)


def write_address(directory: str, run: Any) -> None:
    """Write one run's address, whole or not at all."""
    offline = bool(getattr(run, "offline", False))
    settings = getattr(run, "settings", None)
    record = {
        "id": run.id,
        "url": None if offline else run.url,
        "state": "offline" if offline else ("unknown" if getattr(run, "disabled", False) else "online"),
        "project": getattr(run, "project", None),
        "entity": getattr(run, "entity", None) or None,
        "directory": getattr(settings, "sync_dir", None) if offline else None,
    }
    target = os.path.join(directory, _file_name(str(run.id)))
    temporary = f"{target}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.replace(temporary, target)


def _file_name(run_id: str) -> str:
    return quote(run_id, safe="") + ".json"


@cache
def _directory_of(pid: int) -> str:
    directory = tempfile.mkdtemp(prefix="gatekeeper-wandb-")

    def remove() -> None:
        if os.getpid() == pid:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


def runs_directory() -> str:
    """Return this process's directory for run addresses, made on first use and removed at exit."""
    return _directory_of(os.getpid())


def install_hook() -> bool:
    """Ask Ray for the hook in every process that it will start; return whether that was still possible.

    Workers take the environment of the driver at ``ray.init``, so this must come first. A hook of the user's
    own is called after ours. Nothing happens where wandb is not installed.
    """
    import ray

    if importlib.util.find_spec("wandb") is None or ray.is_initialized():
        return False
    ours = f"{__name__}.record_run"
    present = os.environ.get(HOOK)
    if present and present != ours:
        os.environ[NEXT_HOOK] = present
    os.environ[HOOK] = ours
    os.environ[DIRECTORY] = runs_directory()
    return True


def recording_actor(base: Any, directory: str) -> Any:
    """Return the logger callback's actor class with our hook in it, for a Ray that was started before us.

    It is a local class so that it travels by value: the worker needs no environment variable and no import
    of ours.
    """
    hook, ours = HOOK, f"{__name__}.record_run"
    directory_variable = DIRECTORY
    following_variable = NEXT_HOOK

    class RecordingActor(base):  # type: ignore[misc]
        def run(self) -> None:
            import os

            present = os.environ.get(hook)
            if present and present != ours:
                os.environ[following_variable] = present
            os.environ[hook] = ours
            os.environ[directory_variable] = directory
            super().run()

    return RecordingActor


class WandbRuns:
    """The driver's view of a sweep's W&B runs. Never talks to a server."""

    def __init__(self) -> None:
        self.logger: Any = None
        self._sibling: dict[str, Any] | None = None

    def watch(self, logger: Any) -> None:
        """Take a WandbLoggerCallback's word for project and entity, and have its actors report their runs."""
        self.logger = logger
        base = getattr(logger, "_logger_actor_cls", None)
        if (
            base is not None
            and base.__name__ != "RecordingActor"
            and getattr(logger, "_remote_logger_class", 0) is None
        ):
            logger._logger_actor_cls = recording_actor(base, runs_directory())

    def in_use(self, siblings: Iterable[str] = ()) -> bool:
        """Whether this sweep, whose trials are ``siblings``, is known to log to W&B."""
        return self.logger is not None or self._any_record(siblings) is not None

    def address(self, run_id: str, siblings: Iterable[str] = ()) -> RunAddress:
        """Return where the run with this id is, as far as it is known now."""
        record = _read(run_id)
        if record is not None:
            self._sibling = record
            return RunAddress(
                record.get("url"),
                record["state"],
                record.get("project"),
                record.get("entity"),
                record.get("directory"),
                heard=True,
            )
        arguments = getattr(self.logger, "kwargs", None) or {}
        sibling = self._any_record(siblings) or {}
        named_project = getattr(self.logger, "project", None) or os.environ.get("WANDB_PROJECT_NAME")
        project = sibling.get("project") or named_project
        entity = arguments.get("entity") or sibling.get("entity") or os.environ.get("WANDB_ENTITY")
        if not project:
            return RunAddress(None, "unknown")
        mode = arguments.get("mode") or os.environ.get("WANDB_MODE", "")
        if mode in OFFLINE_MODES or sibling.get("state") == "offline":
            return RunAddress(None, "offline", project, entity)
        if mode in OFF_MODES or not entity:
            return RunAddress(None, "unknown", project, entity)
        run = quote(str(arguments.get("id") or run_id), safe="=+&$@")
        return RunAddress(
            f"{_app_url(sibling.get('url'))}/{quote(entity)}/{quote(project)}/runs/{run}",
            "online",
            project,
            entity,
        )

    def _any_record(self, siblings: Iterable[str]) -> dict[str, Any] | None:
        if self._sibling is None:
            self._sibling = next(filter(None, map(_read, siblings)), None)
        return self._sibling


def _read(run_id: str) -> dict[str, Any] | None:
    try:
        record = json.loads(Path(runs_directory(), _file_name(run_id)).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and "state" in record else None


def _app_url(known: str | None) -> str:
    """Return the address of the web pages: a known run's, wandb.ai, or that of one's own server."""
    if known:
        return known.rsplit("/", 4)[0]
    configured = os.environ.get("WANDB_APP_URL") or os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai"
    return configured.rstrip("/").replace("://api.wandb.ai", "://wandb.ai")
