"""Run a command under the gate, and end it with everything it started."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gatekeeper import notes
from gatekeeper.errors import GatekeeperError
from gatekeeper.gate import Gate
from gatekeeper.redact import redact_text
from gatekeeper.supervise.channels import Channel, open_channels
from gatekeeper.supervise.control import ControlFile, tell
from gatekeeper.supervise.environment import child_environment
from gatekeeper.supervise.guardian import Guardian
from gatekeeper.supervise.judging import Judge, LogWatcher, OutputWatcher, Stream
from gatekeeper.supervise.ladder import Ladder, Stage
from gatekeeper.supervise.messages import Messages
from gatekeeper.supervise.outcome import SWEEP_ID, Outcome
from gatekeeper.supervise.processes import (
    Process,
    become_subreaper,
    family,
    ignores,
    reap_adopted,
    send_all,
)
from gatekeeper.supervise.signals import ENDING, HANDED_ON, Inbox
from gatekeeper.supervise.told import Told, verdict_from_json
from gatekeeper.verdict import Decision, Verdict

__all__ = ["CommandError", "Supervisor", "SupervisorOptions"]

TICK_S = 0.25  # how often the control file is looked at
ENDING_TICK_S = 0.05  # … and, while the run is ended, the process table
REAP_S = 5.0
SAME_REQUEST_S = 0.5  # one request may arrive twice: `timeout` signals the process and then its group
JUDGE_S = 60.0  # for what is still queued when the child has ended
SWITCH_S = (
    0.001  # the output threads are not to wait five milliseconds for the judge to let go of the interpreter
)


class CommandError(GatekeeperError):
    """The command cannot be started; ``returncode`` is what a shell would exit with."""

    def __init__(self, text: str, returncode: int) -> None:
        super().__init__(text)
        self.returncode = returncode


@dataclass(frozen=True)
class SupervisorOptions:
    """How a command is supervised.

    Attributes:
        log: The metrics file or directory that the child writes; None: what it prints.
        poll_s: Seconds between two looks at the log.
        grace_s: Seconds between SIGINT and SIGTERM.
        notes: The directory for notes, absolute.
        objective: Environment variables that tell a hook inside the child what was declared.

    """

    log: str | None = None
    poll_s: float = 1.0
    grace_s: float = 60.0
    notes: Path = Path("gatekeeper-notes")
    objective: Mapping[str, str | None] = field(default_factory=dict)


class Supervisor:
    """Starts one command, judges what it logs, and stays until nothing of it is left."""

    def __init__(
        self, command: Sequence[str], make_gate: Callable[[], Gate], options: SupervisorOptions
    ) -> None:
        self._command = list(command)
        self._options = options
        self._marker = secrets.token_hex(16)
        self._judge = Judge(make_gate, self._on_stop)
        self._channels: list[Channel] = []
        self._messages = Messages(lambda: all(channel.at_line_start for channel in self._channels))
        self._told = Told()
        self._pending: tuple[Stream, Verdict] | None = None
        self._stopped = False  # by the gate
        self._note: str | None = None
        self._requests = 0
        self._last_request: tuple[int, float] = (0, 0.0)
        self._guardian: Guardian | None = None
        self._control: ControlFile | None = None
        self._watcher: OutputWatcher | LogWatcher | None = None

    @property
    def messages(self) -> Messages:
        """Where the supervisor speaks."""
        return self._messages

    def run(self) -> Outcome:
        """Run the command to its end.

        Raises:
            CommandError: It cannot be started.

        """
        self._inbox = Inbox()
        switch = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        scratch = Path(tempfile.mkdtemp(prefix="gatekeeper-"))
        try:
            self._adopts = become_subreaper()
            try:
                self._guardian = Guardian(self._marker, self._options.grace_s)
            except OSError as fault:
                self._messages.say(
                    f"no guardian ({fault}): were this process killed, the command would go on"
                )
            self._start(scratch)
            try:
                self._supervise()
            except Exception as fault:  # noqa: BLE001 - the run must not pay for a fault of the supervisor
                self._messages.say(
                    f"internal error: {type(fault).__name__}: {fault}; the command goes on unsupervised"
                )
                self._child.wait()
            return self._conclude()
        finally:
            if self._guardian is not None:
                self._guardian.dismiss()
            shutil.rmtree(scratch, ignore_errors=True)
            sys.setswitchinterval(switch)
            self._inbox.close()

    # -- start

    def _start(self, scratch: Path) -> None:
        say = self._messages.say
        if self._options.log is None:
            watcher = OutputWatcher(self._judge, say)
            self._watcher = watcher
            self._channels = open_channels(watcher.put)
        else:
            self._watcher = LogWatcher(
                self._judge, say, spec=self._options.log, poll_s=self._options.poll_s, start=Path.cwd()
            )
        try:
            self._control = ControlFile(scratch / "control.jsonl")
        except OSError as fault:
            say(f"no control file ({fault}): a hook inside the command stays silent")
        environment = child_environment(
            os.environ,
            marker=self._marker,
            control=scratch / "control.jsonl" if self._control else None,
            notes=self._options.notes,
            objective={**self._options.objective, "GATEKEEPER_GRACE": f"{self._options.grace_s:g}"},
            unbuffered=any(not channel.terminal for channel in self._channels),
            report=say,
        )
        ends = {number: channel.child_end for channel in self._channels for number in channel.targets}
        self._began = time.monotonic()
        try:
            self._child = subprocess.Popen(  # noqa: S603 - the user's own command
                self._command, env=environment, stdout=ends.get(1), stderr=ends.get(2), start_new_session=True
            )
        except (OSError, ValueError) as fault:
            for channel in self._channels:
                channel.abandon()
            self._channels = []
            raise _not_started(self._command[0], fault) from fault
        if self._guardian is not None:
            self._guardian.watch(self._child.pid)
        for channel in self._channels:
            channel.start()
        self._watcher.start()
        self._ladder = Ladder(
            self._child.pid, self._family, grace_s=self._options.grace_s, report=self._messages.say
        )

    # -- while it runs

    def _supervise(self) -> None:
        next_reap = self._began + REAP_S
        while self._ladder.stage is not Stage.DONE:
            ended = self._child_ended()
            for signum in self._inbox.wait(ENDING_TICK_S if ended or self._ladder.ending else TICK_S):
                self._on_signal(signum)
            now = time.monotonic()
            self._hear()
            if self._pending and not (self._stopped or self._muted or self._child_ended()):
                self._stop(*self._pending)
            if now >= next_reap:
                next_reap = now + REAP_S
                reap_adopted(self._helpers())
            self._ladder.step(now, leader_ended=self._child_ended())
        reap_adopted(self._helpers())
        for channel in self._channels:
            channel.drain()
            while not channel.join(0.1):
                for signum in self._inbox.wait(0):
                    self._on_signal(signum)
                if self._requests > 1:  # nobody takes our output, and the user has had enough
                    break

    def _family(self) -> list[Process]:
        return family(
            self._child.pid,
            marker=None if self._adopts else self._marker,
            adopter=os.getpid() if self._adopts else None,
            but=self._helpers()[1:],
        )

    def _helpers(self) -> list[int]:
        """Return the pids of this process's own children: the leader, and the guardian."""
        return [self._child.pid, *([self._guardian.pid] if self._guardian else [])]

    def _child_ended(self) -> bool:
        """Say whether the leader has ended; it is not reaped yet, so that its pid stays its own."""
        if self._child.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._child.poll() is not None
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def _on_stop(self, stream: Stream, verdict: Verdict) -> None:
        """Take the judge's STOP (in its thread) to the loop."""
        self._pending = (stream, verdict)
        self._inbox.nudge()

    def _stop(self, stream: Stream, verdict: Verdict) -> None:
        self._stopped = True
        self._ladder.interrupt(time.monotonic())
        self._announce(verdict, stream.name)
        self._write_note(stream, verdict)
        self._messages.say(
            f"SIGINT sent to process {self._child.pid}: {self._options.grace_s:g} s to write its rows and end"
        )

    def _announce(self, verdict: Verdict, source: str) -> None:
        place = f", row {verdict.row}" if verdict.row else ""
        self._messages.say(f"STOP {verdict.rule or ''}".rstrip(), f"{verdict.reason} [{source}{place}]")

    def _write_note(self, stream: Stream, verdict: Verdict) -> None:
        """Write the stop's note, unless the hook inside the child has written its own meanwhile."""
        self._hear()
        if self._told.stop is not None:
            return
        environment = os.environ
        try:
            journal = notes.Journal(self._options.notes)
            journal.append(
                notes.stop_note(
                    verdict,
                    gate=stream.gate,
                    source=stream.name,
                    run_id=environment.get("WANDB_RUN_ID"),
                    run_url=stream.run_url,
                    sweep=environment.get(SWEEP_ID),
                    seconds_used=round(time.monotonic() - self._began, 3),
                    extra={"command": redact_text(" ".join(self._command))},
                )
            )
            self._note = str(journal.path)
            self._messages.say(f"note: {self._note}")
            tell(
                environment,
                event="stop",
                pid=self._child.pid,
                run_id=environment.get("WANDB_RUN_ID"),
                verdict={"decision": "STOP", "rule": verdict.rule, "reason": redact_text(verdict.reason)},
            )
        except Exception as fault:  # noqa: BLE001 - said; a broken run ends all the same
            whole = isinstance(fault, GatekeeperError)
            self._messages.say(
                str(fault) if whole else f"cannot write a note to {self._options.notes}: {fault}"
            )

    def _hear(self) -> None:
        """Take what the hook inside the child tells."""
        for event in self._control.poll() if self._control else ():
            known = len(self._told.faults)
            self._told.take(event)
            for fault in self._told.faults[known:]:
                self._messages.say(f"the gate inside the command failed: {fault}; the command goes on")
        if self._told.attached and isinstance(self._watcher, OutputWatcher) and not self._watcher.muted:
            self._watcher.mute()
        if self._told.stop is not None and not self._stopped:
            self._stopped = True
            verdict = verdict_from_json(self._told.stop.get("verdict"), fallback=Decision.STOP)
            self._announce(verdict, "inside the command")
            told_note = self._told.stop.get("note")
            self._note = str(told_note) if told_note else str(self._options.notes / "stops.jsonl")
            self._messages.say(f"note: {self._note}")
            self._ladder.leave(self._told.stopping_pid(), time.monotonic())

    # -- signals from outside

    def _on_signal(self, signum: int) -> None:
        if signum == signal.SIGINT and self._inbox.background:
            return  # started in the background: a Ctrl-C in that terminal is not meant for it
        if signum in ENDING:
            self._asked_to_end(signum)
        elif signum in HANDED_ON:
            self._ladder_signal(signum)
        elif signum == signal.SIGWINCH:
            for channel in self._channels:
                channel.resize()
            self._ladder_signal(signum)
        elif signum == signal.SIGTSTP:
            # The child is in a session of its own, where SIGTSTP does nothing: stop and go on as one.
            members = self._family()
            send_all(self._child.pid, members, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            send_all(self._child.pid, members, signal.SIGCONT)

    def _ladder_signal(self, signum: int) -> None:
        if not self._child_ended():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._child.pid, signum)

    def _asked_to_end(self, signum: int) -> None:
        now = time.monotonic()
        last, when = self._last_request
        if signum == last and now - when < SAME_REQUEST_S:
            return
        if (
            self._requests
            and now - when > max(self._options.grace_s, SAME_REQUEST_S)
            and not self._ladder.ending
        ):
            self._requests = 0  # the child took the first one and went on; this is a new one
        self._last_request = (signum, now)
        self._requests += 1
        name = signal.Signals(signum).name
        if self._requests > 1:
            self._messages.say(f"{name} again: ending the command now")
            self._ladder.escalate(now)
        elif self._ladder.ending:
            self._messages.say(f"{name}: the command is ending already; send it again to end it now")
        elif signum == signal.SIGHUP and ignores(self._child.pid, signum):
            self._requests = 0  # started to outlive its terminal
        elif signum in (signal.SIGTERM, signal.SIGHUP):
            self._ladder.request(signum, now)
            if self._ladder.ending:
                self._messages.say(f"{name}: ending the command with SIGINT, since it does not handle {name}")
        else:
            self._ladder.forward(signum, now)

    # -- the end

    def _conclude(self) -> Outcome:
        returncode = self._child.wait() if self._child_ended() else -signal.SIGKILL
        dropped = 0
        if self._watcher is not None:
            self._finish_judging(self._watcher)
            if isinstance(self._watcher, OutputWatcher):
                dropped = self._watcher.dropped
        self._hear()
        if dropped:
            self._messages.say(f"{dropped} lines came faster than they could be judged; all were passed on")
        for channel in self._channels:
            if channel.fault:
                self._messages.say(channel.fault)
        if self._pending is not None and not self._stopped and returncode == 0 and not self._muted:
            # It ended by itself before it could be stopped, and would pass for sound.
            self._stopped = True
            self._announce(self._pending[1], self._pending[0].name)
            self._write_note(*self._pending)
        stream, verdict = self._final()
        return Outcome(
            returncode=returncode,
            stopped=self._stopped,
            verdict=verdict,
            stream=stream,
            told=self._told.last,
            note=self._note,
            error=self._watcher.fault if self._watcher is not None else None,
            reachable=not (isinstance(self._watcher, LogWatcher) and self._watcher.unreachable),
            dropped=dropped,
        )

    def _finish_judging(self, watcher: OutputWatcher | LogWatcher) -> None:
        watcher.close()
        end, requests = time.monotonic() + JUDGE_S, self._requests
        while watcher.is_alive() and time.monotonic() < end and self._requests == requests:
            watcher.join(0.05)
            for signum in self._inbox.wait(0):
                self._on_signal(signum)
        if watcher.is_alive():
            watcher.abandon()

    @property
    def _muted(self) -> bool:
        return isinstance(self._watcher, OutputWatcher) and self._watcher.muted

    def _final(self) -> tuple[Stream | None, Verdict]:
        if self._told.stop is not None or (self._told.last is not None and self._muted):
            event = self._told.last or {}
            fallback = Decision.STOP if self._told.stop is not None else Decision.WAIT
            return None, verdict_from_json(event.get("verdict"), fallback=fallback)
        if self._muted and not self._stopped:
            return None, _waiting("judged inside the command's own process, which told no verdict")
        stream = self._judge.speaking
        fault = self._watcher.fault if self._watcher is not None else None
        if fault is not None and not self._stopped:
            return stream, _waiting(f"the judging failed: {fault}")
        if stream is None or not stream.gate.rows:
            return stream, _waiting(self._nothing_seen())
        return stream, stream.gate.verdict

    def _nothing_seen(self) -> str:
        if isinstance(self._watcher, LogWatcher):
            return f"no metrics: {self._watcher.problem or f'{self._options.log} got no new rows'}"
        return "no metrics in the command's output; give --log PATH where it writes them to a file"


def _waiting(reason: str) -> Verdict:
    return Verdict(Decision.WAIT, None, None, reason, None, 0)


def _not_started(program: str, fault: OSError | ValueError) -> CommandError:
    """Return the error with a shell's exit code: 127 not found, 126 found but not to be run."""
    if isinstance(fault, FileNotFoundError):
        return CommandError(f"{program}: command not found", 127)
    reason = fault.strerror if isinstance(fault, OSError) else str(fault)
    return CommandError(f"{program}: cannot be run: {reason}", 126)
