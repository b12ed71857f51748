"""What went wrong between us and a W&B server: decided by cause and status, since the SDK's types mislead.

`AuthenticationError` may mean "no network", `CommError` anything at all, and `WandbApiFailedError` is no W&B
`Error`. The SDK is not imported: names of classes and attributes of what it raised are enough.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gatekeeper.connectivity import Transient, retry_after_seconds, transient_status
from gatekeeper.errors import GatekeeperError, SourceError, Unreachable
from gatekeeper.redact import redact_text
from gatekeeper.text import for_terminal, shorten

__all__ = ["Cause", "Fault", "UnusableAnswer", "classify", "error_for", "transient"]


class Cause(Enum):
    """Kinds of faults, each with its own remedy."""

    CONNECTION = "connection"  # try again; after the deadline the run is unreachable, which is a WAIT
    ANSWER = "answer"  # an answer that says nothing of the run: unknown, a WAIT, asked again at the next look
    CREDENTIALS = "credentials"
    PERMISSION = "permission"
    MISSING = "missing"
    REQUEST = "request"  # the server, or the SDK, refuses what was asked for


class UnusableAnswer(Exception):
    """An answer that contradicts itself or has the wrong shape."""


@dataclass(frozen=True)
class Fault:
    """A classified error.

    Attributes:
        cause: Its kind.
        status: The HTTP status, where there was one.
        retry_after_s: Seconds the server asked to wait, where the SDK lets that through.
        restart: The SDK's own service process is gone; another attempt needs a new one.
        message: One line for people, without secrets.

    """

    cause: Cause
    status: int | None = None
    retry_after_s: float | None = None
    restart: bool = False
    message: str = ""

    @property
    def retryable(self) -> bool:
        """Whether trying again within the deadline makes sense."""
        return self.cause is Cause.CONNECTION

    @property
    def unknown(self) -> bool:
        """Whether the fault says nothing about the run: a WAIT and never an error of the user's."""
        return self.cause in (Cause.CONNECTION, Cause.ANSWER)


_STATUS_IN_TEXT = re.compile(r"\bHTTP (\d{3})\b|\b(\d{3}) (?:Client|Server) Error\b")
_RETRY_AFTER = re.compile(r"retry[- ]after['\"]?\s*[:=]?\s*['\"]?(\d+(?:\.\d+)?)", re.IGNORECASE)
_NEVER_ANSWERED = (
    "giving up after",
    "service process is busy",
    "service process is not running",
    "connection refused",
    "connection reset",
    "unexpected eof",
    "no such host",
    "i/o timeout",
    "deadline exceeded",
    "timed out",
    "tls handshake",
    "network is unreachable",
)
_BY_STATUS = {401: Cause.CREDENTIALS, 403: Cause.PERMISSION, 404: Cause.MISSING}
_DENIED = ("permission denied", "access denied", "forbidden", "not authorized", "unauthorized", "not allowed")
_ABSENT = ("not found", "could not find", "does not exist", "no such run", "no such project")
_NO_KEY = ("api key", "wandb login", "log in", "credential")
_CONNECTION_TYPES = frozenset(
    {
        "TimeoutError",
        "ConnectTimeout",
        "ReadTimeout",
        "Timeout",
        "TransportServerError",
        "WandbAttachFailedError",
    }
)
_SERVICE_GONE = frozenset({"MailboxClosedError", "HandleAbandonedError"})
_SHAPE_ERRORS = (TypeError, KeyError, AttributeError, IndexError, AssertionError, UnusableAnswer)


def classify(error: BaseException) -> Fault:
    """Return what an exception of the SDK (or of a bounded call) means. Never raises."""
    chain = list(_chain(error))
    text = " ".join(str(link) for link in chain)
    lower = text.lower()
    status = _status(chain, text)
    message = _line(error)
    if status is not None and transient_status(status):
        return Fault(Cause.CONNECTION, status, _retry_after(chain, text), message=message)
    if status is not None and status >= 400:
        return Fault(_BY_STATUS.get(status, Cause.REQUEST), status, message=message)
    # The SDK talks to its service process over a socket of its own; a lost server comes as text from there.
    gone = "service process is not running" in lower or any(
        isinstance(link, ConnectionError) or type(link).__name__ in _SERVICE_GONE for link in chain
    )
    if gone:
        return Fault(Cause.CONNECTION, restart=True, message=message)
    return Fault(_cause(chain, lower), status, message=message)


