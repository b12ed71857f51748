"""Connectivity: what counts as "did not answer", and how long a source is tried before it is unreachable.

A lost connection is never a failure of a run. This is the one place that decides, by cause and status rather
than by exception type, what is a lost connection (tried again until a total deadline, then ``Unreachable``, a
WAIT) and what is an answer (a refused key, a missing file, a bad request: never tried again).

Users of a client library pass a classifier of their own, built from :func:`transient_status`.
"""

from __future__ import annotations

import email.utils
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

from gatekeeper.errors import Unreachable

__all__ = [
    "DEFAULT_POLICY",
    "Classifier",
    "Policy",
    "Transient",
    "causes",
    "classify_error",
    "classify_ssh",
    "retry_after_seconds",
    "transient_status",
    "try_until",
    "within",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Transient:
    """A connectivity failure: worth another try, after ``retry_after_s`` seconds if the server said so."""

    retry_after_s: float | None = None


Classifier = Callable[[BaseException], "Transient | None"]
"""Says what an exception is: a Transient failure, or (None) an answer that is raised as it is."""


@dataclass(frozen=True)
class Policy:
    """How long and how often a source is tried.

    Attributes:
        deadline_s: Seconds in all, waits included.
        first_wait_s: Upper bound of the first wait; each further bound is twice as long.
        longest_wait_s: Upper bound of any wait. The wait itself is drawn from 0 to its bound ("full jitter"),
            so that a fleet that lost its connection at once does not come back at once.

    """

    deadline_s: float = 60.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 10.0


DEFAULT_POLICY = Policy()


def transient_status(status: int) -> bool:
    """Say whether an HTTP status is worth another try: 408, 429 and 5xx but 501."""
    return status in (408, 429) or (500 <= status < 600 and status != 501)


def retry_after_seconds(value: str | None, *, now: datetime | None = None) -> float | None:
    """Return a Retry-After header, in seconds or as a date, as seconds from now; None where there is none."""
    if not value:
        return None
    text = value.strip()
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    try:
        when = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - (now or datetime.now(timezone.utc))).total_seconds())


def causes(error: BaseException) -> list[BaseException]:
    """Return an exception and what it was raised from, outermost first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain


def classify_error(error: BaseException) -> Transient | None:
    """Classify by HTTP status where a response is attached, else by cause (refused, reset, timed out)."""
    chain = causes(error)
    for link in chain:
        response = getattr(link, "response", None)
        status = (
            getattr(response, "status_code", None)
            or getattr(link, "status", None)
            or getattr(link, "code", None)
        )
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status < 600:
            if not transient_status(status):
                return None
            headers = getattr(response, "headers", None) or getattr(link, "headers", None) or {}
            return Transient(retry_after_seconds(headers.get("Retry-After")))
    import socket

    lost = (ConnectionError, TimeoutError, socket.gaierror, socket.timeout)
    return Transient() if any(isinstance(link, lost) for link in chain) else None


_SSH_ANSWERS = re.compile(
    r"permission denied|host key verification failed|host identification has changed|"
    r"too many authentication failures|no matching (?:host key|cipher|mac|key exchange)|"
    r"bad configuration option|bad owner or permissions|terminating, \d+ bad configuration|"
    r"no such identity.*\n.*permission denied|unsupported option|too long for unix domain socket|"
    r"hostname contains invalid characters",
    re.IGNORECASE,
)


def classify_ssh(stderr: str) -> Transient | None:
    """Classify what ssh printed when it exited with 255: an answer (None), or a lost connection.

    What is not known to be an answer is a lost connection: names that do not resolve, refused, reset and
    timed-out connections, a server that is starting. A name that never resolves costs the deadline.
    """
    return None if _SSH_ANSWERS.search(stderr) else Transient()


def within(seconds: float, operation: Callable[[], T]) -> T:
    """Return ``operation()``, or raise TimeoutError where it takes longer; it is then left to end by itself.

    For client calls that cannot be bounded otherwise. The thread is a daemon: it does not keep the process
    alive.
    """
    result: list[T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            result.append(operation())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=work, name="gatekeeper-bounded-call", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if failure:
        raise failure[0]
    if not result:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return result[0]


def try_until(
    operation: Callable[[float], T],
    *,
    what: str,
    classify: Classifier = classify_error,
    policy: Policy = DEFAULT_POLICY,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return ``operation(seconds_left)``, tried again on connectivity failures until the policy's deadline.

    The operation must bound itself by the seconds it is given (see :func:`within`).

    Raises:
        Unreachable: It did not answer within the deadline. The text names ``what`` and the last failure.
        Exception: Whatever the operation raised that is no connectivity failure, at once.

    """
    import tenacity

    started = time.monotonic()
    failures: list[BaseException] = []
    attempts = 0

    def left() -> float:
        return policy.deadline_s - (time.monotonic() - started)

    def once() -> T:
        nonlocal attempts
        attempts += 1
        try:
            return operation(max(0.1, left()))
        except Exception as error:
            failures[:] = [error]
            raise

    backoff = tenacity.wait_random_exponential(multiplier=policy.first_wait_s, max=policy.longest_wait_s)

    def wait(state: tenacity.RetryCallState) -> float:
        transient = classify(failures[0])
        named = transient.retry_after_s if transient is not None else None
        return backoff(state) if named is None else max(named, backoff(state))

    def pause(seconds: float) -> None:
        # A wait that ends after the deadline is not begun: the answer is the same, and it comes sooner.
        if seconds >= left():
            raise _OutOfTimeError
        sleep(seconds)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, Exception) and classify(error) is not None
        ),
        wait=wait,
        sleep=pause,
        reraise=True,
    )
    try:
        return retrying(once)
    except _OutOfTimeError:
        raise Unreachable(
            f"{what} did not answer within {policy.deadline_s:g} s ({attempts} "
            f"{'try' if attempts == 1 else 'tries'}; last: {_shown(failures[0])}); "
            "it is tried again at the next look"
        ) from failures[0]


class _OutOfTimeError(Exception):
    """The next wait would end after the deadline."""


def _shown(error: BaseException) -> str:
    """Return a failure as one short line without secrets and control characters."""
    from gatekeeper.redact import redact_text
    from gatekeeper.text import for_terminal, shorten

    text = str(error).strip()
    lines = text.splitlines()
    return shorten(for_terminal(redact_text(lines[-1] if lines else type(error).__name__)), 200)
