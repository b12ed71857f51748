from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.config import Settings, Thresholds, load_settings
from gatekeeper.table import TABLE

Run = Callable[..., subprocess.CompletedProcess[str]]
Records = Callable[[str], list[dict[str, Any]]]

#: A line of the template that becomes a setting when its comment sign is taken away.
SETTING = re.compile(r'^# ((?:[a-z_-]+|"[^"]+") = .+)$', re.MULTILINE)


def test_the_table_has_every_rule(gatekeeper: Run) -> None:
    done = gatekeeper("rules")
    head, *lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert head.split()[:3] == ["rule", "judgment", "decision"]
    assert [line.split()[0] for line in lines[: len(TABLE)]] == [row.rule for row in TABLE]
    first = lines[0]
    assert re.search(r"^nonfinite-loss +clearly_bad +STOP +NaN/Inf in loss$", first)


def test_every_rule_is_explained_and_every_threshold_has_a_rule(gatekeeper: Run, records: Records) -> None:
    rules = records(gatekeeper("rules", "--format", "json").stdout)
    for rule in rules:
        assert len(rule["explanation"]) > 100, rule["rule"]
        for part in ("Formula", "Source", "Wrong"):
            assert part.lower() in rule["explanation"].lower(), (rule["rule"], part)
    read = {name for rule in rules for name in rule["thresholds"]}
    assert read == {item.name for item in fields(Thresholds)}


def test_one_rule_with_the_values_in_force(gatekeeper: Run, records: Records, tmp_path: Path) -> None:
    config = tmp_path / "strict.toml"
    config.write_text('[rules]\nspike-divergent = "warn"\n[thresholds]\nfar_height = 4.5\n')
    plain = gatekeeper("rules", "spike-divergent").stdout
    changed = gatekeeper("rules", "spike-divergent", "--config", config).stdout
    assert "decision STOP\n" in plain
    assert "\n  far_height = 10: " in plain
    assert "decision report only (configured)\n" in changed
    assert "\n  far_height = 4.5 (default 10): " in changed
    (rule,) = records(gatekeeper("rules", "spike-divergent", "--config", config, "--format", "json").stdout)
    assert (rule["action"], rule["decision"], rule["thresholds"]["far_height"]) == ("warn", "STOP", 4.5)


@pytest.mark.parametrize(
    ("name", "hint"), [("nonfinite-los", "did you mean 'nonfinite-loss'?"), ("x", "lists them")]
)
def test_an_unknown_rule(gatekeeper: Run, name: str, hint: str) -> None:
    done = gatekeeper("rules", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gatekeeper: error: there is no rule {name!r}; ")
    assert hint in done.stderr


def test_init_writes_the_defaults(gatekeeper: Run, tmp_path: Path) -> None:
    done = gatekeeper("init")
    path = tmp_path / "gatekeeper.toml"
    assert (done.returncode, done.stderr) == (0, "")
    assert "gatekeeper.toml" in done.stdout
    assert load_settings(path) == Settings()


def test_every_commented_line_can_be_used(gatekeeper: Run, tmp_path: Path) -> None:
    gatekeeper("init", "all.toml")
    path = tmp_path / "all.toml"
    text, count = SETTING.subn(r"\1", path.read_text())
    path.write_text(text)
    settings = load_settings(path)
    assert settings.thresholds == Thresholds()  # the thresholds are shown at their defaults
    assert set(settings.rules) == {row.rule for row in TABLE}
    assert settings.roles == {"loss": "train/loss", "train/aux": "off"}
    assert (settings.metric, settings.mode, settings.budget_steps) == ("val/loss", "min", 10_000.0)
    assert len(settings.fallback) == 2
    assert count == len(TABLE) + len(fields(Thresholds)) + 12


def test_the_template_has_every_key(gatekeeper: Run, logs: dict[str, str], tmp_path: Path) -> None:
    gatekeeper("init")
    path = tmp_path / "gatekeeper.toml"
    text = path.read_text()
    path.write_text("zzzzzzzz = 1\n")
    known = gatekeeper("check", logs["CONTINUE"]).stderr.split("known keys: ")[1].strip().split(", ")
    assert len(known) > 10
    for key in known:
        assert re.search(rf"^(# {key} = |\[{key}\]$)", text, re.MULTILINE), key


def test_init_overwrites_only_with_force(gatekeeper: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    refused = gatekeeper("init", "mine.toml")
    assert refused.returncode == 2
    assert refused.stderr == "gatekeeper: error: mine.toml exists already; use --force to overwrite it\n"
    assert path.read_text() == "mine"
    assert gatekeeper("init", "mine.toml", "--force").returncode == 0
    assert load_settings(path) == Settings()
    lost = gatekeeper("init", "no/such/folder.toml")
    assert (
        lost.stderr == "gatekeeper: error: no/such/folder.toml cannot be written: No such file or directory\n"
    )


def test_json_is_ascii(gatekeeper: Run) -> None:
    out = gatekeeper("rules", "--format", "json").stdout
    assert out.isascii()
    assert all(json.loads(line)["rule"] for line in out.splitlines())
