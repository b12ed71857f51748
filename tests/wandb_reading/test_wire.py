"""Our decoder against the definitions of the installed SDK: what its protobuf code writes, ours reads."""

from __future__ import annotations

import math

import pytest
from wandb.proto import wandb_internal_pb2 as pb

from gatekeeper_wandb import records
from gatekeeper_wandb.records import RunInfo, apply_record, history_items, record_kind, system_items
from gatekeeper_wandb.wire import WireError, fields


def decode(record: pb.Record) -> tuple[int, bytes]:
    return record_kind(record.SerializeToString())


def history(*items: pb.HistoryItem, step: int = 7) -> pb.Record:
    record = pb.Record(num=12)
    record.history.item.extend(items)
    record.history.step.num = step
    return record


def test_the_field_numbers_are_those_of_the_installed_sdk() -> None:
    numbers = {field.name: field.number for field in pb.Record.DESCRIPTOR.fields}
    assert numbers["history"] == records.HISTORY
    assert numbers["config"] == records.CONFIG
    assert numbers["stats"] == records.STATS
    assert numbers["run"] == records.RUN
    assert numbers["exit"] == records.EXIT
    assert numbers["preempting"] == records.PREEMPTING


def test_both_encodings_of_a_key() -> None:
    kind, payload = decode(
        history(
            pb.HistoryItem(key="loss", value_json="0.5"),
            pb.HistoryItem(nested_key=["train", "acc"], value_json="0.25"),
            pb.HistoryItem(key="a/b.c", value_json="1"),
            pb.HistoryItem(nested_key=["ünï", "☃"], value_json="2"),
        )
    )
    assert kind == records.HISTORY
    assert history_items(payload) == {"loss": 0.5, "train/acc": 0.25, "a/b.c": 1, "ünï/☃": 2, "_step": 7}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (pb.HistoryItem(key="k", value_json="NaN"), math.nan),
        (pb.HistoryItem(key="k", value_json="Infinity"), math.inf),
        (pb.HistoryItem(key="k", value_json="-Infinity"), -math.inf),
        (pb.HistoryItem(key="k", value_json='"NaN"'), "NaN"),
        (pb.HistoryItem(key="k", value_json="null"), None),
        (pb.HistoryItem(key="k", value_json="true"), True),
        (pb.HistoryItem(key="k", value_json="-1.5e-300"), -1.5e-300),
        (
            pb.HistoryItem(key="k", value_json="123456789012345678901234567890"),
            123456789012345678901234567890,
        ),
        (pb.HistoryItem(key="k", value_json='{"x": [1, NaN]}'), {"x": [1, math.nan]}),
        (pb.HistoryItem(key="k", number=-2.5), -2.5),
        (pb.HistoryItem(key="k", integer=-300), -300),
        (pb.HistoryItem(key="k", boolean=True), True),
        (pb.HistoryItem(key="k", text="words"), "words"),
        (pb.HistoryItem(key="k", json="[1]"), [1]),
    ],
)
def test_every_kind_of_value(item: pb.HistoryItem, expected: object) -> None:
    _, payload = decode(history(item))
    assert repr(history_items(payload)["k"]) == repr(expected)


@pytest.mark.parametrize("step", [0, 1, 127, 128, 300, 2**31, 2**53])
def test_the_step_of_the_record_where_no_item_says_so(step: int) -> None:
    _, payload = decode(history(pb.HistoryItem(key="loss", value_json="1"), step=step))
    assert history_items(payload)["_step"] == step
    _, payload = decode(history(pb.HistoryItem(key="_step", value_json="41"), step=step))
    assert history_items(payload)["_step"] == 41


def test_run_config_exit_and_preempting_records() -> None:
    info = RunInfo()
    record = pb.Record()
    record.run.run_id, record.run.entity, record.run.project = "abc", "ent", "proj"
    record.run.display_name, record.run.sweep_id = "shown", "sw"
    record.run.config.update.add(key="lr", value_json="0.1")
    record.run.config.update.add(key="_wandb", value_json="{}")
    record.run.start_time.seconds = 1
    apply_record(info, *decode(record))
    assert info == RunInfo("ent", "proj", "abc", "shown", "sw", {"lr": 0.1})

    record = pb.Record()
    record.config.update.add(nested_key=["opt", "name"], value_json='"adam"')
    record.config.remove.add(key="lr")
    apply_record(info, *decode(record))
    assert info.config == {"opt/name": "adam"}

    for code in (0, 1, 255, -9):
        record = pb.Record(exit=pb.RunExitRecord(exit_code=code))
        apply_record(info, *decode(record))
        assert info.exit_code == code

    assert not info.preempting
    apply_record(info, *decode(pb.Record(preempting=pb.RunPreemptingRecord())))
    assert info.preempting


def test_system_statistics_get_the_names_that_the_server_gives_them() -> None:
    record = pb.Record()
    record.stats.item.add(key="gpu.0.gpu", value_json="3.0")
    record.stats.timestamp.seconds = 5
    kind, payload = decode(record)
    assert (kind, system_items(payload)) == (records.STATS, {"system.gpu.0.gpu": 3.0})


def test_other_records_are_passed_over() -> None:
    record = pb.Record(num=3)
    record.summary.update.add(key="loss", value_json="1")
    assert decode(record) == (0, b"")
    assert record_kind(b"") == (0, b"")


def test_bytes_that_are_no_message_are_an_error_and_nothing_else() -> None:
    whole = history(pb.HistoryItem(key="loss", value_json="0.5"), step=300).SerializeToString()
    outcomes = set()
    for end in range(len(whole)):
        try:
            kind, payload = record_kind(whole[:end])
            if kind:
                history_items(payload)
            outcomes.add("read")
        except WireError:
            outcomes.add("refused")
    assert "refused" in outcomes
    for garbage in (b"\xff" * 20, b"\x0b", b"\x0c", b"\x0a\xff\xff\xff\xff\x0f", b"\x09\x00"):
        with pytest.raises(WireError):
            list(fields(garbage))
