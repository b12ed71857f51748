"""Fixtures for the W&B tests: the loopback backend, and processes that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# importlib mode knows no package here; the backend is one folder down
sys.path.insert(0, str(Path(__file__).parent))

from wandb_backend import Backend, Run, Sweep


@pytest.fixture
def wandb_backend() -> Iterator[Backend]:
    """A W&B server on loopback: base_url, env(dir), state, fault(...), refuse(), clear_faults()."""
    backend = Backend()
    yield backend
    backend.stop()


@pytest.fixture
def wandb_env(wandb_backend: Backend, tmp_path: Path) -> dict[str, str]:
    """The environment of a child that talks to the backend: the caller's, without its W&B settings."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "GATEKEEPER_"))}
    # An agent starts a program as "python": let that be this one.
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, **wandb_backend.env(tmp_path), "HOME": str(tmp_path), "PATH": path}


PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Sweeping:
    """Runs a sweep's trials with the real agents, and what is left of it afterwards."""

    backend: Backend
    env: dict[str, str]
    directory: Path

    def start(self, *command: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        paths = os.pathsep.join(filter(None, (str(PROGRAMS), self.env.get("PYTHONPATH"))))
        return subprocess.Popen(
            command, cwd=self.directory, env={**self.env, "PYTHONPATH": paths, **(env or {})},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *command: str, env: Mapping[str, str] | None = None, code: int = 0) -> str:
        """Run a command to its end and return its output."""
        process = self.start(*command, env=env)
        try:
            output, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail(f"still running: {process.communicate()[0][-4000:]}")
        assert process.returncode == code, output[-6000:]
        return output

    def sweep(self, *kinds: str, **config: Any) -> Sweep:
        """Make a sweep with one trial for each kind, in order."""
        parameters = {"kind": {"values": list(kinds)}, **config.pop("parameters", {})}
        return self.backend.state.add_sweep({"method": "grid", "parameters": parameters, **config})

    def function(self, sweep: Sweep, *, style: str = "with", **env: str) -> dict[str, Any]:
        """Run the sweep in function mode under the gate and return its report."""
        count = str(len(sweep.trials))
        program = str(PROGRAMS / "function_sweep.py")
        output = self.run(sys.executable, program, sweep.path, count, env={"TRIAL_STYLE": style, **env})
        line = next(line for line in output.splitlines() if line.startswith("REPORT"))
        report: dict[str, Any] = json.loads(line.removeprefix("REPORT"))
        return {**report, "output": output}

    def runs(self, sweep: Sweep) -> dict[str, Run]:
        """Return the sweep's runs by kind (kinds are unique where a test uses this)."""
        kinds = [trial["kind"] for trial in sweep.trials]
        return dict(zip(kinds, self.backend.state.sweep_runs(sweep), strict=False))

    def notes(self) -> list[dict[str, Any]]:
        path = self.directory / "gatekeeper-notes" / "stops.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def sweeping(wandb_backend: Backend, wandb_env: dict[str, str], tmp_path: Path) -> Iterator[Sweeping]:
    """Sweeps on the backend, run by the SDK's agents in processes of their own."""
    yield Sweeping(wandb_backend, wandb_env, tmp_path)
    assert wandb_backend.state.unknown == []
