import gzip
import json
from itertools import pairwise

import pytest
from gatekeeper.errors import SourceError
from gatekeeper.sources import open_source
from gatekeeper.sources.base import Skips
from gatekeeper.sources.jsonl import JsonLines
from hypothesis import given, settings
from hypothesis import strategies as st


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_step_is_taken_out_of_the_metrics(read):
    assert read("a.jsonl", lines({"step": 3, "loss": 0.5}, {"step": 4, "loss": 0.25})) == [
        (3, {"loss": 0.5}),
        (4, {"loss": 0.25}),
    ]


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["epoch", "step"], "step"),
        (["global_step", "_step"], "_step"),
        (["trainer/global_step", "epoch"], "trainer/global_step"),
        (["epoch", "training_iteration"], "training_iteration"),
        (["time/iterations", "time/total_timesteps"], "time/total_timesteps"),
        (["episode", "epoch"], "epoch"),
        (["itr"], "itr"),
        (["Epoch"], "Epoch"),
    ],
)
def test_which_key_is_the_step(read, keys, chosen):
    row = {key: at + 7 for at, key in enumerate(keys)}
    expected = {key: value for key, value in row.items() if key != chosen}
    assert read("a.jsonl", lines({**row, "loss": 1.0})) == [(row[chosen], {**expected, "loss": 1.0})]


def test_without_a_step_there_is_none(read):
    assert read("a.jsonl", lines({"loss": 1.0}, {"loss": 2.0})) == [
        (None, {"loss": 1.0}),
        (None, {"loss": 2.0}),
    ]


def test_a_better_step_that_comes_later_is_used(read):
    rows = read("a.jsonl", lines({"epoch": 0, "loss": 1.0}, {"epoch": 1, "step": 50, "loss": 0.5}))
    assert rows == [(0, {"loss": 1.0}), (50, {"epoch": 1, "loss": 0.5})]


def test_a_declared_step_key_is_used(read):
    row = {"step": 1, "tokens": 4096, "loss": 1.0}
    assert read("a.jsonl", lines(row), step_key="tokens") == [(4096, {"step": 1, "loss": 1.0})]


def test_non_finite_null_and_odd_steps_survive(read):
    content = '{"step": 1, "loss": NaN}\n{"step": 2, "loss": -Infinity}\n{"step": 3, "loss": null}\n'
    content += '{"step": "4", "loss": "nan"}\n{"step": null, "loss": 1}\n{"step": NaN, "loss": 1}\n'
    assert read("a.jsonl", content) == [
        (1, {"loss": "NaN"}),
        (2, {"loss": float("-inf")}),
        (3, {"loss": None}),
        (4.0, {"loss": "nan"}),
        (None, {"loss": 1}),
        (None, {"loss": 1}),
    ]


def test_nested_rows_are_flattened_and_logged_configuration_is_no_metric(read):
    row = {"step": 1, "train": {"loss": 0.5, "acc": {"top1": 0.1}}, "config": {"lr": 0.1}, "train/loss": 0.75}
    assert read("a.jsonl", lines(row)) == [(1, {"train/loss": 0.75, "train/acc/top1": 0.1})]


def test_ray_results_lose_their_automatic_keys(read):
    row = {
        "training_iteration": 3,
        "trial_id": "a1_00000",
        "time_total_s": 1.5,
        "time_this_iter_s": 0.5,
        "date": "2024-01-01_00-00-00",
        "timestamp": 1700000000,
        "pid": 7,
        "hostname": "node",
        "node_ip": "10.0.0.1",
        "done": False,
        "config": {"lr": 0.1},
        "iterations_since_restore": 3,
        "loss": 0.5,
        "info": {"learner": {"kl": 0.01}},
    }
    assert read("result.json", lines(row, row)) == [(3, {"loss": 0.5, "info/learner/kl": 0.01})] * 2


def test_a_few_malformed_lines_are_skipped_counted_and_shown(tmp_path):
    good = [json.dumps({"step": i, "loss": 1.0}) for i in range(20)]
    good[3:3] = ['{"step": 3, "lo', "[1, 2]", "\x1b[31mWARNING: not a row"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(good) + "\n")
    (source,) = open_source(str(path))
    assert [row.step for row in source.rows()] == list(range(20))
    assert source.skipped == 3
    assert source.skipped_examples[0] == 'line 4: {"step": 3, "lo'
    assert "\x1b" not in source.skipped_examples[2]


def test_lines_that_only_together_are_json_are_not_put_together(tmp_path):
    decoder = JsonLines(skips := Skips())
    text = '{"step": 1, "a": [{"x": 1}\n{"y": 2}]}\n{"step": 2, "a": 1}\n'
    assert [row.step for row in decoder.feed(text)] == [2]
    assert skips.count == 2


def test_a_mostly_malformed_file_is_an_error(read):
    with pytest.raises(SourceError, match=r"a\.jsonl is mostly malformed: 3 lines .*line 2"):
        read("a.jsonl", '{"loss": 1}\nx\ny\nz\n')


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_an_error(read, content):
    with pytest.raises(SourceError, match=r"a\.jsonl"):
        read("a.jsonl", content)


def test_only_steps_and_times_are_no_metrics(read):
    with pytest.raises(SourceError, match="no metric that can be judged"):
        read("a.jsonl", lines({"step": 1, "time/fps": 100.0, "epoch": 1, "elapsed": 3.0, "note": "hello"}))


def test_gzip_and_byte_order_marks(read):
    content = lines({"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25})
    expected = [(1, {"loss": 0.5}), (2, {"loss": 0.25})]
    assert read("a.jsonl.gz", gzip.compress(content.encode())) == expected
    assert read("misnamed.jsonl", gzip.compress(content.encode())) == expected
    assert read("bom.jsonl", b"\xef\xbb\xbf" + content.encode()) == expected
    assert read("utf16.jsonl", content.encode("utf-16")) == expected
    assert read("crlf.jsonl", content.replace("\n", "\r\n")) == expected


def test_damaged_gzip_is_an_error(read):
    packed = bytearray(gzip.compress(lines(*({"step": i, "loss": i / 7} for i in range(3000))).encode()))
    packed[len(packed) // 2] ^= 0xFF
    with pytest.raises(SourceError, match="damaged gzip"):
        read("a.jsonl.gz", bytes(packed))


metric = st.one_of(st.floats(), st.integers(-(2**60), 2**60), st.none())
rows_of_metrics = st.lists(
    st.tuples(
        st.integers(0, 10**9), st.dictionaries(st.sampled_from(["loss", "acc", "lr", "x y", "ü"]), metric)
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(rows_of_metrics, st.lists(st.integers(0, 400), max_size=6))
def test_round_trip_however_it_is_cut_into_blocks(rows, cuts):
    """Cut between whole lines anywhere: the rows are the same as written."""
    text = [json.dumps({"step": step, **metrics}) + "\n" for step, metrics in rows]
    decoder = JsonLines(Skips())
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    seen = []
    for start, end in pairwise(edges):
        seen.extend(decoder.feed("".join(text[start:end])))
    assert repr([(row.step, row.metrics) for row in seen]) == repr(rows)
