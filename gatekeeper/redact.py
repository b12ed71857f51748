"""Secrets taken out of configurations and text before they are written or shown.

A secret is known by its name (``api_key: …``) or by its form (a W&B key, a JWT, ``user:password@`` in a
URL). When in doubt text is hidden: a lost word costs less than a leaked key. Nothing here raises, and
redacting twice changes nothing.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote

from gatekeeper.text import shorten

__all__ = ["MARK", "is_secret_name", "redact", "redact_text", "redact_url"]

MARK = "[redacted]"
_URL_MARK = "redacted"  # in user:password@, where brackets would make the URL unparsable
_MAX_DEPTH = 24
_MAX_PASSES = 8
_MAX_TEXT = 500
_MAX_ITEMS = 200
_SEQUENCES = (list, tuple, set, frozenset)
_CONTAINERS = (Mapping, *_SEQUENCES)
_NON_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_OPTION = re.compile(r"-{0,2}[A-Za-z_][\w.-]*")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A name is split into words: "WANDB_API_KEY", "apiKey" and "api-key" all hold "api" and "key".
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_STRONG = _words(
    "password passwords passwd passphrase passcode secret secrets credential credentials cred creds "
    "apikey apikeys secretkey accesskey privatekey authtoken accesstoken apitoken clientsecret "
    "cookie cookies jwt bearer"
)
_WEAK = _words("auth authorization authentication pwd token connstr webhook")
_KEY_OWNER = _words(
    "api access private secret signing encryption ssh account storage master shared session deploy "
    "license service client auth wandb openai anthropic hf huggingface azure aws gcp google comet "
    "neptune mlflow gpg rsa hmac"
)
_TOKENS_OWNER = _KEY_OWNER | _words("refresh oauth bearer github gitlab personal")
# Words that make "token" a word of language models and not of doors.
_TEXT_TOKEN = _words(
    "pad bos eos unk mask sep cls special image img audio video start end stop begin decoder encoder "
    "per num number n max min new next prev first last prefix suffix class register"
)
_TEXT_TOKEN_VALUE = re.compile(r"[<\[(][^\s<>\[\]]{0,40}[>\])]$")  # "[PAD]", "<|endoftext|>"
_TOKEN_TAIL = _words("value string str header file env secret key")
_URL_NAMES = _words("key sig signature code sid sas jwt credential")
_COMMIT_NAMES = _words("commit sha sha1 revision rev hash checksum digest fingerprint")
_COMMIT = re.compile(r"[0-9a-f]{40}")

_SHAPES = re.compile(
    r"""-----BEGIN[ ][A-Z0-9 ]{0,30}PRIVATE[ ]KEY----- (?s:.*?)
        (?: -----END[ ][A-Z0-9 ]{0,30}PRIVATE[ ]KEY----- | \Z )
    | (?<![\w-]) (?:
          (?:[A-Za-z][A-Za-z0-9]{0,30}-)? [0-9a-f]{40} (?![0-9A-Za-z])      # W&B, bare or local-…
        | local-[A-Za-z0-9_-]{32,}                                        # W&B, self-hosted
        | wandb_v\d+_[A-Za-z0-9_-]{16,}                                   # W&B, the longer kind
        | eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?    # JWT
        | sk-[A-Za-z0-9_-]{16,} | [spr]k_(?:live|test)_[A-Za-z0-9]{10,}   # OpenAI, Anthropic; Stripe
        | gh[pousr]_[A-Za-z0-9]{16,} | github_pat_\w{16,} | gl[a-z]{2,5}-[A-Za-z0-9_-]{16,}
        | (?:hf|npm|r8)_[A-Za-z0-9]{16,} | api_org_[A-Za-z0-9]{16,} | pypi-[A-Za-z0-9_-]{16,}
        | dckr_pat_[\w-]{16,} | nvapi-[\w-]{16,} | xox[a-z]-[A-Za-z0-9-]{8,}
        | (?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{12,}                  # AWS key ids
        | AIza[\w-]{30,} | ya29\.[\w-]{16,}                               # Google
      )
    | (?<=hooks\.slack\.com/services/)[\w/-]+ | (?<=/api/webhooks/)[\w/-]+
    """,
    re.VERBOSE,
)
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)(?!\[redacted\])([^\s\"',;]{6,})", re.IGNORECASE)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|x-api-key|(?:set-)?cookie)(\"?\s*[:=]\s*\"?)([^\r\n\"]+)", re.IGNORECASE
)
_USERINFO = (
    re.compile(  # one slash is what pathlib leaves of two; a raw "/" in a password is told from a port
        r"""\b([A-Za-z][A-Za-z0-9+.-]{0,30}:/{1,2})
    ( [^\s/?#@"'<>]*(?:@[^\s/?#@"'<>]*)* | [^\s/?#@:"'<>]*:(?!\d{1,5}[/?#])[^\s"'<>@]{0,200} )@""",
        re.VERBOSE,
    )
)
_QUERY = re.compile(r"([?&;#])([^\s=&;#?\"'<>]{1,80})=([^\s&;#\"'<>]*)")
# name=value, name: value, "name": "value", --name value; also inside JSON inside a string
_NAME = re.compile(
    r"""(?<![\w.-]) (?P<dashes>-{0,2}) (?P<name>[A-Za-z_][\w.-]{0,80})
    (?: (?:\\*["'])? \s*(?:=>|=|:(?!//))\s* (?P<open>\\*["'])? | (?P<space>[ ]+)(?=[^-\s]) )""",
    re.VERBOSE,
)
# A comma belongs to the value unless white space or another name=value follows it.
_BARE_VALUE = re.compile(r"\[redacted\]|[^\s,;&]+(?:[,;&](?![\w.-]+[=:]|\s|$)[^\s,;&]+)*")
_QUOTED_VALUE = {
    '"': re.compile(r'(?:[^"\\]|\\.)*', re.DOTALL),
    "'": re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL),
    '\\"': re.compile(r'[^"\\]*'),
    "\\'": re.compile(r"[^'\\]*"),
}


