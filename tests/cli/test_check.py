from __future__ import annotations

import gzip
import itertools
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Records = Callable[[str], list[dict[str, Any]]]
Rows = Callable[..., list[dict[str, object]]]
Write = Callable[..., Path]

CONTRACT = {
    "schema", "source", "run_url", "decision", "judgment", "rule", "reason", "step", "row", "rows",
    "metrics", "roles", "findings", "reachable", "wait_share", "next_check_s",
}  # fmt: skip


def test_a_stop_field_by_field(gatekeeper: Run, logs: dict[str, str], records: Records) -> None:
    done = gatekeeper("check", logs["STOP"], "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    (record,) = records(done.stdout)
    assert record.keys() >= CONTRACT
    assert record["schema"] == "gatekeeper.verdict/1"
    assert record["source"] == "bad.jsonl"
    assert record["run_url"] is None
    assert (record["decision"], record["judgment"]) == ("STOP", "clearly_bad")
    assert record["rule"] == "nonfinite-loss"
    assert "train/loss" in record["reason"]
    assert (record["step"], record["row"], record["rows"]) == (600, 61, 200)
    assert record["metrics"]["train/loss"] == "NaN"
    assert record["metrics"]["grad_norm"] == 1.0
    assert record["roles"] == {"loss": "train/loss", "grad_norm": "grad_norm"}
    assert record["reachable"] is True
    assert 0.0 <= record["wait_share"] < 1.0
    assert record["next_check_s"] == 600
    found = next(item for item in record["findings"] if item["rule"] == record["rule"])
    assert found.keys() == {"rule", "judgment", "metric", "step", "value", "threshold", "message"}
    assert (found["judgment"], found["metric"], found["step"]) == ("clearly_bad", "train/loss", 600)
    assert found["value"] == "NaN"


def test_a_continue_has_no_place(gatekeeper: Run, logs: dict[str, str], records: Records) -> None:
    done = gatekeeper("check", logs["CONTINUE"], "--format", "json")
    (record,) = records(done.stdout)
    assert (done.returncode, record["decision"], record["judgment"]) == (0, "CONTINUE", "clearly_fine")
    assert (record["step"], record["row"], record["rows"]) == (None, None, 200)
    assert record["next_check_s"] == 1200
    assert isinstance(record["metrics"]["train/loss"], float)


@pytest.mark.parametrize(("value", "written"), [(math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_infinities_are_strings(
    gatekeeper: Run, write: Write, rows: Rows, records: Records, value: float, written: str
) -> None:
    write("run.jsonl", rows(bad_row=50, bad=value))
    done = gatekeeper("check", "run.jsonl", "--format", "json")
    (record,) = records(done.stdout)
    assert (done.returncode, record["row"], record["metrics"]["train/loss"]) == (1, 50, written)


def test_the_exit_code_of_several_sources(gatekeeper: Run, logs: dict[str, str], records: Records) -> None:
    order = {"STOP": 1, "ERROR": 2, "WAIT": 3, "CONTINUE": 0}
    for count in (2, 4):
        for chosen in itertools.combinations(order, count):
            done = gatekeeper(
                "check", *(logs[name] for name in reversed(chosen)), "--format", "json"
            )  # the worst one last
            assert done.returncode == order[chosen[0]], chosen
            assert [record["decision"] for record in records(done.stdout)] == list(reversed(chosen))


def test_exit_zero_is_for_verdicts_and_hides_no_error(gatekeeper: Run, logs: dict[str, str]) -> None:
    assert gatekeeper("check", logs["STOP"], logs["WAIT"], "--exit-zero").returncode == 0
    assert gatekeeper("check", logs["STOP"], logs["ERROR"], "--exit-zero").returncode == 2
    assert gatekeeper("check", logs["CONTINUE"], logs["ERROR"], "--exit-zero").returncode == 2


def test_an_unreadable_source_is_answered_in_its_place(
    gatekeeper: Run, logs: dict[str, str], records: Records
) -> None:
    done = gatekeeper("check", logs["ERROR"], logs["CONTINUE"], "--format", "json")
    lost, good = records(done.stdout)
    assert done.returncode == 2
    assert lost.keys() >= CONTRACT
    assert (lost["decision"], lost["rule"], lost["judgment"], lost["rows"]) == ("ERROR", None, None, 0)
    assert lost["error"] == lost["reason"]
    assert "missing.jsonl" in lost["error"]
    assert good["decision"] == "CONTINUE"
    assert done.stderr.startswith("gatekeeper: error: 'missing.jsonl' ")
    assert done.stderr.count("\n") == 1


def test_a_log_without_a_metric_is_no_pass(gatekeeper: Run, write: Write, tmp_path: Path) -> None:
    write("counts.jsonl", [{"step": i, "epoch": i // 10} for i in range(50)])
    (tmp_path / "empty.jsonl").touch()
    for name in ("counts.jsonl", "empty.jsonl"):
        done = gatekeeper("check", name)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"gatekeeper: error: {name} ")


def test_standard_input_gzip_and_directories(
    gatekeeper: Run, logs: dict[str, str], records: Records, tmp_path: Path
) -> None:
    text = (tmp_path / logs["STOP"]).read_text()
    piped = gatekeeper("check", "-", "--format", "json", stdin=text)
    assert (piped.returncode, records(piped.stdout)[0]["row"]) == (1, 61)
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (runs / "b.jsonl").write_text((tmp_path / logs["CONTINUE"]).read_text())
    folder = gatekeeper("check", "runs", "--format", "json")
    found = {Path(record["source"]).name: record["row"] for record in records(folder.stdout)}
    assert (folder.returncode, found) == (1, {"a.jsonl.gz": 61, "b.jsonl": None})


def test_a_growing_file_is_judged_as_it_stands(
    gatekeeper: Run, rows: Rows, records: Records, tmp_path: Path
) -> None:
    lines = [json.dumps(row) for row in rows(100, bad_row=100)]
    log = tmp_path / "live.jsonl"
    log.write_text("\n".join(lines[:99]) + "\n" + lines[99][:12])  # the last line is still being written
    (record,) = records(gatekeeper("check", log.name, "--format", "json").stdout)
    assert (record["decision"], record["rows"]) == ("CONTINUE", 99)
    log.write_text("\n".join(lines) + "\n")
    (record,) = records(gatekeeper("check", log.name, "--format", "json").stdout)
    assert (record["decision"], record["row"]) == ("STOP", 100)


def test_malformed_lines_are_counted(gatekeeper: Run, write: Write, rows: Rows, records: Records) -> None:
    log = write("run.jsonl", rows(100))
    log.write_text(log.read_text() + "Killed by the scheduler\n")
    done = gatekeeper("check", log.name, "--format", "json")
    (record,) = records(done.stdout)
    assert (done.returncode, record["rows"], record["skipped_lines"]) == (0, 100, 1)
    assert record["skipped_examples"] == ["line 101: Killed by the scheduler"]


def test_a_declared_metric_that_was_never_logged_is_said(
    gatekeeper: Run, logs: dict[str, str], records: Records
) -> None:
    done = gatekeeper(
        "check", logs["CONTINUE"], "--metric", "train/los", "--role", "lr=learning", "--format", "json"
    )
    assert records(done.stdout)[0]["missing"] == ["train/los", "learning"]
    first, second = done.stderr.splitlines()
    wanted = "good.jsonl never logged the metric 'train/los'; did you mean 'train/loss'?"
    assert first == f"gatekeeper: warning: {wanted}"
    assert "'learning'" in second


def test_notes_are_written_where_asked(
    gatekeeper: Run, logs: dict[str, str], records: Records, tmp_path: Path
) -> None:
    done = gatekeeper("check", logs["STOP"], logs["CONTINUE"], "--notes", "why")
    (note,) = records((tmp_path / "why" / "stops.jsonl").read_text())
    assert done.returncode == 1
    assert "stops.jsonl" in done.stdout
    assert (note["event"], note["source"], note["rows_used"], note["rows_saved"]) == (
        "stop",
        "bad.jsonl",
        61,
        139,
    )


def test_a_note_that_cannot_be_written_does_not_change_the_verdict(
    gatekeeper: Run, logs: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    done = gatekeeper("check", logs["STOP"], "--notes", "taken")
    assert done.returncode == 1
    assert done.stdout.startswith("STOP  bad.jsonl")
    assert done.stderr.startswith("gatekeeper: error: cannot write a note to ")


def test_text_is_verdict_then_sentence_then_evidence(gatekeeper: Run, logs: dict[str, str]) -> None:
    done = gatekeeper("check", logs["STOP"], logs["CONTINUE"])
    lines = done.stdout.splitlines()
    assert lines[0] == "STOP  bad.jsonl  at step 600, row 61 of 200"
    assert "train/loss is nan" in lines[1].lower()
    assert "rule nonfinite-loss" in lines[2]
    mark = next(index for index, line in enumerate(lines) if line.strip() == "▲ row 61")
    assert lines[mark - 1].index("\N{MULTIPLICATION SIGN}") == lines[mark].index(
        "▲"
    )  # under the end of the curve
    assert any(line.startswith("  at the stop: train/loss NaN, grad_norm 1") for line in lines)
    assert any(line.startswith("  look at: ") for line in lines)
    assert "\nCONTINUE  good.jsonl\n" in done.stdout
    assert lines[-1] == "2 sources: 1 STOP, 1 CONTINUE"


@pytest.mark.parametrize("form", ["github", "markdown", "junit"])
def test_the_other_formats_keep_the_exit_code(gatekeeper: Run, logs: dict[str, str], form: str) -> None:
    done = gatekeeper("check", logs["CONTINUE"], logs["STOP"], logs["ERROR"], "--format", form)
    assert done.returncode == 1
    assert "nonfinite-loss" in done.stdout
    assert "missing.jsonl" in done.stdout
    assert done.stderr.startswith("gatekeeper: error: 'missing.jsonl' ")


def test_a_baseline_and_a_configuration_decide(
    gatekeeper: Run, logs: dict[str, str], records: Records, tmp_path: Path
) -> None:
    (tmp_path / "gatekeeper.toml").write_text('[rules]\nnonfinite-loss = "warn"\n')
    relaxed = gatekeeper("check", logs["STOP"], "--format", "json")
    assert records(relaxed.stdout)[0]["rule"] != "nonfinite-loss"
    (tmp_path / "strict.toml").write_text("")
    strict = gatekeeper("check", logs["STOP"], "--config", "strict.toml", "--format", "json")
    assert records(strict.stdout)[0]["rule"] == "nonfinite-loss"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check"], "Missing argument 'SOURCE...'"),
        (["check", "good.jsonl", "--metrc", "loss"], "No such option"),
        (["check", "good.jsonl", "--role", "loss"], "'loss' is not ROLE=KEY, as in loss=train/loss"),
        (["check", "good.jsonl", "--role", "los=a"], "did you mean 'loss'?"),
        (["check", "good.jsonl", "--baseline", "nan"], "'nan' is no finite number"),
        (["check", "good.jsonl", "--baseline", "gone.json"], "gone.json"),
        (["check", "good.jsonl", "--budget-steps", "nan"], "'nan' is no finite number"),
        (["check", "good.jsonl", "--deadline", "0"], "0.0 is not in the range x>0"),
        (["check", "good.jsonl", "--config", "gone.toml"], "'gone.toml' does not exist"),
        (["check", "good.jsonl", "bad.jsonl", "--fallback", "x"], "--fallback goes with one SOURCE"),
        (["chekc"], "Did you mean 'check'?"),
    ],
)
def test_wrong_usage_is_one_sentence(
    gatekeeper: Run, logs: dict[str, str], arguments: list[str], words: str
) -> None:
    done = gatekeeper(*arguments)
    *usage, sentence = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence.startswith("gatekeeper: error: ")
    assert words in sentence
    assert all(line.startswith("Usage: ") for line in usage)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("metrc = 'loss'", "unknown key 'metrc'; did you mean 'metric'?"),
        ("[rules]\nnonfinit-loss = 'off'", "did you mean 'nonfinite-loss'?"),
        ("[rules]\nnonfinite-loss = 'ignore'", "must be one of stop, warn, off"),
        ("[thresholds]\nfar_heigth = 3", "did you mean 'far_height'?"),
        ("metric = ", "not valid TOML"),
    ],
)
def test_a_wrong_configuration_names_file_and_key(
    gatekeeper: Run, logs: dict[str, str], tmp_path: Path, text: str, words: str
) -> None:
    config = tmp_path / "gatekeeper.toml"
    config.write_text(text)
    done = gatekeeper("check", logs["CONTINUE"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gatekeeper: error: {config}: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
