"""Command mode with the real SDK's agent: unchanged configurations, and the element for ``command:``."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TRAIN = str(PROGRAMS / "train.py")
FAST = (sys.executable, str(PROGRAMS / "fast_agent.py"))
ROWS, BAD_ROW = 60, 6

EIGHT = ("good", "nan", "good2", "diverges", "good3", "nan_swallowed", "good4", "nan_with_echo")


def gatekeeper_agent(sweeping: Any, sweep: Any, *options: str, code: int = 0, **env: str) -> str:
    count = str(len(sweep.trials))
    return sweeping.run(
        *FAST, "gatekeeper", "agent", sweep.path, "--count", count, *options, env=env, code=code
    )


def assert_eight(sweeping: Any, sweep: Any) -> None:
    runs = sweeping.runs(sweep)
    assert len(runs) == 8
    for kind, run in runs.items():
        assert (run.state, run.exit_codes) == ("finished", [0]), kind
        if kind.startswith("good"):
            assert (len(run.rows), run.tags) == (ROWS, [])
        else:
            assert run.tags == ["gatekeeper-stopped"]
            assert run.summary["gatekeeper/decision"] == "STOP"
            assert len(run.rows) < ROWS / 2
        if kind.startswith("nan"):
            assert len(run.rows) == BAD_ROW + 1
            assert math.isnan(run.rows[-1]["loss"])
    notes = {note["run_id"]: note for note in sweeping.notes()}
    assert len(notes) == len(sweeping.notes()) == 4
    for kind, run in runs.items():
        if not kind.startswith("good"):
            url = f"{sweeping.backend.base_url}/{run.entity}/{run.project}/runs/{run.name}"
            assert (notes[run.name]["run_url"], notes[run.name]["sweep"]) == (url, sweep.path)


def test_gatekeeper_agent_with_an_unchanged_configuration(sweeping: Any) -> None:
    sweep = sweeping.sweep(*EIGHT, program=TRAIN, metric={"name": "loss", "goal": "minimize"})
    output = gatekeeper_agent(sweeping, sweep)
    assert_eight(sweeping, sweep)
    assert "8 trials: 4 stopped by the gate" in output
    assert output.count("RAN TO THE END") == 4
    assert "ARGUMENTS ['--kind=good']" in output


def test_one_element_in_the_sweeps_own_command_under_plain_wandb_agent(sweeping: Any) -> None:
    command = [
        "${env}",
        "gatekeeper-trial",
        "${interpreter}",
        "${program}",
        "${args_no_hyphens}",
        "${envvar:MARK}",
    ]
    sweep = sweeping.sweep(*EIGHT, program=TRAIN, command=command)
    output = sweeping.run(*FAST, "wandb", "agent", "--count", "8", sweep.path, env={"MARK": "marked"})
    assert_eight(sweeping, sweep)
    assert "ARGUMENTS ['kind=good', 'marked']" in output  # the macros mean what they meant


def test_failures_count_as_ever_and_the_machine_is_named(sweeping: Any) -> None:
    sweep = sweeping.sweep(*["raises"] * 6, program=TRAIN)
    output = gatekeeper_agent(sweeping, sweep, code=2)
    assert [run.exit_codes for run in sweeping.backend.state.sweep_runs(sweep)] == [[1]] * 3
    assert "all 3 trials failed with the same error: RuntimeError: CUDA error" in output
    assert "not the gate" in output
    assert sweeping.notes() == []


def test_launchers_threads_and_a_sitecustomize_of_the_users_own(sweeping: Any) -> None:
    """Through a shell script and two interpreters; rows come from a thread; the user's hook runs as well."""
    site = sweeping.directory / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os; os.environ['USERS_OWN'] = 'ran'\n")
    (sweeping.directory / "run.sh").write_text(
        f"python -c \"import os; print('SITE', os.environ.get('USERS_OWN'))\"\nexec python {TRAIN} \"$@\"\n"
    )
    sweep = sweeping.sweep(
        "nan_in_thread_joined", "nan_bare_except", "good",
        command=["${env}", "bash", "run.sh", "${args}"],
    )  # fmt: skip
    sweeping.env["PYTHONPATH"] = str(site)
    output = gatekeeper_agent(sweeping, sweep, GATEKEEPER_GRACE="20")
    for kind, run in sweeping.runs(sweep).items():
        assert run.exit_codes == [0], kind
        assert len(run.rows) == (ROWS if kind == "good" else BAD_ROW + 1), kind
    assert output.count("SITE ran") == 3
    assert "did not end within" not in output
    assert len(sweeping.notes()) == 2


