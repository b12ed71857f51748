"""Fixtures for reading W&B runs: the loopback backend, the SDK in this process, files of the real SDK."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "wandb"))

from wandb_backend import Backend

RunSdk = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def sdk_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the SDK in this process keeps its files; it reads most settings once, in the first test."""
    return tmp_path_factory.mktemp("sdk")


@pytest.fixture
def backend(sdk_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A W&B server on loopback, which the SDK in this process is pointed at."""
    server = Backend()
    for name in [name for name in os.environ if name.startswith(("WANDB_", "GATEKEEPER_"))]:
        monkeypatch.delenv(name)
    for name, value in {**server.env(sdk_home), "HOME": str(sdk_home), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()
    assert server.state.unknown == []


@pytest.fixture(scope="session")
def run_sdk() -> RunSdk:
    """Run code in a process of its own: the SDK keeps global state."""

    def run(code: str, env: dict[str, str], cwd: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=env,
            cwd=cwd,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
            **options,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def plain_env(home: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "GATEKEEPER_"))}
    return {**kept, "HOME": str(home), "WANDB_SILENT": "true", "WANDB_CONSOLE": "off", **more}


@pytest.fixture(scope="session")
def offline_env() -> Callable[..., dict[str, str]]:
    """The environment of a child that logs offline, without the caller's W&B settings."""
    return plain_env


@pytest.fixture(scope="session")
def offline_run(tmp_path_factory: pytest.TempPathFactory, run_sdk: RunSdk) -> Path:
    """An offline run of 400 rows made by the real SDK: NaN at 300, media, nested keys, nulls."""
    home = tmp_path_factory.mktemp("offline")
    code = """
        import wandb
        run = wandb.init(entity="ent", project="proj", id="abc123", name="shown", mode="offline",
                         config={"lr": 0.1, "api_key": "do-not-tell", "nested": {"depth": 2}})
        for i in range(400):
            run.log({"loss": float("nan") if i == 300 else 1.0 / (i + 1), "grad": float("inf"),
                     "train": {"acc": i / 400, "deep": {"none": None}}, "dotted.key": i,
                     "text": "hello", "list": [1, 2], "flag": i % 2 == 0,
                     "weights": wandb.Histogram([1, 2, 3])})
        run.log({"weights": wandb.Histogram([1, 2, 3])})
        run.finish()
    """
    run_sdk(code, plain_env(home, WANDB_DIR=str(home)), home)
    (directory,) = (home / "wandb").glob("offline-run-*")
    return directory


@pytest.fixture
def wandb_core() -> Callable[[], list[int]]:
    """The ids of the SDK's service processes that belong to this process."""

    def find() -> list[int]:
        done = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
        return [int(pid) for pid, args in lines if "wandb-core" in args and "defunct" not in args]

    return find
