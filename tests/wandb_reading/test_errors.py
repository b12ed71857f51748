"""Classification of what other SDKs raise than the installed one, which the fault matrix exercises."""

from __future__ import annotations

import requests
from gatekeeper.errors import SourceError, Unreachable
from wandb.errors import AuthenticationError, CommError, UsageError
from wandb.sdk.lib.service.service_connection import WandbApiFailedError

from gatekeeper_wandb.errors import Cause, classify, error_for, transient


def http_error(status: int, **headers: str) -> CommError:
    """What SDKs raise that talk HTTP themselves (until 0.2x): a requests error inside a CommError."""
    response = requests.Response()
    response.status_code = status
    response.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    return CommError(f"HTTP {status}", requests.HTTPError(response=response))


def test_by_status_whatever_the_type() -> None:
    for status in (408, 429, 500, 502, 503, 504):
        assert classify(http_error(status)).retryable, status
    for status in (400, 401, 403, 404, 409, 410, 413, 422, 501):
        assert not classify(http_error(status)).unknown, status
    assert classify(http_error(401)).cause is Cause.CREDENTIALS
    assert classify(http_error(403)).cause is Cause.PERMISSION
    assert classify(http_error(404)).cause is Cause.MISSING


def test_retry_after_in_seconds_and_as_a_date() -> None:
    asked = transient(http_error(429, Retry_After="7"))
    assert asked is not None
    assert asked.retry_after_s == 7
    asked = transient(http_error(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"))
    assert asked is not None
    assert asked.retry_after_s == 0
    assert transient(http_error(404, Retry_After="7")) is None


def test_an_authentication_error_without_an_answer_is_a_lost_connection() -> None:
    error = AuthenticationError("Failed to verify credentials with https://api.wandb.ai")
    error.__cause__ = WandbApiFailedError("dial tcp: lookup api.wandb.ai: no such host")
    assert classify(error).cause is Cause.CONNECTION
    assert (
        classify(UsageError("No API key configured. Use `wandb login` to log in.")).cause is Cause.CREDENTIALS
    )


def test_graphql_errors_are_told_apart_by_their_text() -> None:
    for text, cause in {
        "input: permission denied": Cause.PERMISSION,
        "input: project not found": Cause.MISSING,
        "input:3: Cannot query field": Cause.ANSWER,
    }.items():
        assert classify(CommError(text)).cause is cause
        assert transient(CommError(text)) is None


def test_requests_exceptions_and_the_operating_system_s() -> None:
    for error in (
        requests.ConnectionError("refused"),
        requests.Timeout("slow"),
        ConnectionResetError("reset"),
        TimeoutError("late"),
        OSError("network is unreachable"),
    ):
        assert classify(error).retryable, error
        assert classify(CommError(str(error), error)).retryable, error


def test_messages_hold_no_secrets_and_one_line() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    error = CommError(f"POST https://me:{key}@host/graphql?api_key={key}\nwhile retrying: \x1b[31mHTTP 500")
    fault = classify(error)
    assert key not in fault.message
    for cause in (fault, classify(http_error(401))):
        text = str(error_for(cause, "ent/proj/r1", f"https://me:{key}@host", 60))
        assert key not in text
        assert "\n" not in text
        assert "\x1b" not in text


def test_what_is_unknown_is_a_wait_and_what_is_answered_an_error() -> None:
    assert isinstance(error_for(classify(http_error(503)), "e/p/r", "https://w", 60), Unreachable)
    assert isinstance(error_for(classify(KeyError("state")), "e/p/r", "https://w", 60), Unreachable)
    assert isinstance(error_for(classify(http_error(403)), "e/p/r", "https://w", 60), SourceError)
