"""A runner for GitHub's rules that needs no GitHub, real trainings, and verdicts to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from gatekeeper.report import RunReport
from gatekeeper.verdict import CurvePoint

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "github_smoke"

HOSTILE = [
    "::error title=pwned::oops",
    "::set-output name=decision::CONTINUE",
    "a%0A::error::oops",
    "a\n::error::oops",
    "a\r::error::oops",
    "a\r\n::add-mask::e",
    "##[error]oops",
    "`code` ```fence",
    "a | b | c",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "${{ secrets.TOKEN }}",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07",
    "a\x00b\x08c\x0bd",
    "loss\u202egnp.exe",
    "[click](https://evil.example/)",
    "![x](https://evil.example/x.png)",
    "# heading",
    "decision<<EOF\nCONTINUE\nEOF",
    '"; touch pwned; "',
    "$(touch pwned)",
    '%%{init: {"theme": "x"}}%%',
    'title "x"]',
    "\ud800\ufffe",
    "@everyone",
    "&lt;b&gt;",
]


def make_record(**changes: Any) -> dict[str, Any]:
    record = {
        "schema": "gatekeeper.verdict/1",
        "source": "runs/a.jsonl",
        "run_url": None,
        "decision": "STOP",
        "judgment": "clearly_bad",
        "rule": "nonfinite-loss",
        "reason": "train/loss is NaN at step 61; the last finite value was 0.41 at step 60",
        "step": 61,
        "row": 62,
        "rows": 100,
        "metrics": {"train/loss": "NaN", "grad_norm": 812.4},
        "roles": {"loss": "train/loss", "grad_norm": "grad_norm"},
        "findings": [
            make_finding(),
            make_finding(
                rule="exploding-gradient", judgment="unsure", metric="grad_norm", value=812.4, threshold=90.0
            ),
        ],
        "reachable": True,
        "wait_share": 0.06,
        "next_check_s": 600,
    }
    return {**record, **changes}


def make_finding(**changes: Any) -> dict[str, Any]:
    finding = {
        "rule": "nonfinite-loss",
        "judgment": "clearly_bad",
        "metric": "train/loss",
        "step": 61,
        "value": "NaN",
        "threshold": None,
        "message": "train/loss is NaN",
    }
    return {**finding, **changes}


def make_curve(values: list[float], steps: list[float | None] | None = None) -> list[CurvePoint]:
    places: list[float | None] = [float(i) for i in range(len(values))] if steps is None else steps
    return [CurvePoint(i + 1, step, v, v, v) for i, (step, v) in enumerate(zip(places, values, strict=True))]


@dataclass
class Console:
    """What GitHub's runner understands of a step's stdout: its commands, and the lines that it only shows."""

    commands: list[tuple[str, dict[str, str], str]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)


def read_console(stdout: str) -> Console:
    """Read stdout as the runner does: lines end at CR or LF, `::` opens a line, `##[` counts anywhere."""
    console, stopped = Console(), None
    for raw in re.split(r"\r\n|\r|\n", stdout):
        line = raw.lstrip()
        match = re.match(r"::([A-Za-z0-9_-]+)( [^\n]*?)?::(.*)", line)
        if stopped is not None:
            if match and match[1] == stopped:
                stopped = None
            else:
                console.shown.append(raw)
        elif match and match[1] == "stop-commands":
            stopped = match[3]
        elif match:
            properties = dict(
                item.split("=", 1) for item in (match[2] or "").strip().split(",") if "=" in item
            )
            console.commands.append(
                (match[1], {k: _unescape(v) for k, v in properties.items()}, _unescape(match[3]))
            )
        elif old := re.search(r"##\[([A-Za-z0-9_-]+)", raw):
            console.commands.append((old[1], {}, raw))
        else:
            console.shown.append(raw)
    assert stopped is None, "commands were stopped and never taken up again"
    return console


def _unescape(text: str) -> str:
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, char)
    return text


def read_outputs(text: str) -> dict[str, str]:
    """Read a GITHUB_OUTPUT file as the runner does; what it would reject is an error."""
    outputs: dict[str, str] = {}
    lines = iter(text.split("\n"))
    for line in lines:
        if not line:
            continue
        equals, heredoc = line.find("="), line.find("<<")
        if heredoc >= 0 and (equals < 0 or heredoc < equals):
            name, delimiter = line.split("<<", 1)
            value = []
            for inner in lines:
                if inner == delimiter:
                    break
                value.append(inner)
            else:
                raise AssertionError(f"no end of {name}: {delimiter}")
            outputs[name] = "\n".join(value)
        elif equals >= 0:
            name, _, value_text = line.partition("=")
            outputs[name] = value_text
        else:
            raise AssertionError(f"not an output: {line!r}")
    return outputs


@dataclass
class ActionRun:
    """What came of running the action: as the job's page and the following steps would see it."""

    code: int
    outputs: dict[str, str]
    stdout: str
    stderr: str
    summary: str
    console: Console


