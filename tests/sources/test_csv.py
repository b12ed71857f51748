import csv
import io

import pytest
from gatekeeper.errors import SourceError
from gatekeeper.sources import open_source
from gatekeeper.sources.base import Skips
from gatekeeper.sources.csvlog import CsvLog
from hypothesis import given, settings
from hypothesis import strategies as st


def test_lightning_mixed_train_and_validation_rows(read):
    content = "epoch,step,train_loss,val_loss\r\n0,49,0.5,\r\n0,99,,0.4\r\n1,149,nan,\r\n"
    assert read("metrics.csv", content) == [
        (49.0, {"epoch": 0.0, "train_loss": 0.5}),
        (99.0, {"epoch": 0.0, "val_loss": 0.4}),
        (149.0, {"epoch": 1.0, "train_loss": "NaN"}),
    ]


def test_keras_csvlogger_with_and_without_epoch(read):
    assert read("log.csv", "epoch,loss,val_loss\n0,1.0,1.1\n1,0.5,0.6\n")[1] == (
        1.0,
        {"loss": 0.5, "val_loss": 0.6},
    )
    assert read("log.csv", "loss,val_loss\n1.0,1.1\n0.5,0.6\n") == [
        (0.0, {"loss": 1.0, "val_loss": 1.1}),
        (1.0, {"loss": 0.5, "val_loss": 0.6}),
    ]


def test_ultralytics_padded_header(read):
    content = (
        "     epoch,  train/box_loss,   metrics/mAP50(B)\n         0,         0.0661,                0\n"
    )
    assert read("results.csv", content) == [(0.0, {"train/box_loss": 0.0661, "metrics/mAP50(B)": 0.0})]


def test_stable_baselines3_progress(read):
    content = "time/iterations,rollout/ep_rew_mean,time/total_timesteps,train/loss\n"
    content += "1,-20.5,2048,\n2,-19.5,4096,4.25\n"
    assert read("progress.csv", content) == [
        (2048.0, {"time/iterations": 1.0, "rollout/ep_rew_mean": -20.5}),
        (4096.0, {"time/iterations": 2.0, "rollout/ep_rew_mean": -19.5, "train/loss": 4.25}),
    ]


def test_baselines_progress_counts_epochs(read):
    content = "test/mean_Q,epoch,train/episode\n-1.5,0,100.0\n-1.25,1,200.0\n"
    assert read("progress.csv", content)[1] == (1.0, {"test/mean_Q": -1.25, "train/episode": 200.0})


def test_monitor_steps_are_cumulative_lengths_also_over_a_resume(read):
    content = '#{"t_start": 1.5, "env_id": "Acrobot-v1"}\nr,l,t\r\n-500.0,500,4.6\r\n-186.0,187,9.4\r\n'
    content += '#{"t_start": 9.5, "env_id": "Acrobot-v1"}\nr,l,t\n-90.0,91,1.0\n'
    assert read("0.monitor.csv", content) == [
        (500.0, {"r": -500.0, "l": 500.0, "t": 4.6}),
        (687.0, {"r": -186.0, "l": 187.0, "t": 9.4}),
        (778.0, {"r": -90.0, "l": 91.0, "t": 1.0}),
    ]


def test_algoperf_measurements(read):
    content = "global_step,grad_norm,loss,train/loss\n0,518.9,5.7,\n1,,,5.4\n7,inf,3.1e+24,\n8,,,\n"
    assert read("measurements.csv", content) == [
        (0.0, {"grad_norm": 518.9, "loss": 5.7}),
        (1.0, {"train/loss": 5.4}),
        (7.0, {"grad_norm": float("inf"), "loss": 3.1e24}),
        (8.0, {}),
    ]


def test_improved_diffusion_and_ray_progress(read):
    assert read("progress.csv", "grad_norm,loss,samples,step\n81.9,16.5,256,0\n") == [
        (0.0, {"grad_norm": 81.9, "loss": 16.5, "samples": 256.0})
    ]
    header = "loss,training_iteration,trial_id,time_total_s,date,hostname,config/lr\n"
    assert read("progress.csv", header + "0.5,1,a_0,1.5,2024-01-01,node,0.1\n") == [(1.0, {"loss": 0.5})]


def test_tabs_semicolons_quotes_tensors_and_an_index_column(read):
    assert read("a.csv", "step\tloss\n1\t0.5\n") == [(1.0, {"loss": 0.5})]
    assert read("a.csv", "step;loss\n1;0.5\n") == [(1.0, {"loss": 0.5})]
    content = (
        ',"step","loss, total",note\n0,"1","0.5","two\nlines"\n1,2,"tensor(0.25, device=\'cuda:0\')",x\n'
    )
    assert read("a.csv", content) == [(1.0, {"loss, total": 0.5}), (2.0, {"loss, total": 0.25})]


def test_a_repeated_or_changed_header_begins_a_new_table(read):
    content = "epoch,loss\n0,1.0\nepoch,loss\n0,2.0\nepoch,loss,val_loss\n0,3.0,4.0\n"
    assert read("log.csv", content) == [
        (0.0, {"loss": 1.0}),
        (0.0, {"loss": 2.0}),
        (0.0, {"loss": 3.0, "val_loss": 4.0}),
    ]


def test_torn_rows_are_skipped_and_counted(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss,acc\n0,1.0,0.1\n1,0.9\n2,0.8,0.3\nxx,0.7,0.4\n4,0.6,0.5,\n5,0.5,0.6\n")
    (source,) = open_source(str(path))
    assert [row.step for row in source.rows()] == [0, 2, 4, 5]
    assert source.skipped_examples == ["line 3: 1,0.9", "line 5: xx,0.7,0.4"]


def test_a_table_without_metrics_or_rows_is_an_error(read):
    with pytest.raises(SourceError, match="no metric"):
        read("a.csv", "step,name\n1,x\n2,y\n")
    with pytest.raises(SourceError, match="no metric"):
        read("a.csv", "step,loss\n")


def test_content_decides_without_a_name(read):
    assert read("numbers.dat", "step,loss\n1,0.5\n2,0.25\n") == [(1.0, {"loss": 0.5}), (2.0, {"loss": 0.25})]


cells = st.one_of(st.floats(), st.none())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(["loss", "val/loss", "a, b", 'say "x"', "acc", "µ"]),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.data(),
)
def test_round_trip(names, data):
    rows = data.draw(
        st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), min_size=1, max_size=20)
    )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *names])
    for at, row in enumerate(rows):
        writer.writerow([at, *row])
    expected = [
        (float(at), {name: cell for name, cell in zip(names, row, strict=True) if cell is not None})
        for at, row in enumerate(rows)
    ]
    decoder = CsvLog(Skips())
    assert repr([(row.step, row.metrics) for row in decoder.feed(out.getvalue())]) == repr(expected)
