"""``gatekeeper notes``: read why runs were stopped."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from gatekeeper.errors import GatekeeperError
from gatekeeper.text import for_terminal, shorten

__all__ = ["command"]

Note = Mapping[str, Any]
_ID_SHOWN = 8


def _options(function: Callable[..., None]) -> Callable[..., None]:
    directory = click.option(
        "--notes",
        "directory",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Where the notes are. Default: GATEKEEPER_NOTES, the configuration, ./gatekeeper-notes.",
    )
    form = click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="json: one strict-JSON object a line, as in stops.jsonl, amendments applied.",
    )
    return directory(form(function))


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Read why runs were stopped (without a subcommand: list)."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_notes)


@command.command("list")
@_options
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N.")
def list_notes(directory: Path | None = None, form: str = "text", last: int | None = None) -> None:
    """List the stops, oldest first."""
    journal_directory, notes = _read(directory)
    shown = notes[-last:] if last else notes
    if form == "json":
        _print_json(shown)
    elif not notes:
        click.echo(_nothing(journal_directory))
    else:
        _print_list(journal_directory, shown, len(notes), _again(directory))


@command.command("show")
@click.argument("name", metavar="ID|RUN")
@_options
def show(name: str, directory: Path | None, form: str) -> None:
    """Show one stop in full, by the first characters of its id, or the stops of a run by its name."""
    journal_directory, notes = _read(directory)
    if not notes:
        raise GatekeeperError(_nothing(journal_directory))
    found = _find(name, notes, _again(directory))
    if form == "json":
        _print_json(found)
        return
    for index, note in enumerate(found):
        click.echo(("\n" if index else "") + "\n".join(_describe(note)))


@command.command("render")
@_options
def render(directory: Path | None, form: str) -> None:
    """Rebuild stops.md from the journal and print its path."""
    from gatekeeper import strictjson
    from gatekeeper.notes import Journal

    journal_directory, notes = _read(directory)
    path = Journal(journal_directory).render() if notes else None
    if form == "json":
        click.echo(strictjson.dumps({"path": str(path) if path else None, "stops": len(notes)}))
    else:
        click.echo(for_terminal(path) if path else _nothing(journal_directory))


def _read(directory: Path | None) -> tuple[Path, list[dict[str, Any]]]:
    from gatekeeper.config import load_settings
    from gatekeeper.notes import Journal, notes_dir

    journal = Journal(notes_dir(directory, load_settings()))
    notes = journal.read()
    if journal.skipped:
        lines = "1 line that is" if journal.skipped == 1 else f"{journal.skipped} lines that are"
        click.echo(
            f"gatekeeper: skipped {lines} torn or no stop in {for_terminal(journal.path)}; "
            "a process was killed while it wrote",
            err=True,
        )
    return journal.directory, notes


def _again(directory: Path | None) -> str:
    """Return the option with which another command reads the same notes."""
    return f" --notes {for_terminal(shlex.quote(str(directory)))}" if directory is not None else ""


def _nothing(directory: Path) -> str:
    missing = "" if directory.is_dir() else ", which does not exist yet"
    where = f"{for_terminal(directory)}{missing}"
    return f"no stops are noted in {where} (elsewhere? --notes DIR or GATEKEEPER_NOTES)"


def _find(name: str, notes: list[dict[str, Any]], where: str) -> list[dict[str, Any]]:
    exact = [note for note in notes if name in {note.get("id"), note.get("run_name"), note.get("run_id")}]
    if exact:
        return exact
    found = [note for note in notes if name and str(note.get("id")).startswith(name)]
    if len(found) == 1:
        return found
    typed = for_terminal(shorten(name, 80))
    if found:
        ids = ", ".join(for_terminal(note["id"]) for note in found[:5])
        raise GatekeeperError(f"{len(found)} notes begin with {typed!r} ({ids}); type more of the id")
    names = {str(note.get(key)) for note in notes for key in ("id", "run_name", "run_id") if note.get(key)}
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {for_terminal(near[0])!r}?" if near else ""
    raise GatekeeperError(
        f"no note has the id or run name {typed!r}{hint} (gatekeeper notes list{where} shows all)"
    )


def _print_json(notes: list[dict[str, Any]]) -> None:
    from gatekeeper.notes.log import encode

    for note in notes:
        click.echo(encode(note), nl=False)


def _print_list(directory: Path, notes: list[dict[str, Any]], total: int, where: str) -> None:
    from gatekeeper.notes.facts import number, run_label

    of = f"the last {len(notes)} of {total} stops" if len(notes) < total else _count(total)
    click.echo(f"{of} in {for_terminal(directory)} (times in UTC)\n")
    rows = [
        [
            str(note.get("when") or "")[:19].replace("T", " "),
            str(note.get("id"))[:_ID_SHOWN],
            shorten(run_label(note), 40),
            shorten(note.get("rule") or "", 32),
            f"step {number(note['step'])}" if note.get("step") is not None else f"row {note.get('row')}",
        ]
        for note in notes
    ]
    table = [[for_terminal(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row, note in zip(table, notes, strict=True):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip() + f"\n    {for_terminal(shorten(note.get('reason'), 200))}")
    click.echo(f"\nIn full: gatekeeper notes show{where} {table[-1][1]}")


def _describe(note: Note) -> list[str]:
    from gatekeeper.notes.facts import config_lines, facts, findings, metrics, title

    decision = click.style(for_terminal(note.get("decision")), fg="red", bold=True)
    lines = [f"{decision}  {for_terminal(title(note))}", for_terminal(note.get("reason"))]
    if note.get("next"):
        lines.append(f"Look at next: {for_terminal(note['next'])}")
    lines += ["", *_columns([*facts(note), ("Note", str(note.get("id")))])]
    if values := metrics(note):
        lines += ["", "Metrics at the stop (and before it, oldest first)"]
        lines += _columns([(key, value + (f"   ({old})" if old else "")) for key, value, old in values])
    if seen := findings(note):
        lines += ["", "What the rules saw"]
        lines += _columns([(str(item.get("rule")), str(item.get("message"))) for item in seen])
    config = list(config_lines(note.get("config")))
    if config:
        lines += ["", "Configuration", *_columns(config)]
    return lines


def _columns(pairs: list[tuple[str, str]]) -> list[str]:
    safe = [(for_terminal(shorten(key, 60)), for_terminal(value)) for key, value in pairs]
    width = max(len(key) for key, _ in safe)
    return [f"  {key.ljust(width)}  {value}" for key, value in safe]


def _count(stops: int) -> str:
    return "1 stop" if stops == 1 else f"{stops} stops"
