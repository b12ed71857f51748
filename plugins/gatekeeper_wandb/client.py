"""Calls of the W&B SDK that end: bounded in time whatever the SDK does, repeated where that makes sense.

The SDK repeats requests by itself for minutes to days, and no argument bounds all of its calls. So its own
retries are cut down by the settings that it takes from the environment, and each call runs in a thread that
is left behind when the deadline is over. The deadline is one of silence: every answer starts it anew, so that
a long history can be read.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gatekeeper.connectivity import Policy, try_until, within
from gatekeeper.errors import GatekeeperError, MissingExtra

from gatekeeper_wandb.errors import UnusableAnswer, classify, error_for, transient
from gatekeeper_wandb.specs import WandbSpec

__all__ = ["Client", "bound_sdk_retries"]

T = TypeVar("T")
_log = logging.getLogger(__name__)

_RESTART_S = 3.0

_HOSTED = frozenset(
    {"wandb.ai", "api.wandb.ai", "www.wandb.ai", "forge.coreweave.com", "api.forge.coreweave.com"}
)


def bound_sdk_retries(deadline_s: float) -> None:
    """Cut down the SDK's own retries, and keep it from asking for a key on the terminal.

    What the user has set stays. Where wandb is already imported the process is someone else's training, whose
    uploads must keep their long patience: nothing is set, and the only bound is ours.
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
        """Return ``call(api)``, tried again until the deadline (the client's by default).

        ``api`` is a `wandb.Api`.

        Raises:
            Unreachable: No usable answer within the deadline.
            SourceError: The server answered and refused: credentials, permission, missing run, bad request.
            MissingExtra: wandb is not installed.

        """
        earlier: Exception | None = None

        def attempt(seconds: float) -> T:
            nonlocal earlier
            try:
                return self._attempt(call, seconds)
            except TimeoutError:  # of the last attempt's short rest: what went wrong before says more
                if earlier is not None:
                    raise earlier from None
                raise
            except Exception as error:
                earlier = error
                raise

        policy = Policy(deadline_s=self.deadline_s if deadline_s is None else deadline_s)
        try:
            return try_until(
                attempt,
                what=f"{self.spec.path} on {self.server}",
                classify=transient,
                policy=policy,
            )
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
            self._api, result = within(seconds, work)
        except BaseException as error:
            # A strange answer spoils the SDK's objects for good, and a call that hangs may hold locks.
            self._api = None
            if classify(error).restart:
                _restart_service()
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
                f"{self.spec.path}: the URL is on {named.netloc}, but this machine and its WANDB_API_KEY are "
                f"set up for {urlsplit(configured).netloc}; set WANDB_BASE_URL={address} and its key"
            )
        return address


def _restart_service() -> None:
    """Let the SDK forget its service process, so that the next session starts a new one.

    Not where a run is being logged in this process: that one's service is not ours to end.
    """
    wandb = sys.modules.get("wandb")
    if wandb is None or getattr(wandb, "run", None) is not None:
        return
    try:
        within(_RESTART_S, wandb.teardown)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it tells of the dead process, and forgets it
        _log.debug("wandb.teardown: %s", error)


def _same_server(base_url: str, host: str) -> bool:
    """Say whether a web host belongs to an API address: ``api.example.com`` serves ``app.example.com``."""
    api = urlsplit(base_url).netloc.lower()
    bare = api.removeprefix("api.")
    if api in _HOSTED and host in _HOSTED:
        return True
    return host.lower() in {api, bare, f"app.{bare}", f"www.{bare}"}
