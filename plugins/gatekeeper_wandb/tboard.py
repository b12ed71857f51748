"""Rows that reach W&B by TensorBoard sync: the SDK uploads event files, so they never pass ``Run._log``.

The SDK patches the writers' ``EventFileWriter`` and calls ``Run._tensorboard_callback`` for each new one.
From then on every event written through Python (PyTorch's SummaryWriter, tensorboardX) is judged here as it
is written. TensorFlow 2 writes in C++: its rows cannot be seen before they are sent.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["patch"]

_MODULES = ("tensorboard.summary.writer.event_file_writer", "tensorboardX.writer")


def patch(run_class: Any, active: Callable[[], Any]) -> None:
    """Wrap ``Run._tensorboard_callback`` so that event writers are watched from then on."""
    original = getattr(run_class, "_tensorboard_callback", None)
    if original is None:
        return

    @functools.wraps(original)
    def _tensorboard_callback(self: Any, *args: Any, **kwargs: Any) -> Any:
        if active() is not None:
            _watch_writers(weakref.ref(self), active)
        return original(self, *args, **kwargs)

    run_class._tensorboard_callback = _tensorboard_callback


_synced: weakref.ref[Any] | None = None


def _watch_writers(run: weakref.ref[Any], active: Callable[[], Any]) -> None:
    global _synced  # noqa: PLW0603 - the SDK syncs one run's writers at a time
    _synced = run
    import sys

    for name in _MODULES:
        module = sys.modules.get(name)
        # The SDK keeps the class that it replaced by a subclass of its own.
        writer = getattr(module, "orig_EventFileWriter", None) or getattr(module, "EventFileWriter", None)
        if writer is not None and not getattr(writer, "_gatekeeper_patched", False):
            _patch_writer(writer, active)


def _patch_writer(writer: Any, active: Callable[[], Any]) -> None:
    original = writer.add_event

    @functools.wraps(original)
    def add_event(self: Any, event: Any, *args: Any, **kwargs: Any) -> Any:
        gating, run = active(), _synced() if _synced is not None else None
        metrics = _scalars(event)
        if gating is None or run is None or not metrics:
            return original(self, event, *args, **kwargs)

        def send() -> Any:
            sent = original(self, event, *args, **kwargs)
            watch = gating.watch(run)
            if watch is not None and watch.gate.verdict.stopped:
                self.flush()  # the row that ends the run must be in the file before the run is finished
            return sent

        return gating.row(run, event.step, metrics, send)

    writer.add_event = add_event
    writer._gatekeeper_patched = True


def _scalars(event: Any) -> dict[str, float]:
    """Return the scalars of an event; histograms, images and text have none."""
    metrics: dict[str, float] = {}
    try:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                metrics[value.tag] = value.simple_value
            elif value.HasField("tensor") and len(value.tensor.float_val) == 1:
                metrics[value.tag] = value.tensor.float_val[0]
    except (AttributeError, ValueError):
        return {}
    return metrics
