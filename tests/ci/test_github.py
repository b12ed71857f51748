"""GitHub Actions: what is printed and written, and that hostile text stays text, byte by byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from gatekeeper.report import RunReport
from gatekeeper.report.github import Shield, annotation_lines, outputs, shield, summary, write_github

MIB = 1024 * 1024


@pytest.fixture
def runner(tmp_path):
    """The runner's files, and a function that writes reports to them and reads all back."""
    env = {
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "RUNNER_TEMP": str(tmp_path),
    }

    def write(reports, **more):
        stdout = write_github(reports, {**env, **more.pop("env", {})}, **more)
        return stdout, (tmp_path / "summary.md").read_text(), (tmp_path / "output").read_text()

    write.env = env
    write.folder = tmp_path
    return write


def test_a_stop_is_an_error_a_wait_a_warning_a_pass_a_plain_line(kit):
    stop, wait, fine = (kit.report(decision=word, findings=[]) for word in ("STOP", "WAIT", "CONTINUE"))
    console = kit.console(annotation_lines([fine, wait, stop]))
    assert [(level, properties["title"]) for level, properties, _ in console.commands] == [
        ("error", "gatekeeper STOP: nonfinite-loss"),
        ("warning", "gatekeeper WAIT: nonfinite-loss"),
    ]
    assert console.commands[0][2] == (
        "train/loss is NaN at step 61; the last finite value was 0.41 at step 60"
        " (runs/a.jsonl, step 61, row 62 of 100)"
    )
    assert [line for line in console.shown if line] == [
        "gatekeeper: CONTINUE runs/a.jsonl: "
        "train/loss is NaN at step 61; the last finite value was 0.41 at step 60"
    ]


def test_a_word_that_is_no_decision_is_never_a_pass(kit):
    for word in ("ERROR", None, "OK", ""):
        report = kit.report(decision=word, findings=[], reason="", error="cannot be read")
        assert kit.console(annotation_lines([report])).commands[0][0] == "error"
        assert kit.outputs(outputs([report]))["decision"] == "ERROR"
        assert summary([report]).startswith("## ❌ ERROR")
    assert "nothing was judged" in summary([])
    assert kit.outputs(outputs([]))["decision"] == "ERROR"


@pytest.mark.parametrize(("on_wait", "level"), [("pass", "notice"), ("warn", "warning"), ("fail", "error")])
def test_a_wait_is_as_loud_as_the_job_takes_it(kit, runner, on_wait, level):
    stdout, _, _ = runner([kit.report(decision="WAIT", findings=[])], env={"GATEKEEPER_ON_WAIT": on_wait})
    assert [command[0] for command in kit.console(stdout).commands] == [level]


def test_at_most_ten_annotations_of_a_level_and_every_verdict_before_any_finding(kit):
    findings = [kit.finding(rule=f"rule-{i}", message=f"finding {i}") for i in range(40)]
    reports = [kit.report(source=f"{i}.jsonl", rule="first", findings=findings) for i in range(9)]
    commands = kit.console(annotation_lines(reports)).commands
    assert [level for level, _, _ in commands] == ["error"] * 10
    assert all(f"({i}.jsonl" in commands[i][2] for i in range(9))
    assert commands[9][2] == f"{9 * 40} more are in the step summary"


def test_the_worst_run_gives_the_outputs(kit, tmp_path):
    reports = [
        kit.report(decision=word, source=word, reason=f"it was {word}")
        for word in ("CONTINUE", "STOP", "WAIT")
    ]
    assert kit.outputs(outputs(reports, report_path=tmp_path / "r.jsonl")) == {
        "decision": "STOP",
        "rule": "nonfinite-loss",
        "reason": "it was STOP",
        "step": "61",
        "report": str(tmp_path / "r.jsonl"),
    }


