"""The loopback backend against the real SDK: what it is told, what it answers, how it misbehaves."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from wandb_backend import Backend


def run_sdk(
    code: str, env: dict[str, str], cwd: Path, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own: the SDK keeps global state."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        cwd=cwd,
        text=True,
        capture_output=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def graphql(backend: Backend, operation: str, **variables: Any) -> Any:
    body = json.dumps({"query": f"query {operation} {{ x }}", "variables": variables}).encode()
    request = urllib.request.Request(f"{backend.base_url}/graphql", body)
    with urllib.request.urlopen(request, timeout=5) as answered:
        return json.load(answered)


def test_a_run_is_recorded_whole_and_read_back(
    wandb_backend: Backend, wandb_env: dict[str, str], tmp_path: Path
) -> None:
    done = run_sdk(
        """
        import wandb, json
        run = wandb.init(project="proj", config={"lr": 0.1}, tags=["a"], notes="first")
        for i in range(700):
            run.log({"loss": float("nan") if i == 333 else 1.0 / (i + 1), "nested": {"x": i}})
        run.summary["best"] = 3
        path = run.path
        run.finish(exit_code=3)
        api = wandb.Api()
        back = api.run(path)
        full = list(back.scan_history())
        sampled = back.history(samples=100, pandas=False)
        try:
            api.run("ent/proj/missing")
        except Exception as fault:
            missing = type(fault).__name__
        nans = [r["_step"] for r in full if r["loss"] != r["loss"] or r["loss"] == "NaN"]
        result = [back.state, back.config, len(full), len(sampled), back.summary["best"], missing, nans]
        print("RESULT", json.dumps(result))
        """,
        wandb_env,
        tmp_path,
    )
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))[7:])
    state, config, rows, sampled, best, missing, nan_steps = result
    assert (state, config["lr"], rows, best, nan_steps) == ("failed", 0.1, 700, 3, [333])
    assert sampled == 100
    assert missing == "CommError"
    (run,) = wandb_backend.state.runs.values()
    assert (run.exit_code, run.tags, run.notes, len(run.rows)) == (3, ["a"], "first", 700)
    assert math.isnan(run.rows[333]["loss"])
    assert run.rows[5]["nested"] == {"x": 5} or run.rows[5]["nested.x"] == 5
    assert wandb_backend.state.unknown == []


def test_stop_from_outside_is_recorded_and_told_to_the_run(
    wandb_backend: Backend, wandb_env: dict[str, str], tmp_path: Path
) -> None:
    run = wandb_backend.state.add_run(
        "abc", [{"loss": 1.0}], state="running", events=[{"system.gpu.0.gpu": 3.0}]
    )
    done = run_sdk(
        """
        import wandb
        run = wandb.Api().run("ent/proj/abc")
        run.stop()
        print("SYSTEM", run.history(stream="system", pandas=False)[0]["system.gpu.0.gpu"], run.state)
        """,
        wandb_env,
        tmp_path,
    )
    assert "SYSTEM 3.0 running" in done.stdout
    assert run.stop_requested
    assert wandb_backend.state.unknown == []


@pytest.mark.parametrize("code", [401, 403, 404, 408, 429, 500, 502, 503])
def test_status_faults_come_as_scripted_and_end(wandb_backend: Backend, code: int) -> None:
    wandb_backend.fault("Viewer", "status", status=code, retry_after=7, times=1)
    with pytest.raises(urllib.error.HTTPError) as caught:
        graphql(wandb_backend, "Viewer")
    assert caught.value.code == code
    assert caught.value.headers["Retry-After"] == "7"
    assert graphql(wandb_backend, "Viewer")["data"]["viewer"]["entity"] == "ent"
    assert [call.status for call in wandb_backend.state.calls] == [code, 200]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("refused", OSError), ("dropped", Exception), ("hanging", OSError), ("malformed", json.JSONDecodeError)],
)
def test_broken_answers(wandb_backend: Backend, kind: str, expected: type[Exception]) -> None:
    wandb_backend.fault("*", kind, seconds=0.2)
    with pytest.raises(expected):
        graphql(wandb_backend, "Viewer")
    wandb_backend.clear_faults()
    assert "data" in graphql(wandb_backend, "Viewer")


def test_refusing_the_port_and_coming_back(wandb_backend: Backend) -> None:
    url = wandb_backend.base_url
    wandb_backend.refuse()
    with pytest.raises(urllib.error.URLError, match="refused"):
        graphql(wandb_backend, "Viewer")
    wandb_backend.clear_faults()
    assert wandb_backend.base_url == url
    assert "data" in graphql(wandb_backend, "Viewer")


def test_an_empty_history_contradicts_the_last_step(wandb_backend: Backend) -> None:
    wandb_backend.state.add_run("abc", [{"loss": 1.0}] * 5)
    wandb_backend.fault("HistoryPage", "empty_history")
    page = {"entity": "ent", "project": "proj", "run": "abc", "minStep": 0, "maxStep": 9, "pageSize": 9}
    assert graphql(wandb_backend, "HistoryPage", **page)["data"]["project"]["run"]["history"] == []
    named = {"entity": "ent", "project": "proj", "name": "abc"}
    keys = graphql(wandb_backend, "RunHistoryKeys", **named)["data"]["project"]["run"]["historyKeys"]
    assert keys["lastStep"] == 4
    assert "project" in graphql(wandb_backend, "Run", **named)["data"]


def test_wrong_types(wandb_backend: Backend) -> None:
    wandb_backend.fault("Run", "wrong_types")
    assert graphql(wandb_backend, "Run", name="abc")["data"]["project"]["run"] == 17
