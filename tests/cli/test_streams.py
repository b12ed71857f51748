"""Standard output and error: closed, full, coloured, not UTF-8, and what is printed there of hostile logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., "subprocess.Popen[str]"]
Records = Callable[[str], list[dict[str, Any]]]
Rows = Callable[..., list[dict[str, object]]]
Write = Callable[..., Path]

COMMAND = Path(sys.executable).with_name("gatekeeper")
FORMATS = ("text", "json", "github", "markdown", "junit")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("check", "bad.jsonl"), 1),
        (("check", "short.jsonl", "--format", "json"), 3),
        (("check", "bad.jsonl", "good.jsonl", "--format", "markdown"), 1),
        (("backtest", "bad.jsonl", "good.jsonl"), 0),
        (("rules",), 0),
        (("--help",), 0),
    ],
)
def test_a_reader_that_leaves_changes_no_verdict(
    start: Start, logs: dict[str, str], arguments: tuple[str, ...], code: int
) -> None:
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == code


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which is Linux's")
@pytest.mark.parametrize("arguments", [("check", "good.jsonl"), ("rules",)])
def test_a_full_disk_is_an_error(start: Start, logs: dict[str, str], arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        process = start(*arguments, stdout=full, stderr=subprocess.PIPE)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors == "gatekeeper: error: standard output cannot be written: No space left on device\n"


def test_an_interrupt_exits_130(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "live.jsonl"
    os.mkfifo(fifo)
    process = start("check", fifo.name, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writer = _open_when_read(fifo)
    try:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    finally:
        os.close(writer)
    assert (process.returncode, output, errors) == (130, "", "gatekeeper: interrupted\n")


def test_closed_streams(
    gatekeeper: Run, logs: dict[str, str], environment: dict[str, str], tmp_path: Path
) -> None:
    def shell(redirection: str) -> subprocess.CompletedProcess[str]:
        line = f"{COMMAND} check {logs['STOP']} {logs['ERROR']} --format json {redirection}"
        return subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    without_output = shell(">&-")
    assert (without_output.returncode, without_output.stdout) == (1, "")
    without_errors = shell("2>&-")
    assert (without_errors.returncode, without_errors.stderr) == (1, "")
    assert [json.loads(line)["decision"] for line in without_errors.stdout.splitlines()] == ["STOP", "ERROR"]


def _open_when_read(fifo: Path) -> int:
    """Open a pipe for writing once somebody reads it."""
    for _ in range(600):
        try:
            return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nobody opened the pipe")


def test_colours_as_the_environment_says(gatekeeper: Run, logs: dict[str, str]) -> None:
    plain = gatekeeper("check", logs["STOP"])
    assert "\x1b" not in plain.stdout  # no terminal
    forced = gatekeeper("check", logs["STOP"], FORCE_COLOR="1")
    assert "\x1b[31m" in forced.stdout
    assert gatekeeper("check", logs["STOP"], FORCE_COLOR="1", NO_COLOR="1").stdout == plain.stdout


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_at_a_terminal(
    environment: dict[str, str],
    logs: dict[str, str],
    tmp_path: Path,
    variables: dict[str, str],
    coloured: bool,
) -> None:
    import pty

    leader, terminal = pty.openpty()
    command = [COMMAND, "check", logs["STOP"]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment | variables, stdout=terminal, stderr=terminal, check=False
    )
    os.close(terminal)
    shown = os.read(leader, 65536).decode()
    os.close(leader)
    assert done.returncode == 1
    assert ("\x1b[" in shown) is coloured


def test_progress_is_shown_at_a_terminal_and_taken_away(start: Start, rows: Rows) -> None:
    import pty

    leader, terminal = pty.openpty()
    pipe = subprocess.PIPE
    process = start("check", "-", "--format", "json", stdin=pipe, stdout=pipe, stderr=terminal)
    os.close(terminal)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(json.dumps(row) + "\n" for row in rows()))
    process.stdin.flush()
    shown = os.read(leader, 4096)
    while b"-: 200 rows judged" not in shown:
        shown += os.read(leader, 4096)
    process.stdin.close()
    assert json.loads(process.stdout.read())["rows"] == 200
    while not shown.endswith(b"\r\x1b[K"):
        shown += os.read(leader, 4096)
    os.close(leader)


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
    ids=["ascii", "C locale", "cp1252"],
)
def test_a_terminal_without_unicode(
    gatekeeper: Run, write: Write, rows: Rows, records: Records, variables: dict[str, str]
) -> None:
    name = "läuf-損失.jsonl"
    write(name, rows(bad_row=61, metric="loss/été-損失"))
    for form in FORMATS:
        done = gatekeeper("check", name, "--format", form, **variables)
        assert done.returncode == 1, form
        assert done.stderr == ""
        assert done.stdout.isascii() or "cp1252" in variables.values()
        if form == "text":
            assert "^ row 61" in done.stdout
        if form == "json":
            assert records(done.stdout)[0]["roles"] == {"loss": "loss/été-損失", "grad_norm": "grad_norm"}
    listed = gatekeeper("backtest", name, **variables)
    assert (listed.returncode, listed.stderr) == (0, "")


def test_a_file_name_that_is_no_text(gatekeeper: Run, write: Write, rows: Rows, records: Records) -> None:
    name = b"run-\xff.jsonl"
    write(name, rows(bad_row=61))
    for form in FORMATS:
        done = gatekeeper("check", name, "--format", form)
        assert (done.returncode, done.stderr) == (1, ""), form
    (record,) = records(gatekeeper("check", name, "--format", "json").stdout)
    assert record["source"] == os.fsdecode(name)
    assert gatekeeper("backtest", name).returncode == 0
    assert gatekeeper("check", b"gone-\xff.jsonl").returncode == 2


HOSTILE = "loss\x1b[31m\n::error title=x::pwned\r\x07\x9b2J\u202e##[error]"


def test_names_that_would_drive_the_terminal(
    gatekeeper: Run, write: Write, rows: Rows, records: Records
) -> None:
    name = "::error::evil\x1b[2J\x1b]0;title\x07\n::warning::x.jsonl"
    made = [{**row, HOSTILE: row["loss"]} for row in rows(bad_row=61, metric="loss")]
    write(name, made)
    for arguments in (
        ["check", name, "--metric", HOSTILE, "--mode", "min"],
        ["check", name, "--metric", HOSTILE + "x"],  # never logged: a warning names it
        ["check", f"gone{name}"],
        ["check", name, "--config", f"gone{name}"],
        ["check", name, f"--{HOSTILE}"],
        ["backtest", name, f"gone{name}"],
        ["rules", HOSTILE],
        [HOSTILE],
    ):
        done = gatekeeper(*arguments)
        for line in (done.stdout + done.stderr).split("\n"):
            assert line.isprintable(), (arguments, line)
            assert not line.startswith("::")
            assert "##[" not in line
    recorded = records(gatekeeper("check", name, "--format", "json").stdout)
    assert recorded[0]["source"] == name


KEY = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
PASSWORD = "hunter2hunter2"


@pytest.mark.parametrize("form", FORMATS)
def test_secrets_are_never_printed(
    gatekeeper: Run, write: Write, rows: Rows, tmp_path: Path, form: str
) -> None:
    metric = f"loss/https://me:{PASSWORD}@host/x"
    log = write(f"{KEY}/run.jsonl", rows(bad_row=61, metric=metric))
    log.write_text(f"connecting with api_key={PASSWORD}\n" + log.read_text())
    done = gatekeeper(
        "check",
        f"{KEY}/run.jsonl",
        f"https://me:{PASSWORD}@wandb.example/not-a-run?token={KEY}",
        f"ssh://me:{PASSWORD}@host/{KEY}/x.jsonl",
        "--format",
        form,
    )
    assert done.returncode == 1
    assert "nonfinite-loss" in done.stdout
    assert KEY not in done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr


def test_secrets_are_never_printed_by_a_backtest(
    gatekeeper: Run, write: Write, rows: Rows, tmp_path: Path
) -> None:
    write(f"{KEY}/run.jsonl", rows(bad_row=61))
    manifest = tmp_path / "runs.csv"
    manifest.write_text(
        f"source,expected,group\n{KEY}/run.jsonl,continue,{KEY}\nhttps://me:{PASSWORD}@host/x,stop,a\n"
    )
    for form in ("text", "json"):
        done = gatekeeper("backtest", manifest, "--compare", _relaxed(tmp_path), "--format", form)
        assert done.returncode == 0
        assert KEY not in done.stdout + done.stderr
        assert PASSWORD not in done.stdout + done.stderr


def _relaxed(folder: Path) -> Path:
    path = folder / f"{KEY}.toml"
    path.write_text('[rules]\nnonfinite-loss = "off"\n')
    return path


def test_ascii_json_holds_every_name(gatekeeper: Run, write: Write, rows: Rows) -> None:
    write("run.jsonl", rows(metric="loss/été"))
    done = gatekeeper("check", "run.jsonl", "--format", "json")
    assert done.stdout.isascii()
    assert "loss/été" in json.loads(done.stdout)["metrics"]
