"""Trying again: backoff with jitter, the server's Retry-After, and a deadline that holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from gatekeeper_wandb.errors import Fault

__all__ = ["repeat"]

T = TypeVar("T")
#: An attempt with less time than this left is not begun.
_LEAST_S = 0.25


def repeat(attempt: Callable[[float], T], classify: Callable[[BaseException], Fault], deadline_s: float) -> T:
    """Return ``attempt(seconds left)``, tried again while its faults are retryable and time is left.

    Raises whatever the last attempt raised.
    """
    from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

    end = time.monotonic() + deadline_s
    backoff = wait_random_exponential(multiplier=0.5, max=10.0)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = classify(error).retry_after_s if error is not None else None
        return max(backoff(state), asked or 0.0)

    def stop(state: RetryCallState) -> bool:
        return time.monotonic() + state.upcoming_sleep + _LEAST_S > end

    retrying = Retrying(
        wait=wait,
        stop=stop,
        retry=retry_if_exception(lambda error: classify(error).retryable),
        reraise=True,
    )
    return retrying(lambda: attempt(end - time.monotonic()))