def test_delimiters_are_new_each_time_and_in_no_value(kit):
    texts = [outputs([kit.report(reason="EOF gatekeeper_ 61")]) for _ in range(5)]
    delimiters = [found for text in texts for found in re.findall(r"<<(\S+)", text)]
    assert len(set(delimiters)) == len(delimiters) == 25
    assert all(text.count(delimiter) in (0, 2) for text in texts for delimiter in delimiters)


def test_everything_is_written_where_the_runner_says(kit, runner):
    report = kit.report(kit.curve([2.0, 1.5, 1.0]))
    stdout, text, values = runner([report])
    assert stdout == annotation_lines([report])
    assert text == summary([report])
    written = kit.outputs(values)["report"]
    lines = Path(written).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [report.record]


def test_nothing_is_written_where_nothing_is_set(kit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert write_github([kit.report()], {}) == annotation_lines([kit.report()])
    assert list(tmp_path.iterdir()) == []


def test_what_another_program_left_unfinished_swallows_nothing(kit, runner):
    with open(runner.env["GITHUB_OUTPUT"], "w") as file:
        file.write("theirs=1")
    with open(runner.env["GITHUB_STEP_SUMMARY"], "w") as file:
        file.write("their text")
    _, text, values = runner([kit.report()])
    assert kit.outputs(values)["theirs"] == "1"
    assert kit.outputs(values)["decision"] == "STOP"
    assert text.startswith("their text\n## ❌ STOP")


def test_a_file_that_cannot_be_written_is_a_warning_beside_the_verdict(kit, tmp_path):
    env = {"GITHUB_STEP_SUMMARY": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "no" / "where")}
    levels = [level for level, _, _ in kit.console(write_github([kit.report(findings=[])], env)).commands]
    assert levels == ["error", "warning", "warning"]


def test_a_training_that_failed_by_itself_is_said(kit, runner):
    stdout, text, values = runner([kit.report(decision="CONTINUE", findings=[])], child_exit=7)
    assert kit.console(stdout).commands == [
        ("error", {"title": "training failed"}, "The training command ended with code 7.")
    ]
    assert text.startswith("❌ The training command ended with code 7.\n\n## ✅ CONTINUE")
    assert kit.outputs(values)["child-exit"] == "7"


def test_a_training_that_the_gate_stopped_did_not_fail_by_itself(kit, runner):
    stdout, text, values = runner([kit.report()], child_exit=130)
    assert "ended with code" not in stdout + text
    assert kit.outputs(values)["child-exit"] == "130"


# --- hostile text ---


def hostile_report(kit, text):
    """A report in which every field that comes from a log or a user holds the text."""
    finding = kit.finding(rule=text, metric=text, message=text, step=text, value=text, threshold=text)
    return RunReport(
        kit.record(
            source=text,
            run_url=f"https://example.org/{text}",
            rule=text,
            reason=text,
            judgment=text,
            step=text,
            row=text,
            rows=text,
            metrics={text: text},
            roles={text: text},
            findings=[finding, {**finding, "rule": "other"}],
        ),
        kit.curve([3.0, 2.0, 1.0]),
        text,
    )


def pytest_generate_tests(metafunc):
    """The hostile texts live in the conftest, which a module cannot import."""
    if "number" in metafunc.fixturenames:
        metafunc.parametrize("number", range(26))


@pytest.fixture
def text(kit, number):
    assert len(kit.hostile) == 26
    return kit.hostile[number]


@pytest.mark.parametrize("word", ["STOP", "WAIT", "CONTINUE"])
def test_hostile_text_issues_no_command(kit, text, word):
    report = hostile_report(kit, text)
    report.record["decision"] = word
    stdout = annotation_lines([report])
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", stdout)
    console = kit.console(stdout)
    assert {level for level, _, _ in console.commands} <= {"error", "warning"}
    assert all(set(properties) == {"title"} for _, properties, _ in console.commands)
    # One verdict, one other finding, and for a CONTINUE the plain line; nothing more.
    assert len(console.commands) == (1 if word == "CONTINUE" else 2)
    assert len([line for line in console.shown if line]) == (1 if word == "CONTINUE" else 0)