def redact(obj: object, *, limit: int | None = None) -> Any:
    """Return a copy of ``obj`` (any nesting of containers) as plain JSON-able values without secrets.

    Numbers, booleans and None stay; objects that are no data classes or mappings become their redacted text.
    With a ``limit`` the result holds about that many characters at most: long texts and containers are cut,
    and what lies deep before what lies on top.
    """
    return _Walk(_secrets_of_environment(), limit).visit(obj)


def redact_text(text: object) -> str:
    """Return ``text`` with ``[redacted]`` for everything that looks like a secret or is called one."""
    try:
        return _redact_string(str(text), _secrets_of_environment())
    except Exception:  # noqa: BLE001 - someone else's __str__: what cannot be read is not shown
        return MARK


def redact_url(url: object) -> str:
    """Return ``url`` (or text that holds URLs) without passwords and secret query parameters."""
    try:
        string = str(url)
        return _QUERY.sub(_hide_parameter, _USERINFO.sub(_hide_userinfo, string))
    except Exception:  # noqa: BLE001 - as above
        return MARK


def is_secret_name(name: object, value: object = "") -> bool:
    """Return whether a configuration key called ``name`` holds a secret, given its ``value``.

    A number under ``token`` or ``auth`` is a count or a switch; ``pad_token: "[PAD]"`` is vocabulary.
    """
    strength = _name_strength(str(name)[:200])
    if not strength or value is None or isinstance(value, bool):
        return False
    if strength == 2:  # no password is a float, but a metric may be called like one
        return not isinstance(value, float) and not (isinstance(value, str) and value in _NON_FINITE)
    if isinstance(value, str):
        return not (_is_number(value) or (_TEXT_TOKEN_VALUE.match(value) and value != MARK))
    return not isinstance(value, (int, float, *_CONTAINERS))


@lru_cache(maxsize=4096)
def _name_strength(name: str) -> int:
    """Return 0 for an innocent name, 1 for one that is secret with a text value, 2 for one that always is."""
    words = [word.lower() for word in _WORD.findall(name)]
    for index, word in enumerate(words):
        before, after = words[:index], words[index + 1 :]
        if word in _STRONG or word.endswith(("password", "passwd", "apikey")):
            return 2
        if word in {"key", "keys"} and before and before[-1] in _KEY_OWNER:
            return 2
        if word == "string" and before and before[-1] in {"connection", "conn"}:
            return 2
        if word == "tokens" and before and before[-1] in _TOKENS_OWNER:
            return 1
        if word == "token":
            if not _TEXT_TOKEN.intersection(before) and (
                not after or after[0] in _TOKEN_TAIL or after[0].isdigit()
            ):
                return 1
        elif word in _WEAK:
            return 1
    return 0


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.lower() in {"true", "false", "none", "null"}
    return True


