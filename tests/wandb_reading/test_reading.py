"""Runs read from the loopback server with the real SDK."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gatekeeper import Decision, Gate
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources import SourceOptions, open_source

from gatekeeper_wandb.sources import SPEC

OPTIONS = SourceOptions(deadline_s=8.0)
LIVE = SourceOptions(deadline_s=8.0, follow=True)


def falling(rows: int) -> list[dict[str, Any]]:
    return [{"loss": 1.0 / (i + 1)} for i in range(rows)]


def one(spec: str, options: SourceOptions = OPTIONS) -> Any:
    (source,) = open_source(spec, options=options)
    return source


def judge(source: Any) -> Gate:
    gate = Gate()
    for row in source.rows():
        gate.observe(row.step, row.metrics)
    return gate


def test_a_nan_that_sampled_history_hides_is_found(backend: Any) -> None:
    rows = falling(3000)
    rows[1501]["loss"] = math.nan
    backend.state.add_run("r1", rows)

    import wandb

    sampled = wandb.Api().run("ent/proj/r1").history(pandas=False)
    assert all(row["loss"] == row["loss"] for row in sampled)  # what reading by history() would have judged

    source = one("ent/proj/r1")
    gate = judge(source)
    assert gate.verdict.decision is Decision.STOP
    assert gate.verdict.step == 1501
    assert gate.rows == 3000
    assert source.run_url == f"{backend.base_url}/ent/proj/runs/r1"


def test_only_new_steps_are_fetched_at_the_next_look(backend: Any) -> None:
    run = backend.state.add_run("r1", falling(1200), state="running")
    source = one("ent/proj/r1", LIVE)
    assert [row.step for row in source.rows()] == list(range(1200))
    pages = backend.state.count("HistoryPage")

    assert list(source.rows()) == []
    assert backend.state.count("HistoryPage") == pages

    with backend.state.lock:
        run.history += backend.state.add_run("other", falling(1210)).history[1200:]
        run.state = "crashed"
    assert [row.step for row in source.rows()] == list(range(1200, 1210))
    asked = [call.variables["minStep"] for call in backend.state.calls if call.operation == "HistoryPage"]
    assert asked[pages:] == [1200]
    assert source.run_state == "crashed"


def test_values_as_servers_and_sdks_write_them(backend: Any) -> None:
    backend.state.add_run(
        "r1",
        [
            {"loss": math.nan, "grad": math.inf, "_runtime": 1, "_timestamp": 2, "_wandb": {"x": 1}},
            {"loss": "NaN", "grad": "-Infinity", "text": "words", "list": [1]},
            {"loss": None, "train": {"acc": 0.5, "deep": {"x": 1}}, "flat.key": 2},
            {"image": {"_type": "image-file", "width": 3}},
        ],
    )
    rows = list(one("ent/proj/r1").rows())
    assert repr(sorted(rows[0].metrics.items())) == "[('grad', inf), ('loss', nan)]"
    assert rows[1].metrics == {"loss": "NaN", "grad": "-Infinity"}
    assert rows[2].metrics == {"loss": None, "train/acc": 0.5, "train/deep/x": 1, "flat.key": 2}
    assert len(rows) == 3


def test_a_nan_as_text_stops_and_a_null_alone_does_not(backend: Any) -> None:
    for name, value in (("text", "NaN"), ("null", None)):
        rows = falling(100)
        rows[50]["loss"] = value
        backend.state.add_run(name, rows)
    assert judge(one("ent/proj/text")).verdict.step == 50
    assert judge(one("ent/proj/null")).verdict.decision is not Decision.STOP


def test_no_rows_where_the_server_counts_steps_is_unknown(backend: Any) -> None:
    run = backend.state.add_run("r1", [])
    run.last_step = 300
    with pytest.raises(Unreachable, match="steps up to 300 and returned no row"):
        list(one("ent/proj/r1").rows())


def test_steps_that_the_server_keeps_back_are_reported(backend: Any) -> None:
    run = backend.state.add_run("r1", falling(10))
    run.last_step = 15
    source = one("ent/proj/r1")
    assert len(list(source.rows())) == 10
    assert source.skipped_examples == ["steps 10 to 15: the server counts them and returned no row"]


@pytest.mark.parametrize("state", ["running", "pending"])
def test_a_run_that_has_not_logged_yet(backend: Any, state: str) -> None:
    backend.state.add_run("r1", [], state=state)
    source = one("ent/proj/r1")
    assert list(source.rows()) == []
    assert source.run_state == state


def test_a_run_that_ended_without_a_row(backend: Any) -> None:
    backend.state.add_run("r1", [], state="crashed")
    with pytest.raises(SourceError, match=r"ended \(crashed\) without logging a row"):
        list(one("ent/proj/r1").rows())


@pytest.mark.parametrize("state", ["finished", "crashed", "failed", "killed", "preempted", "running"])
def test_the_run_s_own_state_is_reported_and_is_no_verdict(backend: Any, state: str) -> None:
    backend.state.add_run("r1", falling(60), state=state)
    source = one("ent/proj/r1")
    assert source.run_state is None
    assert judge(source).verdict.decision is not Decision.STOP
    assert source.run_state == state


def test_gpu_statistics_join_the_rows_after_them(backend: Any) -> None:
    rows = [{"loss": 1.0, "_timestamp": 100.0 + 10 * i} for i in range(4)]
    events = [
        {"system.gpu.0.gpu": 5.0, "system.cpu": 3.0, "_timestamp": 105.0},
        {"system.gpu.0.gpu": 90.0, "system.gpu.1.gpu": 80.0, "_timestamp": 125.0},
    ]
    run = backend.state.add_run("r1", rows, events=events, state="running")
    source = one("ent/proj/r1", LIVE)
    gpu = [{k: v for k, v in row.metrics.items() if k != "loss"} for row in source.rows()]
    assert gpu == [{}, {"system.gpu.0.gpu": 5.0}, {}, {"system.gpu.0.gpu": 90.0, "system.gpu.1.gpu": 80.0}]

    more = backend.state.add_run("other", [*rows, {"loss": 1.0, "_timestamp": 150.0}]).history
    with backend.state.lock:
        run.history = more
    assert [row.metrics for row in source.rows()] == [
        {"loss": 1.0}
    ]  # what was handed out does not come again


def test_a_look_does_without_statistics_that_fail(backend: Any) -> None:
    events = [{"system.gpu.0.gpu": 5.0, "_timestamp": 1.0}]
    backend.state.add_run("r1", falling(10), events=events)
    backend.fault("RunFullHistory", "status", status=500)
    assert len(list(one("ent/proj/r1").rows())) == 10


@pytest.mark.parametrize("kind", ["refused", "dropped", "malformed"])
def test_a_fault_between_two_pages_loses_and_repeats_nothing(backend: Any, kind: str) -> None:
    backend.state.add_run("r1", falling(3500))
    backend.fault("HistoryPage", kind, after=2, times=2)
    assert [row.step for row in one("ent/proj/r1").rows()] == list(range(3500))


def test_retry_after_is_honoured(backend: Any) -> None:
    backend.state.add_run("r1", falling(10))
    fault = backend.fault("HistoryPage", "status", status=429, retry_after=2, times=1)
    assert len(list(one("ent/proj/r1").rows())) == 10
    first, second = (call.at for call in backend.state.calls if call.operation == "HistoryPage")
    assert fault.struck == 1
    assert second - first >= 2


def test_a_sparse_history_is_not_fetched_in_empty_pages(backend: Any) -> None:
    rows = [{"_step": 1000 * i, "loss": 1.0 / (i + 1)} for i in range(2000)]
    backend.state.add_run("r1", rows)
    assert len(list(one("ent/proj/r1").rows())) == 2000
    assert backend.state.count("HistoryPage") < 20


def test_a_project_is_its_runs(backend: Any) -> None:
    for i in range(60):
        backend.state.add_run(f"r{i}", falling(5), project="many")
    found = open_source("wandb:ent/many", options=OPTIONS)
    assert [source.name for source in found] == [f"ent/many/r{i}" for i in range(60)]
    assert len(list(found[7].rows())) == 5
    same = open_source(f"{backend.base_url}/ent/many", options=OPTIONS)
    assert len(same) == 60
    with pytest.raises(SourceError, match="holds no runs"):
        open_source("wandb:ent/none", options=OPTIONS)


def test_a_project_whose_server_does_not_answer(backend: Any) -> None:
    backend.fault("*", "status", status=503)
    with pytest.raises(Unreachable, match="ent/many"):
        open_source("wandb:ent/many", options=SourceOptions(deadline_s=2))


@pytest.mark.parametrize("page", ["", "/overview", "/workspace?nw=x"])
def test_the_url_of_a_self_hosted_server(backend: Any, page: str) -> None:
    backend.state.add_run("r1", falling(10))
    assert len(list(one(f" {backend.base_url}/ent/proj/runs/r1{page}\n").rows())) == 10


def test_a_key_is_not_sent_to_another_server_that_a_url_names(backend: Any) -> None:
    (source,) = SPEC.open("https://wandb.evil.example/ent/proj/runs/r1", OPTIONS)
    with pytest.raises(GatekeeperError, match=r"set WANDB_BASE_URL=https://wandb\.evil\.example"):
        list(source.rows())


def test_a_missing_run_is_told_apart_and_not_tried_again(backend: Any) -> None:
    with pytest.raises(SourceError, match=r"ent/proj/gone: not found on .*check entity, project and run id"):
        list(one("ent/proj/gone").rows())
    assert backend.state.count("Run") == 1


@pytest.mark.parametrize(
    ("status", "said"), [(401, "wandb login"), (403, "no permission"), (404, "not found"), (422, "refuses")]
)
def test_an_answer_is_not_tried_again(backend: Any, status: int, said: str) -> None:
    backend.state.add_run("r1", falling(10))
    fault = backend.fault("Run", "status", status=status)
    with pytest.raises(SourceError, match=said):
        list(one("ent/proj/r1").rows())
    assert fault.struck == 1


def test_a_key_of_the_wrong_form_is_no_lost_connection(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "too-short-a-key")
    with pytest.raises(SourceError, match="wandb login") as raised:
        list(one("ent/proj/r1").rows())
    assert "too-short-a-key" not in str(raised.value)


def test_no_key_at_all(backend: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(SourceError, match="wandb login"):
        list(one("ent/proj/r1").rows())


def test_a_service_process_that_died_is_replaced(backend: Any, wandb_core: Any) -> None:
    run = backend.state.add_run("r1", falling(10), state="running")
    source = one("ent/proj/r1", LIVE)
    assert len(list(source.rows())) == 10
    (core,) = wandb_core()
    os.kill(core, signal.SIGKILL)
    more = backend.state.add_run("other", falling(15)).history
    with backend.state.lock:
        run.history = more
    assert len(list(source.rows())) == 5
    assert wandb_core() != [core]


def test_the_sdk_is_bounded_without_overriding_the_user(backend: Any, tmp_path: Path) -> None:
    code = (
        "import os\n"
        "from gatekeeper_wandb.client import bound_sdk_retries\n"
        "bound_sdk_retries(60)\n"
        "print(os.environ['WANDB__GRAPHQL_RETRY_MAX'], os.environ['WANDB_HTTP_TIMEOUT'])\n"
    )
    plain = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    for env, expected in ((plain, "1 20"), ({**plain, "WANDB__GRAPHQL_RETRY_MAX": "7"}, "7 20")):
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


def test_a_process_ends_although_the_sdk_hangs(backend: Any, tmp_path: Path) -> None:
    backend.state.add_run("r1", falling(10))
    backend.fault("HistoryPage", "hanging")
    code = (
        "from gatekeeper.sources import SourceOptions, open_source\n"
        "(source,) = open_source('ent/proj/r1', options=SourceOptions(deadline_s=4))\n"
        "try:\n"
        "    list(source.rows())\n"
        "except Exception as error:\n"
        "    print(type(error).__name__)\n"
    )
    env = {key: value for key, value in os.environ.items() if "RETRY" not in key and "TIMEOUT" not in key}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "Unreachable"
