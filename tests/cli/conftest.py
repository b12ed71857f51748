from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

COMMAND = str(Path(sys.executable).with_name("gatekeeper"))
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def environment() -> dict[str, str]:
    """This process's environment without what would change the output."""
    unwanted = ("GATEKEEPER_", "WANDB_", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "GITHUB_", "RUNNER_")
    return {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}


@pytest.fixture
def gatekeeper(tmp_path: Path, environment: dict[str, str]) -> Callable[..., Done]:
    """Run the installed command in an empty directory; keyword arguments are environment variables."""

    def run(*arguments: str | bytes | Path, stdin: str | None = None, **variables: str) -> Done:
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=tmp_path,
            env=environment | variables,
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            check=False,
        )

    return run


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterable[Callable[..., subprocess.Popen[str]]]:
    """Start the installed command; what still runs at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen([COMMAND, *arguments], cwd=tmp_path, env=environment, text=True, **options)
        )
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write rows as JSON Lines (NaN and Infinity as Python writes them)."""

    def to_file(name: str | bytes, rows: Iterable[dict[str, object]]) -> Path:
        path = tmp_path / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return to_file


@pytest.fixture
def rows() -> Callable[..., list[dict[str, object]]]:
    """A run whose loss falls; from ``bad_row`` on (counted from 1) it is ``bad``."""

    def make(
        count: int = 200, bad_row: int | None = None, bad: object = math.nan, metric: str = "train/loss"
    ) -> list[dict[str, object]]:
        made: list[dict[str, object]] = []
        for index in range(count):
            value: object = 0.5 + 2.0 / (1 + index / 10) + 0.01 * math.sin(7.0 * index)
            broken = bad_row is not None and index + 1 >= bad_row
            made.append({"step": 10 * index, metric: bad if broken else value, "grad_norm": 1.0})
        return made

    return make


@pytest.fixture
def logs(write: Callable[..., Path], rows: Callable[..., list[dict[str, object]]]) -> dict[str, str]:
    """One log for each answer, by the answer's name, relative to the working directory."""
    write("good.jsonl", rows())
    write("bad.jsonl", rows(bad_row=61))
    write("short.jsonl", rows(2))
    return {
        "STOP": "bad.jsonl",
        "CONTINUE": "good.jsonl",
        "WAIT": "short.jsonl",
        "ERROR": "missing.jsonl",
    }


@pytest.fixture
def records() -> Callable[[str], list[dict[str, Any]]]:
    """Parse JSON Lines strictly: NaN and Infinity as bare words are errors."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no strict JSON")

    def parse(text: str) -> list[dict[str, Any]]:
        return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]

    return parse
