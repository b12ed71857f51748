"""Stable-Baselines3's evaluations.npz: the episodes of each evaluation as their mean and spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from gatekeeper.errors import SourceError
from gatekeeper.sources.base import Row, Skips, make_row

__all__ = ["npz_rows"]

_ARRAYS = ("timesteps", "results", "ep_lengths", "successes")


def npz_rows(name: str, file: BinaryIO, skips: Skips) -> Iterator[Row]:
    """Yield one row for each evaluation: step, mean and standard deviation of the return, mean length.

    Raises:
        SourceError: The archive is damaged or holds something else.

    """
    from zipfile import BadZipFile

    import numpy

    try:
        with numpy.load(file, allow_pickle=False) as archive:
            arrays = {
                key: archive[key]
                for key in ("timesteps", "results", "ep_lengths", "successes")
                if key in archive
            }
    except (OSError, ValueError, BadZipFile, EOFError, KeyError) as error:
        raise SourceError(
            f"{name} is no readable .npz archive ({error}); give the file that EvalCallback wrote"
        ) from None
    if "timesteps" not in arrays or "results" not in arrays:
        raise SourceError(f"{name} has no arrays 'timesteps' and 'results': it is not an evaluations.npz")
    named = (
        ("results", "eval_mean_reward", "mean"),
        ("results", "eval_std_reward", "std"),
        ("ep_lengths", "eval_mean_ep_length", "mean"),
        ("successes", "eval_success_rate", "mean"),
    )
    for index, step in enumerate(arrays["timesteps"]):
        metrics: dict[str, object] = {}
        for key, metric, statistic in named:
            if key in arrays and index < len(arrays[key]):
                episodes = numpy.asarray(arrays[key][index], dtype=float)
                metrics[metric] = float(getattr(episodes, statistic)()) if episodes.size else float("nan")
        if len(metrics) < 2:
            skips.add(f"evaluation {index + 1}", "no episodes")
            continue
        yield make_row(float(step), metrics)
