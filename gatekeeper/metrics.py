"""Turn what trainers log into flat metric rows."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["flatten", "to_float"]


def flatten(metrics: Mapping[str, object], *, separator: str = "/", depth: int = 8) -> dict[str, object]:
    """Return nested mappings as one flat dict; a literal key wins over a nested path of the same name."""
    flat: dict[str, object] = {}
    nested: list[tuple[str, Mapping[str, object]]] = []
    for key, value in metrics.items():
        if isinstance(value, Mapping):
            nested.append((str(key), value))
        else:
            flat[str(key)] = value
    if depth > 0:
        for key, value in nested:
            for inner, item in flatten(value, separator=separator, depth=depth - 1).items():
                flat.setdefault(f"{key}{separator}{inner}", item)
    return flat


def to_float(value: object) -> float | None:
    """Return a logged value as a float (booleans too), or None where it is no number: text, arrays, None."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        if not text or len(text) > 40:
            return None
        try:
            return float(text)
        except ValueError:
            return None
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:  # an integer that no float holds
        return float("inf") if value > 0 else float("-inf")  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - a logged object's own __float__ may raise anything
        return None
