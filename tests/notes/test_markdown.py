from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gatekeeper.notes import Journal, markdown
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": False})
HOSTILE = "x\n\n## forged\n\n<details>|`a` [l](http://e.example) ![i](x) \x1b[2J</details>\u202e\\"


@pytest.fixture(scope="module")
def note() -> dict[str, Any]:
    return {
        "decision": "STOP",
        "rule": "nonfinite-loss",
        "reason": "loss is NaN",
        "next": "the learning rate",
        "when": "2026-01-02T03:04:05.678Z",
        "id": "abcdef0123456789",
        "run_url": "https://wandb.example/a/b/runs/c",
        "step": 3.0,
    }


def structure(page: str) -> list[str]:
    inner = [t.type for token in PARSER.parse(page) for t in [token, *(token.children or [])]]
    return [
        kind
        for kind in inner
        if kind in {"heading_open", "table_open", "html_block", "html_inline", "image", "link_open"}
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.text(), st.just(HOSTILE)))
def test_untrusted_text_does_not_change_the_structure_of_the_page(note: dict[str, Any], text: str) -> None:
    def page(word: str) -> str:
        finding = {"rule": word, "judgment": word, "message": word}
        untrusted = dict.fromkeys(
            ("run_name", "reason", "next", "sweep", "experiment", "source", "rule"), word
        )
        nested = {"config": {f"k{word}": word}, "metrics": {f"m{word}": word}, "findings": [finding, finding]}
        return markdown.document([{**note, **untrusted, **nested, "extra": {f"e{word}": word}}])

    assert structure(page("x" + text)) == structure(page("x"))


def test_a_section_reads_well(make_note: Callable[..., dict[str, Any]], gate: Any, tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(
        make_note(gate=gate, run_name="trial_7", seconds_saved=7200, config={"model": {"width": 64}})
    )
    page = journal.markdown_path.read_text()
    assert "## trial_7: nonfinite-loss at step 300\n\n**STOP**: train/loss is NaN at step 300" in page
    assert "Look at next: look at the learning rate" in page
    assert "| Saved | 2.0 h |" in page
    assert "| Last finite | row 300 (step 299) |" in page
    assert "| train/loss | NaN | 2.38, 2.37, 2.36, 2.35, 2.34, 2.33, 2.32, 2.31 |" in page
    assert "| model.width | 64 |" in page


@pytest.mark.parametrize(
    "odd",
    [
        {"metrics": "x", "findings": 3, "config": [1], "before": [], "extra": "x", "last_finite": "x"},
        {"step": "NaN", "metrics": {"a": None}, "findings": [None, "x"], "before": {"a": [1, {}]}, "when": 5},
        {"config": {}, "rows_used": "x", "seconds_saved": "y", "decision": None, "run_url": 5},
    ],
)
def test_notes_of_odd_shape_are_shown_as_far_as_they_go(note: dict[str, Any], odd: dict[str, Any]) -> None:
    assert "loss is NaN" in markdown.section({**note, **odd})
