"""The child's output passes through as it is, and is judged beside it; a fault there changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

from gatekeeper.supervise.backlog import Backlog, LineSplitter


def test_bytes_pass_through_unchanged(bench):
    data = bytes(range(256)) * 400 + b"no line break at the end"
    (bench.directory / "data").write_bytes(data)
    process = bench.start("--", "sh", "-c", "cat data; cat data >&2")
    stdout, stderr = process.communicate(timeout=30)
    assert stdout == data
    assert stderr.startswith(data)


def test_a_hundred_thousand_lines_pass_whole_and_the_bad_one_is_found(bench):
    # Faster than 10,000 lines a second: as fast as this machine lets it.
    script = (
        "import hashlib, sys\n"
        'lines = [f\'{{"step": {i}, "loss": {1 / (i + 1):.6f}, "lr": 0.001}}\\n\' for i in range(100_000)]\n'
        'lines[90_000] = \'{"step": 90000, "loss": NaN, "lr": 0.001}\\n\'\n'
        "text = ''.join(lines).encode()\n"
        "open('sum', 'w').write(hashlib.sha256(text).hexdigest() + '\\n')\n"
        "for i in range(0, len(lines), 100):\n"
        "    sys.stdout.write(''.join(lines[i:i + 100])); sys.stdout.flush()\n"
    )
    done = bench.python(script, "--format", "json", "--report", "report.json")
    assert hashlib.sha256(done.stdout.encode()).hexdigest() == bench.wait_for_file("sum").strip()
    assert done.returncode == 1
    record = json.loads((bench.directory / "report.json").read_text())
    assert (record["decision"], record["step"], record["row"]) == ("STOP", 90_000, 90_001)
    assert "faster than they could be judged" not in done.stderr


def test_stdout_and_stderr_to_one_place_keep_their_order(bench):
    script = "import os\nfor i in range(2000): os.write(1 + i % 2, f'{i}\\n'.encode())\n"
    process = bench.start("--", sys.executable, bench.script(script), stderr=subprocess.STDOUT)
    numbers = [line for line in process.communicate(timeout=30)[0].decode().splitlines() if line.isdigit()]
    assert numbers == [str(i) for i in range(2000)]


def test_stdin_is_the_childs(bench):
    process = bench.start("--", "cat", stdin=subprocess.PIPE)
    assert process.communicate(b"typed", timeout=30)[0] == b"typed"


def test_a_child_that_closes_stdout_goes_on_to_its_own_end(bench):
    done = bench.python(
        "import os, sys, time\nprint('x', flush=True)\nos.close(1)\nos.close(2)\ntime.sleep(0.5)\nos._exit(3)"
    )
    assert (done.returncode, done.stdout) == (3, "x\n")


def test_output_of_a_grandchild_that_holds_the_pipe_is_not_waited_for_without_end(bench):
    done = bench.run(
        "--grace", "0.5", "--", "sh", "-c", "(trap '' TERM INT; echo held; sleep 60) & sleep 0.3; exit 0"
    )
    assert (done.returncode, done.stdout) == (0, "held\n")


def test_a_reader_that_goes_away_is_seen_by_the_child(bench):
    reading, writing = os.pipe()
    process = bench.start("--", "yes", stdout=writing)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    process.communicate(timeout=30)
    assert process.returncode == 141  # SIGPIPE, as without the supervisor


def test_a_terminal_stays_one(bench):
    main, side = pty.openpty()
    script = (
        "import os, sys\nprint(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1).lines > 0)"
    )
    import fcntl
    import struct
    import termios

    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    process = bench.start("--", sys.executable, bench.script(script), stdin=side, stdout=side, stderr=side)
    os.close(side)
    seen = b""
    while select.select([main], [], [], 30)[0]:
        try:
            chunk = os.read(main, 4096)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    process.wait(timeout=30)
    os.close(main)
    assert seen.startswith(b"True True True\r\n")


def test_a_nan_printed_as_text_stops_the_run(bench):
    script = (
        "import time\nfor i in range(3): print(f'step {i} | loss: {1 / (i + 1):.4f}')\n"
        "print('step 3 | loss: nan')\ntime.sleep(60)"
    )
    done = bench.python(script)
    assert done.returncode == 1
    assert len(bench.journal()) == 1


def test_metrics_on_stderr_are_judged_too(bench):
    script = (
        'import sys, time\nprint(\'{"step": 1, "loss": NaN}\', file=sys.stderr, flush=True)\ntime.sleep(60)'
    )
    assert bench.python(script).returncode == 1


def test_hostile_output_never_becomes_a_terminal_sequence_of_ours(bench):
    script = 'import time\nprint(\'{"step": 1, "loss\\\\u001b[31m": NaN}\', flush=True)\ntime.sleep(60)'
    done = bench.python(script)
    assert done.returncode == 1
    assert "\x1b" not in done.stderr


def test_a_secret_on_the_command_line_stays_out_of_the_note(bench):
    script = bench.script('import time\nprint(\'{"step": 1, "loss": NaN}\', flush=True)\ntime.sleep(60)')
    bench.run("--", sys.executable, script, "--api-key=abcdef0123456789abcdef0123456789abcdef01")
    assert "abcdef0123456789" not in (bench.notes / "stops.jsonl").read_text()


def test_github_shields_the_output_and_annotates(bench):
    script = "print('::error::from the training')\nprint('{\"step\": 1, \"loss\": NaN}', end='', flush=True)"
    env = {
        "GITHUB_OUTPUT": str(bench.directory / "out"),
        "GITHUB_STEP_SUMMARY": str(bench.directory / "summary"),
    }
    done = bench.python(script, "--format", "github", env=env)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::stop-commands::")
    token = lines[0].removeprefix("::stop-commands::")
    assert lines.index("::error::from the training") < lines.index(f"::{token}::")
    assert any(
        line.startswith("::error title=gatekeeper STOP") for line in lines[lines.index(f"::{token}::") :]
    )
    assert "decision<<" in (bench.directory / "out").read_text()
    assert "nonfinite-loss" in (bench.directory / "summary").read_text()


def test_the_report_comes_in_every_format(bench):
    rows = "".join(f'echo \'{{"step": {i}, "loss": {1 / (i + 1)}}}\';' for i in range(10))
    command = ["--", "sh", "-c", rows]
    done = bench.run("--format", "json", *command)
    record = json.loads(done.stdout.splitlines()[-1])
    assert (record["schema"], record["rows"], record["child_exit"]) == ("gatekeeper.verdict/1", 10, 0)
    bench.run("--format", "junit", "--report", "junit.xml", *command)
    assert ElementTree.parse(bench.directory / "junit.xml").getroot().tag in ("testsuites", "testsuite")
    bench.run("--format", "markdown", "--report", "report.md", *command)
    assert record["decision"] in (bench.directory / "report.md").read_text()
    assert "10 rows" in bench.run(*command).stderr


def test_a_metric_that_was_never_logged_is_said(bench):
    rows = "".join(f'echo \'{{"step": {i}, "val/loss": {1 / (i + 1)}}}\';' for i in range(10))
    said = bench.run("--metric", "val/los", "--", "sh", "-c", rows).stderr
    assert "gatekeeper: warning: output never logged the metric 'val/los'; did you mean 'val/loss'?" in said
    assert "warning" not in bench.run("--metric", "val/loss", "--", "sh", "-c", rows).stderr


def test_a_log_that_never_came_and_a_report_without_a_place_are_said(bench):
    said = bench.run("--log", "no.jsonl", "--report", "no/report.txt", "--", "true").stderr
    assert "gatekeeper: the report could not be written to no/report.txt: No such file or directory" in said
    said = bench.run("--log", "no.jsonl", "--", "true").stderr
    assert "no.jsonl does not exist (nothing judged; the command ended with code 0)" in said


def test_a_fault_of_the_gate_does_nothing_to_the_command(bench):
    # The gate is made to fail as no row can make it fail: this is the one place where a stand-in is needed.
    (bench.directory / "sitecustomize.py").write_text(
        "import sys\n"
        "if any('gatekeeper.cli' in argument for argument in sys.orig_argv):\n"
        "    import gatekeeper.gate\n"
        "    def observe(self, step, metrics): raise RuntimeError('broken gate')\n"
        "    gatekeeper.gate.Gate.observe = observe\n"
    )
    script = "print('{\"step\": 1, \"loss\": NaN}', flush=True)\nprint('to the end')\nraise SystemExit(6)"
    done = bench.python(
        script, "--format", "json", "--report", "report.json", env={"PYTHONPATH": str(bench.directory)}
    )
    assert done.returncode == 6
    assert done.stdout.endswith("to the end\n")
    assert json.loads((bench.directory / "report.json").read_text())["decision"] == "ERROR"
    assert "broken gate" in done.stderr
    assert bench.journal() == []


def test_an_unwritable_notes_directory_does_not_keep_a_broken_run_alive(bench):
    bench.notes.write_text("a file where the directory should be")
    done = bench.python('import time\nprint(\'{"step": 1, "loss": NaN}\', flush=True)\ntime.sleep(60)')
    assert done.returncode == 1
    assert "gatekeeper: cannot write a note to " in done.stderr


def test_lines_are_cut_at_carriage_returns_and_across_chunks():
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\ntw") == ["one"]
    assert splitter.feed(b"o\rthree\nfo") == ["two", "three"]
    assert splitter.end() == ["fo"]


def test_a_full_backlog_drops_counts_and_never_joins_two_halves_of_lines():
    backlog = Backlog(limit=20)
    backlog.put(1, b"whole\nhalf of a ")  # 16 bytes
    backlog.put(1, b"line\nlost\n")  # does not fit
    assert backlog.dropped == 2
    assert backlog.get() == (1, b"whole\nhalf of a ")
    backlog.put(1, b"rest\nnext\n")
    backlog.close()
    splitter, lines = LineSplitter(), []
    lines += splitter.feed(b"whole\nhalf of a ")
    while (item := backlog.get()) is not None:
        if item[1] is None:
            splitter.gap()
        else:
            lines += splitter.feed(item[1])
    assert lines == ["whole", "next"]


def test_an_endless_line_is_no_line():
    splitter = LineSplitter()
    for _ in range(3):
        assert splitter.feed(b"x" * (1 << 20)) == []
    assert splitter.feed(b"x\nloss: 1\n") == ["loss: 1"]
