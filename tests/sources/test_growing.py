# ruff: noqa: E501 - log lines stand as they are printed
"""Files that grow while they are read: real files, a real writer process."""

import gzip
import json
import subprocess
import sys
import time

import pytest
from gatekeeper.errors import SourceError
from gatekeeper.sources import SourceOptions, open_path
from hypothesis import given, settings
from hypothesis import strategies as st

FOLLOW = SourceOptions(follow=True)


def jsonl(start, stop, scale=1.0):
    return "".join(json.dumps({"step": i, "loss": scale / (i + 1)}) + "\n" for i in range(start, stop))


def steps(rows):
    return [row.step for row in rows]


def test_each_call_yields_what_is_new(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(0, 3))
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [0, 1, 2]
    assert steps(source.rows()) == []
    with path.open("a") as file:
        file.write(jsonl(3, 5))
    assert steps(source.rows()) == [3, 4]


def test_a_half_written_last_line_is_kept_back_until_it_is_whole(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n0,1.0\n1,0.5")  # the writer's buffer ended here: it was to be 0.512
    source = open_path(path, FOLLOW)
    assert [(row.step, row.metrics) for row in source.rows()] == [(0.0, {"loss": 1.0})]
    with path.open("a") as file:
        file.write("12\n2,0.25\n")
    assert [row.metrics["loss"] for row in source.rows()] == [0.512, 0.25]
    assert source.skipped == 0


def test_the_end_of_a_finished_file_needs_no_line_break(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n0,1.0\n1,0.5")
    source = open_path(path)
    assert steps(source.rows()) == [0, 1]
    with path.open("a") as file:
        file.write("\n2,0.25\n")
    assert steps(source.rows()) == [2]  # the second row is not yielded twice
    following = open_path(path, FOLLOW)
    path.write_text("step,loss\n0,1.0\n1,0.5")
    assert steps(following.rows()) == [0]
    assert steps(following.finish()) == [1]


def test_a_truncated_file_begins_anew(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(0, 5))
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [0, 1, 2, 3, 4]
    path.write_text(jsonl(0, 2))
    assert steps(source.rows()) == [0, 1]
    path.write_text("epoch,loss\n7,0.5\n")  # another kind of log, even
    assert steps(source.rows()) == [7]


def test_a_file_overwritten_by_a_longer_one_begins_anew(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(jsonl(0, 2))
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [0, 1]
    path.write_text(jsonl(100, 110, scale=3.0))
    assert steps(source.rows()) == list(range(100, 110))


def test_rotation_loses_no_row(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(jsonl(0, 3))
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [0, 1, 2]
    with path.open("a") as file:
        file.write(jsonl(3, 4))
        path.rename(tmp_path / "train.jsonl.1")
    assert steps(source.rows()) == [3]  # from the file that was renamed
    path.write_text(jsonl(4, 6))
    assert steps(source.rows()) == [4, 5]


def test_a_csv_rewritten_with_a_wider_header_yields_each_row_once(tmp_path):
    """Stable-Baselines3 and Lightning do this when a metric appears for the first time."""
    path = tmp_path / "progress.csv"
    path.write_text("step,loss\n1,0.5\n2,0.25\n")
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [1, 2]
    path.write_text("step,loss,val_loss\n1,0.5,\n2,0.25,\n3,0.125,0.3\n")
    assert [(row.step, row.metrics) for row in source.rows()] == [(3.0, {"loss": 0.125, "val_loss": 0.3})]


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path):
    path = tmp_path / "later.jsonl"
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == []
    path.write_text("")
    assert steps(source.rows()) == []
    path.write_text(jsonl(0, 1))
    assert steps(source.rows()) == [0]
    with pytest.raises(SourceError, match="does not exist"):
        open_path(tmp_path / "never.jsonl")


def test_a_growing_gzip_file(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(0, 3).encode()))
    source = open_path(path, FOLLOW)
    assert steps(source.rows()) == [0, 1, 2]
    with path.open("ab") as file:
        file.write(gzip.compress(jsonl(3, 5).encode()))
    assert steps(source.rows()) == [3, 4]


WRITER = """
import json, os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
text = "".join(json.dumps({"step": i, "loss": 1.0 / (i + 1)}) + "\\n" for i in range(2000)).encode()
size = 997  # torn in the middle of lines, on purpose
for at in range(0, len(text), size):
    os.write(fd, text[at : at + size])
    time.sleep(0.002)
"""


def test_a_writer_process_is_followed_row_by_row(tmp_path):
    path = tmp_path / "a.jsonl"
    source = open_path(path, FOLLOW)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    seen, looks = [], 0
    try:
        until = time.monotonic() + 60
        while len(seen) < 2000 and time.monotonic() < until:
            new = steps(source.rows())
            looks += bool(new)
            seen += new
            time.sleep(0.005)
    finally:
        writer.kill()
        writer.wait()
    assert seen == list(range(2000))
    assert looks > 1
    assert source.skipped == 0


SAMPLES = {
    "a.jsonl": jsonl(0, 4) + '{"step": 9, "loss": NaN, "nested": {"x": 1}}\n',
    "metrics.csv": 'epoch,step,loss,"a, b"\r\n0,1,0.5,\r\n0,2,,1e-5\r\n1,3,nan,2\r\n',
    "0.monitor.csv": '#{"t_start": 1.5}\nr,l,t\n-1.0,10,0.5\n2.0,20,1.5\n',
    "out.log": "Epoch 1/2\n1/2 [=>..] - ETA: 1s - loss: 2.0\r2/2 [====] - 1s - loss: 1.0 - val_loss: 0.9\n"
    "{'loss': 0.5, 'epoch': 0.1}\nstep 5: loss 0.25\n 10%|█ | 1/10 [00:01<00:09, 1.0it/s, loss=0.5]\rval acc: 0.75\n",
}


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_cut_at_any_byte_and_followed_the_rows_are_the_same(name, data, tmp_path_factory):
    """A log that arrives in pieces, cut anywhere, yields the rows that it yields when it is read at once."""
    folder = tmp_path_factory.mktemp("cut")
    content = SAMPLES[name].encode()
    whole = folder / ("whole-" + name)
    whole.write_bytes(content)
    expected = list(open_path(whole).rows())
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=6).map(sorted))
    path = folder / name
    source = open_path(path, FOLLOW)
    seen = []
    for start, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[start:end])
        seen.extend(source.rows())
    seen.extend(source.finish())
    assert repr(seen) == repr(expected)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """Read 40 MB in a process of its own and compare its peak with that of reading 1 MB."""
    script = (
        "import resource, sys\nfrom gatekeeper.sources import open_source\n"
        "n = sum(1 for _ in open_source(sys.argv[1])[0].rows())\n"
        "print(n, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    peaks = []
    for rows in (10_000, 400_000):
        path = tmp_path / f"{rows}.jsonl"
        with path.open("w") as file:
            for i in range(rows):
                file.write(
                    f'{{"step": {i}, "loss": 0.5, "acc": 0.25, "grad_norm": 1.5, "note": "..........."}}\n'
                )
        out = subprocess.run(
            [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
        )
        count, peak = map(int, out.stdout.split())
        assert count == rows
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 8 * 1024  # KiB