class _Walk:
    """One walk through nested values: what is secret in this process, and how much may still be kept."""

    def __init__(self, secrets: list[str], limit: int | None) -> None:
        self._secrets = secrets
        self._limited = limit is not None
        self._left = limit or 0

    def visit(self, obj: object, parents: tuple[int, ...] = ()) -> Any:
        """Return a value without secrets; one that cannot be read is not shown."""
        try:
            return self._visit(obj, parents)
        except Exception:  # noqa: BLE001 - someone else's __str__, items() or __iter__
            return MARK

    def _visit(self, obj: object, parents: tuple[int, ...]) -> Any:
        if obj is None or isinstance(obj, (bool, int, float)):
            self._left -= 8
            return obj
        if isinstance(obj, (bytes, bytearray)):
            obj = bytes(obj).decode("utf-8", "replace")
        if isinstance(obj, str):
            return self._text(obj)
        if getattr(obj, "ndim", None) == 0 and hasattr(obj, "item"):  # a NumPy scalar or a 0-d array
            plain = obj.item()
            return self._text(str(obj)) if getattr(plain, "ndim", None) == 0 else self._visit(plain, parents)
        pairs = _pairs(obj)
        if pairs is None and not isinstance(obj, _SEQUENCES):
            return self._text(str(obj))
        if len(parents) >= _MAX_DEPTH or id(obj) in parents:
            return "[nested too deeply]"
        parents = (*parents, id(obj))
        if pairs is not None:
            return self._mapping(pairs, parents)
        items = self._sequence(list(cast("Iterable[object]", obj)), parents)
        return tuple(items) if isinstance(obj, tuple) else items

    def _text(self, text: str) -> str:
        if self._limited:  # cut once before, with room for a secret at the edge, and once after
            text = shorten(_redact_string(text[: 2 * _MAX_TEXT], self._secrets), _MAX_TEXT)
        else:
            text = _redact_string(text, self._secrets)
        self._left -= len(text) + 8
        return text

    def _room(self, count: int) -> int:
        """Return how many of ``count`` items may be kept."""
        if not self._limited:
            return count
        return min(count, _MAX_ITEMS) if self._left > 0 else 0

    def _mapping(self, pairs: list[tuple[object, object]], parents: tuple[int, ...]) -> dict[str, Any]:
        named = {key.lower(): value for key, value in pairs if isinstance(key, str)}
        # {"name": "API_KEY", "value": "…"}, as container specifications write it
        label = named.get("name", named.get("key", ""))
        hidden = "value" if is_secret_name(label, named.get("value")) else None
        kept = pairs[: self._room(len(pairs))]
        names = [self._text(str(key)) for key, _ in kept]
        found: dict[str, Any] = dict.fromkeys(
            names
        )  # in the original order, but what lies on top is seen first
        for index in sorted(range(len(kept)), key=lambda index: isinstance(kept[index][1], _CONTAINERS)):
            found[names[index]] = self._named(*kept[index], parents, hidden)
        if len(pairs) > len(kept):
            found["…"] = f"{len(pairs) - len(kept)} more"
        return found

    def _named(self, key: object, value: object, parents: tuple[int, ...], hidden: str | None) -> Any:
        if is_secret_name(key, value) or (hidden and str(key).lower() == hidden):
            return MARK
        if isinstance(value, _CONTAINERS) and is_secret_name(key):
            return _hide_texts(self.visit(value, parents))
        if isinstance(value, str) and _COMMIT.fullmatch(value) and _is_commit(str(key)):
            return value
        return self.visit(value, parents)

    def _sequence(self, items: list[object], parents: tuple[int, ...]) -> list[Any]:
        """Redact items; one that follows ``--api-key``, or a name in a pair, is that option's value."""
        kept = items[: self._room(len(items))]
        found: list[Any] = []
        for index, item in enumerate(kept):
            before = kept[index - 1] if index else None
            if isinstance(before, str) and _is_option(before, item, pair=len(items) == 2):
                found.append(MARK)
            else:
                found.append(self.visit(item, parents))
        if len(items) > len(kept):
            found.append(f"… {len(items) - len(kept)} more")
        return found


