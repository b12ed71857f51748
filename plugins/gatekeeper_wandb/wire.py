"""The protobuf wire format, as far as reading `.wandb` records needs it (no protobuf import, no schema)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["WireError", "fields", "signed", "text", "zigzag"]

_FIXED64 = struct.Struct("<d")
_FIXED32 = struct.Struct("<f")
_TRUNCATED = "a field reaches beyond its message"


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def fields(data: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield (field number, value) of one message, in the order written.

    Varints come as unsigned ints (see `signed` and `zigzag`), fixed-width fields as floats, strings and
    nested messages as bytes.

    Raises:
        WireError: The bytes are no message.

    """
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag > 0x7F:
            tag, position = _varint(data, position, tag)
        kind = tag & 7
        if kind == 2:
            if position >= end:
                raise WireError(_TRUNCATED)
            length = data[position]
            position += 1
            if length > 0x7F:
                length, position = _varint(data, position, length)
            stop = position + length
            if stop > end:
                raise WireError(_TRUNCATED)
            yield tag >> 3, data[position:stop]
            position = stop
        elif kind == 0:
            if position >= end:
                raise WireError(_TRUNCATED)
            value = data[position]
            position += 1
            if value > 0x7F:
                value, position = _varint(data, position, value)
            yield tag >> 3, value
        elif kind in (1, 5):
            layout = _FIXED64 if kind == 1 else _FIXED32
            stop = position + layout.size
            if stop > end:
                raise WireError(_TRUNCATED)
            yield tag >> 3, layout.unpack_from(data, position)[0]
            position = stop
        else:
            raise WireError(f"unknown wire type {kind}")


def _varint(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Return the varint whose first byte (with its continuation bit) was already read, and where it ends."""
    value, shift = first & 0x7F, 7
    while True:
        if position >= len(data) or shift > 63:
            raise WireError("a number does not end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def signed(value: int | float | bytes) -> int:
    """Return a varint read as a two's complement int64 (proto `int32` and `int64`)."""
    if not isinstance(value, int):
        raise WireError("expected a whole number")
    return value - (1 << 64) if value >= 1 << 63 else value


def zigzag(value: int | float | bytes) -> int:
    """Return a varint read as zigzag (proto `sint64`)."""
    if not isinstance(value, int):
        raise WireError("expected a whole number")
    return (value >> 1) ^ -(value & 1)


def text(value: int | float | bytes) -> str:
    """Return a string field; bytes that are no UTF-8 are replaced, since a name must not cost the row."""
    if not isinstance(value, bytes):
        raise WireError("expected text")
    return value.decode("utf-8", "replace")
