"""Find and signal every process of one supervised command.

Standard library only, and no import of this package: the guardian (see ``guardian.py``) runs this very file
as a script in a bare interpreter, so that it costs little and cannot be broken by what a site loads at
start-up.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

__all__ = [
    "MARKER",
    "Process",
    "become_subreaper",
    "catches",
    "family",
    "front",
    "ignores",
    "reap_adopted",
    "send",
    "send_all",
    "table",
    "term_pause",
]

#: Environment variable that marks every process of one run; it survives fork, exec, setsid and a daemon's
#: double fork.
MARKER = "GATEKEEPER_RUN"

#: Programs that only start another one and wait for it: an interrupt meant for the training has to reach
#: their child. (torchrun, mpirun and timeout are not among them: they hand signals on themselves.)
SHELLS = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox", "fish")
LAUNCHERS = frozenset((*SHELLS, "time", "uv", "uvx", "pixi", "conda", "mamba", "micromamba"))

TERM_PAUSE_S = 5.0  # between SIGTERM and SIGKILL, at most
#: Between the guardian's SIGINT and its SIGTERM, at most: whoever kills the supervisor wants an end.
ORPHAN_GRACE_S = 5.0

_PR_SET_CHILD_SUBREAPER = 36


def term_pause(grace_s: float) -> float:
    """Return the seconds between SIGTERM and SIGKILL: 5, fewer where the grace is shorter than that."""
    return min(TERM_PAUSE_S, max(0.5, grace_s))


class Process(NamedTuple):
    """One line of the process table. ``started`` (clock ticks since boot) tells a reused pid from the old."""

    pid: int
    parent: int
    group: int
    session: int
    state: str
    started: int
    name: str

    @property
    def alive(self) -> bool:
        """Whether it is more than an entry waiting to be reaped."""
        return self.state not in "ZXx"


def parse_stat(text: str) -> Process:
    """Return the process that one ``/proc/PID/stat`` describes (its name may hold blanks and brackets)."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    return Process(int(pid), int(fields[1]), int(fields[2]), int(fields[3]), fields[0], int(fields[19]), name)


def look(pid: int) -> Process | None:
    """Return one process, or None where there is no such process (or no ``/proc``)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read())
    except (OSError, ValueError, IndexError):
        return None


def table() -> dict[int, Process]:
    """Return the process table by pid; empty where the system has no ``/proc``."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    return {pid: found for pid in pids if (found := look(pid)) is not None}


def marked(pid: int, marker: str) -> bool:
    """Say whether a process carries the run's marker in the environment it was started with."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARKER}={marker}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def family(
    leader: int, *, marker: str | None = None, adopter: int | None = None, but: Iterable[int] = ()
) -> list[Process]:
    """Return the living processes of a run, leader included.

    A process belongs to it if it is in the leader's session, carries ``marker``, was adopted by ``adopter``
    (a subreaper, which inherits the orphans below it), or descends from one of these.

    Args:
        leader: The pid that the command was started with; it leads a session of its own.
        marker: The run's value of ``GATEKEEPER_RUN``; None saves reading every process's environment.
        adopter: The subreaper's pid. Its children in its own session are its own helpers, not the run's.
        but: Pids that never belong to the run.

    """
    processes = table()
    if not processes:  # no /proc: the process group is all that can be known
        return (
            [Process(leader, 0, leader, leader, "?", 0, "")] if leader > 1 and _group_exists(leader) else []
        )
    never = {os.getpid(), *but}
    own = processes.get(adopter) if adopter is not None else None
    belongs = {
        pid
        for pid, process in processes.items()
        if pid not in never
        and (
            leader in (pid, process.session)
            or (own is not None and process.parent == adopter and process.session != own.session)
            or (marker is not None and marked(pid, marker))
        )
    }
    grown = True
    while grown:
        new = {
            pid
            for pid, process in processes.items()
            if process.parent in belongs and pid not in belongs and pid not in never
        }
        belongs |= new
        grown = bool(new)
    return [processes[pid] for pid in sorted(belongs) if processes[pid].alive]


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_launcher(process: Process) -> bool:
    """Say whether a process only starts another one; a script run by its own name is known by its shell."""
    if process.name in LAUNCHERS:
        return True
    try:
        return os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) in LAUNCHERS
    except OSError:
        return False


def front(leader: int, members: Iterable[Process]) -> list[Process]:
    """Return the leader and, where it is a shell or another mere launcher, the children it waits for."""
    members = list(members)
    chosen = [process for process in members if process.pid == leader]
    for process in chosen:  # grows while it is walked
        if is_launcher(process):
            chosen += [child for child in members if child.parent == process.pid and child.session == leader]
    return chosen


def _mask(pid: int, field: str) -> int | None:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return None


def catches(pid: int, signum: int) -> bool | None:
    """Say whether a process has a handler of its own for a signal; None where the system does not tell."""
    mask = _mask(pid, "SigCgt")
    return None if mask is None else bool(mask >> (signum - 1) & 1)


def ignores(pid: int, signum: int) -> bool | None:
    """Say whether a process ignores a signal; None where the system does not tell."""
    mask = _mask(pid, "SigIgn")
    return None if mask is None else bool(mask >> (signum - 1) & 1)


def send(process: Process, signum: int) -> bool:
    """Signal one process; False where it is gone, is another one by now, or may not be signalled."""
    if process.started:
        now = look(process.pid)
        if now is None or now.started != process.started:
            return False
    try:
        os.kill(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send_all(leader: int, members: Iterable[Process], signum: int) -> None:
    """Signal every given process, and the leader's process group where the system has no process table."""
    for process in members:
        if process.started:
            send(process, signum)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, signum)


def become_subreaper() -> bool:
    """Let this process adopt the orphans among its descendants (Linux), so that a daemon cannot slip away."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def reap_adopted(but: Iterable[int]) -> None:
    """Reap the dead among the adopted; children in this process's own session are left to who made them."""
    me = look(os.getpid())
    if me is None:
        return
    never = set(but)
    for process in table().values():
        if (
            process.parent == me.pid
            and not process.alive
            and process.session != me.session
            and process.pid not in never
        ):
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def _wait_gone(members: Callable[[], list[Process]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while members():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def guard(pipe: int, marker: str, grace_s: float) -> None:
    """Wait until the supervisor has gone; where it went without a farewell, end what it left behind.

    The supervisor holds the pipe's other end. It writes the leader's pid once there is one, and ``done`` at
    its end.
    """
    told = b""
    while chunk := os.read(pipe, 64):
        told += chunk
    words = told.split()
    if b"done" in words:
        return
    leader = int(words[0]) if words else -1  # never 0: that is the session of everything outside a container

    def left() -> list[Process]:
        return family(leader, marker=marker)

    asked = front(leader, left())
    pids = {one.pid for one in asked}
    send_all(leader, asked, signal.SIGINT)
    _wait_gone(lambda: [one for one in left() if one.pid in pids], min(ORPHAN_GRACE_S, grace_s))
    send_all(leader, left(), signal.SIGTERM)
    if not _wait_gone(left, term_pause(grace_s)):
        while not _wait_gone(left, 0.2):
            send_all(leader, left(), signal.SIGKILL)


if __name__ == "__main__":
    # Whatever ends the supervisor's terminal or group must not end the one that cleans up after it.
    for _signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(_signum, signal.SIG_IGN)
    guard(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
