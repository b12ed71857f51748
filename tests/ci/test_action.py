"""The composite action's own steps, on real trainings, as GitHub would run them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from gatekeeper.baseline import RunSeries, build_baseline, dump_baseline


@pytest.fixture
def workspace(tmp_path, kit, train):
    """A job's checkout: the example's training and a baseline of it, recorded from healthy runs."""
    (tmp_path / "train.py").write_bytes((kit.example / "train.py").read_bytes())
    return tmp_path


def judge_log(action, workspace, log, **inputs):
    return action({"logs": str(log), **inputs}, workspace=workspace)


def test_a_healthy_training_passes(action, workspace, train):
    done = judge_log(action, workspace, train())
    assert done.code == 0, done.stdout + done.stderr
    assert done.outputs["decision"] == "CONTINUE"
    assert done.outputs["step"] == ""
    assert done.console.commands == []
    assert done.summary.startswith("## ✅ CONTINUE")
    assert "```mermaid" in done.summary
    (record,) = [json.loads(line) for line in Path(done.outputs["report"]).read_text().splitlines()]
    assert (record["schema"], record["decision"]) == ("gatekeeper.verdict/1", "CONTINUE")


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        ("nan", {"nonfinite-loss"}),
        ("diverging", {"loss-diverging", "spike-divergent", "smoke-no-decrease"}),
        ("frozen", {"zero-gradient", "smoke-no-decrease"}),
    ],
)
def test_a_broken_training_fails_the_job(action, workspace, train, fault, rules):
    done = judge_log(action, workspace, train(fault))
    assert done.code == 1
    assert done.outputs["decision"] == "STOP"
    assert done.outputs["rule"] in rules
    assert int(done.outputs["step"]) < 100
    level, properties, message = done.console.commands[0]
    assert level == "error"
    assert properties["title"] == f"gatekeeper STOP: {done.outputs['rule']}"
    assert message.startswith(done.outputs["reason"])
    assert done.summary.startswith(f"## ❌ STOP: {done.outputs['rule']}")


@pytest.mark.parametrize(
    ("on_wait", "code", "level"), [("pass", 0, "notice"), ("warn", 0, "warning"), ("fail", 3, "error")]
)
def test_too_little_evidence_is_an_outcome_of_its_own(action, workspace, train, on_wait, code, level):
    done = judge_log(action, workspace, train("shuffled-labels", steps=30), **{"on-wait": on_wait})
    assert (done.code, done.outputs["decision"]) == (code, "WAIT")
    levels = [found for found, properties, _ in done.console.commands if "WAIT" in properties["title"]]
    assert levels == [level]
    assert done.summary.startswith("## ⚠️ WAIT")


def test_a_command_is_judged_while_it_runs(action, workspace, kit):
    command = shlex.join(kit.train_command("none", "log.jsonl"))
    done = action({"command": command, "logs": "log.jsonl"}, workspace=workspace)
    assert done.code == 0, done.stdout + done.stderr
    assert done.outputs["decision"] == "CONTINUE"
    assert any("100 steps, last train/loss" in line for line in done.console.shown), (
        "the training's own output"
    )


def test_a_command_that_breaks_is_stopped_and_fails_the_job(action, workspace, kit):
    command = shlex.join(kit.train_command("nan", "log.jsonl", steps=2_000_000))
    done = action({"command": command, "logs": "log.jsonl", "notes": "kept"}, workspace=workspace)
    assert (done.code, done.outputs["decision"], done.outputs["rule"]) == (1, "STOP", "nonfinite-loss")
    assert len((workspace / "log.jsonl").read_text().splitlines()) < 2_000_000
    (note,) = (workspace / "kept" / "stops.jsonl").read_text().splitlines()
    assert json.loads(note)["rule"] == "nonfinite-loss"


def test_a_command_that_fails_by_itself_fails_the_job_whatever_the_verdict(action, workspace, train):
    for code in (3, 7):  # 3 is WAIT, but only where the gate says it
        done = action(
            {"command": f"cat {shlex.quote(str(train()))}; exit {code}", "on-wait": "pass"},
            workspace=workspace,
        )
        assert done.code == code
        assert ("error", {"title": "training failed"}, f"The training command ended with code {code}.") in (
            done.console.commands
        )


def test_what_a_command_prints_issues_no_commands_and_sets_no_outputs(action, workspace, kit):
    (workspace / "hostile.txt").write_text("\n".join(kit.hostile), encoding="utf-8", errors="surrogatepass")
    rows = 'for i in $(seq 40); do echo "step=$i loss=$(( 400 - 9 * i )).5"; done'
    command = f'cat hostile.txt; {rows}; printf "::error::tail"'
    done = action({"command": command, "on-wait": "pass"}, workspace=workspace)
    assert all(properties["title"].startswith("gatekeeper") for _, properties, _ in done.console.commands)
    assert not [message for _, _, message in done.console.commands if "oops" in message or "tail" in message]
    assert set(done.outputs) == {"decision", "rule", "reason", "step", "report"}
    assert done.outputs["decision"] in ("CONTINUE", "WAIT")
    assert "pwned" not in done.summary


def test_hostile_inputs_are_arguments_and_nothing_else(action, workspace, kit):
    marks = [
        "$(touch pwned)",
        "`touch pwned`",
        "; touch pwned",
        "' ; touch pwned ; '",
        "--config=x",
        "${{ github.token }}",
    ]
    for mark in marks:
        inputs = dict.fromkeys(("logs", "metric", "baseline", "config", "notes"), mark)
        done = action(inputs, workspace=workspace)
        assert done.code == 2, (mark, done.stdout, done.stderr)
    done = action({"logs": "x.jsonl", "working-directory": "$(touch pwned)"}, workspace=workspace)
    assert done.code != 0
    assert not list(workspace.rglob("pwned*"))


def test_hostile_names_in_a_log_stay_text(action, workspace, kit, train):
    rows = [json.loads(line) for line in train("nan").read_text().splitlines()]
    for number, text in enumerate(kit.hostile):
        for row in rows:
            row[f"{text} loss {number}"] = row["train/loss"]
    log = workspace / "`x` | <b>%0A::error::.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = judge_log(action, workspace, log)
    assert (done.code, done.outputs["decision"]) == (1, "STOP"), done.stdout + done.stderr
    assert {level for level, _, _ in done.console.commands} <= {"error", "warning"}
    assert all(properties["title"].startswith("gatekeeper") for _, properties, _ in done.console.commands)
    assert not [line for line in done.console.shown if line.strip()]
    assert "<b>" not in done.summary
    assert "<script>" not in done.summary


def test_patterns_and_several_logs(action, workspace, train):
    for fault in ("none", "nan"):
        (workspace / f"{fault}.jsonl").write_bytes(train(fault).read_bytes())
    done = judge_log(action, workspace, "*.jsonl\n")
    assert (done.code, done.outputs["decision"]) == (1, "STOP")
    assert "2 runs: 1 STOP, 1 CONTINUE" in done.summary
    done = judge_log(action, workspace, "none.jsonl\nno-such-*.jsonl\n")
    assert done.code == 2
    assert "no-such-*" in done.stdout + done.stderr


def test_what_cannot_be_judged_is_no_pass(action, workspace, train):
    (workspace / "empty.jsonl").write_text("")
    for inputs in (
        {},
        {"logs": "missing.jsonl"},
        {"logs": "empty.jsonl"},
        {"logs": str(train()), "on-wait": "ignore"},
        {"logs": str(train()), "baseline": "missing.json"},
        {"logs": str(train()), "config": "missing.toml"},
        {"command": "true"},
    ):
        done = action({"on-wait": "fail", **inputs}, workspace=workspace)
        assert done.code in (2, 3), (inputs, done.code, done.stdout, done.stderr)
        assert done.outputs["decision"] != "CONTINUE"


def test_a_comparison_that_cannot_be_made_is_no_pass(action, workspace, train):
    baseline = dump_baseline(
        build_baseline({"other": [RunSeries([0, 99], [1, 1])] * 3}, {"other": "min"}, runs=3)
    )
    (workspace / "other.json").write_text(baseline)
    for inputs, why in (
        ({"baseline": "other.json"}, "the baseline has no metric 'eval/accuracy'"),
        ({"metric": "val_loss", "mode": "min"}, "the objective val_loss has not been logged"),
    ):
        done = judge_log(action, workspace, train(), **inputs)
        assert (done.code, done.outputs["decision"], done.outputs["rule"]) == (3, "WAIT", "no-comparison")
        assert done.outputs["reason"].startswith(why)


def test_summary_false_writes_none(action, workspace, train):
    assert judge_log(action, workspace, train(), summary="false").summary == ""


def test_the_install_is_the_checkouts_own_version(action, workspace, train):
    done = judge_log(action, workspace, train(), version="0.0.0")
    assert done.code == 2
    assert "not the version asked for" in done.console.commands[0][2]
    done = judge_log(action, workspace, train(), extras="tensorboard; touch pwned")
    assert done.code == 2
    assert "extras must be names" in done.console.commands[0][2]
