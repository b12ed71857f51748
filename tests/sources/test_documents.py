# ruff: noqa: E501 - log lines and rows stand as they are printed
import gzip
import io
import json
import struct

import numpy as np
import pytest
from gatekeeper.errors import SourceError
from gatekeeper.sources import SourceOptions, open_source

STATE = {
    "best_metric": None,
    "epoch": 2.0,
    "global_step": 20,
    "log_history": [
        {"epoch": 1.0, "loss": 1.5, "learning_rate": 1e-4, "remaining_time": "1h:2m", "step": 10},
        {"epoch": 1.0, "eval_loss": float("nan"), "step": 10},
        {"epoch": 1.0, "predict_loss": 0.5},
        {"epoch": 2.0, "loss": None, "step": 20},
    ],
}
ROWS = [
    (10, {"epoch": 1.0, "loss": 1.5, "learning_rate": 1e-4}),
    (10, {"epoch": 1.0, "eval_loss": "NaN"}),
    (2.0, {"epoch": 1.0, "predict_loss": 0.5}),
    (20, {"epoch": 2.0, "loss": None}),
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ["trainer_state.json", "state.json", "trainer_state.json.gz"])
def test_trainer_state(read, name, indent):
    content = json.dumps(STATE, indent=indent).encode()
    assert read(name, gzip.compress(content) if name.endswith(".gz") else content) == ROWS


def test_a_half_written_trainer_state_yields_its_complete_entries(read):
    text = json.dumps(STATE, indent=2)
    seen = set()
    for cut in range(text.index("[") + 1, len(text), 7):
        try:
            rows = read("trainer_state.json", text[:cut])
        except SourceError:  # nothing complete yet
            rows = []
        assert rows == ROWS[: len(rows)]
        seen.add(len(rows))
    assert seen == {0, 1, 2, 3, 4}


def test_a_growing_trainer_state_yields_only_what_is_new(tmp_path, plain):
    path = tmp_path / "trainer_state.json"

    def save(history):
        path.write_text(json.dumps({**STATE, "log_history": history}, indent=2))

    save(STATE["log_history"][:1])
    (source,) = open_source(str(path), options=SourceOptions(follow=True))
    assert plain(source.rows()) == ROWS[:1]
    assert plain(source.rows()) == []
    save(STATE["log_history"])
    assert plain(source.rows()) == ROWS[1:]
    save([{"loss": 9.0, "step": 1}])  # another run's
    assert plain(source.rows()) == [(1, {"loss": 9.0})]


def test_keras_history_and_lists_of_rows(read):
    history = {"loss": [1.0, 0.5, float("nan")], "val_loss": [1.1, 0.6, None]}
    expected = [
        (0.0, {"loss": 1.0, "val_loss": 1.1}),
        (1.0, {"loss": 0.5, "val_loss": 0.6}),
        (2.0, {"loss": "NaN", "val_loss": None}),
    ]
    assert read("history.json", json.dumps(history)) == expected
    assert read("history.json", json.dumps(history, indent=4)) == expected
    assert read("h.json", json.dumps({"history": history, "params": {"epochs": 3}}, indent=1)) == expected
    assert read("h.json", json.dumps({"epoch": [1, 2], "loss": [1.0, 0.5]})) == [
        (1, {"loss": 1.0}),
        (2, {"loss": 0.5}),
    ]
    assert read("log.json", json.dumps([{"step": 1, "loss": 0.5}], indent=1)) == [(1, {"loss": 0.5})]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"loss": [1.0, 0.', "incomplete or damaged"),
        ("[1, 2, 3]", "log.json"),
        ('{\n "a": "x"\n}', "log.json"),
    ],
)
def test_json_that_is_no_log(read, content, says):
    with pytest.raises(SourceError, match=says):
        read("log.json", content)


