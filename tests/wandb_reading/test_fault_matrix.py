"""Every fault of the server, read once and read again at intervals.

No fault becomes a STOP, an unexpected exception or a hang, and the next look after it reads the run as if
nothing had been. The deadline is 2 s here (the faults last an hour); the slack is for a busy machine.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from gatekeeper import Decision, Gate
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.sources import SourceOptions

from gatekeeper_wandb.sources import SPEC

DEADLINE_S = 2.0
SLACK_S = 15.0

FAULTS: dict[str, tuple[dict[str, Any], type[GatekeeperError]]] = {
    "refused": ({"kind": "refused"}, Unreachable),
    "port closed": ({}, Unreachable),
    "dropped": ({"kind": "dropped"}, Unreachable),
    "hanging": ({"kind": "hanging"}, Unreachable),
    "slow": ({"kind": "slow", "seconds": 10.0}, Unreachable),
    "401": ({"kind": "status", "status": 401}, SourceError),
    "403": ({"kind": "status", "status": 403}, SourceError),
    "404": ({"kind": "status", "status": 404}, SourceError),
    "408": ({"kind": "status", "status": 408}, Unreachable),
    "429": ({"kind": "status", "status": 429, "retry_after": 1}, Unreachable),
    "429 for long": ({"kind": "status", "status": 429, "retry_after": 60}, Unreachable),
    "500": ({"kind": "status", "status": 500}, Unreachable),
    "502": ({"kind": "status", "status": 502}, Unreachable),
    "503": ({"kind": "status", "status": 503}, Unreachable),
    "malformed": ({"kind": "malformed"}, Unreachable),
    "wrong types": ({"kind": "wrong_types"}, Unreachable),
    "graphql error": ({"kind": "graphql_error"}, Unreachable),
    "empty history": ({"kind": "empty_history"}, Unreachable),
}


def healthy(rows: int) -> list[dict[str, float]]:
    return [{"loss": 1.0 / (i + 1)} for i in range(rows)]


def look(source: Any, gate: Gate) -> int:
    """Feed the gate what is new, as a watcher does; return how many rows there were."""
    started = time.monotonic()
    count = 0
    try:
        for row in source.rows():
            gate.observe(row.step, row.metrics)
            count += 1
    finally:
        took = time.monotonic() - started
        assert took < DEADLINE_S + SLACK_S, f"a look took {took:.1f} s"
        assert gate.verdict.decision is not Decision.STOP
    return count


def look_after(source: Any, gate: Gate) -> int:
    """Look again after a fault; a starved machine may need more than the short deadline for that."""
    for _ in range(3):
        try:
            return look(source, gate)
        except Unreachable:
            continue
    return look(source, gate)


def strike(backend: Any, fault: dict[str, Any]) -> None:
    backend.fault("*", **fault) if fault else backend.refuse()


@pytest.mark.parametrize("name", FAULTS)
def test_read_once(backend: Any, name: str) -> None:
    fault, expected = FAULTS[name]
    backend.state.add_run("r1", healthy(20))
    strike(backend, fault)
    gate = Gate()
    (source,) = SPEC.open("ent/proj/r1", SourceOptions(deadline_s=DEADLINE_S))
    with pytest.raises(expected) as raised:
        look(source, gate)
    assert type(raised.value) is expected
    assert "0123456789abcdef" not in str(raised.value)
    assert "ent/proj/r1" in str(raised.value)
    assert gate.rows == 0

    backend.clear_faults()
    assert look_after(source, gate) == 20
    assert source.run_state == "finished"


@pytest.mark.parametrize("name", FAULTS)
def test_read_again_at_intervals(backend: Any, name: str) -> None:
    fault, expected = FAULTS[name]
    run = backend.state.add_run("r1", healthy(20), state="running")
    gate = Gate()
    (source,) = SPEC.open("ent/proj/r1", SourceOptions(deadline_s=DEADLINE_S, follow=True))
    assert look_after(source, gate) == 20

    more = backend.state.add_run("other", healthy(30)).history
    with backend.state.lock:
        run.history = more
    strike(backend, fault)
    with pytest.raises(expected):
        look(source, gate)
    assert gate.rows == 20

    backend.clear_faults()
    assert look_after(source, gate) == 10
    assert look_after(source, gate) == 0
    assert (gate.rows, source.run_state) == (30, "running")