def transient(error: BaseException) -> Transient | None:
    """Return the same for `gatekeeper.connectivity`: whether another try is worth it."""
    fault = classify(error)
    return Transient(fault.retry_after_s) if fault.retryable else None


def _cause(chain: list[BaseException], lower: str) -> Cause:
    """Return the cause of an error that carries no telling HTTP status."""
    names = {kind.__name__ for link in chain for kind in type(link).__mro__}
    if "RunNotFoundError" in names:
        return Cause.MISSING
    if "input:" in lower:  # a GraphQL error: the server answered
        if any(word in lower for word in _DENIED):
            return Cause.PERMISSION
        return Cause.MISSING if any(word in lower for word in _ABSENT) else Cause.ANSWER
    if names & _CONNECTION_TYPES or any(word in lower for word in _NEVER_ANSWERED):
        return Cause.CONNECTION
    if any(isinstance(link, _SHAPE_ERRORS) or "JSONDecodeError" in type(link).__name__ for link in chain):
        return Cause.ANSWER
    if "UsageError" in names:
        return Cause.CREDENTIALS if any(word in lower for word in _NO_KEY) else Cause.REQUEST
    if any(_has_response(link) for link in chain):
        return Cause.CONNECTION  # the SDK's own "no status": the exchange broke off
    if "AuthenticationError" in names:
        # A key of the wrong form is told before anything is sent; else nobody answered.
        return Cause.CREDENTIALS if "api key" in lower else Cause.CONNECTION
    if any(isinstance(link, OSError) for link in chain):
        return Cause.CONNECTION
    if any(isinstance(link, ValueError) for link in chain):
        return Cause.MISSING if any(word in lower for word in _ABSENT) else Cause.REQUEST
    return Cause.CONNECTION if "CommError" in names or "WandbApiFailedError" in names else Cause.ANSWER


def error_for(fault: Fault, what: str, server: str, deadline_s: float) -> GatekeeperError:
    """Return the error that ends a look at ``what`` (a run or project path) on ``server``."""
    name, host = shorten(for_terminal(what), 200), for_terminal(redact_text(server))
    if fault.cause is Cause.CONNECTION:
        return Unreachable(f"{name}: no usable answer from {host} within {deadline_s:g} s ({fault.message})")
    if fault.cause is Cause.ANSWER:
        return Unreachable(f"{name}: {host} gave an answer that says nothing of the run ({fault.message})")
    if fault.cause is Cause.CREDENTIALS:
        remedy = f"{host} does not accept this machine's credentials; run `wandb login` or set WANDB_API_KEY"
    elif fault.cause is Cause.PERMISSION:
        remedy = "no permission; ask for access to the project, or use the API key of an account that has it"
    elif fault.cause is Cause.MISSING:
        remedy = (
            f"not found on {host}; check entity, project and run id (the id in the run's URL, not its name)"
        )
    else:
        remedy = f"{host} refuses the request; check the spec and the server address (WANDB_BASE_URL)"
    return SourceError(f"{name}: {remedy} ({fault.message})")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it wraps; the SDK keeps the original in ``exc`` or as the cause."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting and len(seen) < 10:
        link = waiting.pop(0)
        if isinstance(link, BaseException) and id(link) not in seen:
            seen.add(id(link))
            yield link
            waiting += [getattr(link, "exc", None), link.__cause__]


def _has_response(link: BaseException) -> bool:
    return getattr(link, "response", None) is not None


def _status(chain: list[BaseException], text: str) -> int | None:
    for link in chain:
        response = getattr(link, "response", None)
        for name in ("http_status", "status_code"):
            status = getattr(response, name, None)
            if isinstance(status, int) and status >= 100:
                return status
    found = _STATUS_IN_TEXT.search(text)
    return int(next(group for group in found.groups() if group)) if found else None


def _retry_after(chain: list[BaseException], text: str) -> float | None:
    for link in chain:
        headers: Any = getattr(getattr(link, "response", None), "headers", None)
        value = headers.get("Retry-After") if hasattr(headers, "get") else None
        if isinstance(value, str):
            return retry_after_seconds(value)
    found = _RETRY_AFTER.search(text)
    return float(found.group(1)) if found else None


def _line(error: BaseException) -> str:
    """Return an error as one short printable line; the SDK's repeat themselves and hold URLs."""
    text = str(error).split("\nwhile retrying:")[0] if "giving up" not in str(error) else str(error)
    return shorten(for_terminal(redact_text(text)), 240) or type(error).__name__
