"""A local Ray for the tests of this folder, and the sweeps they run on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AIR_NEW_OUTPUT": "0", "WANDB_SILENT": "true"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One local Ray a module. Its workers cannot import test modules, so trainables are local functions."""
    import ray

    before = {key: os.environ.get(key) for key in QUIET}
    os.environ.update(QUIET)
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=100 * 1024 * 1024,
    )
    yield
    ray.shutdown()
    for key, value in before.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value


@pytest.fixture
def make_stopper(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that makes a Stopper with the default settings, whatever configuration there is."""
    from gatekeeper.config import Settings

    from gatekeeper_ray import GatekeeperStopper

    def make(metric: str | None = "loss", mode: str | None = "min", **arguments: Any) -> Any:
        arguments.setdefault("notes", tmp_path / "notes")
        return GatekeeperStopper(metric, mode, config=Settings(), **arguments)

    return make


@pytest.fixture
def sweep(cluster: None, make_stopper: Callable[..., Any], tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Return a function that runs one sweep and tells how it ended."""
    from gatekeeper.notes import Journal

    from gatekeeper_ray import GatekeeperCallback
    from ray import tune

    class Recorder(tune.Callback):
        """Sees what any other callback of the sweep would see."""

        def __init__(self) -> None:
            self.completed: list[str] = []
            self.started: list[str] = []
            self.status: dict[str, str] = {}

        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self.started.append(trial.trial_id)

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            self.completed.append(trial.trial_id)

        def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
            self.status = {trial.trial_id: trial.status for trial in trials}

    def run(
        trainable: Any,
        space: dict[str, Any],
        *,
        stopper: Any = None,
        stop: Callable[[Any], Any] | None = None,
        callback: bool = True,
        tune_arguments: dict[str, Any] | None = None,
        **run_arguments: Any,
    ) -> SimpleNamespace:
        arguments = {"metric": "loss", "mode": "min", **(tune_arguments or {})}
        stopper = make_stopper() if stopper is None else stopper
        recorder = Recorder()
        ours = GatekeeperCallback(stopper)
        callbacks = [recorder, *run_arguments.pop("callbacks", [])] + ([ours] if callback else [])
        results = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(**arguments),
            run_config=tune.RunConfig(
                stop=stop(stopper) if stop else stopper,
                callbacks=callbacks,
                storage_path=str(tmp_path / "results"),
                verbose=0,
                **run_arguments,
            ),
        ).fit()
        return SimpleNamespace(
            results=list(results),
            by={(result.config or {}).get("kind"): result for result in results},
            stopper=stopper,
            callback=ours,
            recorder=recorder,
            notes=Journal(stopper.notes_directory).read() if stopper.notes_directory.is_dir() else [],
        )

    return run
