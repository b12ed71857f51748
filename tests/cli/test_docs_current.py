from __future__ import annotations

from pathlib import Path

import pytest
from gatekeeper.docs import main, pages
from gatekeeper.table import TABLE

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["rules.md", "cli.md"])
def test_generated_pages_are_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run python -m gatekeeper.docs"


def test_check_says_what_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gatekeeper.docs.FOLDER", tmp_path)
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "cli.md").write_text("old")
    assert main(["--check"]) == 1
    assert "docs/cli.md out of date" in capsys.readouterr().err


def test_every_rule_and_command_has_its_section() -> None:
    made = pages()
    for row in TABLE:
        assert f"\n## {row.rule}\n" in made["rules.md"]
    for command in (
        "check",
        "backtest",
        "baseline record",
        "run",
        "rules",
        "notes show",
        "init",
        "demo",
        "agent",
        "stop",
    ):
        assert f"# gatekeeper {command}\n" in made["cli.md"]
