"""Offline runs and `.wandb` files, made by the real SDK, then cut, damaged and grown."""

from __future__ import annotations

import gzip
import math
import random
import shutil
import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gatekeeper import Decision, Gate
from gatekeeper.errors import SourceError
from gatekeeper.sources import Row, SourceOptions, open_source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wandb.proto import wandb_internal_pb2 as pb

from gatekeeper_wandb.dotwandb import DotWandbSource
from gatekeeper_wandb.logblocks import BLOCK, HEADER, LogBlocks

LIVE = SourceOptions(follow=True)


def log_file(path: Path, records: list[bytes]) -> Path:
    """Write a record log; the SDK's own writer cannot be asked for chosen records."""
    out = bytearray(HEADER)
    for record in records:
        rest, first = record, True
        while True:
            room = BLOCK - len(out) % BLOCK
            if room < 7:
                out += b"\0" * room
                room = BLOCK
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[(first, not rest)]
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            first = False
            if not rest:
                break
    path.write_bytes(out)
    return path


def history(step: int, **values: str) -> bytes:
    record = pb.Record(num=step)
    for key, value in values.items():
        record.history.item.add(nested_key=[key], value_json=value)
    record.history.step.num = step
    return record.SerializeToString()


def numbered(rows: int, padding: int = 0) -> list[bytes]:
    return [history(i, loss=repr(1.0 / (i + 1)), text=f'"{"x" * padding}"') for i in range(rows)]


def offline_file(directory: Path) -> Path:
    (file,) = directory.glob("run-*.wandb")
    return file


def read(path: Path, options: SourceOptions | None = None) -> list[Row]:
    return list(DotWandbSource(path, options).rows())


def steps(rows: list[Row]) -> list[Any]:
    return [row.step for row in rows]


def test_a_real_offline_run(offline_run: Path) -> None:
    source = DotWandbSource(offline_file(offline_run))
    rows = list(source.rows())
    assert steps(rows) == list(range(400))  # the row that holds media alone is none to judge
    assert math.isnan(rows[300].metrics["loss"])  # type: ignore[arg-type]
    assert rows[299].metrics == {
        "loss": 1 / 300,
        "grad": math.inf,
        "train/acc": 299 / 400,
        "train/deep/none": None,
        "dotted.key": 299,
        "flag": False,
    }
    assert (source.skipped, source.truncated, source.run_state, source.run_url) == (
        0,
        False,
        "finished",
        None,
    )
    assert (source.run.entity, source.run.project, source.run.run_id) == ("ent", "proj", "abc123")
    assert (source.run.display_name, source.run.config["lr"]) == ("shown", 0.1)
    assert list(source.rows()) == []  # nothing new at the next look


def test_the_gate_stops_at_the_nan(offline_run: Path) -> None:
    (source,) = open_source(str(offline_run))
    gate = Gate()
    for row in source.rows():
        gate.observe(row.step, row.metrics)
    assert gate.verdict.decision is Decision.STOP
    assert gate.verdict.step == 300


@pytest.mark.parametrize("kind", ["file", "directory", "latest-run", "gz", "renamed"])
def test_every_way_to_name_it(offline_run: Path, tmp_path: Path, kind: str) -> None:
    name = {
        "file": offline_file(offline_run),
        "directory": offline_run,
        "latest-run": offline_run.parent / "latest-run",
        "gz": tmp_path / "run-abc123.wandb.gz",
        "renamed": tmp_path / "experiment",
    }[kind]
    if kind == "gz":
        name.write_bytes(gzip.compress(offline_file(offline_run).read_bytes()))
    if kind == "renamed":
        shutil.copytree(offline_run, name)
    (source,) = open_source(str(name))
    assert len(list(source.rows())) == 400


