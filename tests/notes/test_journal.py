from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.errors import GatekeeperError
from gatekeeper.notes import Journal, lock, notes_dir
from hypothesis import given, settings
from hypothesis import strategies as st

MakeNote = Callable[..., dict[str, Any]]
HoldLock = Callable[[Path], AbstractContextManager[None]]


def plain(identity: str, **fields: Any) -> dict[str, Any]:
    return {"schema": "gatekeeper.note/1", "event": "stop", "id": identity, "decision": "STOP", **fields}


def own_files(directory: Path) -> list[Path]:
    return list(directory.glob("stops.*.jsonl"))


def test_notes_come_back_in_order_and_as_strict_json(tmp_path: Path, make_note: MakeNote) -> None:
    journal = Journal(tmp_path / "deep" / "notes")
    notes = [make_note(run_name=f"trial {i}", config={"lr": 0.1 * i}) for i in range(3)]
    for note in notes:
        journal.append(note)
    assert journal.read() == notes
    assert journal.skipped == 0

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = journal.path.read_text().splitlines()
    assert [json.loads(line, parse_constant=refuse)["metrics"]["train/loss"] for line in lines] == ["NaN"] * 3


def test_nothing_is_made_before_the_first_append(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "notes")
    assert journal.read() == []
    assert not journal.directory.exists()


def test_the_directory_stays_the_same_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_note: MakeNote
) -> None:
    monkeypatch.chdir(tmp_path)
    journal = Journal("notes")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pickle.loads(pickle.dumps(journal)).append(make_note())
    assert (tmp_path / "notes" / "stops.jsonl").exists()
    assert len(journal.read()) == 1


@pytest.mark.parametrize(
    "name",
    ["line\u2028separator", "next\x85line", "bidi\u202eoverride", "surrogate\udc80", "new\nline", "ünïcode"],
)
def test_a_hostile_run_name_stays_one_line(tmp_path: Path, make_note: MakeNote, name: str) -> None:
    journal = Journal(tmp_path)
    journal.append(make_note(run_name=name))
    assert len(journal.path.read_text().splitlines()) == 1
    assert journal.read()[0]["run_name"] == name
    assert len(journal.markdown_path.read_text().split("\n## ")) == 2


def test_only_stops_get_into_the_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with pytest.raises(GatekeeperError, match="stops only"):
        journal.append({"schema": "gatekeeper.note/1", "event": "warning"})
    assert not journal.path.exists()


