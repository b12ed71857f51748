"""examples/wandb_sweep as its readers run it: offline, and as a true sweep behind `gatekeeper agent`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "wandb_sweep"


def test_offline_without_account_and_network(sweeping: Any) -> None:
    sweeping.backend.refuse()
    for variable in [name for name in sweeping.env if name.startswith("WANDB_")]:
        del sweeping.env[variable]
    output = sweeping.run(sys.executable, str(EXAMPLE / "offline.py"))
    sound, broken = ("{'lr': 0.01}", "{'lr': 0.1}"), ("{'lr': 3.0}", "{'lr': 10.0}")
    assert all(f"{trial}: ran to its end" in output for trial in sound)
    assert all(f"{trial}: stopped by " in output for trial in broken)
    assert len(sweeping.notes()) == 2
    assert (sweeping.directory / "gatekeeper-notes" / "stops.md").is_file()


def test_the_sweep_configuration_runs_behind_the_agent(sweeping: Any) -> None:
    text = (EXAMPLE / "sweep.yaml").read_text().replace("examples/wandb_sweep/", f"{EXAMPLE}/")
    sweep = sweeping.backend.state.add_sweep(text)
    fast = str(Path(__file__).parent / "programs" / "fast_agent.py")
    sweeping.run(sys.executable, fast, "gatekeeper", "agent", sweep.path, "--count", "4")
    runs = dict(zip([0.01, 3.0, 0.1, 10.0], sweeping.backend.state.sweep_runs(sweep), strict=True))
    assert {rate: run.exit_codes for rate, run in runs.items()} == {rate: [0] for rate in runs}
    assert [rate for rate, run in runs.items() if run.tags] == [3.0, 10.0]
    assert len(runs[0.01].rows) == len(runs[0.1].rows) == 300
    assert len(sweeping.notes()) == 2
