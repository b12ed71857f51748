from __future__ import annotations

from collections import Counter


def test_a_stop_long_before_the_first_bad_row_is_not_caught(load) -> None:
    tally = load("leave_one_out").tally
    line = {"expected": "stop", "first_bad_row": "500", "fair_row": ""}
    assert tally(line, {"decision": "STOP", "row": 502, "rows": 1000})["caught"] == 1
    assert tally(line, {"decision": "STOP", "row": 100, "rows": 1000})["caught"] == 0


def test_each_source_is_judged_by_what_did_best_on_the_others(load) -> None:
    def figures(false: int, caught: int) -> Counter[str]:
        return Counter({"stop": 10, "continue": 10, "caught": caught, "false": false, "quiet": 10 - false})

    by_source = {  # configuration "b" is perfect on x alone, and harmful elsewhere
        "x": [figures(1, 5), figures(0, 10)],
        "y": [figures(0, 9), figures(3, 10)],
        "z": [figures(0, 9), figures(3, 10)],
    }
    lines = load("leave_one_out").table(by_source, ["a", "b"])
    assert lines[2].startswith("| x | a | 5/10 | 1/10 |")
    assert lines[3].startswith("| y | a | 9/10 | 0/10 |")
    assert lines[5].startswith("| all, each left out once |  | 23/30 | 1/30 |")
