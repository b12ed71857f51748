"""Calls of the W&B SDK that end: bounded in time whatever the SDK does, repeated where that makes sense.

The SDK repeats requests by itself for minutes to days, and no argument bounds all of its calls. So its own retries are
cut down by the settings that it takes from the environment, and each call runs in a thread that is left behind when the
deadline is over. The deadline is one of silence: every answer starts it anew, so that a long history can be read.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gatekeeper.errors import GatekeeperError, MissingExtra

from gatekeeper_wandb.errors import NoAnswer, UnusableAnswer, classify, error_for
from gatekeeper_wandb.policy import repeat
from gatekeeper_wandb.specs import WandbSpec

__all__ = ["Client", "bound_sdk_retries", "bounded"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

#: Calls left behind that may still be running; beyond this no new one is started.
MAX_ABANDONED = 8
_abandoned: list[threading.Thread] = []
_HOSTED = frozenset(
    {"wandb.ai", "api.wandb.ai", "www.wandb.ai", "forge.coreweave.com", "api.forge.coreweave.com"}
)


def bound_sdk_retries(deadline_s: float) -> None:
    """Cut down the SDK's own retries, and keep it from asking for a key on the terminal.

    What the user has set stays. Where wandb is already imported the process is someone else's training, whose uploads
    must keep their long patience: nothing is set, and the bound is that of `bounded` alone.
    """
    if "wandb" in sys.modules:
        return
    for name, value in {
        "WANDB__GRAPHQL_RETRY_MAX": "1",  # 0 is ignored
        "WANDB__GRAPHQL_RETRY_WAIT_MIN_SECONDS": "1",
        "WANDB__GRAPHQL_RETRY_WAIT_MAX_SECONDS": "2",
        "WANDB_HTTP_TIMEOUT": str(_http_timeout(deadline_s)),
        "WANDB_SILENT": "true",
    }.items():
        os.environ.setdefault(name, value)


def _http_timeout(deadline_s: float) -> int:
    """Return the seconds for one request: a third of the deadline, so that a hanging one can be repeated."""
    chosen = os.environ.get("WANDB_HTTP_TIMEOUT", "")
    return int(chosen) if chosen.isdigit() and int(chosen) > 0 else max(3, min(20, int(deadline_s / 3)))


def bounded(call: Callable[[], T], seconds: float) -> T:
    """Return what ``call`` returns, or raise what it raises.

    Raises:
        NoAnswer: It did not return within ``seconds``. It is left running in a daemon thread, its outcome ignored.

    """
    _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    if len(_abandoned) >= MAX_ABANDONED:
        raise NoAnswer(f"{len(_abandoned)} earlier calls of the W&B SDK still hang")
    outcome: list[tuple[bool, Any]] = []

    def work() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # noqa: BLE001 - carried over to the caller's thread
            outcome.append((False, error))

    thread = threading.Thread(target=work, name="gatekeeper-wandb", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if not outcome:
        _abandoned.append(thread)
        raise NoAnswer(f"timed out after {seconds:.1f} s")
    good, value = outcome[0]
    if not good:
        raise value
    result: T = value
    return result


class Client:
    """A session with the server that a spec names, rebuilt after each fault.

    Nothing is sent before the first `ask`.
    """

    def __init__(self, spec: WandbSpec, deadline_s: float = 60.0) -> None:
        self.spec = spec
        self.deadline_s = deadline_s
        self._api: Any = None

    @property
    def server(self) -> str:
        """The server as people know it: the URL's, else the configured one."""
        if self.spec.web_url:
            return self.spec.web_url
        base_url = os.environ.get("WANDB_BASE_URL") or ""
        wandb = sys.modules.get("wandb")
        if not base_url and wandb is not None:
            try:
                base_url = str(wandb.setup().settings.base_url)
            except Exception:  # noqa: BLE001 - only a name for a message
                base_url = ""
        return base_url.rstrip("/") or "the W&B server"

    def ask(self, call: Callable[[Any], T], deadline_s: float | None = None) -> T:
        """Return ``call(api)``, tried again until the deadline (the client's by default); ``api`` is a `wandb.Api`.

        Raises:
            Unreachable: No usable answer within the deadline.
            SourceError: The server answered and refused: credentials, permission, missing run, bad request.
            MissingExtra: wandb is not installed.

        """

        def attempt(seconds: float) -> T:
            return self._attempt(call, seconds)

        try:
            return repeat(attempt, classify, self.deadline_s if deadline_s is None else deadline_s)
        except GatekeeperError:
            raise
        except Exception as error:
            raise error_for(classify(error), self.spec.path, self.server, self.deadline_s) from error

    def unknown(self, why: str) -> GatekeeperError:
        """Return the error for an answer that contradicts itself."""
        return error_for(classify(UnusableAnswer(why)), self.spec.path, self.server, self.deadline_s)

    def ask_once(self, call: Callable[[Any], T], seconds: float) -> T | None:
        """Return ``call(api)``, or None where it fails: for what a look can do without."""
        try:
            return self._attempt(call, seconds)
        except Exception as error:  # noqa: BLE001 - as above
            _log.debug("%s: left out: %s", self.spec.path, classify(error).message)
            return None

    def _attempt(self, call: Callable[[Any], T], seconds: float) -> T:
        known = self._api

        def work() -> tuple[Any, T]:
            api = known if known is not None else self._connect()
            return api, call(api)

        try:
            self._api, result = bounded(work, seconds)
        except BaseException:
            # A strange answer spoils the SDK's objects for good, and a call that hangs may hold locks.
            self._api = None
            raise
        return result

    def _connect(self) -> Any:
        bound_sdk_retries(self.deadline_s)
        try:
            import wandb
        except ImportError:
            raise MissingExtra("wandb", "wandb") from None
        overrides = {"entity": self.spec.entity, "project": self.spec.project}
        base_url = self._base_url(wandb)
        if base_url:
            overrides["base_url"] = base_url
        return wandb.Api(overrides=overrides, timeout=_http_timeout(self.deadline_s))

    def _base_url(self, wandb: Any) -> str | None:
        """Return the API address for a URL's server, or None for the configured one.

        A key in the environment belongs to the configured server: it is not sent to another that a URL names.
        """
        if self.spec.web_url is None:
            return None
        configured = str(os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url)
        named = urlsplit(self.spec.web_url)
        if _same_server(configured, named.netloc):
            return None
        address = "https://api.wandb.ai" if named.hostname in _HOSTED else self.spec.web_url
        if os.environ.get("WANDB_API_KEY"):
            raise GatekeeperError(
                f"{self.spec.path}: the URL is on {named.netloc}, but this machine and its WANDB_API_KEY are set up for "
                f"{urlsplit(configured).netloc}; set WANDB_BASE_URL={address} and the key of that server"
            )
        return address


def _same_server(base_url: str, host: str) -> bool:
    """Say whether a web host belongs to an API address (``api.example.com`` serves ``example.com``, ``app.…``)."""
    api = urlsplit(base_url).netloc.lower()
    bare = api.removeprefix("api.")
    if api in _HOSTED and host in _HOSTED:
        return True
    return host.lower() in {api, bare, f"app.{bare}", f"www.{bare}"}
