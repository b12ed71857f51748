"""The second opinion: who is asked, what they are shown, and what becomes of an answer that is none."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from gatekeeper import Gate
from gatekeeper.review import Opinion, ReviewRequest, self_review
from gatekeeper.verdict import Decision, Judgment, Verdict

Play = Callable[..., list[Verdict]]
FLAT = [(i, {"loss": 1.0 + 1e-4 * (i % 3)}) for i in range(60)]
FALLING = [(i, {"loss": 1.0 + math.exp(-i / 20)}) for i in range(60)]


class Panel:
    """A reviewer with a name that keeps what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[ReviewRequest] = []

    def __call__(self, request: ReviewRequest) -> Any:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def a_colleague(request: ReviewRequest) -> Opinion:
    return Opinion(Decision.CONTINUE, "seen worse")


@pytest.mark.parametrize("decision", list(Decision))
def test_its_answer_is_used_and_named(decision: Decision, play: Play) -> None:
    panel = Panel(Opinion(decision, "we looked at it"))
    verdicts = play(FLAT, reviewer=panel)
    asked = [v for v in verdicts if v.decided_by == "Panel"]
    assert asked
    assert {v.decision for v in asked} == {decision}
    assert all(v.judgment is Judgment.UNSURE and "we looked at it" in v.reason for v in asked)
    assert verdicts[-1].stopped == (decision is Decision.STOP)
    if decision is Decision.STOP:
        assert verdicts[-1].rule == "never-learned"
        assert verdicts[-1].metrics


def test_a_function_is_named_by_its_name(play: Play) -> None:
    assert play(FLAT, reviewer=a_colleague)[-1].decided_by == "a_colleague"


def test_it_is_shown_the_run_and_what_nobody_is_sure_of(play: Play) -> None:
    panel = Panel(Opinion(Decision.WAIT, "-"))
    play(FLAT, reviewer=panel)
    request = panel.asked[-1]
    assert {"never-learned", "loss-flat"} <= {finding.rule for finding in request.findings}
    assert all(finding.judgment is Judgment.UNSURE for finding in request.findings)
    assert request.run.loss is not None
    assert request.run.loss.last == FLAT[-1][1]["loss"]


def test_it_is_not_asked_where_the_table_is_sure(play: Play) -> None:
    panel = Panel(Opinion(Decision.STOP, "-"))
    fine = play(FALLING, reviewer=panel, config={"rules": {"never-learned": "off"}})
    assert fine[-1].decision is Decision.CONTINUE
    assert fine[-1].decided_by == "table"
    assert not panel.asked
    bad = Panel(Opinion(Decision.CONTINUE, "-"))
    assert play([(0, {"loss": math.nan})], reviewer=bad)[-1].stopped
    assert not bad.asked


@pytest.mark.parametrize(
    "answer",
    [ValueError("secret"), KeyError(), MemoryError(), None, "STOP", Decision.STOP, 3, Opinion("KILL", "x")],  # type: ignore[arg-type]
    ids=lambda value: type(value).__name__,
)
def test_a_fault_falls_back_to_the_self_review(answer: Any, play: Play) -> None:
    verdicts = play(FLAT, reviewer=Panel(answer))
    plain = play(FLAT)
    assert [v.decision for v in verdicts] == [v.decision for v in plain]
    assert verdicts[-1].decided_by == "self-review"
    assert "Panel failed" in verdicts[-1].reason
    assert "secret" not in verdicts[-1].reason


def test_an_answer_in_plain_text_is_understood(play: Play) -> None:
    assert play(FLAT, reviewer=Panel(Opinion("STOP", "x")))[-1].stopped  # type: ignore[arg-type]


def test_the_self_review_is_the_default_and_never_stops(play: Play) -> None:
    assert play(FLAT) == play(FLAT, reviewer=None)
    named = play(FLAT, reviewer=self_review)
    assert [v.decision for v in named] == [v.decision for v in play(FLAT)]
    assert named[-1].decided_by == "self_review"
    assert not any(v.stopped for v in named)


def test_a_gate_with_a_reviewer_is_picklable(play: Play) -> None:
    gate = Gate(reviewer=a_colleague)
    play(FLAT[:30], gate=gate)
    again = pickle.loads(pickle.dumps(gate))
    assert play(FLAT[30:], gate=again) == play(FLAT[30:], gate=gate)
