# ruff: noqa: E501 - log lines and rows stand as they are printed
import pytest
from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Skips
from gatekeeper.sources.textlog import TextLog


@pytest.fixture
def text(plain):
    def decode(content):
        decoder = TextLog(Skips())
        return plain([*decoder.feed(content), *decoder.finish()])

    return decode


def test_nanogpt_estimates_and_iterations(text):
    content = (
        "step 0: train loss 12.52 BPC, val loss 12.53 BPC\niter 0: loss 12.5, time 242.93ms, mfu -100.00%\n"
    )
    content += "saving checkpoint to out\niter 10: loss nan, time 263.86ms, mfu 9.31%\n"
    assert text(content) == [
        (0.0, {"train_loss_est": 12.52, "val_loss": 12.53}),
        (0.0, {"loss": 12.5, "time_ms": 242.93, "mfu": -100.0}),
        (10.0, {"loss": "NaN", "time_ms": 263.86, "mfu": 9.31}),
    ]


def test_modded_nanogpt(text):
    content = "val_loader = DistributedDataLoader(args.input_val_bin, ddp_rank)\n"
    content += "step:0/1480 val_loss:10.8258 train_time:0ms step_avg:nanms\nstep:1/1480 train_time:28912ms step_avg:nanms\n"
    assert text(content) == [
        (0.0, {"val_loss": 10.8258, "train_time": 0.0, "step_avg": "NaN"}),
        (1.0, {"train_time": 28912.0, "step_avg": "NaN"}),
    ]


def test_hf_trainer_prints(text):
    content = """***** Running training *****
  Total optimization steps = 500
  0%|          | 0/500 [00:00<?, ?it/s]
{'loss': 1.25, 'grad_norm': 2.5, 'learning_rate': 4.9e-05, 'epoch': 0.1}
{'loss': '0.0', 'grad_norm': 'nan', 'epoch': '0.2'}
{'loss': tensor(0.5, device='cuda:0'), 'grad_norm': nan, 'epoch': 0.5}
"""
    assert text(content) == [
        (0.1, {"loss": 1.25, "grad_norm": 2.5, "learning_rate": 4.9e-05}),
        (0.2, {"loss": 0.0, "grad_norm": "NaN"}),
        (0.5, {"loss": 0.5, "grad_norm": "NaN"}),
    ]


@pytest.mark.parametrize(
    ("line", "step", "metrics"),
    [
        ("step=7 loss=0.5 acc=0.9", 7, {"loss": 0.5, "acc": 0.9}),
        ("Epoch 3/10, train_loss: 0.5, val_loss: 0.6, val_acc: 71.5%", 3, {"train_loss": 0.5, "val_loss": 0.6, "val_acc": 71.5}),
        ("2024-01-01 12:00:00,123 - INFO - trainer - step 5 | loss 0.3 | lr 1.0e-3", 5, {"loss": 0.3, "lr": 0.001}),
        ("(train_fn pid=1234) step=8 loss=inf", 8, {"loss": float("inf")}),
        ('INFO {"step": 5, "loss": NaN}', 5, {"loss": "NaN"}),
        ("loss = 0.5, step = 100 (1.2 sec)", 100, {"loss": 0.5}),
        ("Iteration: 1,500 loss: 1,234.5", 1500, {"loss": 1234.5}),
        (
            "Epoch: [0][  1/5005]\tTime  6.5 ( 6.5)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   0.39 (  0.39)",
            1,
            {"time": 6.5, "loss": 6.9, "Acc@1": 0.39},
        ),
        (
            " iteration     6900/  115311 | learning rate: 6.000E-05 | lm loss: 6.36E+00 | grad norm: 95313.5 | "
            "number of nan iterations: 0 |",
            6900,
            {"learning_rate": 6e-05, "lm_loss": 6.36, "grad_norm": 95313.5, "number_of_nan_iterations": 0.0},
        ),
        ("Epoch 1 train loss 0.5, acc 0.8, val loss 0.6, acc 0.7", 1, {"train_loss": 0.5, "train_acc": 0.8, "val_loss": 0.6, "val_acc": 0.7}),
        ("Test set: Average loss: 0.0487, Accuracy: 9832/10000 (98%)", 0, {"test_loss": 0.0487, "test_acc": 0.9832}),
        ('-- "test accuracy 0.719', 0, {"test_acc": 0.719}),
    ],
)  # fmt: skip
def test_one_line(text, line, step, metrics):
    assert text(line + "\n") == [(step, metrics)]


