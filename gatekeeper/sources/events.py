"""TensorBoard event files, read by the tensorboard package (an extra, imported when one is opened)."""

from __future__ import annotations

import gzip
import importlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gatekeeper.errors import MissingExtra, SourceError
from gatekeeper.sources.base import Row, SourceOptions, make_row
from gatekeeper.sources.discover import is_event_file
from gatekeeper.sources.localfile import is_gzip, open_for_reading
from gatekeeper.sources.steps import usable

__all__ = ["EventsSource", "looks_like_events"]

_DT_FLOAT = 1
_DT_STRING = 7


def looks_like_events(head: bytes) -> bool:
    """Say whether bytes begin with a TensorBoard record of the size that the version record has."""
    if len(head) < 12:
        return False
    (length,) = struct.unpack("<Q", head[:8])
    return 0 < length < 1024 and b"brain.Event:" in head[: length + 16]


def loader_class() -> Callable[[str], Any]:
    """Return tensorboard's event file loader.

    Raises:
        MissingExtra: tensorboard is not installed.

    """
    try:
        module = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    except ImportError:
        raise MissingExtra("tensorboard", "tensorboard") from None
    return module.LegacyEventFileLoader  # type: ignore[no-any-return]


class EventsSource:
    """One run's event files, oldest first: the scalars of one step, as long as no tag repeats, are one row.

    While a run is followed, the row at the end may not be whole yet; it is kept back until the next step
    begins or a look finds nothing new.
    """

    def __init__(self, path: Path, options: SourceOptions, name: str | None = None) -> None:
        self.name = name if name is not None else str(path)
        self.run_url: str | None = None
        self.run_state: str | None = None
        self.skipped = 0
        self._examples: list[str] = []
        self._path = path
        self._options = options
        self._make = loader_class()
        self._loaders: dict[Path, Any] = {}
        self._open: dict[Path, tuple[float, dict[str, object]]] = {}
        self._events = 0
        self._usable = False
        self._yielded = 0

    @property
    def skipped_examples(self) -> list[str]:
        """At most five scalars that could not be read."""
        return list(self._examples)

    def rows(self) -> Iterator[Row]:
        """Yield the rows that are new since the last call."""
        for path in self._files():
            for row in self._read(path):
                self._yielded += 1
                self._usable = self._usable or usable(row.metrics)
                yield row
        if self._options.follow:
            return
        yield from self.finish()
        if not self._events:
            raise SourceError(
                f"{self.name} holds no readable event: it is empty, damaged or no event file: give another"
            )
        if not self._usable:
            raise SourceError(f"{self.name} holds no scalar that can be judged: log one, or give another log")

    def finish(self) -> Iterator[Row]:
        """Yield the rows that were kept back, when no more will come."""
        for path in list(self._open):
            row = self._close(path)
            if row is not None:
                self._usable = self._usable or usable(row.metrics)
                yield row

    def _files(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        try:
            return sorted(
                path for path in self._path.iterdir() if is_event_file(path.name) and path.is_file()
            )
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror or error}") from None

    def _read(self, path: Path) -> Iterator[Row]:
        fresh = False
        for event in self._new_events(path):
            self._events += 1
            if not event.HasField("summary"):
                continue
            for value in event.summary.value:
                number = self._scalar(value)
                if number is None:
                    continue
                fresh = True
                held = self._open.get(path)
                if held is not None and (held[0] != event.step or value.tag in held[1]):
                    yield make_row(*held)
                    held = None
                if held is None:
                    held = self._open[path] = (float(event.step), {})
                held[1][value.tag] = number
        if not fresh or not self._options.follow:
            row = self._close(path)
            if row is not None:
                yield row

    def _close(self, path: Path) -> Row | None:
        held = self._open.pop(path, None)
        return make_row(*held) if held else None

    def _new_events(self, path: Path) -> Iterator[Any]:
        with open_for_reading(path) as file:
            packed = is_gzip(file.read(2))
        if packed:
            if path not in self._loaders:
                self._loaders[path] = None
                yield from self._unpacked(path)
            return
        if path not in self._loaders:
            self._loaders[path] = self._make(str(path))
        yield from self._load(self._loaders[path])

    def _unpacked(self, path: Path) -> Iterator[Any]:
        from shutil import copyfileobj
        from tempfile import NamedTemporaryFile

        with NamedTemporaryFile(prefix="gatekeeper-", suffix=".tfevents") as copy:
            try:
                with gzip.open(path) as file:
                    copyfileobj(file, copy)
            except (OSError, EOFError) as error:
                raise SourceError(f"{path} is damaged gzip: {error}; decompress it by hand") from None
            copy.flush()
            yield from self._load(self._make(copy.name))

    def _load(self, loader: Any) -> Iterator[Any]:
        try:
            yield from loader.Load()
        except (OSError, ValueError, RuntimeError) as error:
            raise SourceError(f"{self.name} cannot be read as an event file: {error}") from None
        except Exception as error:  # noqa: BLE001
            # protobuf's DecodeError and tensorboard's own errors share no importable base.
            raise SourceError(f"{self.name} is damaged: {type(error).__name__}; give another log") from None

    def _scalar(self, value: Any) -> float | None:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            return float(value.simple_value)
        if kind != "tensor":
            return None
        tensor = value.tensor
        if tensor.dtype == _DT_FLOAT and not tensor.tensor_shape.dim:
            if tensor.tensor_content:
                return float(struct.unpack("<f", tensor.tensor_content[:4])[0])
            if len(tensor.float_val) == 1:
                return float(tensor.float_val[0])
        if tensor.dtype == _DT_STRING:
            return None
        try:
            array = importlib.import_module("tensorboard.util.tensor_util").make_ndarray(tensor)
            return float(array.reshape(-1)[0]) if array.size == 1 else None
        except (TypeError, ValueError, IndexError) as error:
            self.skipped += 1
            if len(self._examples) < 5:
                self._examples.append(f"event {self._events}: {value.tag[:60]!r}: {type(error).__name__}")
            return None
