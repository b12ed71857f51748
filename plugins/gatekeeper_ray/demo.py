"""The demo's sweep: real training under ASHA on a local Ray, with the gate behind ``stop=``."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatekeeper.text import for_terminal, shorten

from gatekeeper_ray.demo_model import EPOCHS, TRIALS, epochs

__all__ = ["DemoResult", "report", "run"]

GRACE_EPOCHS = 27
# What Ray appends to its directory for a socket's path, and what the system allows for the whole.
SOCKET_SUFFIX, SOCKET_LIMIT = 64, 107


@dataclass(frozen=True)
class TrialEnd:
    """How one trial of the demo ended."""

    name: str
    epochs: int
    eval_loss: float | None
    rule: str | None
    reason: str | None
    failed: bool


@dataclass(frozen=True)
class DemoResult:
    """The demo's sweep, and where its notes are."""

    trials: list[TrialEnd]
    notes: Path
    seconds: float


def train(config: Mapping[str, Any]) -> None:
    """Train one network and report every epoch to Tune."""
    from ray import tune

    for metrics in epochs(config["trial"]):
        tune.report(metrics)


def _trial_name(trial: Any) -> str:
    """Name a trial by what is tried in it, in letters that a directory may have."""
    return re.sub(r"[^a-z0-9.]+", "-", str(trial.config["trial"]["name"]).lower())


def run(directory: Path) -> DemoResult:
    """Run the sweep; everything it writes is under ``directory``."""
    with local_ray(directory):
        from gatekeeper.config import Settings
        from ray.tune.schedulers import ASHAScheduler

        from gatekeeper_ray.callback import GatekeeperCallback
        from gatekeeper_ray.stopper import GatekeeperStopper
        from ray import tune

        # The lines that matter; a sweep of one's own needs no more.
        tune_config = tune.TuneConfig(
            metric="eval_loss",
            mode="min",
            scheduler=ASHAScheduler(max_t=EPOCHS, grace_period=GRACE_EPOCHS, reduction_factor=3),
            reuse_actors=True,
            trial_name_creator=_trial_name,
        )
        stopper = GatekeeperStopper.for_tune(
            tune_config, notes=directory / "gatekeeper-notes", config=Settings()
        )
        tuner = tune.Tuner(
            train,
            param_space={"trial": tune.grid_search([dict(trial) for trial in TRIALS])},
            tune_config=tune_config,
            run_config=tune.RunConfig(
                name=time.strftime("demo-%Y%m%d-%H%M%S"),
                storage_path=str(directory / "ray_results"),
                stop=stopper,
                callbacks=[GatekeeperCallback(stopper, summary=False)],
                verbose=0,
            ),
        )
        started = time.monotonic()
        results = tuner.fit()
        seconds = time.monotonic() - started
        from gatekeeper.notes import Journal

        Journal(stopper.notes_directory).render()
    return DemoResult(
        [_end(results[index]) for index in range(len(results))], stopper.notes_directory, seconds
    )


def _end(result: Any) -> TrialEnd:
    metrics = result.metrics or {}
    return TrialEnd(
        name=str((result.config or {}).get("trial", {}).get("name", "?")),
        epochs=int(metrics.get("training_iteration", 0)),
        eval_loss=metrics.get("eval_loss"),
        rule=metrics.get("gatekeeper/rule"),
        reason=metrics.get("gatekeeper/reason"),
        failed=result.error is not None,
    )


def report(result: DemoResult, directory: Path) -> str:
    """Return what the demo says at its end: what was stopped, when and why, and what that saved."""
    stopped = [trial for trial in result.trials if trial.rule and not trial.failed]
    sound = [trial for trial in result.trials if not trial.rule and not trial.failed]
    failed = [trial for trial in result.trials if trial.failed]
    width = max(len(trial.name) for trial in result.trials)

    def line(trial: TrialEnd, rest: str) -> str:
        return f"  {for_terminal(trial.name):{width}}  epoch {trial.epochs:>2} of {EPOCHS}  {rest}"

    lines = [
        f"{len(result.trials)} small networks trained under ASHA in {result.seconds:.0f} s: "
        f"{len(stopped)} stopped by the gate, {len(sound)} left to ASHA, {len(failed)} failed",
        "",
        "STOPPED",
    ]
    for trial in stopped:
        lines.append(line(trial, for_terminal(trial.rule)))
        lines.append(f"  {'':{width}}  {for_terminal(shorten(trial.reason or '', 200))}")
    lines += ["", f"SOUND (at epoch {GRACE_EPOCHS} ASHA lets the better ones go on to {EPOCHS})"]
    for trial in sorted(sound, key=lambda trial: (-trial.epochs, trial.eval_loss or 0.0)):
        lines.append(line(trial, f"eval loss {trial.eval_loss:.4f}"))
    lines += [line(trial, "FAILED") for trial in failed]
    used = sum(trial.epochs for trial in stopped)
    possible = EPOCHS * len(stopped)
    notes = for_terminal(_relative(result.notes))
    lines += [
        "",
        f"Saved: up to {possible - used} epochs: the stopped trials ran {used} of the {possible} they had.",
        "       (Alone, ASHA never cuts a trial whose loss is NaN: it runs to the last epoch.)",
        f"Notes: {notes}{os.sep}stops.md to read, stops.jsonl as the record",
        f"       gatekeeper notes list --notes {notes}",
        f"All files of this demo are in {for_terminal(_relative(directory))}{os.sep}",
    ]
    return "\n".join(lines)


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@contextmanager
def local_ray(directory: Path) -> Iterator[None]:
    """Start a Ray of our own on two processors, without dashboard, statistics or noise, and end it again."""
    quiet = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_LOG_TO_DRIVER": "0",
        # Ray makes a token for its local cluster and keeps it in the home directory; ours lives as long as
        # the demo.
        "RAY_AUTH_TOKEN": os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32),
    }
    before = {key: os.environ.get(key) for key in quiet}
    os.environ.update(quiet)
    scratch = _scratch(directory)
    import logging

    import ray

    try:
        ray.init(
            address="local",
            num_cpus=2,
            num_gpus=0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=100 * 1024 * 1024,
            _temp_dir=str(scratch),
        )
        for name in ("ray.tune", "ray.train", "tensorboardX"):
            logging.getLogger(name).setLevel(logging.ERROR)
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(scratch, ignore_errors=True)
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


def _scratch(directory: Path) -> Path:
    """Return a place for Ray's sockets and logs: under ``directory`` unless that is too long for a socket."""
    scratch = directory / "ray"
    if len(os.fsencode(scratch)) + SOCKET_SUFFIX <= SOCKET_LIMIT:
        return scratch
    short = Path(tempfile.mkdtemp(prefix="gk-"))
    print(
        f"gatekeeper: {for_terminal(directory)} is too long a path for Ray's sockets; "
        f"they go to {short}, which is removed at the end",
        file=sys.stderr,
    )
    return short
