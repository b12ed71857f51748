from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Records = Callable[[str], list[dict[str, Any]]]
Rows = Callable[..., list[dict[str, object]]]
Write = Callable[..., Path]

COLUMNS = "source,expected,first_bad_step,metric,mode,roles,group,budget_steps,note"


@pytest.fixture
def suite(write: Write, rows: Rows, tmp_path: Path) -> str:
    """Eight labelled runs in a folder of their own, one of them lost, and two without a label."""
    flat: list[dict[str, object]] = [
        {"step": 10 * i, "train/loss": 2.0 + 0.001 * (i % 3)} for i in range(200)
    ]
    for number in range(3):
        write(f"suite/good{number}.jsonl", rows(200 + number))
        write(f"suite/nan{number}.jsonl", rows(bad_row=61 + number))
    write("suite/flat.jsonl", flat)
    lines = [
        "good0.jsonl,continue,,,,,a,,",
        "good1.jsonl,continue,,train/loss,min,loss=train/loss;grad_norm=grad_norm,a,2000,",
        "nan0.jsonl,stop,600,,,,a,,stopped at once",
        "nan1.jsonl,stop,500,,,,b,,reported ten rows late",
        "gone.jsonl,stop,1,,,,b,,",
        "nan2.jsonl,continue,,,,,b,,a wrong label: a wrong stop",
        "flat.jsonl,flag,,,,,b,,",
        "good2.jsonl,flag,,,,,b,,",
        "good2.jsonl,,,,,,,,",
        "nan2.jsonl,,,,,,,,",
    ]
    (tmp_path / "suite" / "runs.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")
    return "suite/runs.csv"


