from __future__ import annotations

import unicodedata
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from gatekeeper.text import (
    for_html,
    for_markdown,
    for_terminal,
    for_workflow_data,
    for_workflow_property,
    markdown_link,
    shorten,
    strip_ansi,
)
from hypothesis import assume, example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

HOSTILE = [
    "::error::pwned",
    "  ::set-output name=x::y",
    "ok\n::error file=a,line=1::pwned",
    "ok\r::error::pwned",
    "ok%0A::error::pwned",
    "##[error]pwned",
    "a ##[add-mask]b",
    "a|b||c\\|d",
    "`code` ``x``",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden -->",
    "${{ github.token }} $x^2$",
    "[link](javascript:alert(1)) ![image](https://evil.example/x.png)",
    "[ref]: https://evil.example",
    "https://evil.example/x www.evil.example me@evil.example <https://evil.example>",
    "@octocat please #1 GH-2 octocat/repo#3",
    "\x1b[31mred\x1b[0m \x9b2J \x1b]8;;https://evil.example\x1b\\text\x1b]8;;\x07 \x1b]0;title",
    "a\u202eb\u2066c\u200bd\ufeffe\u2028f\u2029g\x85h\x00i\x7fj",
    "# heading",
    "#1",
    "- item",
    "+ item",
    "1. item",
    "2) item",
    "---",
    "===",
    "=",
    "> quote",
    "    code",
    "~~~ fence ~~strike~~",
    "*a* **b** _c_ __d__ a_b_c ***",
    "&lt;b&gt; &#60;b&#62; &nbsp;",
    "trailing\\",
    "| - | :-: |",
    ":-:",
    "\ud800lone",
]
texts = st.one_of(
    st.text(), st.text(alphabet="`*_[]()<>|&$@:#%\\~!-+=.\n\r\x1b\x9b ab1/\u202e"), st.sampled_from(HOSTILE)
)
# The parser's own guesses at links (anything with a dot) are not GitHub's: only full addresses and www.
PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": True})
assert PARSER.linkify is not None
PARSER.linkify.set({"fuzzy_email": True, "fuzzy_link": False})


def one_safe_line(line: str) -> bool:
    return line.isprintable() and not line.lstrip().startswith("::") and "##[" not in line


def visible(text: str) -> str:
    """Return what a reader sees: zero-width spaces are ours."""
    return " ".join(text.replace("\u200b", "").split())


def tokens(markdown: str) -> list[Any]:
    return [inner for token in PARSER.parse(markdown) for inner in [token, *(token.children or [])]]


@given(texts)
def test_a_terminal_line_is_printable_and_no_command(text: str) -> None:
    line = for_terminal(text)
    assert one_safe_line(line)
    assert "\x1b" not in line
    assert for_terminal(line) == line
    line.encode("utf-8")


def test_a_terminal_line_keeps_what_is_harmless_and_shows_what_is_not() -> None:
    assert for_terminal("train/loss: 0.5 → größer 損失 🙂") == "train/loss: 0.5 → größer 損失 🙂"
    assert for_terminal("a\nb\tc  d") == "a b c d"
    assert for_terminal("\x1b[1;31mred\x1b[0m") == "red"
    assert for_terminal("a\u202eb\x07") == "a\\u202eb\\x07"
    assert for_terminal("::error::x") == "\\::error::x"


@pytest.mark.parametrize("text", [t for t in HOSTILE if not {"\x1b", "\x85", "\u202e", "\ud800"} & set(t)])
@pytest.mark.parametrize(
    "place", ["{}", "word {} word", "| {} | b |\n| --- | --- |\n| {} | c |\n", "## {}", "- {}"]
)
def test_markdown_shows_hostile_text_as_it_is(text: str, place: str) -> None:
    found = tokens(place.replace("{}", for_markdown(text)))
    kinds = {token.type for token in found}
    assert kinds <= {
        *("paragraph_open", "paragraph_close", "inline", "text", "text_special"),
        *("table_open", "thead_open", "tr_open", "th_open", "th_close", "tr_close", "thead_close"),
        *("tbody_open", "td_open", "td_close", "tbody_close", "table_close", "heading_open", "heading_close"),
        *("bullet_list_open", "list_item_open", "list_item_close", "bullet_list_close"),
    }
    shown = [visible("".join(t.content for t in token.children)) for token in found if token.type == "inline"]
    wanted = [
        line.replace("{}", visible(text)) for line in {"## {}": ["{}"], "- {}": ["{}"]}.get(place, [])
    ] or (
        [visible(text), "b", visible(text), "c"]
        if place.startswith("|")
        else [place.replace("{}", visible(text))]
    )
    assert shown == wanted


