"""Stopping live runs of the real SDK from outside, and being honest about those that do not stop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable

from gatekeeper_wandb.stopping import stop_run

GATEKEEPER = [sys.executable, "-c", "from gatekeeper.cli import main; main()"]

LIVE_RUN = """
import time, wandb
run = wandb.init(entity="ent", project="proj", id="live", tags=["mine"], notes="my notes",
                 config={"api_key": "hush"})
try:
    for i in range(6000):
        run.log({"loss": 1.0 / (i + 1)})
        if i == 10:
            print("running", flush=True)
        time.sleep(0.02)
except KeyboardInterrupt:
    run.summary["left"] = "cleanly"
    run.finish(exit_code=1)
"""


def gatekeeper(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GATEKEEPER, *arguments],
        env=dict(os.environ),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ends_soon(backend: Any, name: str, state: str, after_s: float) -> None:
    """Let a run end once it was asked to, as its process would."""

    def work() -> None:
        run = backend.state.find("ent", "proj", name)
        while not run.stop_requested:
            time.sleep(0.05)
        time.sleep(after_s)
        run.state = state

    threading.Thread(target=work, daemon=True).start()


def test_a_live_run_of_the_real_sdk_stops_and_keeps_what_it_wrote(backend: Any, tmp_path: Path) -> None:
    code = textwrap.dedent(LIVE_RUN)
    child = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert "running" in child.stdout.readline()
        done = gatekeeper("stop", "ent/proj/live", "--reason", "it diverged", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "ent/proj/live stopped" in done.stdout
        child.wait(timeout=60)
    finally:
        child.kill()
        child.wait()
    run = backend.state.find("ent", "proj", "live")
    assert run.stop_requested
    assert run.state == "killed"
    assert (run.tags, run.notes) == (["mine"], "my notes")  # ours would have been written over the run's own
    assert run.summary["left"] == "cleanly"
    assert len(run.rows) > 10

    (line,) = (tmp_path / "gatekeeper-notes" / "stops.jsonl").read_text().splitlines()
    note = json.loads(line)
    assert (note["event"], note["reason"], note["run_id"]) == ("stop", "it diverged", "live")
    assert note["run_url"] == f"{backend.base_url}/ent/proj/runs/live"
    assert "hush" not in line


def test_the_outcome_for_a_caller(backend: Any) -> None:
    backend.state.add_run("r1", [], state="running")
    ends_soon(backend, "r1", "killed", 0.2)
    outcome = stop_run("ent/proj/r1", deadline_s=10)
    assert (outcome.requested, outcome.confirmed) == (True, True)
    assert (outcome.state_before, outcome.state) == ("running", "killed")
    assert outcome.run_url == f"{backend.base_url}/ent/proj/runs/r1"


def test_a_run_that_does_not_stop_is_said_to_run(backend: Any, tmp_path: Path) -> None:
    backend.state.add_run("r1", [], state="running")
    done = gatekeeper("stop", "ent/proj/r1", "--deadline", "3", cwd=tmp_path)
    assert done.returncode == 3
    assert "not confirmed after 3 s: the run still says 'running'" in done.stderr
    assert backend.state.find("ent", "proj", "r1").stop_requested
    assert not (tmp_path / "gatekeeper-notes").exists()


def test_a_run_that_had_ended_is_left_alone(backend: Any, tmp_path: Path) -> None:
    backend.state.add_run("r1", [], state="crashed")
    done = gatekeeper("stop", "ent/proj/r1", cwd=tmp_path)
    assert (done.returncode, backend.state.count("StopRun")) == (0, 0)
    assert "had already ended (crashed)" in done.stdout
    assert not (tmp_path / "gatekeeper-notes").exists()


def test_an_unreachable_server_is_no_stop(backend: Any, tmp_path: Path) -> None:
    backend.state.add_run("r1", [], state="running")
    backend.refuse()
    done = gatekeeper("stop", "ent/proj/r1", "--deadline", "3", cwd=tmp_path)
    assert done.returncode == 3
    assert "ent/proj/r1" in done.stderr
    assert not (tmp_path / "gatekeeper-notes").exists()


def test_a_server_that_is_lost_after_the_request(backend: Any) -> None:
    backend.state.add_run("r1", [], state="running")
    backend.fault("Run", "status", status=503, after=1)
    outcome = stop_run("ent/proj/r1", deadline_s=3)
    assert (outcome.requested, outcome.confirmed) == (True, False)
    assert "did not answer any more" in outcome.message


def test_a_request_that_fails_is_tried_again(backend: Any) -> None:
    backend.state.add_run("r1", [], state="running")
    backend.fault("StopRun", "status", status=502, times=2)
    ends_soon(backend, "r1", "killed", 0)
    assert stop_run("ent/proj/r1", deadline_s=15).confirmed


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_an_error(backend: Any, status: int) -> None:
    backend.state.add_run("r1", [], state="running")
    backend.fault("StopRun", "status", status=status)
    with pytest.raises(SourceError):
        stop_run("ent/proj/r1", deadline_s=5)


def test_usage(backend: Any, tmp_path: Path) -> None:
    for arguments in (
        ["nothing"],
        ["ent/proj/gone"],
        ["wandb:ent/proj"],
        [],
        ["ent/proj/r1", "--deadline", "0"],
    ):
        done = gatekeeper("stop", *arguments, cwd=tmp_path)
        assert done.returncode == 2, (arguments, done.stderr)
        assert "Traceback" not in done.stderr
    with pytest.raises(GatekeeperError, match="name one run"):
        stop_run("wandb:ent/proj")


def test_a_request_nobody_answers(backend: Any) -> None:
    backend.state.add_run("r1", [], state="running")
    backend.fault("StopRun", "hanging")
    with pytest.raises(Unreachable):
        stop_run("ent/proj/r1", deadline_s=3)
