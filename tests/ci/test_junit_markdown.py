"""JUnit for GitLab and Jenkins, Markdown for people."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from gatekeeper.report.junit import junit_xml
from gatekeeper.report.markdown import markdown_report
from hypothesis import given, settings
from hypothesis import strategies as st


def cases(reports):
    root = ET.fromstring(junit_xml(reports).encode("utf-8"))
    return root, {case.get("name"): case for case in root.iter("testcase")}


def test_stop_fails_wait_errs_and_only_continue_passes(kit):
    words = ["STOP", "WAIT", "CONTINUE", "ERROR"]
    root, by_name = cases([kit.report(decision=word, source=word) for word in words])
    assert [child.tag for name in words for child in by_name[name]] == [
        "failure",
        "error",
        "system-out",
        "error",
    ]
    assert by_name["STOP"][0].get("type") == "nonfinite-loss"
    assert by_name["STOP"][0].get("message").startswith("STOP: train/loss is NaN at step 61")
    suite = root[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors"), suite.get("skipped")) == (
        "4",
        "1",
        "2",
        "0",
    )


def test_no_run_at_all_is_an_error():
    root, by_name = cases([])
    assert root.get("errors") == "1"
    assert by_name["gatekeeper"][0].tag == "error"


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_any_text_gives_valid_xml(kit, text):
    record = kit.report(source=text, reason=text, rule=text, findings=[kit.finding(message=text, rule=text)])
    _, by_name = cases([record])
    assert len(by_name) == 1


def test_hostile_text_gives_valid_xml_that_says_it(kit):
    for text in kit.hostile:
        cases([kit.report(source=text, reason=text)])
    _, by_name = cases([kit.report(source="a <b> & \"c\" ]]> 'd'")])
    assert list(by_name) == ["a <b> & \"c\" ]]> 'd'"]


def test_junit_redacts(kit):
    assert "hunter2hunter2" not in junit_xml(
        [kit.report(reason="https://u:hunter2hunter2@example.org failed")]
    )


@pytest.fixture
def page(kit):
    curve = kit.curve([2.0, 1.5, 1.0, 0.8, float("nan")])
    return markdown_report([kit.report(curve, step=4, row=5, rows=5)])


def test_verdict_first_then_the_sentence_then_the_evidence(page):
    lines = [line for line in page.split("\n") if line]
    assert lines[0] == "## ❌ STOP: nonfinite-loss"
    assert lines[1] == "train/loss is NaN at step 61; the last finite value was 0.41 at step 60"
    order = [page.index(mark) for mark in ("| Run |", "```mermaid", "### Findings", "### Metrics")]
    assert order == sorted(order)


def test_the_tables_say_it_all_without_the_chart(kit):
    page = markdown_report([kit.report([], None)])
    assert "mermaid" not in page
    assert "| nonfinite-loss | clearly bad | train/loss | 61 | NaN |  | train/loss is NaN |" in page
    assert "| grad\\_norm |" not in page
    assert "| grad_norm | grad_norm | 812.4 |" in page


def test_several_runs_are_counted_and_the_worst_comes_first(kit):
    words = ["CONTINUE", "STOP", "CONTINUE", "WAIT"]
    page = markdown_report([kit.report(decision=word, source=f"{word}.jsonl") for word in words])
    assert page.startswith("## ❌ gatekeeper: STOP\n\n4 runs: 1 STOP, 1 WAIT, 2 CONTINUE\n")
    heads = [line for line in page.split("\n") if line.startswith("## ")]
    assert [head.split()[2].rstrip(":") for head in heads[1:]] == ["STOP", "WAIT", "CONTINUE", "CONTINUE"]


def test_an_unreachable_source_is_not_blamed_on_the_run(kit):
    page = markdown_report([kit.report(decision="WAIT", reachable=False)])
    assert "not reachable: this says nothing about the run" in page


def test_only_http_links_are_links(kit):
    assert "](https://wandb.ai/a/b/runs/c)" in markdown_report(
        [kit.report(run_url="https://wandb.ai/a/b/runs/c")]
    )
    for url in ("javascript:alert(1)", "https://", "data:text/html,x", "file:///etc/passwd"):
        assert "](" not in markdown_report([kit.report(run_url=url)])
