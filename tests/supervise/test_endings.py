"""How a supervised command ends: by itself, by the gate, by a signal from outside; nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

NAN_THEN_WORK = """
import json, signal, sys, time
{setup}
try:
    for step in range(4):
        print(json.dumps({{"step": step, "loss": 1.0 / (step + 1)}}), flush=True)
    print('{{"step": 4, "loss": NaN}}', flush=True)
    while True: time.sleep(0.1)
except KeyboardInterrupt:
    {interrupted}
"""
FLUSH = "time.sleep(0.5); print('flushed', flush=True); sys.exit(0)"


def nan_then(interrupted: str = FLUSH, setup: str = "") -> str:
    """Return a training that prints a NaN and works on until it is interrupted."""
    return NAN_THEN_WORK.format(setup=setup, interrupted=interrupted)


def test_a_stop_interrupts_the_command_and_says_why(bench):
    done = bench.python(nan_then())
    assert done.returncode == 1
    assert done.stdout.endswith("flushed\n")
    lines = [line for line in done.stderr.splitlines() if line.startswith("gatekeeper: ")]
    assert lines[0] == "gatekeeper: STOP nonfinite-loss"
    assert str(bench.notes / "stops.jsonl") in done.stderr
    (note,) = bench.journal()
    assert (note["event"], note["decision"], note["rule"], note["step"]) == (
        "stop",
        "STOP",
        "nonfinite-loss",
        4,
    )


@pytest.mark.parametrize(
    ("options", "env", "code"),
    [
        ((), {"WANDB_SWEEP_ID": "s1"}, 0),
        (("--exit-on-stop", "7"), {}, 7),
        (("--exit-on-stop", "9"), {"WANDB_SWEEP_ID": "s1"}, 9),
    ],
)
def test_the_exit_code_of_a_stop(bench, options, env, code):
    assert bench.python(nan_then(), *options, env=env).returncode == code


def test_a_child_that_ignores_sigint_is_terminated_after_the_grace(bench):
    done = bench.python(
        nan_then(
            setup="signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "signal.signal(signal.SIGTERM, lambda *_: (print('terminated', flush=True), sys.exit(0)))",
        ),
        "--grace",
        "0.5",
    )
    assert done.returncode == 1
    assert done.stdout.endswith("terminated\n")
    assert "SIGTERM" in done.stderr


def test_a_child_that_ignores_everything_is_killed_with_its_grandchildren(bench):
    stubborn = (
        "import signal, time; "
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    )
    sleeper = f"{stubborn}; time.sleep(60)"
    done = bench.python(
        nan_then(
            setup="import subprocess\n"
            f"{stubborn}\n"
            f"for apart in (False, True):\n"
            f"    subprocess.Popen([sys.executable, '-c', {sleeper!r}], start_new_session=apart)\n",
        ),
        "--grace",
        "0.3",
    )
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr


def test_grandchildren_get_sigterm_once_the_leader_has_ended(bench):
    grandchild = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('got-sigterm', 'w').write('yes\\n'), sys.exit(0)))\n"
        "open('ready', 'w').write('yes\\n')\n"
        "time.sleep(60)\n"
    )
    bench.script(grandchild, "grandchild.py")
    setup = (
        "import os, subprocess\nsubprocess.Popen([sys.executable, 'grandchild.py'])\n"
        "while not os.path.exists('ready'): time.sleep(0.02)"
    )
    # The grace is far longer than the test may take: it must not be waited for once the leader is gone.
    done = bench.python(nan_then(setup=setup), "--grace", "300")
    assert done.returncode == 1
    assert bench.wait_for_file("got-sigterm") == "yes\n"


@pytest.mark.parametrize("shell", ["bash", "sh"])
def test_the_interrupt_reaches_the_training_behind_a_shell(bench, shell):
    bench.script(nan_then())
    done = bench.run("--grace", "20", "--", shell, "-c", f"'{sys.executable}' train.py; true")
    assert done.returncode == 1
    assert "flushed" in done.stdout


def test_the_interrupt_reaches_a_script_run_by_its_own_name(bench):
    bench.script(nan_then())
    launcher = bench.script(f"#!/bin/sh\n'{sys.executable}' train.py\ntrue\n", "launch")
    done = bench.run("--grace", "20", "--", launcher)
    assert (done.returncode, "flushed" in done.stdout) == (1, True)


def test_what_a_dead_launcher_leaves_is_interrupted_too(bench):
    # Like a launcher in Python that dies of the SIGINT which it does not hand on.
    bench.script(
        "import time\nopen('ready', 'w').write('yes\\n')\n"
        "try:\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.5); open('flushed', 'w').write('yes\\n')\n",
        "worker.py",
    )
    setup = (
        "import os, subprocess\nsubprocess.Popen([sys.executable, 'worker.py'])\n"
        "while not os.path.exists('ready'): time.sleep(0.02)\n"
        "signal.signal(signal.SIGINT, signal.SIG_DFL)"
    )
    assert bench.python(nan_then(setup=setup), "--grace", "20").returncode == 1
    assert bench.wait_for_file("flushed") == "yes\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 0"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["sh", "-c", "kill -SEGV $$"], 139),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["no-such-command-here"], 127),
        (["./not-executable"], 126),
    ],
)
def test_a_command_that_ends_by_itself_gives_its_own_code(bench, command, code):
    (bench.directory / "not-executable").write_text("text")
    done = bench.run("--", *command)
    assert done.returncode == code
    assert bench.journal() == []
    assert "Traceback" not in done.stderr


def test_inside_a_sweep_agent_a_death_by_signal_stays_one(bench):
    # The agent counts exit codes above 0 as failures, and deaths by signal not.
    assert (
        bench.run("--", "sh", "-c", "kill -KILL $$", env={"WANDB_SWEEP_ID": "s1"}).returncode
        == -signal.SIGKILL
    )


@pytest.mark.parametrize(("options", "code"), [((), 2), (("--role", "loss"), 2), (("--grace", "-1"), 2)])
def test_wrong_usage_exits_2_without_a_traceback(bench, options, code):
    done = bench.run(*options, *(["--", "true"] if options else []))
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_last_wait_is_seen_with_verdict_exit_alone(bench):
    assert bench.run("--", "true").returncode == 0
    assert bench.run("--verdict-exit", "--", "true").returncode == 3
    assert bench.run("--verdict-exit", "--", "sh", "-c", "exit 5").returncode == 5


def test_a_command_that_was_over_before_its_stop_does_not_pass_for_sound(bench):
    done = bench.python('print(\'{"step": 1, "loss": NaN}\')')
    assert done.returncode == 1
    assert len(bench.journal()) == 1


SLEEPER = """
import signal, sys, time
{setup}
open('ready', 'w').write('yes\\n')
try:
    while True: time.sleep(0.05)