def _redact_string(text: str, secrets: list[str]) -> str:
    """Redact until nothing changes: what one pass takes away can lay open the next secret."""
    for _ in range(_MAX_PASSES):
        before, text = text, _redact_once(text, secrets)
        if text == before:
            break
    return text


def _redact_once(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MARK)
    text = redact_url(_SHAPES.sub(MARK, text))
    text = _HEADER.sub(rf"\1\2{MARK}", text)
    text = _SCHEME.sub(_hide_scheme, text)
    return _hide_named(text)


def _pairs(obj: object) -> list[tuple[object, object]] | None:
    """Return the items of anything shaped like a mapping: dicts, wandb.Config, data classes, namespaces."""
    if isinstance(obj, Mapping):
        return list(obj.items())
    if isinstance(obj, type):
        return None
    if dataclasses.is_dataclass(obj):
        return [(f.name, getattr(obj, f.name, None)) for f in dataclasses.fields(obj)]
    if callable(getattr(obj, "items", None)) and callable(getattr(obj, "keys", None)):
        return [(key, value) for key, value in obj.items()]  # type: ignore[attr-defined]
    if type(obj).__name__ in {"Namespace", "SimpleNamespace"}:
        return list(vars(obj).items())
    return None


def _hide_texts(value: Any) -> Any:
    """Hide every text in a redacted container under a name like ``auth`` or ``token``; numbers stay."""
    if isinstance(value, dict):
        return {key: _hide_texts(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_hide_texts, value))
    return MARK if isinstance(value, str) and not _is_number(value) else value


def _is_option(name: str, value: object, *, pair: bool) -> bool:
    if str(value).startswith("--") or len(name) > 80 or not _OPTION.fullmatch(name):
        return False
    return (pair or name.startswith("-")) and is_secret_name(name, value)


def _is_commit(name: str) -> bool:
    return any(word.lower() in _COMMIT_NAMES for word in _WORD.findall(name))


def _hide_userinfo(match: re.Match[str]) -> str:
    scheme, userinfo = match.groups()
    user, colon, _ = userinfo.partition(":")
    if "http" in scheme.lower():  # the user alone may be the token
        return f"{scheme}{_URL_MARK}@"
    return f"{scheme}{user}:{_URL_MARK}@" if colon else match.group()


def _hide_parameter(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    plain = unquote(name)
    secret = plain.lower().rsplit("-", 1)[-1] in _URL_NAMES or is_secret_name(plain, unquote(value) or None)
    return f"{mark}{name}={MARK}" if secret and value else match.group()


def _hide_scheme(match: re.Match[str]) -> str:
    scheme, gap, value = match.groups()
    prose = scheme.lower() == "basic" and not (len(value) >= 8 and re.search(r"[A-Z0-9=]", value))
    return match.group() if prose else f"{scheme}{gap}{MARK}"


def _hide_named(text: str) -> str:
    """Hide the values of secret names in free text; the values of other names are searched in their turn."""
    parts: list[str] = []
    done = position = 0
    while match := _NAME.search(text, position):
        position = match.end()
        if match["space"] and not match["dashes"]:  # prose; only an option's value follows a blank
            continue
        if not _name_strength(match["name"]):
            continue
        opening = match["open"] or ""
        pattern = _QUOTED_VALUE.get(opening[-2:], _BARE_VALUE)
        found = pattern.match(text, position)
        value = found.group() if found else ""
        if value and is_secret_name(match["name"], value) and value.lower() not in {"bearer", "basic"}:
            parts += [text[done:position], MARK]
            done = position = position + len(value)
    return "".join([*parts, text[done:]])


def _secrets_of_environment() -> list[str]:
    """Return the values of this process's secret environment variables, longest first."""
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= 8 and "/" not in value and is_secret_name(name, value)
    }
    return sorted(values, key=len, reverse=True)
