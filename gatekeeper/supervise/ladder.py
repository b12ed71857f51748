"""The ladder of an end: ask, wait, terminate, kill, until nothing of the run is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import IntEnum

from gatekeeper.supervise.processes import Process, catches, front, ignores, send, send_all, term_pause

__all__ = ["Ladder", "Stage"]

LINGER_S = 2.0  # what outlives its leader may be about to end by itself
REST_S = 10.0  # and, once interrupted, has this long to write its rows, within the grace
KILL_S = 10.0  # a process that survives SIGKILL this long hangs in the kernel; nobody can end it


class Stage(IntEnum):
    """How far up the ladder a run is."""

    RUNNING = 0
    LEAVING = 1  # the hook inside the child ended the run: it leaves by itself
    ASKED = 2  # SIGINT to the leader
    LINGERING = 3  # the leader has ended, something of it lives on
    REST_ASKED = 4  # SIGINT to that
    TERMINATING = 5
    KILLING = 6
    DONE = 7


class Ladder:
    """Ends a run's processes step by step. Nothing here waits: ``step`` is called until ``stage`` is DONE.

    SIGINT goes to the leader alone, as the training's front (and through a shell to the child it waits for):
    it is the signal that trainers flush on. Only what is left after it has ended, or after the grace, gets
    SIGTERM and SIGKILL.
    """

    def __init__(
        self,
        leader: int,
        family: Callable[[], list[Process]],
        *,
        grace_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._leader = leader
        self._family = family
        self._grace_s = grace_s
        self._term_s = term_pause(grace_s)
        self._report = report
        self.stage = Stage.RUNNING
        self._deadline: float | None = None
        self._asked: set[tuple[int, int]] = set()
        self._asked_until = 0.0
        self._stopper: int | None = None

    @property
    def ending(self) -> bool:
        """Whether the run is being ended."""
        return self.stage is not Stage.RUNNING

    def leave(self, pid: int | None, now: float) -> None:
        """Let the run leave by itself: the process ``pid`` has ended it and is on its way out."""
        if self.stage is Stage.RUNNING:
            self.stage, self._deadline, self._stopper = Stage.LEAVING, now + min(self._grace_s, REST_S), pid

    def interrupt(self, now: float) -> None:
        """Ask the front to end, with SIGINT; the grace begins."""
        if self.stage <= Stage.ASKED:
            self.stage, self._deadline = Stage.ASKED, now + self._grace_s
            self.forward(signal.SIGINT, now)

    def request(self, signum: int, now: float) -> None:
        """Hand on a request to end (SIGTERM, SIGHUP): as it is to who handles it, as SIGINT to who does not.

        Who does not handle it would die of it at once and lose the rows not written yet. So where the leader
        does not, the grace begins; where it does, it ends when it sees fit, as it would without a supervisor.
        """
        if catches(self._leader, signum) is False and self.stage is Stage.RUNNING:
            self.stage, self._deadline = Stage.ASKED, now + self._grace_s
        self.forward(
            signum, now, choose=lambda one: signal.SIGINT if catches(one.pid, signum) is False else signum
        )

    def forward(self, signum: int, now: float, *, choose: Callable[[Process], int] | None = None) -> None:
        """Hand a signal to the front; ``choose`` may change it for a process."""
        members = self._family()
        targets = front(self._leader, members)
        if not targets:
            targets = [Process(self._leader, 0, self._leader, self._leader, "?", 0, "")]
        for process in targets:
            send_all(self._leader, [process], choose(process) if choose else signum)
            self._asked.add((process.pid, process.started))
        self._asked_until = now + self._grace_s

    def escalate(self, now: float) -> None:
        """Go up at once: SIGTERM to everything, or SIGKILL where that was sent already."""
        left = self._family()
        if self.stage < Stage.TERMINATING:
            self._terminate(left, now)
        elif self.stage is Stage.TERMINATING:
            self._kill(left, now)

    def step(self, now: float, *, leader_ended: bool) -> None:
        """Do what is due."""
        if self.stage is Stage.DONE or (self.stage is Stage.RUNNING and not leader_ended):
            return
        left = self._family()
        if leader_ended and not left:
            self.stage = Stage.DONE
            return
        due = self._deadline is not None and now >= self._deadline
        if self.stage in (Stage.RUNNING, Stage.LEAVING) and leader_ended:
            self.stage, self._deadline = Stage.LINGERING, now + LINGER_S
        elif self.stage is Stage.LEAVING:
            if due:
                self.interrupt(now)
            elif self._stopper is not None and all(process.pid != self._stopper for process in left):
                # What stopped is gone; whatever started it has a moment to follow.
                self._deadline, self._stopper = min(self._deadline or now, now + LINGER_S), None
        elif self.stage is Stage.ASKED:
            if leader_ended and not self._still(left):
                self._ask_rest(left, now)
            elif due:
                self._report(f"not ended {self._grace_s:g} s after SIGINT: SIGTERM to {_count(left)}")
                self._terminate(left, now)
        elif self.stage is Stage.LINGERING:
            if due and not (self._still(left) and now < self._asked_until):
                self._report(f"the command has ended and left {_count(left)} behind: stopping")
                self._ask_rest(left, now)
        elif self.stage is Stage.REST_ASKED:
            if due or not self._willing(left):
                self._terminate(left, now)
        elif self.stage is Stage.TERMINATING:
            if due:
                self._report(f"not ended {self._term_s:g} s after SIGTERM: SIGKILL to {_count(left)}")
                self._kill(left, now)
        elif self.stage is Stage.KILLING:
            self._send(left, signal.SIGKILL)
            if due:
                self._report(f"{_count(left)} cannot be killed (they hang in the kernel): left alone")
                self.stage = Stage.DONE

    def _still(self, left: Iterable[Process]) -> bool:
        """Say whether some process that was asked to end is not gone yet."""
        return any((process.pid, process.started) in self._asked for process in left)

    def _willing(self, left: Iterable[Process]) -> list[Process]:
        """Return those that an interrupt from a terminal would have reached and that do not ignore it."""
        return [
            process
            for process in left
            if process.session == self._leader
            and process.pid != self._leader
            and not ignores(process.pid, signal.SIGINT)
        ]

    def _ask_rest(self, left: list[Process], now: float) -> None:
        """Interrupt what is left, too: a launcher may have died of its SIGINT without handing it on."""
        new = [
            process for process in self._willing(left) if (process.pid, process.started) not in self._asked
        ]
        if not new:
            self._terminate(left, now)
            return
        for process in new:
            send(process, signal.SIGINT)
        # Where the leader used up its grace, its children still have a second to see the signal.
        remaining = max(1.0, self._asked_until - now) if self._asked_until else self._grace_s
        self.stage, self._deadline = Stage.REST_ASKED, now + min(REST_S, self._grace_s, remaining)

    def _terminate(self, left: list[Process], now: float) -> None:
        self.stage, self._deadline = Stage.TERMINATING, now + self._term_s
        self._send(left, signal.SIGTERM)
        self._send(left, signal.SIGCONT)  # a stopped process acts on no signal until it goes on

    def _kill(self, left: list[Process], now: float) -> None:
        self.stage, self._deadline = Stage.KILLING, now + KILL_S
        self._send(left, signal.SIGKILL)

    def _send(self, left: list[Process], signum: int) -> None:
        send_all(self._leader, left, signum)
        if not left:  # the leader has not ended, though the process table does not show it
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self._leader, signum)


def _count(left: list[Process]) -> str:
    return "1 process" if len(left) == 1 else f"{len(left)} processes"
