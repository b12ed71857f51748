from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
from gatekeeper import Gate
from gatekeeper.notes import stop_note
from gatekeeper.verdict import Verdict

MakeNote = Callable[..., dict[str, Any]]


class Reader:
    name = "runs/a.jsonl"
    run_url = "https://wandb.example/a/b/runs/c"


def test_a_note_says_everything_about_the_stop(make_note: MakeNote, gate: Any) -> None:
    note = make_note(
        gate=gate,
        source=Reader(),
        run_id="c",
        run_name="lively-frog-3",
        sweep="s1",
        experiment="exp",
        config={"lr": 3.0},
        rows_saved=699,
        seconds_used=120.5,
        seconds_saved=240.0,
        last_finite_checkpoint="/ckpt/299",
        extra={"trial_id": "t1"},
    )
    when = datetime.fromisoformat(note.pop("when").replace("Z", "+00:00"))
    assert abs(datetime.now(timezone.utc) - when) < timedelta(hours=1)
    assert len(note.pop("id")) == 16
    before = note.pop("before")
    assert [point["row"] for point in before["train/loss"]] == list(range(292, 300))
    assert list(before) == ["train/loss", "grad_norm"]
    assert note == {
        "schema": "gatekeeper.note/1",
        "event": "stop",
        "run_id": "c",
        "run_name": "lively-frog-3",
        "run_url": "https://wandb.example/a/b/runs/c",
        "sweep": "s1",
        "experiment": "exp",
        "source": "runs/a.jsonl",
        "decision": "STOP",
        "judgment": "clearly_bad",
        "rule": "nonfinite-loss",
        "reason": "train/loss is NaN at step 300",
        "decided_by": "table",
        "next": "look at the learning rate and at the batch of step 300",
        "step": 300.0,
        "row": 301,
        "metrics": {"train/loss": "NaN", "grad_norm": 812.4},
        "roles": {"loss": "train/loss", "grad_norm": "grad_norm"},
        "findings": [
            {
                "rule": "nonfinite-loss",
                "judgment": "clearly_bad",
                "metric": "train/loss",
                "step": 300.0,
                "value": "NaN",
                "threshold": None,
                "message": "train/loss is NaN at step 300",
            }
        ],
        "rows_used": 301,
        "rows_saved": 699,
        "seconds_used": 120.5,
        "seconds_saved": 240.0,
        "last_finite": {"row": 300, "step": 299.0},
        "last_finite_checkpoint": "/ckpt/299",
        "config": {"lr": 3.0},
        "extra": {"trial_id": "t1"},
    }


def test_what_is_unknown_is_null(make_note: MakeNote) -> None:
    note = make_note()
    unknown = [key for key, value in note.items() if value is None]
    assert {"run_id", "run_name", "run_url", "sweep", "config", "seconds_saved", "last_finite"} <= set(
        unknown
    )
    assert note["rows_used"] == 301


def test_a_real_gate_s_stop_can_be_noted() -> None:
    gate = Gate()
    for step in range(50):
        gate.observe(step, {"train/loss": 1 / (step + 1), "lr": 0.1})
    verdict = gate.observe(50, {"train/loss": float("nan"), "lr": 0.1})
    note = stop_note(verdict, gate=gate, run_name="r")
    assert (note["decision"], note["row"], note["rows_used"]) == ("STOP", 51, 51)
    assert note["before"]["train/loss"]
    assert note["last_finite"]["row"] == 50


@dataclass
class Model:
    width: int = 64
    hub_token: str = "hf_AbCdEfGhIjKlMnOpQrSt"


def test_any_kind_of_configuration_is_taken_and_no_secret_gets_through(make_note: MakeNote) -> None:
    config = {
        "lr": np.float32(0.5),
        "shape": np.zeros(3),
        "model": Model(),
        "arguments": argparse.Namespace(wandb_api_key="0123456789abcdef0123456789abcdef01234567", seed=1),
        "data": "s3://me:Tr0ub4dor@bucket/x",
        "note": b"bytes",
        "loss": float("inf"),
        "text": "y" * 10_000,
        "many": list(range(10_000)),
        "self": object(),
        "_wandb": {"cli_version": "0"},
    }
    config["loop"] = config
    note = make_note(
        config=config,
        run_name="run of sk-abcdefghijklmnop1234",
        source="https://me:Tr0ub4dor@host/log.jsonl",
        run_url="https://host/r?api_key=Tr0ub4dor",
        extra={"command": ["train.py", "--password", "Tr0ub4dor"]},
    )
    text = json.dumps(note, allow_nan=False)
    assert len(text) < 20_000
    assert not [s for s in ("Tr0ub4dor", "hf_AbC", "0123456789abcdef0", "sk-abc", "cli_version") if s in text]
    assert note["config"]["lr"] == 0.5
    assert note["config"]["loss"] == "Infinity"
    assert note["config"]["model"]["width"] == 64
    assert note["config"]["arguments"]["seed"] == 1


def test_a_huge_configuration_is_cut(make_note: MakeNote) -> None:
    nested = {f"k{i}": {f"j{j}": "x" * 400 for j in range(150)} for i in range(150)}
    note = make_note(config={"lr": 0.1, **nested})
    assert len(json.dumps(note)) < 100_000
    assert note["config"]["lr"] == 0.1


def test_a_gate_that_fails_to_answer_makes_a_poorer_note_and_no_exception(verdict: Verdict) -> None:
    class Broken:
        rows = 7

        def last_finite(self) -> None:
            raise RuntimeError("broken")

        def curve(self, metric: str) -> None:
            raise RuntimeError("broken")

    note = stop_note(verdict, gate=Broken())  # type: ignore[arg-type]
    assert (note["rows_used"], note["before"], note["last_finite"]) == (7, {}, None)