def npz(**arrays):
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def test_evaluations(read):
    content = npz(
        timesteps=[1000, 2000],
        results=[[1.0, 3.0], [-5.0, -5.0]],
        ep_lengths=[[10, 20], [7, 9]],
        successes=[[True, False], [True, True]],
    )
    expected = [
        (1000.0, {"eval_mean_reward": 2.0, "eval_std_reward": 1.0, "eval_mean_ep_length": 15.0, "eval_success_rate": 0.5}),
        (2000.0, {"eval_mean_reward": -5.0, "eval_std_reward": 0.0, "eval_mean_ep_length": 8.0, "eval_success_rate": 1.0}),
    ]  # fmt: skip
    assert read("evaluations.npz", content) == expected
    assert read("evaluations.npz.gz", gzip.compress(content)) == expected


@pytest.mark.parametrize(
    "content", [npz(x=[1, 2]), npz(timesteps=[1], results=[[1.0]])[:-40], b"PK\x03\x04junk"]
)
def test_an_archive_that_is_no_evaluation(read, content):
    with pytest.raises(SourceError, match=r"evaluations\.npz"):
        read("evaluations.npz", content)


@pytest.fixture
def events(tmp_path):
    """Write scalars into an event file with tensorboard's own writer."""
    writer_module = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
    from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2

    class Writer:
        def __init__(self, folder=tmp_path):
            self.writer = writer_module.EventFileWriter(str(folder))

        def scalar(self, tag, value, step, *, v2=False):
            if v2:
                tensor = tensor_pb2.TensorProto(dtype=1, tensor_content=struct.pack("<f", value))
                item = summary_pb2.Summary.Value(tag=tag, tensor=tensor)
            else:
                item = summary_pb2.Summary.Value(tag=tag, simple_value=value)
            self.writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[item])))
            return self

        def text(self, tag, value, step):
            tensor = tensor_pb2.TensorProto(dtype=7, string_val=[value.encode()])
            item = summary_pb2.Summary.Value(tag=tag, tensor=tensor)
            self.writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[item])))
            return self

        def flush(self):
            self.writer.flush()
            return self

    return Writer


@pytest.mark.parametrize("v2", [False, True])
def test_scalars_of_one_step_are_one_row(events, tmp_path, plain, v2):
    writer = events().text("note", "hello", 0)
    for tag, value, step in (("loss", 1.0, 1), ("acc", 0.5, 1), ("loss", 0.5, 1), ("loss", float("nan"), 2)):
        writer.scalar(tag, value, step, v2=v2)
    writer.flush()
    expected = [(1.0, {"loss": 1.0, "acc": 0.5}), (1.0, {"loss": 0.5}), (2.0, {"loss": "NaN"})]
    (path,) = tmp_path.iterdir()
    for spec in (str(path), str(tmp_path)):
        (source,) = open_source(spec)
        assert plain(source.rows()) == expected
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    (source,) = open_source(str(packed))
    assert plain(source.rows()) == expected


def test_a_growing_event_file_is_followed(events, tmp_path, plain):
    writer = events().scalar("loss", 1.0, 1).flush()
    (source,) = open_source(str(tmp_path), options=SourceOptions(follow=True))
    seen = plain(source.rows())
    writer.scalar("acc", 0.5, 1).scalar("loss", 0.5, 2).flush()
    seen += plain(source.rows())
    seen += plain(source.rows())  # nothing new arrived: the open row is whole
    assert seen == [(1.0, {"loss": 1.0, "acc": 0.5}), (2.0, {"loss": 0.5})]
    assert plain(source.rows()) == []
    events().scalar("loss", 0.25, 3).flush()  # a restarted run writes a further file
    assert plain([*source.rows(), *source.rows()]) == [(3.0, {"loss": 0.25})]


def test_a_cut_off_event_file_yields_what_is_whole(events, tmp_path, plain):
    writer = events()
    for step in range(50):
        writer.scalar("loss", float(step), step)
    writer.flush()
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    (source,) = open_source(str(path))
    assert [step for step, _ in plain(source.rows())] == list(range(49))


def test_garbage_named_like_an_event_file(read):
    with pytest.raises(SourceError, match="event"):
        read("events.out.tfevents.1.host", b"\x00\x01garbage" * 100)
