"""Every way to name a run or a project, and what must not be taken for one."""

from __future__ import annotations

import pytest
from gatekeeper.errors import GatekeeperError
from gatekeeper.sources import open_source

from gatekeeper_wandb.sources import SPEC
from gatekeeper_wandb.specs import WandbSpec, parse


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ent/proj/abc123", WandbSpec("ent", "proj", "abc123")),
        ("  ent/proj/abc123\n", WandbSpec("ent", "proj", "abc123")),
        ("ent/proj/runs/abc123", WandbSpec("ent", "proj", "abc123")),
        ("my-team.x/proj_2/a-b_c", WandbSpec("my-team.x", "proj_2", "a-b_c")),
        ("run:ent/proj/abc123", WandbSpec("ent", "proj", "abc123")),
        ("run: ent/proj/v1.json", WandbSpec("ent", "proj", "v1.json")),
        ("wandb:ent/proj/abc123", WandbSpec("ent", "proj", "abc123")),
        ("wandb:ent/proj", WandbSpec("ent", "proj", None)),
        ("wandb://ent/proj", WandbSpec("ent", "proj", None)),
        ("https://wandb.ai/ent/proj/runs/abc", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/abc", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/runs/abc/", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/runs/abc/overview", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/abc/logs", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        (
            "https://wandb.ai/ent/proj/runs/abc/workspace?nw=x&jupyter=true#here",
            WandbSpec("ent", "proj", "abc", "https://wandb.ai"),
        ),
        (
            " https://wandb.ai/ent/proj/runs/abc?nw=nwuser \n",
            WandbSpec("ent", "proj", "abc", "https://wandb.ai"),
        ),
        ("run:https://wandb.ai/ent/proj/runs/abc", WandbSpec("ent", "proj", "abc", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/runs/v1.json", WandbSpec("ent", "proj", "v1.json", "https://wandb.ai")),
        ("https://wandb.ai/ent/proj", WandbSpec("ent", "proj", None, "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/workspace?nw=x", WandbSpec("ent", "proj", None, "https://wandb.ai")),
        ("https://wandb.ai/ent/proj/runs", WandbSpec("ent", "proj", None, "https://wandb.ai")),
        (
            "HTTP://WandB.Example.com:8080/e/p/runs/r",
            WandbSpec("e", "p", "r", "http://wandb.example.com:8080"),
        ),
        ("http://127.0.0.1:8080/e/p/r", WandbSpec("e", "p", "r", "http://127.0.0.1:8080")),
        ("https://user:hush@w.example/e/p/runs/r", WandbSpec("e", "p", "r", "https://w.example")),
        (
            "https://ml.example/tools/wandb/e/p/runs/r",
            WandbSpec("e", "p", "r", "https://ml.example/tools/wandb"),
        ),
        (
            "https://forge.coreweave.com/wandb/e/p/runs/r",
            WandbSpec("e", "p", "r", "https://forge.coreweave.com/wandb"),
        ),
        (
            "https://forge.coreweave.com/wandb/e/p",
            WandbSpec("e", "p", None, "https://forge.coreweave.com/wandb"),
        ),
        ("https://w.example/e/p%C3%A9/runs/r", WandbSpec("e", "pé", "r", "https://w.example")),
    ],
)
def test_what_names_a_run_or_a_project(spec: str, expected: WandbSpec) -> None:
    assert SPEC.matches(spec)
    assert parse(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        "logs/run1/metrics.csv",
        "a/b/run.wandb",
        "./ent/proj",
        "../a/b",
        "~/logs/run",
        "/abs/logs/run",
        "ent/proj",
        "just-a-name",
        "a/b/c/d",
        "a//c",
        "a/b/",
        "C:\\logs\\run",
        "ent/proj/a b",
        "host:path/a/b",
        "-x/proj/run",
        "",
        "ftp://wandb.ai/e/p/runs/r",
        "https://example.com/logs/today/metrics.jsonl",
        "https://wandb.ai/",
        "https://wandb.ai/ent",
        "https://wandb.ai/ent/proj/sweeps/abc",
        "https://wandb.ai/ent/proj/reports/x--Vm",
        "https://[broken/e/p/runs/r",
        "https://wandb.ai:port/e/p/runs/r",
        "https://wandb.ai/e/p%2Fq/runs/r",
    ],
)
def test_what_is_left_to_other_readers(spec: str) -> None:
    assert not SPEC.matches(spec)


@pytest.mark.parametrize(
    "spec", ["run:ent/proj", "wandb:ent", "run:", "wandb:a/b/c/d", "run:https://wandb.ai/x"]
)
def test_a_prefix_with_something_wrong_behind_it(spec: str) -> None:
    assert SPEC.matches(spec)
    with pytest.raises(GatekeeperError, match="ENTITY/PROJECT/RUN_ID"):
        SPEC.open(spec)


def test_secrets_in_a_bad_url_are_not_repeated() -> None:
    with pytest.raises(GatekeeperError) as raised:
        SPEC.open("run:https://me:hush-hush@wandb.ai/x?token=also-hush")
    assert "hush" not in str(raised.value)


def test_an_existing_path_wins(tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    root = Path(str(tmp_path))
    (root / "ent" / "proj").mkdir(parents=True)
    (root / "ent" / "proj" / "abc123").write_text('{"step": 1, "loss": 0.5}\n')
    monkeypatch.chdir(root)
    (source,) = open_source("ent/proj/abc123")
    assert [row.metrics for row in source.rows()] == [{"loss": 0.5}]


def test_neither_path_nor_run_names_both_readings() -> None:
    with pytest.raises(GatekeeperError, match=r"file.*entity/project/run_id"):
        open_source("no/such/metrics.csv")