def test_a_wandb_folder_is_its_runs(offline_run: Path, tmp_path: Path) -> None:
    for day in (3, 1, 2):
        folder = tmp_path / "wandb" / f"{'offline-' if day == 2 else ''}run-2026010{day}_000000-r{day}"
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "output.log").write_text("loss: 1.0\n")
        log_file(folder / f"run-r{day}.wandb", numbered(3))
    (tmp_path / "wandb" / "latest-run").symlink_to("run-20260103_000000-r3")
    found = open_source(str(tmp_path / "wandb"))
    assert [Path(source.name).name for source in found] == ["run-r1.wandb", "run-r2.wandb", "run-r3.wandb"]


def test_the_url_of_a_run_that_was_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_BASE_URL", raising=False)
    monkeypatch.delenv("WANDB_APP_URL", raising=False)
    record = pb.Record()
    record.run.run_id, record.run.entity, record.run.project = "r 1", "ent", "proj"
    offline = tmp_path / "offline-run-20260101_000000-r1"
    offline.mkdir()
    source = DotWandbSource(log_file(offline / "run-r1.wandb", [record.SerializeToString(), *numbered(1)]))
    list(source.rows())
    assert source.run_url is None
    (offline / "run-r1.wandb.synced").touch()
    assert source.run_url == "https://wandb.ai/ent/proj/runs/r%201"
    monkeypatch.setenv("WANDB_BASE_URL", "https://user:hush@wandb.example.com:8080/")
    assert source.run_url == "https://wandb.example.com:8080/ent/proj/runs/r%201"


def test_records_larger_than_a_block(tmp_path: Path) -> None:
    rows = read(log_file(tmp_path / "run-a.wandb", numbered(20, padding=BLOCK * 2 + 11)))
    assert steps(rows) == list(range(20))


def test_a_cut_file_yields_the_rows_before_the_cut(offline_run: Path, tmp_path: Path) -> None:
    whole = offline_file(offline_run).read_bytes()
    cut = tmp_path / "run-cut.wandb"
    before = 0
    for end in [*range(0, 60, 3), *range(60, len(whole), 9973), len(whole)]:
        cut.write_bytes(whole[:end])
        source = DotWandbSource(cut, LIVE)
        rows = list(source.rows())
        assert steps(rows) == list(range(len(rows)))
        assert len(rows) >= before
        assert source.skipped == 0
        before = len(rows)
    assert before == 400


def test_a_growing_file_is_read_once(offline_run: Path, tmp_path: Path) -> None:
    whole = offline_file(offline_run).read_bytes()
    growing = tmp_path / "run-growing.wandb"
    dice = random.Random(7)
    growing.write_bytes(b"")
    source = DotWandbSource(growing, LIVE)
    found, looks, end = [], 0, 0
    while end < len(whole):
        end = min(len(whole), end + dice.choice([1, 5, 300, 5000, BLOCK]))
        growing.write_bytes(whole[:end])
        new = list(source.rows())
        looks += bool(new)
        found += steps(new)
    assert found == list(range(400))
    assert looks > 5
    assert (source.skipped, source.truncated) == (0, False)


