"""Function mode with the real SDK: broken trials are stopped cleanly, everything else is as it was."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

ROWS, BAD_ROW = 60, 6
PROGRAM = str(Path(__file__).parent / "programs" / "function_sweep.py")

EIGHT = ("good", "nan", "good2", "diverges", "good3", "nan_swallowed", "good4", "diverges2")


def assert_stopped(run: Any) -> None:
    assert (run.state, run.exit_codes) == ("finished", [0]), run.name
    assert run.tags == ["gatekeeper-stopped"]
    assert run.summary["gatekeeper/decision"] == "STOP"
    assert run.summary["gatekeeper/rule"]
    assert "loss" in run.summary["gatekeeper/reason"]


def test_eight_trials_of_which_four_are_broken(sweeping: Any) -> None:
    sweep = sweeping.sweep(*EIGHT, metric={"name": "loss", "goal": "minimize"})
    report = sweeping.function(sweep)

    runs = sweeping.runs(sweep)
    assert len(runs) == 8
    for kind, run in runs.items():
        if kind.startswith("good"):
            assert (run.state, run.exit_codes, len(run.rows), run.tags) == ("finished", [0], ROWS, [])
            continue
        assert_stopped(run)
        if kind.startswith("nan"):
            assert len(run.rows) == BAD_ROW + 1
            assert math.isnan(run.rows[-1]["loss"])
        else:
            assert BAD_ROW < len(run.rows) < ROWS / 2
            assert run.rows[-1]["loss"] == 10 ** (len(run.rows) - 1 - BAD_ROW)  # no row after it

    notes = {note["run_id"]: note for note in sweeping.notes()}
    assert len(sweeping.notes()) == len(notes) == 4
    for kind, run in runs.items():
        if not kind.startswith("good"):
            note = notes[run.name]
            assert (
                note["run_url"] == f"{sweeping.backend.base_url}/{run.entity}/{run.project}/runs/{run.name}"
            )
            assert note["sweep"] == sweep.path
            assert note["rows_used"] == note["row"] == len(run.rows)
            assert note["config"]["kind"] == kind
    assert [error for _, _, error, _ in report["trials"]] == [None] * 8
    assert "8 trials: 4 stopped by the gate" in report["output"]


def test_control_the_same_without_a_gate_dies_after_three(sweeping: Any) -> None:
    sweep = sweeping.sweep(*["raises_on_nan"] * 8)
    output = sweeping.run(sys.executable, PROGRAM, sweep.path, "8", "plain")
    runs = sweeping.backend.state.sweep_runs(sweep)
    # The agent may have asked for a fourth trial already when it gives up; nothing of it runs to an end.
    assert [run.exit_codes for run in runs if run.exit_codes] == [[1]] * 3
    assert len(runs) <= 4
    assert "killing sweep" in output


def test_hostile_code_does_not_keep_a_broken_run_alive(sweeping: Any) -> None:
    kinds = ("nan_with_echo", "nan_bare_except", "nan_in_thread", "good")
    sweep = sweeping.sweep(*kinds)
    report = sweeping.function(sweep, style="plain")
    runs = sweeping.runs(sweep)
    assert list(runs) == list(kinds)
    for kind in kinds[:3]:
        assert_stopped(runs[kind])
        assert len(runs[kind].rows) == BAD_ROW + 1, kind
    assert len(runs["good"].rows) == ROWS
    assert [error for _, _, error, _ in report["trials"]] == [None] * 4
    assert len(sweeping.notes()) == 3


def test_rows_of_every_shape_pass_the_gate(sweeping: Any) -> None:
    sweep = sweeping.sweep("nan_partial", "nan_explicit_step", "good")
    sweeping.function(sweep)
    runs = sweeping.runs(sweep)
    for kind, step in (("nan_partial", BAD_ROW), ("nan_explicit_step", BAD_ROW * 5)):
        assert_stopped(runs[kind])
        last = runs[kind].rows[-1]
        assert last["_step"] == step  # also a row that was not committed yet is uploaded
        loss = last["loss"] if "loss" in last else last.get("train.loss", last.get("train", {}).get("loss"))
        assert math.isnan(loss)


def test_real_failures_count_as_ever_and_are_not_blamed_on_the_gate(sweeping: Any) -> None:
    sweep = sweeping.sweep(*["raises"] * 6)
    report = sweeping.function(sweep)
    runs = sweeping.backend.state.sweep_runs(sweep)
    # The agent may have asked for a fourth trial already when it gives up; nothing of it runs to an end.
    assert [run.exit_codes for run in runs if run.exit_codes] == [[1]] * 3
    assert len(runs) <= 4
    assert "killing sweep" in report["output"]
    assert "all 3 trials failed with the same error: RuntimeError: CUDA error" in report["output"]
    assert "not the gate" in report["output"]
    assert sweeping.notes() == []


FAULTS: dict[str, dict[str, Any]] = {
    "refused": {"kind": "refused"},
    "dropped": {"kind": "dropped"},
    "hanging": {"kind": "hanging", "seconds": 2},
    "slow": {"kind": "slow", "seconds": 2},
    "malformed": {"kind": "malformed"},
    "wrong types": {"kind": "wrong_types"},
    "429 with Retry-After": {"kind": "status", "status": 429, "retry_after": 1},
    **{f"status {code}": {"kind": "status", "status": code} for code in (401, 403, 404, 408, 500, 502, 503)},
}


def test_no_fault_of_the_connection_changes_anything_about_a_trial(sweeping: Any) -> None:
    """Each trial's uploads meet one kind of fault; the last trial is broken itself, too."""
    sweep = sweeping.sweep(*[f"good-{fault}" for fault in FAULTS], "nan")
    for number, fault in enumerate([*FAULTS.values(), FAULTS["status 503"]], start=1):
        run = f"{sweep.name}run{number}"
        for operation in ("file_stream", "upload"):
            sweeping.backend.fault(operation, times=1, about=f"/{run}/", **fault)
    report = sweeping.function(sweep)
    runs = sweeping.runs(sweep)
    *sound, broken = report["trials"]
    assert len(sound) == len(FAULTS)
    assert [trial[1:] for trial in sound] == [[None, None, True]] * len(FAULTS)
    assert (broken[1], report["faults"]) == ("nonfinite-loss", [])
    assert [note["run_id"] for note in sweeping.notes()] == [broken[0]]
    assert_stopped(runs["nan"])
    assert len(runs["nan"].rows) == BAD_ROW + 1
    for fault in ("refused", "dropped", "slow", "429 with Retry-After", "status 500", "status 503"):
        assert (runs[f"good-{fault}"].exit_codes, len(runs[f"good-{fault}"].rows)) == ([0], ROWS), fault


