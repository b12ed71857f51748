"""What `gatekeeper run` was told reaches the gate inside the training's own process."""

from __future__ import annotations

from pathlib import Path

import pytest
from gatekeeper.errors import GatekeeperError

from gatekeeper_wandb.options import GateOptions


def test_smoke_runs_and_baselines_travel_through_the_environment(tmp_path: Path) -> None:
    told = {"GATEKEEPER_SMOKE": "1", "GATEKEEPER_BASELINE": "0.35", "GATEKEEPER_NOTES": str(tmp_path)}
    options = GateOptions.from_environment(told)
    settings = options.resolved().make_gate().settings
    assert settings.smoke
    assert settings.baseline_value == 0.35
    assert told.items() <= options.to_environment().items()


def test_a_frozen_smoke_run_is_stopped_by_the_gate_in_the_process(tmp_path: Path) -> None:
    gate = GateOptions(smoke=True, notes=tmp_path).resolved().make_gate()
    verdicts = [gate.observe(step, {"loss": 2.303, "grad_norm": 0.0}) for step in range(30)]
    assert verdicts[-1].stopped
    assert not any(GateOptions(notes=tmp_path).resolved().make_gate().observe(0, {"loss": 2.3}).findings)


def test_a_baseline_that_cannot_be_read_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(GatekeeperError, match=r"missing\.json"):
        GateOptions(baseline=str(tmp_path / "missing.json"), notes=tmp_path).resolved()
