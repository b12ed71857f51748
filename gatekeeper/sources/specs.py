"""From what the user typed to sources."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from gatekeeper.errors import GatekeeperError, SourceError
from gatekeeper.sources.base import Row, Skips, Source, SourceOptions, UnreadableSource, printable
from gatekeeper.sources.discover import find_logs, is_event_file, is_log_name
from gatekeeper.sources.evaluations import npz_rows
from gatekeeper.sources.events import EventsSource, looks_like_events
from gatekeeper.sources.lines import LineSource
from gatekeeper.sources.localfile import FileFeed, GzipFeed, is_gzip, open_for_reading, unpacked_head
from gatekeeper.sources.sniff import decoder_for
from gatekeeper.sources.whole import WholeFileSource
from gatekeeper.sources.wholejson import document_rows, looks_like_document

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ENTRY_POINTS", "open_path", "open_source"]

ENTRY_POINTS = "gatekeeper.sources"
HEAD = 64 * 1024
_ZIP = b"PK\x03\x04"
_OWN_SUFFIXES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".log", ".txt", ".out", ".npz", ".gz")


def open_source(spec: str, *, options: SourceOptions | None = None) -> list[Source]:
    """Return the sources that ``spec`` names: one, or the several logs of a directory.

    Read in this order: an existing path, ``-`` (standard input), ``ssh://``, what a plugin knows (a W&B run).

    Raises:
        GatekeeperError: The spec is none of these. The text names both readings.
        SourceError: It cannot be read.

    """
    options = options or SourceOptions()
    if spec == "-":
        from gatekeeper.sources.stdin import open_stdin

        return [open_stdin(options)]
    path = Path(spec)
    if spec and _exists(path):
        return _open_existing(path, spec, options)
    if spec.lower().startswith("ssh://"):
        from gatekeeper.sources.ssh import open_ssh

        return [open_ssh(spec, options)]
    broken: list[str] = []
    for name, plugin in _plugins(broken):
        try:
            if plugin.matches(spec):
                return list(plugin.open(spec, options))
        except GatekeeperError:
            raise
        except Exception as error:  # noqa: BLE001 - third-party code
            broken.append(_warn(name, error))
    raise GatekeeperError(_neither(spec, broken))


def open_path(path: Path, options: SourceOptions | None = None, *, name: str | None = None) -> Source:
    """Return the source for one file. While it is followed, it may appear only later.

    Raises:
        SourceError: It does not exist, may not be read, or is no known kind of log.

    """
    options = options or SourceOptions()
    name = name if name is not None else str(path)
    if not is_log_name(path.name) and Path(path.name.removesuffix(".gz")).suffix not in _OWN_SUFFIXES:
        for plugin, suffixes in _suffixes():
            if path.name.endswith(suffixes):
                return plugin.open_path(path, options)  # type: ignore[no-any-return]
    if options.follow and not path.exists():
        head, packed = b"", False
    else:
        with open_for_reading(path) as file:
            head = file.read(HEAD)
        packed = is_gzip(head)
        if packed:
            head = unpacked_head(path, HEAD)
    if head.startswith(_ZIP) or path.name.endswith((".npz", ".npz.gz")):
        return WholeFileSource(path, lambda file, skips: npz_rows(name, file, skips), options, name)
    if looks_like_events(head) or (is_event_file(path.name) and b"\x00" in head[:64]):
        return EventsSource(path, options, name)
    if looks_like_document(name, head):
        key = options.step_key

        def read(file: BinaryIO, skips: Skips) -> Iterator[Row]:
            with io.TextIOWrapper(file, "utf-8-sig", errors="replace") as text:
                return document_rows(name, text.read(), skips, key)

        return WholeFileSource(path, read, options, name)
    feed = GzipFeed if packed else FileFeed
    return LineSource(feed(path, follow=options.follow, name=name), decoder_for(name, options), options)


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        raise SourceError(
            f"{path} cannot be read: permission denied; run as a user who may read it"
        ) from None
    except (OSError, ValueError):  # missing, too long a name, a NUL in it
        return False
    return True


def _open_existing(path: Path, spec: str, options: SourceOptions) -> list[Source]:
    if not path.is_dir():
        return [open_path(path, options, name=spec)]
    for name, plugin in _plugins([]):
        try:
            if plugin.matches_dir(path):
                several = getattr(plugin, "open_dir", None)  # for a directory that may hold many runs
                return list(several(path, options)) if several else [plugin.open_path(path, options)]
        except GatekeeperError:
            raise
        except Exception as error:  # noqa: BLE001 - third-party code
            _warn(name, error)
    suffixes = tuple(suffix for _, known in _suffixes() for suffix in known)
    sources: list[Source] = []
    event_folders: set[Path] = set()
    for log in find_logs(path, suffixes):
        if is_event_file(log.name):
            if log.parent in event_folders:  # the event files of one folder are one run
                continue
            event_folders.add(log.parent)
        try:
            if is_event_file(log.name):
                sources.append(EventsSource(log.parent, options))
            else:
                sources.append(open_path(log, options))
        except GatekeeperError as error:
            sources.append(UnreadableSource(str(log), error))
    return sources


def _suffixes() -> list[tuple[Any, tuple[str, ...]]]:
    """Return the plugins with the file suffixes that each of them reads."""
    found: list[tuple[Any, tuple[str, ...]]] = []
    for name, plugin in _plugins([]):
        try:
            found.append((plugin, tuple(str(suffix) for suffix in plugin.file_suffixes)))
        except Exception as error:  # noqa: BLE001 - third-party code
            _warn(name, error)
    return found


def _plugins(broken: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield the plugins' SPEC objects; one that does not load is named on stderr and passed over."""
    for entry in _entries():
        try:
            yield entry.name, entry.load()
        except Exception as error:  # noqa: BLE001 - third-party code
            broken.append(_warn(entry.name, error))


@functools.cache
def _entries() -> tuple[EntryPoint, ...]:
    """Look for plugins once: it reads the metadata of everything that is installed."""
    from importlib import metadata  # which alone takes as long to import as the rest of the core

    return tuple(metadata.entry_points(group=ENTRY_POINTS))


_warned: set[str] = set()


def _warn(name: str, error: Exception) -> str:
    text = (
        f"source plugin {printable(name)} does not work: {type(error).__name__}: {printable(str(error), 200)}"
    )
    if text not in _warned:
        _warned.add(text)
        print(f"gatekeeper: warning: {text}", file=sys.stderr)
    return text


def _neither(spec: str, broken: list[str]) -> str:
    shown = printable(spec, 200)
    text = (
        f"{shown!r} is neither a file or directory here (it does not exist) nor a run: "
        "give an existing path, '-', ssh://[user@]host/path, entity/project/run_id, or a run's URL"
    )
    return f"{text}; {broken[0]}" if broken else text