def test_a_live_run_of_the_real_sdk(tmp_path: Path, offline_env: Callable[..., dict[str, str]]) -> None:
    code = """
        import sys, wandb
        run = wandb.init(entity="ent", project="proj", id="live", mode="offline")
        for i in range(3000):
            run.log({"loss": 1.0 / (i + 1)})
        print("logged", flush=True)
        sys.stdin.readline()
        run.finish()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=offline_env(tmp_path, WANDB_DIR=str(tmp_path)),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "logged\n"
        source = DotWandbSource(offline_file(tmp_path / "wandb" / "latest-run"), LIVE)
        live: list[Row] = []
        for _ in range(200):  # what it holds back for a full block comes when it ends
            live += source.rows()
            if len(live) > 1000:
                break
            time.sleep(0.1)
        assert 1000 < len(live) <= 3000
        assert source.run_state is None
        child.communicate("\n", timeout=60)
        rows = [*live, *source.rows()]
        assert steps(rows) == list(range(3000))
        assert (source.run_state, source.skipped) == ("finished", 0)
    finally:
        child.kill()
        child.wait()


def test_damage_costs_the_records_it_touches(tmp_path: Path) -> None:
    path = log_file(tmp_path / "run-a.wandb", numbered(3000))
    whole = path.read_bytes()
    at = whole.index(b"0.0009990009990009990"[:12])  # the value of row 1000
    path.write_bytes(whole[:at] + b"XXXX" + whole[at + 4 :])
    source = DotWandbSource(path)
    found = steps(list(source.rows()))
    assert found == [*range(1000), *range(1001, 3000)]
    assert source.skipped == 1
    (example,) = source.skipped_examples
    assert "damaged data" in example
    assert 0 < at - int(example.split()[1].rstrip(":")) < 60  # where the record with the value begins


def test_a_hole_of_zeros_costs_the_blocks_it_covers(tmp_path: Path) -> None:
    path = log_file(tmp_path / "run-a.wandb", numbered(5000))
    whole = path.read_bytes()
    path.write_bytes(whole[: BLOCK + 100] + b"\0" * BLOCK + whole[2 * BLOCK + 100 :])
    source = DotWandbSource(path)
    found = steps(list(source.rows()))
    assert found == sorted(set(found))
    assert 5000 - 1100 < len(found) < 5000
    assert (found[0], found[-1]) == (0, 4999)
    assert source.skipped >= 1


@pytest.fixture(scope="module")
def three_blocks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, dict[object, object]]:
    path = log_file(tmp_path_factory.mktemp("damage") / "run-a.wandb", numbered(400, padding=200))
    return path, path.read_bytes(), {row.step: row.metrics for row in read(path)}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_damage_never_raises_and_never_invents_a_row(
    three_blocks: tuple[Path, bytes, dict[object, object]], data: st.DataObject
) -> None:
    path, whole, known = three_blocks
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(7, len(broken) - 1))
        size = data.draw(st.sampled_from([1, 2, 7, 300, BLOCK]))
        broken[at : at + size] = data.draw(st.binary(min_size=0, max_size=min(size, 64)))
    damaged = path.with_name("run-damaged.wandb")
    damaged.write_bytes(broken)
    source = DotWandbSource(damaged, LIVE)
    rows = list(source.rows())
    for row in rows:
        assert row.metrics == known[row.step]
    if len(rows) < 400:
        assert source.skipped or source.truncated


def test_a_file_that_is_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    path = log_file(tmp_path / "run-a.wandb", numbered(50))
    log = LogBlocks(path)
    assert len(list(log.records())) == 50
    log_file(path, numbered(20))
    assert len(list(log.records())) == 20
    assert log.restarts == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not a log at all", "not a .wandb file"),
        (b":W&B\xe1\xbe\x07rest", "unknown version"),
        (HEADER, "no rows yet"),
        (b"", "no rows yet"),
    ],
)
def test_what_cannot_be_judged_is_one_clear_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "run-a.wandb"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=said) as raised:
        read(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_and_a_run_without_metrics(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read(tmp_path / "run-gone.wandb")
    record = pb.Record(exit=pb.RunExitRecord(exit_code=1))
    path = log_file(tmp_path / "run-a.wandb", [record.SerializeToString()])
    with pytest.raises(SourceError, match=r"ended \(failed\) without logging"):
        read(path)
    assert read(path, LIVE) == []


def test_gpu_statistics_join_the_next_row(tmp_path: Path) -> None:
    stats = pb.Record()
    stats.stats.item.add(key="gpu.0.gpu", value_json="1.5")
    stats.stats.item.add(key="cpu", value_json="50")
    rows = numbered(4)
    path = log_file(tmp_path / "run-a.wandb", [rows[0], stats.SerializeToString(), *rows[1:]])
    found = [row.metrics.get("system.gpu.0.gpu") for row in read(path)]
    assert found == [None, 1.5, None, None]


def test_another_step_key(tmp_path: Path) -> None:
    path = log_file(tmp_path / "run-a.wandb", [history(i, loss="1", epoch=str(10 * i)) for i in range(3)])
    rows = read(path, SourceOptions(step_key="epoch"))
    assert steps(rows) == [0, 10, 20]
    assert rows[0].metrics == {"loss": 1}
