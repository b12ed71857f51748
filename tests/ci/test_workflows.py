"""Everything under .github/ passes the linters, and a bad action does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
ACTIONS = sorted((REPOSITORY / ".github" / "actions").glob("*/action.yml"))
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
EXAMPLES = sorted((REPOSITORY / "examples").glob("*/.github/workflows/*.yml"))


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert program, f"{name} is part of the dev extra"
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)


def zizmor(*paths: Path) -> subprocess.CompletedProcess[str]:
    return tool("zizmor", "--offline", "--no-config", *paths)


def schema(name: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    return tool("check-jsonschema", "--builtin-schema", f"vendor.{name}", *paths)


def test_the_linters_have_nothing_against_ours():
    assert ACTIONS
    assert WORKFLOWS
    done = zizmor(REPOSITORY / ".github")
    assert done.returncode == 0, done.stdout + done.stderr
    for name, paths in (("github-actions", ACTIONS), ("github-workflows", [*WORKFLOWS, *EXAMPLES])):
        done = schema(name, *paths)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_bad_action_fails_the_linters(tmp_path):
    good = ACTIONS[0].read_text()
    folder = tmp_path / ".github" / "actions" / "bad"
    folder.mkdir(parents=True)
    bad = folder / "action.yml"
    bad.write_text(good)
    assert zizmor(tmp_path).returncode == 0, "the copy is as good as the original"
    assert schema("github-actions", bad).returncode == 0

    bad.write_text(good.replace('cd -- "$INPUT_WORKING_DIRECTORY"', "cd ${{ inputs.working-directory }}"))
    done = zizmor(tmp_path)
    assert done.returncode != 0
    assert "template-injection" in done.stdout + done.stderr

    bad.write_text(good.replace("      shell: bash\n", ""))
    assert schema("github-actions", bad).returncode != 0


def test_a_bad_workflow_fails_the_linters(tmp_path):
    bad = tmp_path / ".github" / "workflows" / "bad.yml"
    bad.parent.mkdir(parents=True)
    good = WORKFLOWS[0].read_text()
    bad.write_text(re.sub(r"(uses: actions/checkout)@\w+ # v[\d.]+", r"\1@v4", good))
    done = zizmor(tmp_path)
    assert done.returncode != 0
    assert "unpinned-uses" in done.stdout + done.stderr
    bad.write_text(good.replace("runs-on:", "runs-upon:"))
    assert schema("github-workflows", bad).returncode != 0


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_hold_no_rights_they_do_not_need(path):
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"]
    for job in workflow["jobs"].values():
        assert job["permissions"] == {"contents": "read"}
        for step in job["steps"]:
            uses = step.get("uses", "")
            assert not uses or uses.startswith("./") or re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", uses)
            if uses.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", ACTIONS, ids=lambda path: path.parent.name)
def test_no_script_of_an_action_holds_an_expression(path):
    action = yaml.safe_load(path.read_text())
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in [*action["inputs"], *action["outputs"]])
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]


def test_the_matrix_is_what_the_package_says_it_supports():
    workflow = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text())
    versions = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    classifiers = re.findall(r"Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text())
    assert versions == classifiers
