"""The wheel: what is in it, and that it works where only it is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"gatekeeper": ROOT, "gatekeeper_ray": ROOT / "plugins", "gatekeeper_wandb": ROOT / "plugins"}

ENTRY_POINTS = """
import json, sys
from importlib.metadata import distribution
found = {}
for point in distribution("sweep-gatekeeper").entry_points:
    point.load()
    found.setdefault(point.group, []).append(point.name)
import gatekeeper
print(json.dumps({"found": found, "file": gatekeeper.__file__, "version": gatekeeper.__version__}))
"""

CONSUMER = """
from __future__ import annotations

from gatekeeper import Decision, Gate, Verdict


def watch(losses: list[float]) -> str | None:
    gate = Gate(metric="val/loss", mode="min", roles={"loss": "train/loss"})
    verdict: Verdict = gate.verdict
    for step, loss in enumerate(losses):
        verdict = gate.observe(step, {"val/loss": loss})
        if verdict.decision is Decision.STOP:
            return verdict.reason
    state = gate.state_dict()
    gate.load_state_dict(state)
    return None


print(watch([1.0]))
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MYPY"))}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment with the wheel in it.

    Its dependencies are not installed again: this environment's packages are seen through a .pth file, behind
    the new environment's own. (The editable install here is not: no .pth is read that lies behind a .pth.)
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    )
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    version = wheel.name.split("-")[1]
    assert {name.split("/")[0] for name in names} == {*PACKAGES, f"sweep_gatekeeper-{version}.dist-info"}
    for package, parent in PACKAGES.items():
        sources = {path.relative_to(parent).as_posix() for path in (parent / package).rglob("*.py")}
        assert sources == {name for name in names if name.startswith(f"{package}/") and name.endswith(".py")}
        assert f"{package}/py.typed" in names
    assert not {"tests", "examples", "benchmarks", "docs", "__pycache__"} & {
        part for name in names for part in name.split("/")
    }
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_entry_points_load_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    answer = json.loads(run(installed, "-c", ENTRY_POINTS, cwd=tmp_path))
    assert Path(answer["file"]).is_relative_to(installed.parents[1])
    assert {group: sorted(names) for group, names in answer["found"].items()} == {
        "console_scripts": ["gatekeeper", "gatekeeper-trial"],
        "gatekeeper.commands": ["agent", "demo", "stop"],
        "gatekeeper.child_env": ["wandb"],
        "gatekeeper.sources": ["wandb"],
    }
    version = run(installed.with_name("gatekeeper"), "--version", cwd=tmp_path)
    assert version == f"gatekeeper, version {answer['version']}\n"


def test_check_works_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    rows = ({"step": step, "train/loss": 0.5 + 2.0 / (1 + step)} for step in range(200))
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record = json.loads(
        run(installed.with_name("gatekeeper"), "check", "run.jsonl", "--format", "json", cwd=tmp_path)
    )
    assert (record["decision"], record["rows"]) == ("CONTINUE", 200)


def test_types_reach_a_consumer(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "consumer.py").write_text(CONSUMER)
    mypy = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        installed,
        "--cache-dir",
        "cache",
    ]
    assert "Success" in run(*mypy, "consumer.py", cwd=tmp_path)
    (tmp_path / "wrong.py").write_text(CONSUMER.replace('mode="min"', "mode=1").replace("str | None", "int"))
    wrong = subprocess.run([*mypy, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.stdout.count("[arg-type]") == 1
    assert wrong.stdout.count("[return-value]") == 2
