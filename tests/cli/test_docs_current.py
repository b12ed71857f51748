from __future__ import annotations

from pathlib import Path

import pytest
from gatekeeper.docs import main, pages, with_table
from gatekeeper.table import TABLE

DOCS = Path(__file__).parents[2] / "docs"


def test_the_table_in_the_readme_is_current() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert readme == with_table(readme), "run python -m gatekeeper.docs"
    assert all(f"| `{row.rule}` |" in readme for row in TABLE)


@pytest.mark.parametrize("name", ["rules.md", "cli.md"])
def test_generated_pages_are_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run python -m gatekeeper.docs"


def test_check_says_what_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, readme = tmp_path / "docs", tmp_path / "README.md"
    folder.mkdir()
    readme.write_text(
        "before\n<!-- table:begin (python -m gatekeeper.docs) -->\nold\n<!-- table:end -->\nafter\n"
    )
    monkeypatch.setattr("gatekeeper.docs.FOLDER", folder)
    assert main(["--check"]) == 1
    wrong = "docs/rules.md, docs/cli.md, README.md out of date: run python -m gatekeeper.docs\n"
    assert capsys.readouterr().err == wrong
    assert main([]) == 0
    assert main(["--check"]) == 0
    first, *_, last = readme.read_text().splitlines()
    assert (first, last) == ("before", "after")
    assert all(f"| `{row.rule}` |" in readme.read_text() for row in TABLE)


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