@given(texts)
@example("a_ b_")
@example("1.")
@example("12345678901.")
def test_any_text_in_markdown_stays_inline_text(text: str) -> None:
    inline = for_markdown(text)
    assert one_safe_line(inline)
    assert not set("<>|`") & set(inline.replace("\\`", ""))
    assert "${{" not in inline
    for document in (inline, f"word {inline}", f"| {inline} | b |\n| --- | --- |\n| {inline} | c |\n"):
        kinds = {token.type for token in tokens(document)}
        unwanted = (
            "html",
            "link",
            "image",
            "code",
            "fence",
            "em_",
            "strong",
            "s_",
            "heading",
            "list",
            "hr",
            "block",
        )
        assert not [kind for kind in kinds if kind.startswith((*unwanted, "softbreak", "hardbreak"))]
        if "|\n" in document:
            assert sum(token.type in {"td_open", "th_open"} for token in tokens(document)) == 4


@given(texts)
def test_markdown_shows_what_the_terminal_shows(text: str) -> None:
    assume("##\\[" not in strip_ansi(text))  # what the terminal form itself writes for "##["
    (paragraph,) = [token for token in PARSER.parse(f"x{for_markdown(text)}x") if token.type == "inline"]
    shown = visible("".join(token.content for token in paragraph.children or []))
    bare = for_terminal("x" + text).replace("##\\[", "##[")
    assert shown.replace(" ", "") == visible(bare + "x").replace(" ", "")


def test_mentions_and_references_do_not_reach_anybody() -> None:
    assert "@octocat" not in for_markdown("@octocat")
    assert "#1" not in for_markdown("see #1")
    assert "GH-1" not in for_markdown("see GH-1")


def test_ordinary_names_stay_readable_in_the_source() -> None:
    for name in ("train/loss", "grad_norm", "0.5", "-0.5", "1e-05", "1.5", "trial 12 (a)", "loss: 3%"):
        assert for_markdown(name) == name


@given(texts, st.one_of(texts, st.builds("https://{}".format, st.text())))
def test_a_link_leads_to_http_only_and_cannot_be_broken_out_of(label: str, url: str) -> None:
    found = tokens(f"| {markdown_link(label, url)} |\n| --- |\n")
    links = [token.attrs["href"] for token in found if token.type == "link_open"]
    assert len(links) <= 1
    assert all(str(link).lower().startswith(("http://", "https://")) for link in links)
    assert not [token for token in found if token.type in {"html_inline", "html_block", "image", "td_open"}]


def test_a_link_keeps_its_address() -> None:
    url = "https://wandb.example/team/my-project/runs/a1b2?nw=x&y=%20z#frag"
    (link,) = [token for token in tokens(markdown_link("my|run", url)) if token.type == "link_open"]
    assert link.attrs["href"] == url
    assert markdown_link("run", "javascript:alert(1)") == "run"
    assert markdown_link("run", None) == "run"


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[Any] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@given(texts)
def test_html_and_xml_hold_text_only(text: str) -> None:
    safe = for_html(text)
    parser = Elements()
    parser.feed(f"<p title=\"{safe}\" id='{safe}'>{safe}</p>")
    ((tag, attributes),) = parser.tags
    assert tag == "p"
    assert set(attributes) == {"title", "id"}
    element = ElementTree.fromstring(f'<p title="{safe}">{safe}</p>')
    assert element.text in (None, element.get("title"), element.get("title") or None)


@given(texts)
def test_a_workflow_command_stays_one_command(text: str) -> None:
    data, value = for_workflow_data(text), for_workflow_property(text)
    line = f"::error title={value},line=1::{data}"
    assert line.isprintable()
    head, _, message = line[2:].partition("::")
    assert head == f"error title={value},line=1"
    assert message == data
    assert not {":", ","} & set(value)
    assert all(part[:2] in {"25", "0A", "3A", "2C"} for part in value.split("%")[1:])


def test_what_a_runner_reads_of_a_workflow_command() -> None:
    assert for_workflow_data("50%\nnext, a:b") == "50%25%0Anext, a:b"
    assert for_workflow_data("a\r\nb\rc") == "a%0Ab%0Ac"
    assert for_workflow_data("%0A::error::x") == "%250A::error::x"
    assert for_workflow_property("a:b, c\n%") == "a%3Ab%2C c%0A%25"


@given(texts, st.integers(-2, 30))
def test_shorten_keeps_to_the_limit_and_says_that_it_cut(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= max(limit, 0)
    assert short == text or limit <= 0 or short.endswith("…")
    assert short == text or len(text) > limit


def test_strip_ansi_leaves_the_text() -> None:
    assert (
        strip_ansi("\x1b[1mbold\x1b[22m \x1b]8;;https://x.example\x07link\x1b]8;;\x07\x1bM\x9b4mu")
        == "bold linku"
    )


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "function", [for_terminal, for_markdown, for_html, for_workflow_data, for_workflow_property]
)
@pytest.mark.parametrize("thing", [None, 3.5, float("nan"), b"x", ["a|b"], Unprintable(), object])
def test_anything_can_be_shown(function: Any, thing: object) -> None:
    assert one_safe_line(function(thing))


def test_unprintable_characters_of_every_kind_are_shown_as_escapes() -> None:
    unprintable = [
        chr(c) for c in range(0x10FFFF) if unicodedata.category(chr(c)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    ]
    assert all(for_terminal(f"a{char}b").isascii() for char in unprintable)