def test_records_in_order_and_totals(gatekeeper: Run, suite: str, records: Records) -> None:
    done = gatekeeper("backtest", suite, "--format", "json")
    *runs, total = records(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert [Path(run["source"]).name for run in runs] == [
        "good0.jsonl", "good1.jsonl", "nan0.jsonl", "nan1.jsonl", "gone.jsonl", "nan2.jsonl", "flat.jsonl",
        "good2.jsonl", "good2.jsonl", "nan2.jsonl",
    ]  # fmt: skip
    assert {run["schema"] for run in runs} == {"gatekeeper.verdict/1"}
    decisions = [
        "CONTINUE",
        "CONTINUE",
        "STOP",
        "STOP",
        "ERROR",
        "STOP",
        "WAIT",
        "CONTINUE",
        "CONTINUE",
        "STOP",
    ]
    assert [run["decision"] for run in runs] == decisions
    expected = ["continue", "continue", "stop", "stop", "stop", "continue", "flag", "flag", "", ""]
    assert [run["expected"] for run in runs] == expected
    assert "gone.jsonl" in runs[4]["error"]
    assert runs[4].keys() >= runs[0].keys()

    assert total["schema"] == "gatekeeper.backtest/1"
    assert total["runs"] == 10
    assert total["decisions"] == {"STOP": 4, "WAIT": 1, "CONTINUE": 4, "ERROR": 1}
    assert total["caught"] == [2, 3]
    assert total["false"] == [1, 3]
    assert total["flagged"] == [1, 2]
    assert total["quiet"] == [2, 3]
    assert (total["early"], total["delay_steps"]) == (0, 55)
    assert total["rules"] == {"nonfinite-loss": 4}
    assert total["rows"] == 200 + 201 + 4 * 200 + 200 + 2 * 202
    assert total["saved_rows"] == (200 - 61) + (200 - 62) + (200 - 63)
    assert total["lost_rows"] == 200 - 63
    assert total["saved_share"] == pytest.approx(total["saved_rows"] / total["rows"], abs=1e-4)
    assert [Path(run["source"]).name for run in total["false_stops"]] == ["nan2.jsonl"]
    assert [Path(run["source"]).name for run in total["missed"]] == []  # what cannot be read is not missed
    assert set(total["groups"]) == {"", "a", "b"}
    assert total["groups"]["a"]["caught"] == [1, 1]
    assert total["groups"]["b"]["caught"] == [1, 2]


def test_text_ends_with_the_wrong_stops(gatekeeper: Run, suite: str) -> None:
    done = gatekeeper("backtest", suite)
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith("CONTINUE         200 rows  █")
    assert lines[0].endswith("suite/good0.jsonl")
    assert "  caught       2 of 3     went NaN or diverged, and were stopped" in lines
    assert "  false        1 of 3     ended well, and were stopped" in lines
    assert any(line.startswith("the stops would have saved 414 of 1,805 rows (22.9%)") for line in lines)
    assert any(line.split() == ["a", "3", "1", "1/1", "0/2", "-", "2/2", "23%"] for line in lines)
    assert lines[-2] == "1 of the 3 runs that ended well would have been killed:"
    assert lines[-1].startswith("  suite/nan2.jsonl at row 63/200, by nonfinite-loss: train/loss is nan")


def test_what_another_configuration_changes(
    gatekeeper: Run, suite: str, records: Records, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text('[rules]\nnonfinite-loss = "off"\nmetric-missing = "off"\n')
    *_, total = records(gatekeeper("backtest", suite, "--compare", "other.toml", "--format", "json").stdout)
    compare = total["compare"]
    assert compare["config"] == "other.toml"
    assert {change["from"] for change in compare["changed"]} == {"STOP"}
    assert len(compare["changed"]) == 4
    assert (compare["totals"]["caught"], total["caught"]) == ([0, 3], [2, 3])
    text = gatekeeper("backtest", suite, "--compare", "other.toml").stdout
    assert "with other.toml, 4 decisions changed:" in text
    assert "  caught   2/3 -> 0/3" in text
    (tmp_path / "same.toml").write_text("")
    assert (
        "with same.toml: no decision changes"
        in gatekeeper("backtest", suite, "--compare", "same.toml").stdout
    )


def test_the_command_line_holds_for_both_configurations(
    gatekeeper: Run, logs: dict[str, str], records: Records, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text('metric = "other"\n')
    options = ["--metric", "train/loss", "--mode", "min", "--compare", "other.toml", "--format", "json"]
    *_, total = records(gatekeeper("backtest", logs["CONTINUE"], *options).stdout)
    assert total["compare"]["changed"] == []


def test_runs_without_a_manifest(
    gatekeeper: Run, logs: dict[str, str], records: Records, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    for name in ("good.jsonl", "bad.jsonl"):
        (tmp_path / name).rename(folder / name)
    done = gatekeeper("backtest", "runs", logs["WAIT"], "--format", "json")
    *runs, total = records(done.stdout)
    assert [(run["decision"], run["expected"]) for run in runs] == [
        ("STOP", ""),
        ("CONTINUE", ""),
        ("WAIT", ""),
    ]
    assert (total["caught"], total["quiet"], total["groups"]) == ([0, 0], [0, 0], {})
    assert "no run has a label: a manifest" in gatekeeper("backtest", "runs").stdout


def test_standard_input_is_read_once(gatekeeper: Run, logs: dict[str, str], tmp_path: Path) -> None:
    text = (tmp_path / logs["STOP"]).read_text()
    assert gatekeeper("backtest", "-", stdin=text).stdout.startswith("STOP           row 61/200")
    (tmp_path / "other.toml").touch()
    twice = gatekeeper("backtest", "-", "--compare", "other.toml", stdin=text)
    assert twice.returncode == 2
    assert "--compare reads every source twice" in twice.stderr


def test_nothing_to_read_is_an_error(gatekeeper: Run, tmp_path: Path) -> None:
    done = gatekeeper("backtest", "gone.jsonl")
    assert done.returncode == 2
    assert done.stderr.startswith("gatekeeper: error: 'gone.jsonl' ")
    (tmp_path / "runs.csv").write_text("source\ngone.jsonl\n")
    listed = gatekeeper("backtest", "runs.csv")
    assert listed.returncode == 2
    assert listed.stdout.startswith("ERROR ")


def test_a_wrong_manifest_names_line_and_column(gatekeeper: Run, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("source,expected\n\nx.jsonl,stopp\n")
    done = gatekeeper("backtest", "runs.csv")
    where = "runs.csv, line 3, column expected"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"gatekeeper: error: {where}: 'stopp' must be stop, continue, flag or empty\n"


def test_a_manifest_that_is_no_text(gatekeeper: Run, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes("source,name\nx.jsonl,Jürgen\n".encode("latin-1"))
    done = gatekeeper("backtest", "runs.csv")
    assert done.returncode == 2
    assert "runs.csv is no UTF-8 text" in done.stderr


def test_a_csv_log_is_no_manifest(gatekeeper: Run, tmp_path: Path) -> None:
    lines = ["step,train_loss", *(f"{i},{2.0 / (1 + i)}" for i in range(100))]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    assert gatekeeper("backtest", "metrics.csv").stdout.startswith("CONTINUE         100 rows")
