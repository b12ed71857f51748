"""Strict JSON: non-finite numbers are the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from gatekeeper.verdict import json_number

__all__ = ["dumps", "finite"]


def finite(value: Any) -> Any:
    """Return ``value`` with every non-finite float, at any depth, replaced by its string."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [finite(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a NumPy scalar or 0-d array
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return json_number(value)
    return value


def dumps(value: Any, *, ascii_only: bool = False) -> str:
    """Return ``value`` as one line of strict JSON; what JSON cannot hold is written as its ``str``.

    With ``ascii_only`` every other character is an escape, so that any output encoding can hold it.
    """
    return json.dumps(finite(value), ensure_ascii=ascii_only, allow_nan=False, default=str)
