"""``gatekeeper demo`` as someone runs it who has just installed the project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

GATEKEEPER = [sys.executable, "-c", "from gatekeeper.cli import main; main()"]


def test_demo(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    (here / "gatekeeper.toml").write_text(
        '[rules]\nnonfinite-loss = "off"\n'
    )  # nobody's configuration disturbs it
    environment = {**os.environ, "HOME": str(home), "GATEKEEPER_NOTES": str(tmp_path / "not here")}
    for name in ("WANDB_API_KEY", "RAY_ADDRESS"):
        environment.pop(name, None)
    done = subprocess.run(
        [*GATEKEEPER, "demo"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    out = done.stdout
    assert "14 small networks" in out
    assert "0 failed" in out
    stopped, rest = out.split("SOUND")
    sound, end = rest.split("Saved:")
    for name in (
        "lr 0.45",
        "lr 100",
        "sensor fault",
        "momentum 1.02",
        "weight decay, wrong sign",
        "very wrong",
    ):
        assert name in stopped
        assert name not in sound
    for name in (
        "lr 0.003",
        "lr 0.01",
        "lr 0.02",
        "lr 0.03",
        "lr 0.05",
        "lr 0.1",
        "lr 0.2 ",
        "lr 0.2, no momentum",
    ):
        assert name in sound
        assert name not in stopped
    assert "epoch 81 of 81" in sound
    assert "nonfinite-loss" in stopped
    assert "gatekeeper-demo/gatekeeper-notes" in end

    notes = here / "gatekeeper-demo" / "gatekeeper-notes"
    entries = [json.loads(line) for line in (notes / "stops.jsonl").read_text().splitlines()]
    assert len(entries) == 6
    assert {entry["event"] for entry in entries} == {"stop"}
    assert "sensor-fault-at-epoch-13" in (notes / "stops.md").read_text()
    fault = next(entry for entry in entries if "sensor" in entry["run_name"])
    assert fault["step"] == 13
    # It writes only under the working directory.
    assert not list(home.iterdir())
    assert not (tmp_path / "not here").exists()
    assert sorted(path.name for path in here.iterdir()) == ["gatekeeper-demo", "gatekeeper.toml"]
    assert not (here / "gatekeeper-demo" / "ray").exists()


def test_demo_without_ray_names_the_line_to_install_it(tmp_path: Path) -> None:
    # A machine without Ray is imitated by a finder that knows no ray.
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'ray' else find(name, *rest)\n"
        "sys.argv = ['gatekeeper', 'demo']\n"
        "from gatekeeper.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'sweep-gatekeeper[ray]'" in done.stderr
    assert not list(tmp_path.iterdir())
