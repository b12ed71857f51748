"""Where the sources of a manifest are looked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from gatekeeper.errors import GatekeeperError
from gatekeeper.manifest import read_manifest


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("logs/a.jsonl", "{here}/logs/a.jsonl"),
        ("gone/b.jsonl", "{here}/gone/b.jsonl"),
        ("a/b/c.jsonl", "{here}/a/b/c.jsonl"),
        ("team/project/run1", "team/project/run1"),
        ("team/project/runs/run1", "team/project/runs/run1"),
        ("dir/of/logs", "{here}/dir/of/logs"),
        ("run:team/project/run1", "run:team/project/run1"),
        ("wandb:team/project", "wandb:team/project"),
        ("https://wandb.ai/team/project/runs/run1", "https://wandb.ai/team/project/runs/run1"),
        ("ssh://host/runs/a.jsonl", "ssh://host/runs/a.jsonl"),
        ("/data/a.jsonl", "/data/a.jsonl"),
    ],
)
def test_sources_are_relative_to_the_manifest(tmp_path: Path, written: str, read: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").touch()
    (tmp_path / "dir" / "of" / "logs").mkdir(parents=True)
    manifest = tmp_path / "runs.csv"
    manifest.write_text(f"\ufeff source , expected\n{written}, STOP \n", encoding="utf-8")
    (case,) = read_manifest(manifest)
    assert (case.source, case.expected) == (read.format(here=tmp_path), "stop")


def test_a_file_of_the_working_directory_is_not_taken_for_one_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for folder in (here, elsewhere):
        (folder / "a" / "b").mkdir(parents=True)
    (here / "a" / "b" / "run").touch()
    (elsewhere / "runs.csv").write_text("source\na/b/run\n")
    monkeypatch.chdir(here)
    assert read_manifest(elsewhere / "runs.csv")[0].source == str(elsewhere / "a" / "b" / "run")


def test_columns_become_what_the_gate_is_told(tmp_path: Path) -> None:
    manifest = tmp_path / "runs.csv"
    manifest.write_text(
        "source,metric,mode,roles,group,budget_steps,first_bad_step,other\n"
        "a.jsonl,val/acc,max,loss = train/loss; train/aux=off ,g,1e4,300,ignored\n"
    )
    (case,) = read_manifest(manifest)
    assert (case.metric, case.mode, case.group) == ("val/acc", "max", "g")
    assert case.roles == {"loss": "train/loss", "train/aux": "off"}
    assert (case.budget_steps, case.first_bad_step) == (10_000.0, 300.0)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("source,expected\n\nx,stopp\n", "line 3, column expected: 'stopp' must be stop, continue, flag or"),
        ("source,mode\nx.jsonl,least\n", "line 2, column mode: 'least' must be min, max or empty"),
        ("source,roles\nx.jsonl,loss\n", "line 2, column roles: 'loss' is not ROLE=KEY"),
        ("source,roles\nx,los=a\n", "line 2, column roles: roles.los: unknown role; did you mean 'loss'?"),
        ("source,budget_steps\nx.jsonl,inf\n", "line 2, column budget_steps: 'inf' must be a finite number"),
        ("source,first_bad_step\nx,ten\n", "line 2, column first_bad_step: 'ten' must be a finite number"),
        ("source,expected\n,stop\n", "line 2, column source: is empty"),
        ("source,expected\n", "lists no runs"),
        ('source,expected\n"x\n.jsonl",stop\ny.jsonl,no\n', "line 4, column expected"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(tmp_path: Path, lines: str, words: str) -> None:
    manifest = tmp_path / "runs.csv"
    manifest.write_text(lines)
    with pytest.raises(GatekeeperError) as fault:
        read_manifest(manifest)
    assert str(fault.value).startswith(str(manifest))
    assert words in str(fault.value)