@pytest.mark.parametrize(
    "line",
    [
        "learning_rate = 0.001",
        "batch_size: 64",
        "loss_weight: 0.5",
        "train_loss = 0.0  # accumulated below",
        "    best_loss = 1000.0",
        "Epoch 2: val_loss improved from inf to 0.40, saving model to x",
        "step 5 took 3.2 seconds",
        "number of parameters: 123.59M",
        "tokens per iteration will be: 491,520",
        "listening on 127.0.0.1:8080",
        "CUDA error: device 3",
        "x" * 20_000 + " loss: 1",
        "|" * 3000,
        "a " * 4000,
    ],
)
def test_talk_settings_and_code_are_no_rows(text, line):
    assert text(line + "\n") == []


def test_steps_go_on_where_a_counter_starts_again_with_each_epoch(text):
    content = "Epoch [1/5], Step [100/600], Loss: 0.35\nEpoch [1/5], Step [600/600], Loss: 0.25\n"
    content += "Epoch [2/5], Step [100/600], Loss: 0.15\nEpoch 2: val_loss: 0.3\n"
    assert [step for step, _ in text(content)] == [100, 600, 700, 700]
    assert [
        step for step, _ in text("[1,  2000] loss: 2.1\n[1,  4000] loss: 1.9\n[2,  2000] loss: 1.5\n")
    ] == [2000, 4000, 6000]


def test_lines_under_an_epoch_header_have_its_epoch_and_their_phase(text):
    content = "Epoch 0/24\n----------\ntrain Loss: 0.66 Acc: 0.65\nval Loss: 0.21 Acc: 0.92\n"
    assert text(content) == [
        (0, {"train_loss": 0.66, "train_acc": 0.65}),
        (0, {"val_loss": 0.21, "val_acc": 0.92}),
    ]


def test_lines_without_any_step_are_numbered(text):
    assert text("test accuracy 0.7\n epoch 7\ntest accuracy 0.8\n") == [
        (0, {"test_acc": 0.7}),
        (1, {"test_acc": 0.8}),
    ]


BAR = "[==============================]"


def test_keras_bar_redrawn_by_backspaces_and_carriage_returns(text):
    content = (
        "Epoch 1/2\n"
        + "\x08" * 40
        + f"\r  1/469 [....] - ETA: 1:00 - loss: 2.3\r469/469 {BAR} - ETA: 0s - loss: 0.5"
        f"\r469/469 {BAR} - 5s 10ms/step - loss: 0.5 - accuracy: 0.9\r469/469 {BAR} - 5s 10ms/step - loss: 0.5 "
        f"- accuracy: 0.9 - val_loss: 0.4\nEpoch 2/2\n469/469 {BAR} - 5s 10ms/step - loss: 0.3 - val_loss: 0.35\n"
        f"313/313 {BAR} - 1s 2ms/step - loss: 0.08 - accuracy: 0.97\n313/313 {BAR} - 1s 2ms/step\n"
    )
    assert text(content) == [
        (1, {"loss": 0.5, "accuracy": 0.9, "val_loss": 0.4}),
        (2, {"loss": 0.3, "val_loss": 0.35}),
        (2, {"eval_loss": 0.08, "eval_accuracy": 0.97}),
    ]


