"""Real supervisors over real children: each test names its run, and nothing of it may be left at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

TEST_MARKER = "GATEKEEPER_TEST_RUN"
GATEKEEPER = [sys.executable, "-c", "from gatekeeper.cli import main; main()"]
PATIENCE_S = 30.0  # a bound for a hanging test, not a measurement


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Started under nohup, the tests would hand an ignored hangup on to every command they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def carrying(value: str) -> list[int]:
    """Pids whose environment carries the test's own marker; zombies have no environment."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if f"{TEST_MARKER}={value}".encode() in Path(f"/proc/{name}/environ").read_bytes().split(
                    b"\0"
                ):
                    found.append(int(name))
    return found


class Bench:
    """Starts ``gatekeeper run`` in a directory of its own."""

    def __init__(self, directory: Path, marker: str) -> None:
        self.directory = directory
        self.marker = marker
        self.notes = directory / "notes"
        self.started: list[subprocess.Popen[bytes]] = []

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def start(
        self, *arguments: str, env: dict[str, str] | None = None, **kwargs: Any
    ) -> subprocess.Popen[bytes]:
        base = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("WANDB_", "GATEKEEPER_", "GITHUB_")) and key != "PYTHONUNBUFFERED"
        }
        base |= {TEST_MARKER: self.marker, **(env or {})}
        kwargs = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | kwargs
        self.started.append(
            subprocess.Popen(
                [*GATEKEEPER, "run", "--notes", str(self.notes), *arguments],
                env=base,
                cwd=self.directory,
                **kwargs,
            )
        )
        return self.started[-1]

    def run(self, *arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **kwargs)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(
            arguments, process.returncode, (stdout or b"").decode(), (stderr or b"").decode()
        )

    def python(self, text: str, *options: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return self.run(*options, "--", sys.executable, self.script(text), **kwargs)

    def journal(self) -> list[dict[str, Any]]:
        path = self.notes / "stops.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.02)

    def wait_for_file(self, name: str) -> str:
        path = self.directory / name
        self.wait_for(lambda: path.exists() and path.read_text().endswith("\n"), name)
        return path.read_text()

    def left(self) -> list[int]:
        return carrying(self.marker)


@pytest.fixture
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(tmp_path, f"{os.getpid()}-{request.node.name}")
    yield bench
    for process in bench.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    deadline = time.monotonic() + 20.0  # the guardian may still be at work where the supervisor was killed
    while (left := bench.left()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, f"left running: {left}"