RETRIED = ("hanging", "slow", "429 with Retry-After", "status 500", "status 502", "status 503")


def test_no_fault_of_the_server_changes_anything_about_a_trial(sweeping: Any) -> None:
    """The same for what the SDK asks over GraphQL: each trial's run meets one fault of a kind it retries.

    A refusal or a dropped connection at that place ends ``wandb.init`` itself, with and without a gate.
    """
    sweep = sweeping.sweep(*[f"good-{fault}" for fault in RETRIED], "nan")
    faults = []
    for number, name in enumerate([*RETRIED, "status 503"], start=1):
        about = f"{sweep.name}run{number}"
        faults.append(sweeping.backend.fault("UpsertBucket", times=1, about=about, **FAULTS[name]))
    report = sweeping.function(sweep)
    runs = sweeping.runs(sweep)
    *sound, broken = report["trials"]
    assert all(fault.struck for fault in faults)
    assert [trial[1:] for trial in sound] == [[None, None, True]] * len(RETRIED)
    assert (broken[1], report["faults"]) == ("nonfinite-loss", [])
    assert [note["run_id"] for note in sweeping.notes()] == [broken[0]]
    assert_stopped(runs["nan"])
    for name in RETRIED:
        assert (runs[f"good-{name}"].exit_codes, len(runs[f"good-{name}"].rows)) == ([0], ROWS), name


def test_a_fault_of_the_gate_never_breaks_the_run(sweeping: Any) -> None:
    """The notes' directory cannot be written: the stop happens all the same, and the fault is told."""
    (sweeping.directory / "in-the-way").write_text("a file")
    sweep = sweeping.sweep("nan", "good")
    report = sweeping.function(sweep, GATEKEEPER_NOTES=str(sweeping.directory / "in-the-way" / "notes"))
    runs = sweeping.runs(sweep)
    assert_stopped(runs["nan"])
    assert len(runs["good"].rows) == ROWS
    assert any("the note could not be written" in fault for fault in report["faults"])
    assert "faults of the gate itself" in report["output"]


def test_a_bad_configuration_is_said_before_any_trial(sweeping: Any) -> None:
    (sweeping.directory / "gatekeeper.toml").write_text("metrik = 'loss'\n")
    sweep = sweeping.sweep("good")
    output = sweeping.run(sys.executable, PROGRAM, sweep.path, "1", code=1)
    assert "metrik" in output.splitlines()[-1]
    assert sweeping.backend.state.sweep_runs(sweep) == []