def test_an_evaluation_as_long_as_an_epoch_is_told_by_what_it_lacks(text):
    content = f"Epoch 1/1\n9/9 {BAR} - 1s - loss: 0.5 - val_loss: 0.4\n9/9 {BAR} - 1s - loss: 0.6\n"
    assert text(content) == [(1, {"loss": 0.5, "val_loss": 0.4}), (1, {"eval_loss": 0.6})]


def test_keras_shows_nan_in_the_middle_of_an_epoch_at_once(text):
    content = f"Epoch 1/1\n  1/9 [>...] - ETA: 1s - loss: 2.0\r  2/9 [>...] - ETA: 1s - loss: nan\r  3/9 [>..] - ETA: 1s - loss: nan\r9/9 {BAR} - 1s - loss: nan\n"
    assert text(content) == [(1, {"loss": "NaN"}), (1, {"loss": "NaN"})]


def test_keras_3_bars_and_quiet_modes(text):
    bar = "\x1b[1m938/938\x1b[0m \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m2s\x1b[0m 2ms/step"
    content = (
        f"Epoch 1/3\n\x1b[1m  1/938\x1b[0m \x1b[37m━━━━━━━━\x1b[0m \x1b[1m4:21\x1b[0m 279ms/step - loss: 2.3\r"
        f"{bar} - accuracy: 0.86 - loss: 0.45 - val_loss: 0.15\nEpoch 2/3\n938/938 - 2s - 2ms/step - accuracy: 0.9 - loss: 0.2\n"
        "Epoch 3/3\n - 1s - loss: 0.1 - acc: 0.79\n"
    )
    assert text(content) == [
        (1, {"accuracy": 0.86, "loss": 0.45, "val_loss": 0.15}),
        (2, {"accuracy": 0.9, "loss": 0.2}),
        (3, {"loss": 0.1, "acc": 0.79}),
    ]


def test_tqdm_refreshes_are_rows_numbered_across_bars(text):
    content = (
        "train:   0%|          | 0/100 [00:00<?, ?it/s]\rtrain:   1%|          | 1/100 [00:00<00:10, 10.0it/s, loss=0.5]"
        "\rtrain: 100%|██████████| 100/100 [00:10<00:00, 10.0it/s, loss=0.4]"
        "\rtrain: 100%|██████████| 100/100 [00:10<00:00, 10.0it/s, loss=0.4]\n"
        "Epoch 1:  10%|█         | 10/100 [00:01<00:09, 10.00it/s, v_num=0, loss=nan]\nval acc: 0.5\n"
    )
    assert text(content) == [
        (1.0, {"loss": 0.5}),
        (100.0, {"loss": 0.4}),
        (110.0, {"loss": "NaN"}),
        (110.0, {"val_acc": 0.5}),
    ]


def test_tables_of_stable_baselines3(text):
    content = """-----------------------------
| rollout/        |          |
|    ep_rew_mean  | 22.3     |
| time/           |          |
|    total_timesteps | 2048  |
-----------------------------
-----------------------------
| rollout/        |          |
|    ep_rew_mean  | 26.3     |
| time/           |          |
|    total_timesteps | 4096  |
| train/          |          |
|    loss         | nan      |
-----------------------------
"""
    assert text(content) == [
        (2048.0, {"rollout/ep_rew_mean": 22.3}),
        (4096.0, {"rollout/ep_rew_mean": 26.3, "train/loss": "NaN"}),
    ]


def test_a_text_file_without_metrics_is_an_error(read):
    with pytest.raises(SourceError, match=r"train\.log holds no metric"):
        read("train.log", "Hello\nEpoch 1\nsaving\n")


def test_text_is_told_from_other_kinds_by_its_content(read):
    content = "Train on 15000 samples, validate on 10000 samples\nEpoch 1/1\n"
    content += f"15000/15000 {BAR} - 1s - loss: 0.5103 - acc: 0.7911"
    assert read("out", content) == [(1, {"loss": 0.5103, "acc": 0.7911})]
