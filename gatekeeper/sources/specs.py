"""From what the user typed to sources."""

from __future__ import annotations

from pathlib import Path

from gatekeeper.errors import GatekeeperError
from gatekeeper.sources.base import Source, SourceOptions
from gatekeeper.sources.discover import find_logs
from gatekeeper.sources.lines import LineSource
from gatekeeper.sources.localfile import FileFeed, GzipFeed, is_gzip, open_for_reading
from gatekeeper.sources.sniff import decoder_for

__all__ = ["open_path", "open_source"]


def open_source(spec: str, *, options: SourceOptions | None = None) -> list[Source]:
    """Return the sources that ``spec`` names: one, or a directory's many.

    Raises:
        GatekeeperError: The spec is none, or cannot be opened.
    """
    options = options or SourceOptions()
    path = Path(spec)
    if path.is_dir():
        return [open_path(log, options) for log in find_logs(path)]
    if path.exists():
        return [open_path(path, options, name=spec)]
    raise GatekeeperError(f"{spec}: no such file")


def open_path(path: Path, options: SourceOptions | None = None, *, name: str | None = None) -> Source:
    """Return the source for one file."""
    options = options or SourceOptions()
    name = name if name is not None else str(path)
    with open_for_reading(path) as file:
        head = file.read(4)
    feed = GzipFeed if is_gzip(head) else FileFeed
    return LineSource(feed(path, follow=options.follow, name=name), decoder_for(name, options), options)
