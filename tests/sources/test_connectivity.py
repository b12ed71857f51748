import socket
import time
import urllib.error
from datetime import datetime, timezone

import pytest
from gatekeeper.connectivity import (
    Policy,
    Transient,
    classify_error,
    classify_ssh,
    retry_after_seconds,
    transient_status,
    try_until,
    within,
)
from gatekeeper.errors import SourceError, Unreachable


class Response:
    def __init__(self, status_code, headers=()):
        self.status_code, self.headers = status_code, dict(headers)


class HttpError(Exception):
    def __init__(self, status, headers=()):
        super().__init__(f"HTTP {status}")
        self.response = Response(status, headers)


@pytest.mark.parametrize(
    ("status", "again"),
    [(408, True), (429, True), (500, True), (502, True), (503, True), (504, True), (501, False), (400, False)]
    + [(status, False) for status in (401, 403, 404, 409, 410, 413, 422, 200)],
)
def test_which_statuses_are_tried_again(status, again):
    assert transient_status(status) is again
    assert (classify_error(HttpError(status)) is not None) is again
    error = urllib.error.HTTPError("http://x", status, "", {"Retry-After": "7"}, None)
    assert classify_error(error) == (Transient(7.0) if again else None)


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(), ConnectionResetError(), TimeoutError(), socket.gaierror(), BrokenPipeError()],
)
def test_lost_connections_are_known_by_their_cause(error):
    assert classify_error(error) == Transient()
    wrapped = RuntimeError("the client's own error")
    wrapped.__cause__ = error
    assert classify_error(wrapped) == Transient()


def test_other_errors_are_answers():
    assert classify_error(ValueError("bad path")) is None
    assert classify_error(SourceError("no such run")) is None


def test_retry_after():
    now = datetime(2024, 1, 1, tzinfo=timezone.utc)
    assert retry_after_seconds("12") == 12.0
    assert retry_after_seconds("Mon, 01 Jan 2024 00:00:30 GMT", now=now) == 30.0
    assert retry_after_seconds("Sun, 31 Dec 2023 00:00:00 GMT", now=now) == 0.0
    assert retry_after_seconds("soon") is None
    assert retry_after_seconds(None) is None


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("ssh: connect to host h port 22: Connection refused", True),
        ("ssh: connect to host h port 22: Connection timed out", True),
        ("ssh: connect to host h port 22: No route to host", True),
        ("ssh: Could not resolve hostname h: Name or service not known", True),
        ("kex_exchange_identification: Connection closed by remote host", True),
        ("client_loop: send disconnect: Broken pipe", True),
        ("Timeout, server h not responding.", True),
        ("root@h: Permission denied (publickey).", False),
        ("Host key verification failed.", False),
        ("Received disconnect from ::1 port 22:2: Too many authentication failures", False),
        ("Unable to negotiate with h: no matching host key type found", False),
        ("/root/.ssh/config: terminating, 1 bad configuration options", False),
    ],
)
def test_what_ssh_says(said, lost):
    assert (classify_ssh(said) is not None) is lost


class Flaky:
    """An operation that fails with each of the errors in turn, then answers."""

    def __init__(self, *errors):
        self.errors, self.left = list(errors), []

    def __call__(self, seconds):
        self.left.append(seconds)
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def test_lost_connections_are_tried_again_until_one_answers():
    waits = []
    operation = Flaky(ConnectionRefusedError(), HttpError(503), TimeoutError())
    assert try_until(operation, what="the server", sleep=waits.append) == "answer"
    assert len(waits) == 3
    assert all(0 <= wait <= 10 for wait in waits)
    assert all(seconds <= 60 for seconds in operation.left)


def test_answers_are_raised_at_once():
    operation = Flaky(HttpError(403), ConnectionRefusedError())
    with pytest.raises(HttpError):
        try_until(operation, what="the server", sleep=pytest.fail)
    assert len(operation.left) == 1


def test_retry_after_is_honoured():
    waits = []
    try_until(Flaky(HttpError(429, {"Retry-After": "20"})), what="the server", sleep=waits.append)
    assert waits[0] >= 20


def test_a_retry_after_beyond_the_deadline_is_not_waited_for():
    with pytest.raises(Unreachable, match=r"the server did not answer within 60 s \(1 try; last: HTTP 429\)"):
        try_until(Flaky(HttpError(429, {"Retry-After": "3600"})), what="the server", sleep=pytest.fail)


def test_the_deadline_is_in_all():
    operation = Flaky(*(ConnectionRefusedError("refused") for _ in range(10_000)))
    policy = Policy(deadline_s=0.5, first_wait_s=0.02, longest_wait_s=0.1)
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"within 0.5 s .* tries; last: refused"):
        try_until(operation, what="the server", policy=policy)
    assert 2 <= len(operation.left) < 10_000
    assert operation.left == sorted(operation.left, reverse=True)
    assert time.monotonic() - began < 30  # far from the deadline: a hang, not a slow machine


def test_secrets_do_not_reach_the_message():
    error = ConnectionRefusedError("https://user:hunter2secret@host/ refused \x1b[31m")
    with pytest.raises(Unreachable) as caught:
        try_until(Flaky(*[error] * 100), what="the server", policy=Policy(deadline_s=0.0))
    assert "hunter2secret" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_call_that_hangs_is_left():
    with pytest.raises(TimeoutError):
        within(0.05, lambda: time.sleep(2))
    assert within(5, lambda: 7) == 7
    with pytest.raises(KeyError):
        within(5, lambda: {}["x"])
