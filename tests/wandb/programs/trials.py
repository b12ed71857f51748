"""What the tests' trials do, by the sweep's parameter ``kind``: sound, broken, or broken in hostile code."""

from __future__ import annotations

import threading
import time
from typing import Any

import wandb

ROWS = 60
BAD_ROW = (
    6  # the row (from 0) at which a trial of kind "nan…" logs NaN, and one of kind "diverges…" runs away
)


def loss_of(kind: str, row: int) -> float:
    if kind.startswith("nan") and row >= BAD_ROW:
        return float("nan")
    if kind.startswith("diverges") and row >= BAD_ROW:
        return float(10 ** (row - BAD_ROW))
    return 1 / (row + 1) + 0.1


def train(run: Any) -> None:
    """Train the kind of trial that the run's configuration asks for."""
    kind = run.config["kind"]
    special = globals().get(kind.replace("-", "_"))
    if special is not None:
        special(run)
        return
    for row in range(ROWS):
        run.log({"loss": loss_of(kind, row), "nested": {"row": row}})


def nan_swallowed(run: Any) -> None:
    """Catches Exception around the log call, logs on in a finally block, and touches the run in every way."""
    for row in range(ROWS):
        try:
            run.log({"loss": loss_of("nan", row)})
        except Exception:
            pass
        finally:
            if row == BAD_ROW:
                run.log({"loss": 0.5})
                wandb.log({"loss": 0.4})
                run.summary["late"] = 1
                run.config["late"] = 1
                run.tags = ("late",)
                run.define_metric("late")
                run.finish(exit_code=3)


def nan_with_echo(run: Any) -> None:
    """Answers the stop with an error of its own."""
    try:
        for row in range(ROWS):
            run.log({"loss": loss_of("nan", row)})
    finally:
        raise RuntimeError("cleaning up failed as well")


def nan_bare_except(run: Any) -> None:
    """Swallows whatever comes, the stop included, and goes on training."""
    for row in range(10**9):
        try:
            run.log({"loss": loss_of("nan", row)})
        except:  # noqa: E722
            if row > ROWS:
                raise


def nan_in_thread(run: Any) -> None:
    """Logs from a thread while the trial's own thread computes."""
    rows = iter(range(ROWS))

    def log() -> None:
        for row in rows:
            run.log({"loss": loss_of("nan", row)})

    logger = threading.Thread(target=log)
    logger.start()
    while True:  # never looks at the logger: only the gate can end this
        sum(range(1000))


def nan_in_thread_joined(run: Any) -> None:
    """Logs from a thread while the main thread waits in a call that no exception interrupts."""
    done = threading.Event()

    def log() -> None:
        for row in range(ROWS):
            run.log({"loss": loss_of("nan", row)})
        done.set()

    threading.Thread(target=log).start()
    done.wait()


def nan_partial(run: Any) -> None:
    """Puts a row together from parts; the bad part is never committed."""
    run.define_metric("train/step")
    run.define_metric("*", step_metric="train/step")
    for row in range(ROWS):
        run.log({"train/step": row * 10, "lr": 0.1}, commit=False)
        run.log({"train": {"loss": loss_of("nan", row)}}, commit=False)
        run.log({"acc": 0.5})


def nan_explicit_step(run: Any) -> None:
    for row in range(ROWS):
        run.log({"lr": 0.1}, step=row * 5)
        run.log({"loss": loss_of("nan", row)}, step=row * 5)


def raises(run: Any) -> None:
    run.log({"loss": 1.0})
    raise RuntimeError(f"CUDA error: device-side assert at 0x{id(run):x}")


def raises_on_nan(run: Any) -> None:
    """What people do without a gate."""
    for row in range(ROWS):
        loss = loss_of("nan", row)
        run.log({"loss": loss})
        if loss != loss:
            raise RuntimeError("loss is NaN")


def sound_for_long(run: Any) -> None:
    """Trains on until someone else ends it."""
    for row in range(10**6):
        run.log({"loss": loss_of("good", row)})
        time.sleep(0.02)
