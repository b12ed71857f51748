"""Metrics from files and directories that the child writes, and from the hook inside it."""

from __future__ import annotations

import json
import sys

import pytest

GROWING = """
import json, pathlib, sys, time
path = pathlib.Path({path!r})
time.sleep(0.3)
path.parent.mkdir(parents=True, exist_ok=True)
with path.open("a") as file:
    for step in range(200):
        loss = float("nan") if step == {bad} else 1.0 / (step + 1)
        file.write(json.dumps({{"step": step, "loss": loss}}) + "\\n"); file.flush()
        time.sleep(0.01)
        if step == {last}: break
"""


def growing(path, bad=-1, last=199):
    return GROWING.format(path=path, bad=bad, last=last)


def test_a_file_that_does_not_exist_yet_is_followed(bench):
    done = bench.python(growing("logs/metrics.jsonl", bad=20), "--log", "logs/metrics.jsonl", "--poll", "0.1")
    assert done.returncode == 1
    (note,) = bench.journal()
    assert (note["step"], note["row"]) == (20, 21)
    assert note["source"].endswith("logs/metrics.jsonl")


def test_a_directory_is_followed(bench):
    done = bench.python(growing("logs/run1/metrics.jsonl", bad=20), "--log", "logs", "--poll", "0.1")
    assert done.returncode == 1


def test_what_a_log_held_before_the_start_is_not_judged(bench):
    path = bench.directory / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": NaN}\n')
    done = bench.python(
        growing("metrics.jsonl", last=20), "--log", "metrics.jsonl", "--poll", "0.1", "--format", "json"
    )
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 21


def test_the_last_line_counts_though_no_line_break_ends_it(bench):
    script = 'open("metrics.jsonl", "w").write(\'{"step": 1, "loss": 1.0}\\n{"step": 2, "loss": NaN}\')'
    assert bench.python(script, "--log", "metrics.jsonl", "--poll", "60").returncode == 1


def test_with_a_log_the_printed_lines_are_not_judged(bench):
    script = growing("metrics.jsonl", last=8) + '\nprint(\'{"step": 1, "loss": NaN}\')\n'
    done = bench.python(script, "--log", "metrics.jsonl", "--poll", "0.1")
    assert (done.returncode, done.stdout) == (0, '{"step": 1, "loss": NaN}\n')


def test_a_log_that_never_comes_is_said_and_is_no_failure(bench):
    done = bench.run("--log", "never.jsonl", "--", "true")
    assert done.returncode == 0
    assert "never.jsonl" in done.stderr
    assert bench.run("--verdict-exit", "--log", "never.jsonl", "--", "true").returncode == 3


def test_an_unreadable_log_is_said_and_the_command_goes_on(bench):
    script = (
        "open('metrics.jsonl', 'wb').write(b'\\x00\\x01\\x02' * 1000)\n"
        "import time; time.sleep(0.5)\nraise SystemExit(4)"
    )
    done = bench.python(script, "--log", "metrics.jsonl", "--poll", "0.1")
    assert done.returncode == 4
    assert "metrics.jsonl" in done.stderr
    assert "Traceback" not in done.stderr


HOOK = """
import json, os, sys, time
def tell(**event):
    with open(os.environ["GATEKEEPER_CONTROL"], "a") as file:
        file.write(json.dumps({"pid": os.getpid(), **event}) + "\\n")
"""

STOP = {
    "decision": "STOP",
    "judgment": "clearly_bad",
    "rule": "loss-diverging",
    "reason": "up and up",
    "step": 9,
    "row": 10,
}


def test_a_stop_by_the_hook_inside_the_child_is_taken_over(bench):
    done = bench.python(HOOK + f"tell(event='stop', verdict={STOP!r})\nsys.exit(0)", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout.splitlines()[-1])["rule"] == "loss-diverging"
    assert "STOP loss-diverging" in done.stderr
    assert bench.journal() == []  # the hook has written the note


def test_who_hangs_after_the_hooks_stop_is_ended(bench):
    # The rank that stopped leaves; its sibling and the launcher would wait for it without end.
    bench.script(HOOK + f"tell(event='stop', verdict={STOP!r})\n", "rank0.py")
    script = (
        "import subprocess, sys, time\n"
        "subprocess.run([sys.executable, 'rank0.py'])\n"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    )
    assert bench.python(script, "--grace", "1").returncode == 1


