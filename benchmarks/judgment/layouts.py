"""How a run is logged: the same training under the habits of several trainers."""

from __future__ import annotations

import math
from typing import Any, Protocol

from judgment.record import Recorder


class Layout(Protocol):
    """Turns what the loop reports into rows."""

    metric: str
    mode: str

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None: ...
    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None: ...
    def finish(self, step: int) -> None: ...


class Plain:
    """Slashed keys; a training row per step, evaluations in rows of their own."""

    keys = ("train/loss", "grad_norm", "lr", "eval/loss", "eval/accuracy")

    def __init__(self, out: Recorder, use_accuracy: bool, steps_per_epoch: int, grads: bool = True) -> None:
        self.out, self.per_epoch, self.grads = out, steps_per_epoch, grads
        self.metric = self.keys[4] if use_accuracy else self.keys[3]
        self.mode = "max" if use_accuracy else "min"

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None:
        row: dict[str, Any] = {"step": step, self.keys[0]: loss, self.keys[2]: lr}
        if self.grads:
            row[self.keys[1]] = grad_norm
        self.out.log(**row)

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        row: dict[str, Any] = {"step": step, self.keys[3]: loss}
        if accuracy is not None:
            row[self.keys[4]] = accuracy
        self.out.log(**row)

    def finish(self, step: int) -> None:
        pass


class NanoGPT(Plain):
    """Iterations, no gradient norm, timing beside the loss."""

    keys = ("train/loss", "grad_norm", "lr", "val/loss", "val/acc")

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None:
        self.out.log(**{"iter": step, "train/loss": loss, "lr": lr, "time_ms": 12.0 + step % 7, "mfu": 0.31})

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        extra = {} if accuracy is None else {"val/acc": accuracy}
        self.out.log(**{"iter": step, "val/loss": loss, **extra})


class Lightning(Plain):
    """Step rows every fifth step, epoch rows with the epoch's mean; a NaN leaves an empty cell."""

    keys = ("train_loss_step", "grad_norm", "lr", "val_loss", "val_acc")

    def __init__(self, out: Recorder, use_accuracy: bool, steps_per_epoch: int, grads: bool = True) -> None:
        super().__init__(out, use_accuracy, steps_per_epoch, grads)
        self._sum, self._n = 0.0, 0

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None:
        self._sum, self._n = self._sum + loss, self._n + 1
        if step % 5 == 0:
            row: dict[str, Any] = {"step": step, "epoch": step // self.per_epoch, "train_loss_step": loss}
            if self.grads:
                row["grad_norm"] = grad_norm
            self.out.log(**row)

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        mean = self._sum / self._n if self._n else None
        self._sum, self._n = 0.0, 0
        row: dict[str, Any] = {"step": step, "epoch": step // self.per_epoch, "val_loss": loss}
        row.update({} if accuracy is None else {"val_acc": accuracy})
        row.update({} if mean is None else {"train_loss_epoch": mean})
        self.out.log(**row)


class HuggingFace(Plain):
    """Every tenth step; a NaN loss is shown as 0.0 (``logging_nan_inf_filter``); a summary row at the end."""

    keys = ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy")

    def __init__(self, out: Recorder, use_accuracy: bool, steps_per_epoch: int, grads: bool = True) -> None:
        super().__init__(out, use_accuracy, steps_per_epoch, grads)
        self._losses: list[float] = []
        self._all: list[float] = []

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None:
        kept = loss if math.isfinite(loss) else 0.0
        self._losses.append(kept)
        self._all.append(kept)
        if step % 10 == 0:
            mean = round(sum(self._losses) / len(self._losses), 4)
            epoch = round(step / self.per_epoch, 2)
            row = {"loss": mean, "grad_norm": grad_norm, "learning_rate": lr, "epoch": epoch, "step": step}
            self.out.log(**row)
            self._losses = []

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        row: dict[str, Any] = {"eval_loss": loss}
        row.update({} if accuracy is None else {"eval_accuracy": accuracy})
        row.update({"eval_runtime": 0.41, "eval_samples_per_second": 812.3})
        self.out.log(**row, epoch=round(step / self.per_epoch, 2), step=step)

    def finish(self, step: int) -> None:
        mean = sum(self._all) / max(1, len(self._all))
        row: dict[str, Any] = {"train_runtime": 61.2, "total_flos": 1.2e12, "train_loss": mean}
        self.out.log(**row, epoch=round(step / self.per_epoch, 2), step=step)


class Keras(Plain):
    """One row per epoch, everything in it."""

    keys = ("loss", "grad_norm", "learning_rate", "val_loss", "val_accuracy")

    def __init__(self, out: Recorder, use_accuracy: bool, steps_per_epoch: int, grads: bool = True) -> None:
        super().__init__(out, use_accuracy, steps_per_epoch, grads)
        self._sum, self._n, self._lr, self._epoch = 0.0, 0, 0.0, 0

    def train(self, step: int, loss: float, grad_norm: float, lr: float) -> None:
        self._sum, self._n, self._lr = self._sum + loss, self._n + 1, lr

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        if not self._n:
            return
        row: dict[str, Any] = {"epoch": self._epoch, "loss": self._sum / self._n, "val_loss": loss}
        row.update({} if accuracy is None else {"val_accuracy": accuracy})
        self.out.log(**row, learning_rate=self._lr)
        self._sum, self._n, self._epoch = 0.0, 0, self._epoch + 1


class RayTune(Keras):
    """One result per evaluation, as a trainable reports it."""

    keys = ("train_loss", "grad_norm", "lr", "eval_loss", "mean_accuracy")

    def evaluate(self, step: int, loss: float, accuracy: float | None) -> None:
        if not self._n:
            return
        self._epoch += 1
        row: dict[str, Any] = {"training_iteration": self._epoch, "train_loss": self._sum / self._n}
        row.update({"eval_loss": loss, "time_total_s": 1.7 * self._epoch})
        row.update({} if accuracy is None else {"mean_accuracy": accuracy})
        self.out.log(**row)
        self._sum, self._n = 0.0, 0


LAYOUTS: dict[str, type[Plain]] = {
    "plain": Plain,
    "nanogpt": NanoGPT,
    "lightning": Lightning,
    "hf": HuggingFace,
    "keras": Keras,
    "ray": RayTune,
}
