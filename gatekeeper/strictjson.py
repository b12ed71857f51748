"""Strict JSON: non-finite numbers are the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from gatekeeper.verdict import json_number

__all__ = ["dumps", "finite"]

_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can escape it, UTF-8 cannot


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


def dumps(value: Any) -> str:
    """Return ``value`` as one line of strict JSON; what JSON cannot hold is written as its ``str``."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str)
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