def test_a_note_made_by_hand_is_redacted_and_gets_an_id(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    note = {"schema": "gatekeeper.note/1", "event": "stop", "config": {"password": "hunter2hunter2"}}
    journal.append(note)
    (read,) = journal.read()
    assert len(read["id"]) >= 8
    assert "id" not in note
    assert not [path for path in tmp_path.iterdir() if b"hunter2" in path.read_bytes()]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_cut_anywhere_the_journal_loses_only_the_cut_entry(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(directory)
        ids = [f"note-{i}" for i in range(3)]
        for identity in ids:
            journal.append(plain(identity, run_name="naïve → run"))
        whole = journal.path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        journal.path.write_bytes(whole[:cut])
        journal.append(plain("after-the-cut"))

        # An entry that lacks nothing but its line break is whole.
        kept = [
            identity
            for i, identity in enumerate(ids)
            if len(b"".join(whole.splitlines(True)[: i + 1])) - 1 <= cut
        ]
        assert [note["id"] for note in journal.read()] == [*kept, "after-the-cut"]
        boundary = sum(map(len, whole.splitlines(True)[: len(kept)]))
        assert journal.skipped == (1 if cut > boundary else 0)


@pytest.mark.parametrize(
    "junk", [b"\x00\xff\n", b"[1, 2]\n", b'{"a": 1}\n', b"[" * 100_000 + b"\n", b"\n\n  \n"]
)
def test_foreign_lines_are_passed_over(tmp_path: Path, junk: bytes) -> None:
    journal = Journal(tmp_path)
    journal.append(plain("first"))
    with journal.path.open("ab") as file:
        file.write(junk)
    journal.append(plain("second"))
    assert [note["id"] for note in journal.read()] == ["first", "second"]
    assert journal.skipped == (1 if junk.strip() else 0)


def test_behind_a_held_lock_the_note_goes_to_a_file_of_its_own_and_is_merged_later(
    tmp_path: Path, lock_held: HoldLock
) -> None:
    journal = Journal(tmp_path)
    with lock_held(tmp_path):
        journal.append(plain("behind-1"), patience_s=0.05)
        journal.append(plain("behind-2"), patience_s=0.0)
        assert not journal.path.exists()
        assert len(own_files(tmp_path)) == 2
        assert {note["id"] for note in journal.read()} == {"behind-1", "behind-2"}
        assert len(own_files(tmp_path)) == 2
    journal.append(plain("afterwards"))
    assert own_files(tmp_path) == []
    written = [json.loads(line)["id"] for line in journal.path.read_text().splitlines()]
    assert sorted(written) == ["afterwards", "behind-1", "behind-2"]
    assert all(journal.markdown_path.read_text().count(identity) == 1 for identity in written)


@pytest.mark.parametrize("how", ["read", "merge", "render"])
def test_readers_merge_as_well(tmp_path: Path, lock_held: HoldLock, how: str) -> None:
    journal = Journal(tmp_path)
    with lock_held(tmp_path):
        journal.append(plain("behind"), patience_s=0.0)
    getattr(journal, how)()
    assert own_files(tmp_path) == []
    assert b"behind" in journal.path.read_bytes()
    assert [note["id"] for note in journal.read()] == ["behind"]


def test_a_merge_that_was_killed_before_it_cleaned_up_counts_once(
    tmp_path: Path, lock_held: HoldLock
) -> None:
    journal = Journal(tmp_path)
    journal.append(plain("first", reason="it names behind-1 in its text"))
    with lock_held(tmp_path):
        journal.append(plain("behind-1"), patience_s=0.0)
    (own,) = own_files(tmp_path)
    content = own.read_bytes()
    journal.merge()
    own.write_bytes(content)  # as if the merger had died after writing the journal
    journal.append(plain("last"))
    assert not own.exists()
    assert [json.loads(line)["id"] for line in journal.path.read_text().splitlines()] == [
        "first",
        "behind-1",
        "last",
    ]


def test_a_half_written_own_file_is_never_merged_and_removed_when_old(
    tmp_path: Path, lock_held: HoldLock
) -> None:
    journal = Journal(tmp_path)
    unfinished = [tmp_path / f"stops.host-1.{name}.jsonl.tmp" for name in ("old", "new")]
    for path in unfinished:
        path.write_bytes(b'{"id": "half')
    os.utime(unfinished[0], (time.time() - 7200,) * 2)
    with lock_held(tmp_path):
        journal.append(plain("behind"), patience_s=0.0)
    assert [note["id"] for note in journal.read()] == ["behind"]
    assert [path.exists() for path in unfinished] == [False, True]


def test_a_corrupt_own_file_is_kept_and_counted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    corrupt = tmp_path / "stops.host-1.abcd.jsonl"
    corrupt.write_bytes(b"\x00\x00\x00")
    journal.append(plain("first"))
    assert [note["id"] for note in journal.read()] == ["first"]
    assert journal.skipped == 1
    assert corrupt.exists()


def test_a_lock_call_that_hangs_does_not_hold_up_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stuck network lock daemon cannot be had here: the system call is replaced by one that waits.
    release, calls = threading.Event(), []

    def hang(descriptor: int) -> None:
        calls.append(descriptor)
        release.wait()

    monkeypatch.setattr(lock, "_take", hang)
    journal = Journal(tmp_path)
    try:
        journal.append(plain("behind-1"), patience_s=0.05)
        journal.append(plain("behind-2"), patience_s=0.05)
        assert len(own_files(tmp_path)) == 2
        assert len(calls) == 1  # no second thread hangs beside the first
    finally:
        release.set()
    for thread in threading.enumerate():
        if thread.name == "gatekeeper-notes-lock":
            thread.join()
    monkeypatch.undo()
    journal.append(plain("afterwards"))  # the late lock was let go
    assert own_files(tmp_path) == []


def test_threads_of_one_process_do_not_mix(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    def write(name: int) -> None:
        for number in range(10):
            journal.append(plain(f"note-{name}-{number}"))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({note["id"] for note in journal.read()}) == 40
    assert journal.skipped == 0


@pytest.mark.parametrize("place", ["/proc/no-such-place/notes", "below-a-file/notes"])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, place: str) -> None:
    (tmp_path / "below-a-file").write_text("not a directory")
    with pytest.raises(GatekeeperError, match=r"cannot write a note to .*--notes DIR or GATEKEEPER_NOTES"):
        Journal(tmp_path / place).append(plain("first"), patience_s=0.05)


FULL_DISK = """
import resource, sys
from gatekeeper.errors import GatekeeperError
from gatekeeper.notes import Journal
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
note = {"schema": "gatekeeper.note/1", "event": "stop", "id": "too-long", "reason": "x" * 9000}
try:
    Journal(sys.argv[1]).append(note)
except GatekeeperError as fault:
    print(fault)
"""


def test_a_write_that_fails_half_way_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    """With a limit on the size of files, which cuts a write as a full disk does."""
    journal = Journal(tmp_path)
    journal.append(plain("first"))
    before = journal.path.read_bytes()
    answer = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("cannot write a note to")
    assert journal.path.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".stops.lock", "stops.jsonl", "stops.md"]


def test_where_only_the_log_cannot_be_written_the_note_is_kept_beside_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.path.mkdir()  # as root no mode would keep us out
    journal.append(plain("first"))
    assert len(own_files(tmp_path)) == 1
    journal.path.rmdir()
    assert [note["id"] for note in journal.read()] == ["first"]
    assert own_files(tmp_path) == []


def test_amendments_are_merged_on_reading_and_leave_the_journal_alone(
    tmp_path: Path, make_note: MakeNote
) -> None:
    journal = Journal(tmp_path)
    note = make_note(run_name="offline", extra={"trial": "t1"})
    journal.append(note)
    before = journal.path.read_bytes()
    journal.amend(note["id"], run_url="https://user:hunter2@w.example/r/1", extra={"wandb": "offline"})
    journal.amend(note["id"], run_url="https://w.example/r/2?token=hunter2", seconds_saved=5.0)
    journal.amend("unknown", run_url="https://w.example/r/3")
    (read,) = journal.read()
    assert read["run_url"] == "https://w.example/r/2?token=[redacted]"
    assert read["extra"] == {"trial": "t1", "wandb": "offline"}
    assert read["seconds_saved"] == 5.0
    assert read["amended"].endswith("Z")
    assert journal.path.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if b"hunter2" in path.read_bytes()]
    assert "https://w.example/r/2" in journal.render().read_text()
    with pytest.raises(GatekeeperError, match="decision cannot be amended"):
        journal.amend(note["id"], decision="CONTINUE")