def test_the_other_ranks_of_a_distributed_job_are_stopped(sweeping: Any) -> None:
    """Rank 1 waits for rank 0 for ever, as in a collective; the launcher waits for both."""
    (sweeping.directory / "launch.py").write_text(
        "import os, subprocess, sys\n"
        "ranks = [[sys.executable, *sys.argv[1:]], [sys.executable, '-c', 'import time; time.sleep(600)']]\n"
        "env = {**os.environ, 'WORLD_SIZE': '2'}\n"
        "children = [subprocess.Popen(c, env={**env, 'RANK': str(r)}) for r, c in enumerate(ranks)]\n"
        "print('RANK1', children[1].pid, flush=True)\n"
        "sys.exit(max(child.wait() for child in children))\n"
    )
    command = ["${env}", "${interpreter}", "launch.py", "${program}", "${args}"]
    sweep = sweeping.sweep("nan", program=TRAIN, command=command)
    output = gatekeeper_agent(sweeping, sweep)
    (run,) = sweeping.runs(sweep).values()
    assert (run.exit_codes, len(run.rows)) == ([0], BAD_ROW + 1)
    rank1 = int(output.split("RANK1 ")[1].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(rank1, 0)
    assert "1 trial: 1 stopped by the gate" in output


def test_a_stop_from_the_server_still_ends_the_trial(sweeping: Any) -> None:
    sweep = sweeping.sweep("sound_for_long", program=TRAIN)
    agent = sweeping.start(*FAST, "gatekeeper", "agent", sweep.path, "--count", "1")
    try:
        deadline = time.monotonic() + 60
        while not any(run.history for run in sweeping.backend.state.runs.values()):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (run,) = sweeping.backend.state.sweep_runs(sweep)
        run.stop_requested = True
        output, _ = agent.communicate(timeout=60)
    finally:
        agent.kill()
    assert run.state == "killed"
    assert "0 stopped by the gate, 0 ran to their end, 0 failed by themselves, 1 ended from outside" in output
    assert sweeping.notes() == []


def test_an_interpreter_without_gatekeeper_is_gated_too(sweeping: Any) -> None:
    """As under `uv run`: the training's environment has the SDK and NumPy, and no gatekeeper."""
    import wandb

    other = sys._base_executable  # type: ignore[attr-defined]
    packages = str(Path(wandb.__file__).parent.parent)
    # Entries of PYTHONPATH do not process .pth files: an editable gatekeeper in there is not found.
    sweeping.env["PYTHONPATH"] = packages
    assert "No module named 'gatekeeper'" in sweeping.run(other, "-c", "import gatekeeper", code=1)
    sweep = sweeping.sweep("nan", command=["${env}", other, TRAIN, "${args}"])
    gatekeeper_agent(sweeping, sweep)
    (run,) = sweeping.runs(sweep).values()
    assert (run.exit_codes, len(run.rows), run.tags) == ([0], BAD_ROW + 1, ["gatekeeper-stopped"])


def test_a_program_that_cannot_be_gated_runs_on_and_says_so(sweeping: Any) -> None:
    (sweeping.directory / "broken.toml").write_text("metrik = 1\n")
    hook = str(Path(__file__).parents[2] / "plugins" / "gatekeeper_wandb" / "_hook")
    sweeping.env["PYTHONPATH"] = hook
    program = "import wandb; print('IMPORTED', wandb.Run)"
    output = sweeping.run(sys.executable, "-c", program, env={"GATEKEEPER_CONFIG": "broken.toml"})
    assert "IMPORTED" in output
    assert "this process is not gated" in output
    assert "metrik" in output


def test_a_program_that_is_not_python_is_supervised(sweeping: Any) -> None:
    (sweeping.directory / "train.sh").write_text(
        'for step in 1 2 3 4 5 6; do echo "step=$step loss=0.$((9 - step))"; done\n'
        'echo "step=7 loss=nan"\nsleep 600 & wait\n'
    )
    sweep = sweeping.sweep("any", command=["${env}", "bash", "train.sh", "${args}"])
    output = gatekeeper_agent(sweeping, sweep)
    assert "1 trial: 1 stopped by the gate (nonfinite-loss: 1)" in output
    assert "no metrics that could be judged" not in output
    (note,) = sweeping.notes()
    assert (note["rule"], note["step"]) == ("nonfinite-loss", 7)


def test_a_sweep_that_is_not_there_is_one_sentence(sweeping: Any) -> None:
    output = sweeping.run(*FAST, "gatekeeper", "agent", "ent/proj/nope", code=2)
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("gatekeeper: error: the agent of ent/proj/nope could not run")


@pytest.mark.parametrize("option", [("--role", "loss"), ("--config", "missing.toml"), ("--mode", "up")])
def test_wrong_usage_exits_2(sweeping: Any, option: tuple[str, str]) -> None:
    output = sweeping.run(*FAST, "gatekeeper", "agent", "ent/proj/x", *option, code=2)
    assert "Traceback" not in output
