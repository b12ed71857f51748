from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.notes import Journal

MakeNote = Callable[..., dict[str, Any]]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gatekeeper(tmp_path: Path) -> Run:
    """The installed command, in an empty directory."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {
            k: v for k, v in os.environ.items() if k not in {"GATEKEEPER_NOTES", "FORCE_COLOR", "NO_COLOR"}
        }
        command = [str(Path(sys.executable).with_name("gatekeeper")), "notes", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=inherited | environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def journal(tmp_path: Path, make_note: MakeNote, gate: Any) -> Journal:
    journal = Journal(tmp_path / "gatekeeper-notes")
    for name in ("trial_1", "trial_2", "trial_1"):
        journal.append(make_note(run_name=name, gate=gate, config={"lr": 0.1, "api_key": "hunter2hunter2"}))
    return journal


def test_list_shows_every_stop_with_its_reason(gatekeeper: Run, journal: Journal) -> None:
    answer = gatekeeper("list")
    assert answer.returncode == 0
    assert answer.stdout.startswith(f"3 stops in {journal.directory}")
    assert answer.stdout.count("train/loss is NaN at step 300") == 3
    assert gatekeeper().stdout == answer.stdout
    newest = gatekeeper("list", "--last", "1", "--format", "json").stdout.splitlines()
    assert [json.loads(line) for line in newest] == journal.read()[-1:]


@pytest.mark.parametrize("command", ["list", "render"])
def test_an_empty_journal_says_so(gatekeeper: Run, tmp_path: Path, command: str) -> None:
    answer = gatekeeper(command)
    assert answer.returncode == 0
    assert "no stops are noted" in answer.stdout
    assert str(tmp_path / "gatekeeper-notes") in answer.stdout
    assert not (tmp_path / "gatekeeper-notes").exists()


def test_show_finds_a_note_by_id_prefix_and_by_run_name(gatekeeper: Run, journal: Journal) -> None:
    note = journal.read()[1]
    for name in (note["id"], note["id"][:6], "trial_2"):
        answer = gatekeeper("show", name)
        assert answer.returncode == 0
        assert answer.stdout.startswith("STOP  trial_2: nonfinite-loss at step 300\n")
        assert "look at the learning rate" in answer.stdout
        assert "api_key  [redacted]" in answer.stdout
    both = gatekeeper("show", "trial_1", "--format", "json").stdout.splitlines()
    assert [json.loads(line)["run_name"] for line in both] == ["trial_1", "trial_1"]


def test_what_cannot_be_found_is_one_sentence_and_exit_2(gatekeeper: Run, journal: Journal) -> None:
    wrong = gatekeeper("show", "trail_2")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean 'trial_2'?" in wrong.stderr
    nowhere = gatekeeper("show", "trial_1", "--notes", "elsewhere")
    assert nowhere.returncode == 2
    assert "does not exist" in nowhere.stderr
    not_a_directory = gatekeeper("list", "--notes", str(journal.path))
    assert not_a_directory.returncode == 2
    for answer in (wrong, nowhere, not_a_directory):
        assert answer.stderr.startswith("gatekeeper: error: ")
        assert len(answer.stderr.splitlines()) == 1


def test_an_ambiguous_id_lists_the_candidates(gatekeeper: Run, tmp_path: Path, make_note: MakeNote) -> None:
    journal = Journal(tmp_path / "gatekeeper-notes")
    for identity in ("abcd1111", "abcd2222"):
        journal.append({**make_note(), "id": identity})
    answer = gatekeeper("show", "abcd")
    assert answer.returncode == 2
    assert "abcd1111, abcd2222" in answer.stderr


def test_the_place_of_the_notes_is_the_option_before_the_environment(
    gatekeeper: Run, tmp_path: Path, make_note: MakeNote
) -> None:
    for name in ("by-option", "by-environment"):
        Journal(tmp_path / name).append(make_note(run_name=name))
    environment = {"GATEKEEPER_NOTES": str(tmp_path / "by-environment")}
    assert "by-environment" in gatekeeper("list", **environment).stdout
    listed = gatekeeper("list", "--notes", "by-option", **environment).stdout
    assert " by-option " in listed
    *_, command, option, value, identity = listed.splitlines()[-1].split()
    assert gatekeeper(command, option, value, identity, **environment).returncode == 0


def test_render_rebuilds_the_markdown(gatekeeper: Run, journal: Journal) -> None:
    page = journal.markdown_path.read_text()
    journal.markdown_path.unlink()
    answer = gatekeeper("render")
    assert answer.stdout == f"{journal.markdown_path}\n"
    assert journal.markdown_path.read_text() == page


def test_torn_lines_are_told_on_stderr(gatekeeper: Run, journal: Journal) -> None:
    with journal.path.open("a") as file:
        file.write('{"schema": "gatekeeper.no')
    answer = gatekeeper("list", "--format", "json")
    assert len(answer.stdout.splitlines()) == 3
    assert "skipped 1 line" in answer.stderr


def test_colour_only_where_it_is_wanted(gatekeeper: Run, journal: Journal) -> None:
    assert "\x1b[" not in gatekeeper("show", "trial_2").stdout
    assert "\x1b[" in gatekeeper("show", "trial_2", FORCE_COLOR="1").stdout


def test_hostile_names_reach_neither_terminal_nor_markdown(
    gatekeeper: Run, tmp_path: Path, make_note: MakeNote
) -> None:
    hostile = "\x1b[2J::error::x\n::error::y\u202e<script>alert(1)</script>|`a`[l](http://e.example)\x9b31m"
    journal = Journal(tmp_path / "gatekeeper-notes")
    note = make_note(
        run_name=hostile, config={hostile: hostile}, experiment=hostile, extra={hostile: hostile}
    )
    journal.append({**note, "reason": hostile, "rule": hostile, "metrics": {hostile: hostile}})
    for arguments in (
        ["list"],
        ["show", note["id"]],
        ["list", "--format", "json"],
        ["show", "nothing" + hostile],
    ):
        answer = gatekeeper(*arguments)
        printed = answer.stdout + answer.stderr
        assert not [c for c in printed if not c.isprintable() and c != "\n"]
        assert not [line for line in printed.splitlines() if line.lstrip().startswith("::")]
    page = journal.markdown_path.read_text()
    assert "<script" not in page
    assert not [c for c in page if not c.isprintable() and c != "\n"]
    assert not [line for line in page.splitlines() if line.lstrip().startswith("::")]
