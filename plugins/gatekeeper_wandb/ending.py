"""End a run that the gate stopped: tag, summary, note, ``finish(exit_code=0)``; later calls do nothing."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gatekeeper.notes import Journal, stop_note
from gatekeeper.redact import redact_text
from gatekeeper.text import shorten
from gatekeeper.verdict import Verdict

from gatekeeper_wandb.watch import RunWatch

__all__ = ["TAG", "end_run", "is_stopped", "release_globals"]

TAG = "gatekeeper-stopped"

#: Seconds to wait for other writers of notes; past that the note goes to a file of this process's own.
PATIENCE_S = 0.05

#: What user code may still call on a stopped run. A name that this SDK lacks is left out.
_METHODS = [
    "alert",
    "define_metric",
    "finish_artifact",
    "link_artifact",
    "link_model",
    "log_artifact",
    "log_code",
    "log_model",
    "mark_preempting",
    "pin_config_keys",
    "save",
    "status",
    "unwatch",
    "upsert_artifact",
    "use_artifact",
    "use_model",
    "watch",
    "write_logs",
]
_SETTABLE = ("name", "notes", "tags")
_GLOBALS = [
    "log",
    "save",
    "use_artifact",
    "log_artifact",
    "define_metric",
    "alert",
    "mark_preempting",
    "log_model",
    "use_model",
    "link_model",
    "watch",
    "unwatch",
]


def end_run(run: Any, watch: RunWatch, verdict: Verdict, notes: Path) -> None:
    """Mark and finish the run with exit code 0, all rows flushed, and write the note.

    The note comes before ``finish``: that one waits for the upload, and a note must not depend on the
    network. Each part is tried whatever became of the others; what fails is counted in ``watch.faults``.
    """
    import wandb

    parts: list[tuple[str, Callable[[], object]]] = [
        ("the run could not be tagged", lambda: _tag(run)),
        ("the summary could not be written", lambda: run.summary.update(_summary(verdict))),
        ("the note could not be written", lambda: _write_note(run, watch, verdict, notes)),
        # Before finish, so that no other thread's call falls between the two and gets a UsageError.
        ("the run could not be silenced", lambda: _silence(run, watch)),
        ("the run could not be finished", lambda: run.finish(exit_code=0)),
    ]
    was_global = wandb.run is run
    for complaint, part in parts:
        try:
            part()
        except Exception as fault:  # noqa: BLE001 - the run is broken anyway: do what can be done, and say the rest
            watch.fault(complaint, fault)
    if was_global:
        with suppress(Exception):
            _keep_global(run)


def is_stopped(run: object) -> bool:
    """Whether the gate stopped this run."""
    return getattr(type(run), "_gatekeeper_stopped", False) is True


def release_globals() -> None:
    """Take a stopped run out of ``wandb.run``, ``wandb.log`` and so on, as ``finish`` would have."""
    import wandb

    if is_stopped(wandb.run):
        from wandb.sdk.lib import module

        sdk: Any = module
        sdk.unset_globals()


def _tag(run: Any) -> None:
    if TAG not in (run.tags or ()):
        run.tags = (*(run.tags or ()), TAG)


def _summary(verdict: Verdict) -> dict[str, object]:
    return {
        "gatekeeper/decision": verdict.decision.value,
        "gatekeeper/rule": verdict.rule,
        "gatekeeper/reason": shorten(redact_text(verdict.reason), 500),
    }


def _write_note(run: Any, watch: RunWatch, verdict: Verdict, notes: Path) -> None:
    Journal(notes).append(_note(run, watch, verdict), patience_s=PATIENCE_S)


def _note(run: Any, watch: RunWatch, verdict: Verdict) -> dict[str, Any]:
    offline = bool(run.offline)
    extra: dict[str, object] = {}
    if offline:
        # The server that it is synced to fixes the URL; until then the directory is all that is known.
        extra["offline"] = "the run has a URL after `wandb sync` of its directory"
        extra["offline_directory"] = str(run.settings.sync_dir)
    if watch.faults.count:
        extra["gate_faults"] = watch.faults.count
    project = "/".join(str(part) for part in (run.entity, run.project) if part)
    return stop_note(
        verdict,
        gate=watch.gate,
        run_id=run.id,
        run_name=run.name or run.id,
        run_url=None if offline else run.url,
        sweep=f"{project}/{run.sweep_id}" if run.sweep_id else None,
        experiment=project or None,
        config=_plain(run.config),
        seconds_used=round(time.time() - run.start_time, 3) if run.start_time else None,
        extra=extra or None,
    )


def _plain(config: Any) -> dict[str, object]:
    return {
        str(key): dict(value) if isinstance(value, Mapping) else value for key, value in dict(config).items()
    }


def _silence(run: Any, watch: RunWatch) -> None:
    """Make every further call on the run do nothing instead of raising UsageError."""
    object.__setattr__(run, "__class__", _stopped_class(run.__class__))
    object.__setattr__(run, "_gatekeeper_watch", watch)
    run.summary._set_update_callback(_nothing)
    run.config._set_callback(_nothing)


def _nothing(*args: object, **kwargs: object) -> None:
    """Do nothing."""


def _log(run: Any, *args: object, **kwargs: object) -> None:
    run._gatekeeper_watch.after_stop()


@functools.cache
def _stopped_class(base: type[Any]) -> type:
    """Return a subclass of the SDK's Run on which calls do nothing; instances of Run stay such."""
    members: dict[str, Any] = {name: _nothing for name in _METHODS if hasattr(base, name)}
    for name in _SETTABLE:
        original = getattr(base, name, None)
        if isinstance(original, property):
            members[name] = property(original.fget, _nothing)
    members.update(log=_log, _log=_log, _gatekeeper_stopped=True)
    return type(base.__name__, (base,), members)


def _keep_global(run: Any) -> None:
    """Let ``wandb.run`` and ``wandb.log`` still mean the stopped run, on which calls do nothing."""
    from wandb.sdk.lib import module

    sdk: Any = module
    sdk.set_global(
        run=run,
        config=run.config,
        summary=run.summary,
        **{name: getattr(run, name) for name in _GLOBALS if hasattr(run, name)},
    )