def test_hostile_text_adds_no_output(kit, text):
    values = kit.outputs(outputs([hostile_report(kit, text)]))
    assert set(values) == {"decision", "rule", "reason", "step", "report"}
    assert values["decision"] == "STOP"
    assert all("\n" not in value and "\r" not in value for value in values.values())


def test_hostile_text_adds_no_markup_to_the_summary(kit, text):
    plain, hostile = summary([hostile_report(kit, "word")]), summary([hostile_report(kit, text)])
    # The same lines of the same kind: headings, rows of as many cells and fences stay as they are.
    assert [shape(line) for line in hostile.split("\n")] == [shape(line) for line in plain.split("\n")]
    body = re.sub(r"```mermaid\n.*?\n```", "", hostile, flags=re.S)
    assert not re.search(r"<(?!https?://)[A-Za-z/!]", body), "an HTML tag"
    assert not re.search(r"(?<!\\)(?:\\\\)*!?\[[^\]]*(?<!\\)\]\((?!https://example\.org/)", body), (
        "a link elsewhere"
    )
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", hostile)
    assert "@everyone" not in re.sub(r"\]\(https://\S+\)", "", hostile)
    hostile.encode("utf-8")


def shape(line):
    """What Markdown would make of a line: its opening marks and how many cells it has."""
    cells = len(re.findall(r"(?<!\\)\|", line))
    opening = re.match(r"#+ |```\w*|\||> |[-*+] |\d+\. |  (?:title|x-axis|y-axis|line)\b|", line)
    return (opening[0] if opening else "", cells)


def test_a_childs_output_is_shielded(kit):
    hostile = "\n".join(kit.hostile)
    for tail in ("", "\n", "\r", "no end of line"):
        console = kit.console(shield(hostile + tail) + "::notice title=ours::seen\n")
        assert console.commands == [("notice", {"title": "ours"}, "seen")]


def test_each_shield_has_its_own_token():
    first, second = Shield(), Shield()
    assert first.begin != second.begin
    token = first.begin.strip().removeprefix("::stop-commands::")
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    assert first.end == f"\n::{token}::\n"


# --- size and secrets ---


def test_the_summary_stays_under_githubs_limit_whatever_was_judged(kit, runner):
    long = "x|`<ß€😀" * 2000
    findings = [kit.finding(rule=f"{long}{i}", message=long, metric=long) for i in range(60)]
    metrics = {f"{long}{i}": 1.0 for i in range(60)}
    curve = kit.curve([1e-300 * (i + 1) for i in range(128)])
    reports = [
        kit.report(curve, long, source=f"{i}{long}", reason=long, findings=findings, metrics=metrics)
        for i in range(6)
    ]
    with open(runner.env["GITHUB_STEP_SUMMARY"], "w") as file:
        file.write("y" * 300_000)
    stdout, text, _ = runner(reports)
    assert 600_000 < len(text.encode()) < MIB - 20_000
    assert "more runs do not fit here" in text
    assert "more findings*" in text
    assert len(stdout.encode()) < 200_000


def test_secrets_reach_nothing(kit, runner, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-Value-Of-The-Job")
    secrets = ["s3cr3t-Value-Of-The-Job", "0123456789abcdef0123456789abcdef01234567", "hunter2hunter2"]
    said = f"key {secrets[0]} and {secrets[1]} at https://user:{secrets[2]}@example.org/?api_key={secrets[1]}"
    report = kit.report(
        kit.curve([2.0, 1.0]),
        secrets[0],
        reason=said,
        source=said,
        run_url=f"https://user:{secrets[2]}@example.org/x",
        findings=[kit.finding(message=said)],
    )
    stdout, text, values = runner([report])
    reported = Path(kit.outputs(values)["report"]).read_text()
    for place in (stdout, text, values, reported):
        assert "redacted" in place
        assert not [secret for secret in secrets if secret in place]
