"""Shared by the reader tests: writing a log, reading it once, following it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from gatekeeper.sources import Row, SourceOptions, open_source

Rows = list[tuple[float | None, dict[str, object]]]


def _plain(rows: Iterable[Row]) -> Rows:
    """Rows as plain tuples, NaN as text, so that they compare equal."""

    def value(item: object) -> object:
        if isinstance(item, float) and math.isnan(item):
            return "NaN"
        return item

    return [(step, {key: value(item) for key, item in metrics.items()}) for step, metrics in rows]


@pytest.fixture
def plain() -> Callable[[Iterable[Row]], Rows]:
    return _plain


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Rows]:
    """Write a log under a name and return its rows."""

    def reader(name: str, content: str | bytes, **options: object) -> Rows:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (source,) = open_source(str(path), options=SourceOptions(**options))  # type: ignore[arg-type]
        return _plain(source.rows())

    return reader
