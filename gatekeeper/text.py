"""Untrusted text (metric names, run names, log lines) made safe for the place where it is shown.

Each function takes any object, never raises and returns one line (``for_workflow_data`` keeps line
breaks, escaped). Shorten first and escape last: a cut can split an escape.
"""

from __future__ import annotations

import html
import re
from urllib.parse import quote

__all__ = [
    "for_html",
    "for_markdown",
    "for_terminal",
    "for_workflow_data",
    "for_workflow_property",
    "markdown_link",
    "shorten",
    "strip_ansi",
]

_ANSI = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movement
    # OSC, DCS, SOS, PM, APC: a string up to its terminator (window titles, hyperlinks)
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)

_MARKDOWN = {
    **{char: "\\" + char for char in "\\`*[]~"},
    "<": "&lt;",
    ">": "&gt;",
    "&": "&amp;",
    "|": "&#124;",  # an entity, since parsers disagree about "\\|" after a backslash
    "$": "&#36;",  # GitHub renders $…$ as mathematics
    "@": "@&#8203;",  # a zero-width space: no mention, no e-mail link
}
_MARKDOWN_SPECIAL = re.compile(
    r"""[\\`*\[\]~<>&|$@]
    | (?<![0-9A-Za-z])_+ | _+(?![0-9A-Za-z])   # underscores inside a word mean nothing to Markdown
    | :// | www\. | \#(?=\d) | gh-(?=\d)       # what GitHub turns into links by itself
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MARKDOWN_BLOCK = re.compile(r"[-+=](?![0-9A-Za-z.])|#|:|(?<=\d)[.)](?=\s|$)")
_ORDINAL = re.compile(r"\d{1,9}(?=[.)](?:\s|$))")
_LINK = re.compile(r"https?://[^\s/?#]+", re.IGNORECASE)


def strip_ansi(text: object) -> str:
    """Return ``text`` without terminal escape sequences."""
    return _ANSI.sub("", _string(text))


def shorten(text: object, limit: int) -> str:
    """Return ``text`` cut to at most ``limit`` characters, the last being an ellipsis where it was cut."""
    string = _string(text)
    if len(string) <= limit:
        return string
    return string[: limit - 1].rstrip() + "…" if limit > 0 else ""


def for_terminal(text: object) -> str:
    r"""Return one printable line: no escape sequence, control, bidi or line-break character.

    White space becomes single spaces, any other unprintable character its escape (``\u202e``). What a CI
    runner would take for a command (``::error::`` first on a line, ``##[error]`` anywhere) is broken up.
    """
    line = _printable(text).replace("##[", "##\\[")
    return "\\" + line if line.startswith(":") else line


def for_markdown(text: object) -> str:
    """Return inline Markdown that shows ``text`` as it is, also in a table cell or first on a line."""
    line = _printable(text)
    ordinal = _ORDINAL.match(line)
    head = ordinal.group() if ordinal else ""
    line = line[len(head) :]
    if head or _MARKDOWN_BLOCK.match(line):  # would open a list, a heading, a rule or a workflow command
        head, line = head + "\\" + line[0], line[1:]
        if head.endswith("#") and line[:1].isdigit():
            head += "&#8203;"
    return head + _MARKDOWN_SPECIAL.sub(_escape_markdown, line)


def markdown_link(label: object, url: object) -> str:
    """Return a Markdown link to an http(s) URL; for anything else just the label, escaped."""
    address = _string(url)
    if not _LINK.match(address) or len(address) > 2000 or not address.isprintable():
        return for_markdown(label)
    target = quote(address, safe="/:?#=+,;%@!~&").replace("&", "&amp;")
    return f"[{for_markdown(label)}]({target})"


def for_html(text: object) -> str:
    """Return text for an HTML or XML element or a quoted attribute."""
    return html.escape(_printable(text), quote=True)


def for_workflow_data(text: object) -> str:
    """Return the message of a GitHub workflow command; line breaks survive as ``%0A``."""
    lines = strip_ansi(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(_printable(line) for line in lines).replace("%", "%25").replace("\n", "%0A")


def for_workflow_property(text: object) -> str:
    """Return the value of a property (``title=…``) of a GitHub workflow command."""
    return for_workflow_data(text).replace(":", "%3A").replace(",", "%2C")


def _string(value: object) -> str:
    try:
        return value if type(value) is str else str(value)
    except Exception:  # noqa: BLE001 - someone else's __str__
        return f"<unprintable {type(value).__name__}>"


def _printable(text: object) -> str:
    line = " ".join(strip_ansi(text).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)


def _escape_markdown(match: re.Match[str]) -> str:
    found = match.group()
    if found in _MARKDOWN:
        return _MARKDOWN[found]
    if found[0] == "_":
        return "\\_" * len(found)
    if found == "://":
        return ":&#8203;//"
    if found == "#":
        return "#&#8203;"
    return f"{found[:-1]}&#8203;{found[-1]}"  # www. and GH-
