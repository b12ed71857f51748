"""The example repository: complete, and the same verdict on a developer's machine as in CI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gatekeeper.baseline import load_baseline


@pytest.fixture
def project(tmp_path, kit):
    """The example, copied out as someone would."""
    folder = tmp_path / "project"
    shutil.copytree(kit.example, folder, ignore=shutil.ignore_patterns("gatekeeper-notes", "train.jsonl"))
    return folder


def smoke(project, *arguments):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(project / "smoke.sh"), *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 0), (["--fault", "nan"], 1), (["--fault", "frozen"], 1), (["--steps", "9"], 3)],
)
def test_the_local_command_and_the_action_agree(action, project, kit, arguments, code):
    local = smoke(project, *arguments)
    assert local.returncode == code, local.stdout + local.stderr
    step = next(s for s in _steps(project) if "gatekeeper" in s.get("uses", ""))
    inputs = dict(step["with"])
    inputs["command"] = " ".join([inputs["command"].replace("python ", f"{sys.executable} "), *arguments])
    done = action(inputs, workspace=project)
    assert done.code == code, done.stdout + done.stderr
    assert done.outputs["decision"] == {0: "CONTINUE", 1: "STOP", 3: "WAIT"}[code]


def test_the_baseline_in_the_repository_is_that_of_its_training(project, train):
    committed = load_baseline(project / "gatekeeper-baseline.json")
    logs = [str(train(seed=seed)) for seed in range(committed.runs)]
    program = [sys.executable, "-c", "from gatekeeper.cli import main; main()"]
    command = [*program, "baseline", "record", *logs, "-o", "new.json"]
    subprocess.run(command, cwd=project.parent, check=True, capture_output=True)
    fresh = load_baseline(project.parent / "new.json")
    assert fresh.metrics.keys() == committed.metrics.keys()
    for name, metric in committed.metrics.items():
        assert fresh.metrics[name].direction == metric.direction
        assert fresh.metrics[name].final.mean == pytest.approx(metric.final.mean, rel=1e-3)
        assert fresh.metrics[name].final.spread == pytest.approx(metric.final.spread, rel=1e-2)


def test_every_input_that_the_workflow_gives_is_one_of_the_action(project, action):
    step = next(s for s in _steps(project) if "gatekeeper" in s.get("uses", ""))
    assert set(step["with"]) <= set(action.action["inputs"])
    assert re.fullmatch(r"OWNER/REPO/\.github/actions/gatekeeper@v\d+", step["uses"])


def test_the_hook_runs_the_local_command(project):
    hooks = yaml.safe_load((project / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert [hook["entry"] for hook in hooks] == ["./smoke.sh"]
    assert os.access(project / "smoke.sh", os.X_OK)


def _steps(project):
    workflow = yaml.safe_load((project / ".github" / "workflows" / "smoke.yml").read_text())
    return workflow["jobs"]["smoke"]["steps"]
