"""How runs and projects on a W&B server are named: paths, prefixes and the URLs of web pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gatekeeper.errors import GatekeeperError
from gatekeeper.redact import redact_url
from gatekeeper.text import for_terminal, shorten

__all__ = ["WandbSpec", "matches", "parse"]

_FORMS = (
    "ENTITY/PROJECT/RUN_ID, run:ENTITY/PROJECT/RUN_ID, wandb:ENTITY/PROJECT (all its runs) "
    "or the URL of a run or project"
)
_PREFIXES = ("run:", "wandb:")
_EXTENSION = re.compile(r".+\.[A-Za-z][A-Za-z0-9]{0,8}")
_PART = re.compile(r"[^\s/\\:?#*%\x00-\x1f\x7f]+")
#: The web app of the hosted service lives under a path of its own on these hosts.
_APP_PATHS = {"forge.coreweave.com": "wandb", "qa.forge.coreweave.com": "wandb"}
#: Pages of a project that are neither a run nor the project's list of runs.
_OTHER_PAGES = frozenset({"sweeps", "reports", "artifacts", "groups", "launch", "jobs", "weave", "registry"})
_PROJECT_PAGES = frozenset({"workspace", "overview", "table", "runs", "users", "settings"})


@dataclass(frozen=True)
class WandbSpec:
    """A run, or with ``run_id`` None all runs of a project.

    ``web_url`` is scheme, host and path of the web app that a URL named, or None for the configured server.
    """

    entity: str
    project: str
    run_id: str | None
    web_url: str | None = None

    @property
    def path(self) -> str:
        """``entity/project/run_id``, or ``entity/project``."""
        return "/".join(part for part in (self.entity, self.project, self.run_id) if part)


def matches(spec: str) -> bool:
    """Say whether ``spec`` is W&B's: a prefix, three bare parts without a file extension, or a URL."""
    text = spec.strip()
    if text.lower().startswith(_PREFIXES):
        return True
    if _is_url(text):
        return _url_parts(text) is not None
    parts = _bare_parts(text)
    return parts is not None and not _EXTENSION.fullmatch(parts[-1])


def parse(spec: str) -> WandbSpec:
    """Return what ``spec`` names.

    Raises:
        GatekeeperError: It names no run and no project; the text says which forms there are.

    """
    text = spec.strip()
    lower = text.lower()
    prefix = next((known for known in _PREFIXES if lower.startswith(known)), "")
    rest = text[len(prefix) :].strip() if prefix else text
    if _is_url(rest):
        found = _url_parts(rest)
        if found is None:
            raise _bad(spec, "this URL is not that of a run or a project")
        return found
    if prefix == "wandb:":
        rest = rest.removeprefix("//")
        pair = rest.strip("/").split("/")
        if len(pair) == 2 and all(_PART.fullmatch(part) for part in pair):
            return WandbSpec(pair[0], pair[1], None)
    parts = _bare_parts(rest)
    if parts is None:
        raise _bad(spec, "this names no W&B run")
    return WandbSpec(*parts)


def _bad(spec: str, why: str) -> GatekeeperError:
    shown = shorten(for_terminal(redact_url(spec)), 200)
    return GatekeeperError(f"{shown}: {why}; use {_FORMS}")


def _is_url(text: str) -> bool:
    return text.lower().startswith(("https://", "http://"))


def _bare_parts(text: str) -> tuple[str, str, str] | None:
    """Return the three parts of ``entity/project/run_id`` or ``entity/project/runs/run_id``."""
    parts = text.split("/")
    if len(parts) == 4 and parts[2] == "runs":
        del parts[2]
    if (
        len(parts) != 3
        or not all(_PART.fullmatch(part) for part in parts)
        or parts[0].startswith((".", "~", "-"))
    ):
        return None
    return parts[0], parts[1], parts[2]


def _url_parts(text: str) -> WandbSpec | None:
    """Return what the URL of a web page names; pages below a run and query parts say nothing more."""
    try:
        url = urlsplit(text)
        host = (url.hostname or "").lower()
        port = f":{url.port}" if url.port else ""
    except ValueError:  # brackets or a port that are none
        return None
    parts = [unquote(part) for part in url.path.split("/") if part]
    if not host or not all(_PART.fullmatch(part) for part in parts):
        return None
    base: list[str] = []
    if parts and parts[0] == _APP_PATHS.get(host):
        base.append(parts.pop(0))
    # A proxy may serve the app under a path of its own: entity and project stand right before "runs".
    at = next((i for i in range(2, len(parts)) if parts[i] == "runs"), None)
    if at is not None:
        base += parts[: at - 2]
        parts = parts[at - 2 :]
    web_url = "/".join([f"{url.scheme.lower()}://{host}{port}", *base])
    if len(parts) >= 4 and parts[2] == "runs":
        return WandbSpec(parts[0], parts[1], parts[3], web_url)
    if len(parts) == 2 or (len(parts) == 3 and parts[2] in _PROJECT_PAGES):
        return WandbSpec(parts[0], parts[1], None, web_url)
    if len(parts) >= 3 and parts[2] not in _OTHER_PAGES and not _EXTENSION.fullmatch(parts[-1]):
        return WandbSpec(parts[0], parts[1], parts[2], web_url)
    return None
