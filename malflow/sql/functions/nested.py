"""Arrays and maps, as the generated code works with them: tuples and dicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["array_joined", "array_max", "array_min", "array_place", "element", "holds", "only"]


def element(items: Sequence[Any], place: int) -> Any:
    """Return an element by its place, counted from 1; None if there is none."""
    return items[place - 1] if 0 < place <= len(items) else None


def only(items: Sequence[Any]) -> Any:
    """Return the only element; None if there is none.

    Raises:
        ValueError: if there are more.
    """
    if len(items) > 1:
        raise ValueError(f"ELEMENT takes an array of one element, got {len(items)}")
    return items[0] if items else None


def holds(items: Sequence[Any] | None, wanted: Any) -> bool | None:
    """Whether a value is in an array; NULL may be."""
    return None if items is None else wanted in items


def array_place(items: Sequence[Any], wanted: Any) -> int:
    """Return the place of a value, counted from 1; 0 if it is not there."""
    return next((at for at, it in enumerate(items, 1) if it == wanted), 0)


def array_max(items: Sequence[Any]) -> Any:
    """Return the largest element that is not NULL."""
    return max((it for it in items if it is not None), default=None)


def array_min(items: Sequence[Any]) -> Any:
    """Return the least element that is not NULL."""
    return min((it for it in items if it is not None), default=None)


def array_joined(items: Sequence[str | None], separator: str, instead: str | None = None) -> str:
    """Return the texts of an array with a separator between them, without NULLs or with a text instead."""
    return separator.join(it if it is not None else instead for it in items if it is not None or instead is not None)  # type: ignore[misc]  # NULLs are replaced