except KeyboardInterrupt:
    print('interrupted', flush=True); sys.exit(5)
"""


def started(bench, setup, *options, **kwargs):
    process = bench.start(*options, "--", sys.executable, bench.script(SLEEPER.format(setup=setup)), **kwargs)
    bench.wait_for_file("ready")
    return process


def ended(process):
    stdout, stderr = process.communicate(timeout=30)
    return process.returncode, stdout.decode(), stderr.decode()


def test_a_stop_by_the_server_becomes_sigint_where_sigterm_is_not_handled(bench):
    process = started(bench, "", env={"WANDB_SWEEP_ID": "s1"})
    process.send_signal(signal.SIGTERM)
    code, stdout, _ = ended(process)
    assert (code, stdout) == (5, "interrupted\n")
    assert bench.journal() == []


def test_a_stop_by_the_server_stays_sigterm_where_it_is_handled(bench):
    setup = "signal.signal(signal.SIGTERM, lambda *_: (print('terminated', flush=True), sys.exit(6)))"
    process = started(bench, setup)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[:2] == (6, "terminated\n")


def test_a_stop_by_the_server_ends_a_child_that_ignores_both(bench):
    setup = "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    process = started(bench, setup, "--grace", "0.3")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 128 + signal.SIGKILL


def test_an_interrupt_is_handed_on(bench):
    process = started(bench, "")
    process.send_signal(signal.SIGINT)
    assert ended(process)[:2] == (5, "interrupted\n")


def test_an_interrupted_command_gives_130(bench):
    process = started(bench, "signal.signal(signal.SIGINT, signal.SIG_DFL)")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


def test_a_hangup_is_handed_on_as_it_is(bench):
    process = started(bench, "signal.signal(signal.SIGHUP, lambda *_: sys.exit(8))")
    process.send_signal(signal.SIGHUP)
    assert ended(process)[0] == 8


@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGUSR2])
def test_user_signals_are_handed_on(bench, signum):
    process = started(bench, f"signal.signal({int(signum)}, lambda *_: sys.exit(9))")
    process.send_signal(signum)
    assert ended(process)[0] == 9


def test_a_second_signal_escalates(bench):
    setup = "signal.signal(signal.SIGINT, lambda *_: open('first', 'w').write('yes\\n'))"
    process = started(bench, setup)
    process.send_signal(signal.SIGINT)
    bench.wait_for_file("first")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 128 + signal.SIGTERM


def test_a_job_in_the_background_can_still_be_stopped(bench):
    # A shell that is not interactive starts background jobs with SIGINT ignored, which children inherit.
    done = bench.python(
        nan_then(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert done.returncode == 1
    assert done.stdout.endswith("flushed\n")


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_killed_supervisor_leaves_nothing_behind(bench, stubborn):
    setup = (
        "import subprocess\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
    )
    if stubborn:
        setup += "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    process = started(bench, setup, "--grace", "1", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert len(bench.left()) >= 3
    process.kill()
    process.wait()
    bench.wait_for(lambda: not bench.left(), "the guardian to end the run")


def test_leftovers_of_a_command_that_ended_well_are_ended(bench):
    done = bench.run("--", "sh", "-c", "sleep 60 & echo started; exit 4")
    assert done.returncode == 4
    assert done.stdout == "started\n"


def test_a_daemon_does_not_slip_away(bench):
    daemon = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.execve('/bin/sleep', ['sleep', '60'], {})\n"  # without any environment
        "    os._exit(0)\n"
        "time.sleep(0.3)\n"
    )
    before = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    assert bench.python(daemon).returncode == 0
    new = {int(name) for name in os.listdir("/proc") if name.isdigit()} - before
    sleeping = []
    for pid in new:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                sleeping += [pid] if file.read() == b"sleep\x0060\x00" else []
        except OSError:
            continue
    assert sleeping == []


def test_a_ranks_whole_group_is_stopped(bench):
    # One rank prints the NaN and leaves at once; the other would wait for it without end.
    rank = (
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0':\n"
        "    while not os.path.exists('rank1'): time.sleep(0.02)\n"
        '    print(\'{"step": 1, "loss": NaN}\', flush=True)\n'
        "else:\n"
        "    open('rank1', 'w').write('yes\\n')\n"
        "    time.sleep(60)\n"
    )
    bench.script(rank, "rank.py")
    launcher = (
        "import os, subprocess, sys\n"
        "def rank(n):\n"
        "    environment = {**os.environ, 'RANK': str(n), 'WORLD_SIZE': '2'}\n"
        "    return subprocess.Popen([sys.executable, 'rank.py'], env=environment)\n"
        "ranks = [rank(n) for n in range(2)]\n"
        "sys.exit(max(rank.wait() for rank in ranks))\n"
    )
    assert bench.python(launcher, "--grace", "5").returncode == 1


def test_a_suspended_supervisor_suspends_the_command(bench):
    process = started(bench, "import os; open('pid', 'w').write(f'{os.getpid()}\\n')")
    child = int(bench.wait_for_file("pid"))

    def state(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    process.send_signal(signal.SIGTSTP)
    bench.wait_for(lambda: state(process.pid) == "T" and state(child) == "T", "both to stop")
    process.send_signal(signal.SIGCONT)
    bench.wait_for(lambda: state(process.pid) != "T" and state(child) != "T", "both to go on")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 5
