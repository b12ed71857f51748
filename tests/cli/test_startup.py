"""What the command imports, and what it says where an optional package is not installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

HEAVY = {
    "ray",
    "wandb",
    "tensorboard",
    "tensorflow",
    "torch",
    "numpy",
    "tenacity",
    "pandas",
    "importlib.metadata",
}

# A stand-in for an environment without the extras: what is named here cannot be imported.
BLOCKER = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.split(".")[0] in {"wandb", "ray", "tensorboard", "tensorflow"}:
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


def imported(arguments: list[str], folder: Path, environment: dict[str, str]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gatekeeper", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-500:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert len(lines) > 50
    return {line.rsplit("|", 1)[1].strip() for line in lines}


@pytest.mark.parametrize("arguments", [["check", "bad.jsonl"], ["check", "good.jsonl", "--format", "json"]])
def test_check_imports_nothing_heavy(
    arguments: list[str], tmp_path: Path, environment: dict[str, str], logs: dict[str, str]
) -> None:
    modules = imported(arguments, tmp_path, environment)
    assert not HEAVY & modules
    assert not [name for name in modules if name.startswith(("gatekeeper_ray", "gatekeeper_wandb"))]


@pytest.mark.parametrize(
    "name", ["check", "backtest", "baseline", "run", "rules", "notes", "init", "demo", "agent", "stop"]
)
def test_help_of_every_command_needs_no_extra(
    name: str, tmp_path: Path, environment: dict[str, str], gatekeeper: Run
) -> None:
    assert not (HEAVY - {"importlib.metadata"}) & imported([name, "--help"], tmp_path, environment)


def test_help_lists_every_command(gatekeeper: Run) -> None:
    done = gatekeeper("--help")
    listed = [line.split()[0] for line in done.stdout.split("Commands:\n")[1].splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert listed[:7] == ["check", "backtest", "baseline", "run", "rules", "notes", "init"]
    assert {"demo", "agent", "stop"} <= set(listed)
    bare = gatekeeper()
    assert bare.stderr == done.stdout
    assert bare.returncode == 2


@pytest.fixture
def without_extras(tmp_path: Path) -> str:
    folder = tmp_path / "blocked"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER)
    return str(folder)


def test_a_missing_extra_is_named(
    gatekeeper: Run, without_extras: str, logs: dict[str, str], tmp_path: Path, environment: dict[str, str]
) -> None:
    def sentence(*arguments: str) -> str:
        done = gatekeeper(*arguments, PYTHONPATH=without_extras)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        return done.stderr

    wandb = "gatekeeper: error: wandb is not installed; run: pip install 'sweep-gatekeeper[wandb]'\n"
    assert sentence("check", "someone/project/run1") == wandb
    ray = "gatekeeper: error: ray is not installed; run: pip install 'sweep-gatekeeper[ray]'\n"
    assert sentence("demo") == ray
    events = tmp_path / "events.out.tfevents.1700000000.host"
    events.write_bytes(EVENT)
    assert "pip install 'sweep-gatekeeper[tensorboard]'" in sentence("check", events.name)
    assert gatekeeper("check", logs["STOP"], PYTHONPATH=without_extras).returncode == 1
    for call in ("agent('sweep', print)", "gate_run().__enter__()"):
        done = subprocess.run(
            [sys.executable, "-c", f"import gatekeeper_wandb; gatekeeper_wandb.{call}"],
            env={**environment, "PYTHONPATH": without_extras}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr.splitlines()[-1].endswith(wandb.removeprefix("gatekeeper: error: ").strip())
    assert gatekeeper("--help", PYTHONPATH=without_extras).stderr == ""


# The record that every TensorBoard event file begins with: its version, with length and checksums.
EVENT = (
    b"\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\x22\x09\x00\x00\xc0\x9c\x13\x5a\xd9\x41\x1a\x0dbrain.Event:2"
    b"\xec\xa5\x9d\x2e"
)


def test_an_unreachable_server_is_a_wait(
    gatekeeper: Run, logs: dict[str, str], records: Callable[[str], list[dict[str, object]]]
) -> None:
    done = gatekeeper(
        "check", "someone/project/run1", "--deadline", "1", "--format", "json",
        WANDB_BASE_URL="http://127.0.0.1:9", WANDB_API_KEY="0123456789" * 4, WANDB_SILENT="true",
    )  # fmt: skip
    (record,) = records(done.stdout)
    assert done.returncode == 3
    assert (record["decision"], record["rule"], record["reachable"]) == ("WAIT", "unreachable", False)
    assert "0123456789" * 4 not in done.stdout + done.stderr


def test_module_and_script_are_the_same(gatekeeper: Run, environment: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gatekeeper", "--version"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == gatekeeper("--version").stdout