def test_printed_lines_are_not_judged_twice_beside_a_hook(bench):
    script = HOOK + (
        "tell(event='attached')\ntime.sleep(1)\n"
        'print(\'{"step": 1, "loss": NaN}\', flush=True)\ntime.sleep(0.3)\n'
        "tell(event='verdict', verdict={'decision': 'CONTINUE', 'reason': 'falling', 'rows': 30})\n"
    )
    done = bench.python(script, "--verdict-exit", "--format", "json")
    assert done.returncode == 0
    record = json.loads(done.stdout.splitlines()[-1])
    assert (record["decision"], record["rows"]) == ("CONTINUE", 30)


def test_nonsense_in_the_control_file_is_passed_over(bench):
    script = HOOK + (
        'nonsense = b\'\\xff\\x00{\\n[]\\n{"event": 3}\\n{"event": "new"}\\n\'\n'
        "open(os.environ['GATEKEEPER_CONTROL'], 'ab').write(nonsense)\n"
        "tell(event='stop', verdict='what', pid='who')\n"
        "time.sleep(60)\n"
    )
    assert bench.python(script, "--grace", "0.5").returncode == 1


def test_the_child_finds_what_it_needs_in_its_environment(bench):
    script = (
        "import json, os\n"
        "keys = ('GATEKEEPER_METRIC', 'GATEKEEPER_MODE', 'GATEKEEPER_ROLES', 'GATEKEEPER_NOTES')\n"
        "json.dump({key: os.environ.get(key) for key in keys}, open('env.json', 'w'))\n"
    )
    bench.python(script, "--metric", "acc", "--mode", "max", "--role", "loss=a/b", "--role", "eval=acc")
    assert json.loads((bench.directory / "env.json").read_text()) == {
        "GATEKEEPER_METRIC": "acc",
        "GATEKEEPER_MODE": "max",
        "GATEKEEPER_ROLES": "loss=a/b;eval=acc",
        "GATEKEEPER_NOTES": str(bench.notes),
    }


def test_a_sweep_agent_hears_of_a_stop_from_outside_the_training(bench):
    report = bench.directory / "report"
    env = {"GATEKEEPER_REPORT": str(report), "WANDB_RUN_ID": "r1", "WANDB_SWEEP_ID": "s1"}
    done = bench.run("--", "sh", "-c", 'echo \'{"step": 1, "loss": NaN}\'; exec sleep 60', env=env)
    assert done.returncode == 0
    event = json.loads(report.read_text())
    assert (event["event"], event["run_id"], event["verdict"]["rule"]) == ("stop", "r1", "nonfinite-loss")
    (note,) = bench.journal()
    assert (note["run_id"], note["sweep"]) == ("r1", "s1")


def test_a_program_that_logs_to_wandb_is_judged_inside_its_own_process(bench):
    # The real SDK, offline: what is printed looks sound, what is logged does not.
    script = (
        "import sys, time, wandb\n"
        "run = wandb.init(project='p', mode='offline', dir='.')\n"
        "for step in range(60):\n"
        '    print(\'{"step": %d, "loss": 1.0}\' % step, flush=True)\n'
        "    run.log({'loss': float('nan') if step == 20 else 1.0 / (step + 1)})\n"
        "print('not stopped')\n"
    )
    done = bench.python(script, env={"WANDB_SILENT": "true"})
    assert done.returncode == 1, done.stderr
    assert "not stopped" not in done.stdout
    (note,) = bench.journal()  # one, though two could have written it
    assert (note["rule"], note["step"]) == ("nonfinite-loss", 20)


@pytest.mark.parametrize(("content", "code"), [("not a baseline", 2), (None, 2)])
def test_a_baseline_that_cannot_be_used_is_said_before_the_start(bench, content, code):
    if content is not None:
        (bench.directory / "baseline.json").write_text(content)
    done = bench.run("--baseline", "baseline.json", "--", "touch", "started")
    assert done.returncode == code
    assert "baseline.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (bench.directory / "started").exists()


def test_smoke_and_a_baseline_number_reach_the_gate(bench):
    rows = [json.dumps({"step": i, "loss": 0.7}) for i in range(100)]
    (bench.directory / "rows").write_text("\n".join(rows) + "\n")
    done = bench.run("--smoke", "--baseline", "0.1", "--format", "json", "--", "cat", "rows")
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["decision"] != "CONTINUE"
    assert done.returncode in (0, 1)


def test_a_broken_plugin_does_not_keep_the_command_from_running(bench):
    # A real distribution with an entry point that raises.
    info = bench.directory / "site" / "broken_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[gatekeeper.child_env]\nbroken = broken_plugin:prepare\n")
    (bench.directory / "site" / "broken_plugin.py").write_text(
        "def prepare(env):\n    raise RuntimeError('no luck')\n"
    )
    done = bench.run(
        "--", sys.executable, "-c", "print('ran')", env={"PYTHONPATH": str(bench.directory / "site")}
    )
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "no luck" in done.stderr
