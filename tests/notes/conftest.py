from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.notes import stop_note
from gatekeeper.verdict import CurvePoint, Decision, Finding, Judgment, Verdict

HOLDER = """
import sys
from pathlib import Path
from gatekeeper.notes.lock import exclusive
with exclusive(Path(sys.argv[1]), 60) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


class FakeGate:
    """What stop_note reads of a gate: two rows of history and the last finite row."""

    rows = 301

    def last_finite(self) -> tuple[int, float | None]:
        return 300, 299.0

    def curve(self, metric: str) -> list[CurvePoint]:
        values = [2.5 - 0.01 * i for i in range(20)]
        return [CurvePoint(280 + i, 279.0 + i, v, v, v) for i, v in enumerate(values)]


@pytest.fixture
def gate() -> Any:
    return FakeGate()


@pytest.fixture
def verdict() -> Verdict:
    finding = Finding(
        "nonfinite-loss",
        Judgment.CLEARLY_BAD,
        "train/loss",
        300.0,
        float("nan"),
        None,
        "train/loss is NaN at step 300",
    )
    return Verdict(
        Decision.STOP,
        Judgment.CLEARLY_BAD,
        "nonfinite-loss",
        "train/loss is NaN at step 300",
        300.0,
        301,
        {"train/loss": float("nan"), "grad_norm": 812.4},
        {"loss": "train/loss", "grad_norm": "grad_norm"},
        (finding,),
        "table",
        "look at the learning rate and at the batch of step 300",
    )


@pytest.fixture
def make_note(verdict: Verdict) -> Callable[..., dict[str, Any]]:
    def make(**arguments: Any) -> dict[str, Any]:
        return stop_note(verdict, **arguments)

    return make


@pytest.fixture
def lock_held() -> Callable[[Path], AbstractContextManager[None]]:
    """Another process holds the journal's lock while inside."""

    @contextmanager
    def hold(directory: Path) -> Iterator[None]:
        directory.mkdir(parents=True, exist_ok=True)
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(directory / ".stops.lock")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            assert holder.stdout.readline().strip() == "True"
            yield
        finally:
            holder.stdin.close()
            holder.wait()
            holder.stdout.close()

    return hold
