"""The journal under 32 writers, some of which are killed while they write."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from gatekeeper.notes import Journal

WRITERS, NOTES_EACH, KILLED, TORN = 32, 50, 12, 4

# Acknowledges a note by its id, in a file of its own, only after append has returned.
WRITER = """
import os, sys
from gatekeeper.notes import Journal
directory, acknowledged, name, count = sys.argv[1:]
journal = Journal(directory)
patience = 0.05 if int(name) % 2 else None  # as in a loop that must not stall, and as by default
acks = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(count)):
    identity = f"note-{name}-{number}"
    note = {"schema": "gatekeeper.note/1", "event": "stop", "id": identity, "reason": "x" * 5_000}
    journal.append(note, patience_s=patience)
    os.write(acks, identity.encode() + b"\\n")
"""

# The kernel seldom cuts a write in two, so these stop half-way by themselves, the lock held.
HALF_WRITER = """
import os, signal, sys
from pathlib import Path
from gatekeeper.notes.lock import exclusive
directory = Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with exclusive(directory / ".stops.lock", 60) as held:
    assert held
    with open(directory / "stops.jsonl", "ab", buffering=0) as file:
        file.write(b'\\n{"schema": "gatekeeper.note/1", "event": "stop", "id": "torn-1", "rea')
    os.kill(os.getpid(), signal.SIGKILL)
"""


def acknowledged(files: list[Path]) -> list[str]:
    """Return the acknowledged ids; a killed writer's last line may be cut."""
    return [line for file in files if file.exists() for line in file.read_text().split("\n")[:-1]]


def start(program: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


def test_no_acknowledged_note_is_lost_or_torn_when_writers_are_killed(tmp_path: Path) -> None:
    directory = tmp_path / "notes"
    acks = [tmp_path / f"acks-{name}" for name in range(WRITERS)]
    writers = [
        start(WRITER, str(directory), str(file), str(name), str(NOTES_EACH)) for name, file in enumerate(acks)
    ]
    half_writers = [start(HALF_WRITER, str(directory)) for _ in range(TORN)]
    dice = random.Random(7)
    victims = dice.sample(writers, KILLED)
    # Each victim dies when that many notes have been acknowledged by all together: while all are writing.
    moments = sorted(dice.randrange(20, WRITERS * NOTES_EACH // 3) for _ in victims)
    try:
        for process in [*writers, *half_writers]:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for writer in writers:
            go(writer)
        for index, (victim, moment) in enumerate(zip(victims, moments, strict=True)):
            while len(acknowledged(acks)) < moment:
                time.sleep(0.01)
            victim.send_signal(signal.SIGKILL)
            if index < TORN:
                go(half_writers[index])
        codes = [writer.wait() for writer in writers]
        assert [process.wait() for process in half_writers] == [-signal.SIGKILL] * TORN
    finally:
        for process in [*writers, *half_writers]:
            process.kill()
            process.communicate()

    killed = codes.count(-signal.SIGKILL)
    assert killed >= KILLED - 2  # a victim may have been done already
    assert codes.count(0) == WRITERS - killed

    ids = acknowledged(acks)
    assert len(ids) == len(set(ids)) >= (WRITERS - killed) * NOTES_EACH
    journal = Journal(directory)
    read = Counter(note["id"] for note in journal.read())
    assert [identity for identity in ids if read[identity] != 1] == []
    assert max(read.values()) == 1
    assert TORN <= journal.skipped <= TORN + killed
    assert "torn-1" not in read

    # The same of the file itself, read by nothing of ours, and with nothing left beside it.
    lines = journal.path.read_bytes().split(b"\n")
    whole = Counter(json.loads(line)["id"] for line in lines if line.endswith(b"}"))
    assert whole == read
    assert list(directory.glob("stops.*.jsonl")) == []

    page = journal.render().read_text()
    assert page.count("\n## ") == len(read)