class ActionRunner:
    """Runs a composite action's bash steps the way GitHub's runner does.

    The install step is run for real once; further runs take its output, since it would make the same
    environment again.
    """

    def __init__(self, temp: Path) -> None:
        self.folder = REPOSITORY / ".github" / "actions" / "gatekeeper"
        self.action = yaml.safe_load((self.folder / "action.yml").read_text())
        self.temp = temp
        self.installed: dict[str, str] | None = None

    def __call__(
        self, inputs: Mapping[str, str], *, workspace: Path, env: Mapping[str, str] | None = None
    ) -> ActionRun:
        known = self.action["inputs"]
        fresh = bool(inputs.keys() & {"version", "extras"}) or self.installed is None
        assert set(inputs) <= set(known), "an input that the action does not have"
        given = {name: str(inputs.get(name, spec.get("default", ""))) for name, spec in known.items()}
        state: dict[str, dict[str, str]] = {}
        code, streams, summary = 0, ["", ""], ""
        for number, step in enumerate(self.action["runs"]["steps"]):
            if step.get("id") == "install" and not fresh:
                assert self.installed is not None
                state["install"] = self.installed
                continue
            files = {
                name: self.temp / f"{name}-{number}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")
            }
            for file in files.values():
                file.write_text("")
            script = self.temp / f"step-{number}.sh"
            script.write_text(step["run"])
            assert step["shell"] == "bash"
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
                cwd=workspace,
                env={
                    **_without_github(os.environ),
                    "GITHUB_ACTIONS": "true",
                    "GITHUB_ACTION_PATH": str(self.folder),
                    "RUNNER_TEMP": str(self.temp),
                    **{name: str(file) for name, file in files.items()},
                    **(env or {}),
                    **{key: self._fill(value, given, state) for key, value in step.get("env", {}).items()},
                },
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=300,
                check=False,
            )
            streams = [streams[0] + done.stdout, streams[1] + done.stderr]
            summary += files["GITHUB_STEP_SUMMARY"].read_text()
            if "id" in step:
                state[step["id"]] = read_outputs(files["GITHUB_OUTPUT"].read_text())
            code = done.returncode
            if code:
                break
            if step.get("id") == "install":
                self.installed = state["install"]
        outputs = {
            name: self._fill(spec["value"], given, state) for name, spec in self.action["outputs"].items()
        }
        return ActionRun(code, outputs, streams[0], streams[1], summary, read_console(streams[0]))

    @staticmethod
    def _fill(value: str, inputs: Mapping[str, str], state: Mapping[str, Mapping[str, str]]) -> str:
        """Replace `${{ inputs.x }}` and `${{ steps.id.outputs.x }}` once; what they hold is not expanded."""

        def found(match: re.Match[str]) -> str:
            place, name = match[1], match[2]
            if place == "inputs":
                return inputs[name]
            return state.get(place.split(".")[1], {}).get(name, "")

        filled = re.sub(r"\$\{\{ (inputs|steps\.[\w-]+\.outputs)\.([\w-]+) \}\}", found, str(value))
        assert "${{" not in re.sub(r"\$\{\{ .*? \}\}", "", str(value)), (
            f"an expression of another kind: {value}"
        )
        return filled


def _without_github(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(("GITHUB_", "GATEKEEPER_"))}


@pytest.fixture(scope="session")
def action(tmp_path_factory: pytest.TempPathFactory) -> ActionRunner:
    return ActionRunner(tmp_path_factory.mktemp("runner"))


@pytest.fixture(scope="session")
def train(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Really train the example's model; the same arguments give the same log."""
    folder = tmp_path_factory.mktemp("trainings")

    def run(fault: str = "none", *, seed: int = 0, steps: int = 100) -> Path:
        log = folder / f"{fault}-{seed}-{steps}.jsonl"
        if not log.exists():
            subprocess.run(train_command(fault, log, seed=seed, steps=steps), check=True, capture_output=True)
        return log

    return run


def train_command(fault: str, log: Path | str, *, seed: int = 0, steps: int = 100) -> list[str]:
    arguments = ["--fault", fault, "--log", str(log), "--seed", str(seed), "--steps", str(steps)]
    return [sys.executable, str(EXAMPLE / "train.py"), *arguments]


@pytest.fixture(scope="session")
def kit() -> Any:
    """The makers above, for test modules (which cannot import a conftest)."""

    class Kit:
        hostile = HOSTILE
        repository = REPOSITORY
        example = EXAMPLE
        record = staticmethod(make_record)
        finding = staticmethod(make_finding)
        curve = staticmethod(make_curve)
        console = staticmethod(read_console)
        outputs = staticmethod(read_outputs)
        train_command = staticmethod(train_command)

        @staticmethod
        def report(
            curve: list[CurvePoint] | None = None, metric: str | None = "train/loss", **changes: Any
        ) -> RunReport:
            return RunReport(make_record(**changes), curve or (), metric)

    return Kit