def test_an_amendment_behind_a_held_lock_waits_in_a_file_of_its_own(
    tmp_path: Path, make_note: MakeNote
) -> None:
    journal = Journal(tmp_path)
    note = make_note()
    journal.append(note)
    with lock.exclusive(tmp_path / ".amendments.lock", 10) as held:
        assert held
        journal.amend(note["id"], run_name="late", patience_s=0.0)
        assert len(list(tmp_path.glob("amendments.*.jsonl"))) == 1
        assert journal.read()[0]["run_name"] == "late"
    journal.merge()
    assert list(tmp_path.glob("amendments.*.jsonl")) == []
    assert journal.read()[0]["run_name"] == "late"


def test_the_markdown_grows_with_the_journal_and_is_the_same_when_rebuilt(
    tmp_path: Path, make_note: MakeNote
) -> None:
    journal = Journal(tmp_path)
    for i in range(3):
        journal.append(make_note(run_name=f"trial {i}"))
    grown = journal.markdown_path.read_text()
    assert grown.count("\n## trial") == 3
    journal.markdown_path.write_text(grown[:200])  # killed in the middle of writing it
    assert journal.render().read_text() == grown
    journal.markdown_path.unlink()
    journal.append(make_note(run_name="trial 3"))
    assert journal.markdown_path.read_text().count("\n## trial") == 4


def test_a_markdown_that_cannot_be_written_never_fails_an_append(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.markdown_path.mkdir()
    (journal.markdown_path / "in the way").touch()
    journal.append(plain("first"))
    assert [note["id"] for note in journal.read()] == ["first"]
    with pytest.raises(GatekeeperError, match=r"cannot write .*stops\.md"):
        journal.render()
    shutil.rmtree(journal.markdown_path)
    assert "first" in journal.render().read_text()


def test_where_notes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Settings:
        notes = tmp_path / "configured"

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GATEKEEPER_NOTES", "from-environment")
    assert notes_dir("argument", Settings()) == tmp_path / "argument"
    assert notes_dir(None, Settings()) == tmp_path / "from-environment"
    monkeypatch.setenv("GATEKEEPER_NOTES", "")
    assert notes_dir(None, Settings()) == tmp_path / "configured"
    assert notes_dir(None, {"notes": "from-mapping"}) == tmp_path / "from-mapping"
    assert notes_dir() == tmp_path / "gatekeeper-notes"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert notes_dir("~/notes") == tmp_path / "home" / "notes"
