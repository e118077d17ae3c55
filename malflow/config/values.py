"""Values of settings: from text as in URLs, and with the types that TOML and Python bring."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, get_args, get_origin

from malflow.config.shapes import Leaf
from malflow.connectors.option_texts import UNREADABLE, ByteCount, forms_of, kinds_of, read_text
from malflow.durations import read_duration

__all__ = ["NONE", "expected", "value_of"]

NONE = "none"
"""The text for no value, where a setting may have none."""


def value_of(raw: Any, leaf: Leaf) -> Any:
    """Return the value of a setting; `UNREADABLE` if it is of another kind.

    >>> value_of("none", Leaf(int | None)), value_of("4", Leaf(int)), value_of(True, Leaf(int)) is UNREADABLE
    (None, 4, True)
    """
    if raw is None or (isinstance(raw, str) and raw == NONE):
        return None if leaf.optional else UNREADABLE if raw is None else _of_text(raw, leaf)
    if isinstance(raw, str):
        return _of_text(raw, leaf)
    found = (_as_kind(raw, kind) for kind in kinds_of(leaf.hint))
    return next((value for value in found if value is not UNREADABLE), UNREADABLE)


def _of_text(text: str, leaf: Leaf) -> Any:
    value = read_text(text, leaf.hint)
    return tuple(value) if isinstance(value, list) else value


def _as_kind(raw: Any, kind: Any) -> Any:
    origin = get_origin(kind) or kind
    if isinstance(raw, bool) or origin is bool:
        return raw if isinstance(raw, bool) and origin is bool else UNREADABLE
    if isinstance(raw, int) and origin in (int, float, ByteCount):
        return origin(raw) if _fits(raw, origin) else UNREADABLE
    if isinstance(raw, float) and origin is float:
        return raw
    if isinstance(raw, date) and origin is datetime:
        moment = raw if isinstance(raw, datetime) else datetime(raw.year, raw.month, raw.day, tzinfo=UTC)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if isinstance(raw, timedelta) and origin is timedelta:
        return raw
    if isinstance(raw, int | float) and origin is timedelta:
        found = read_duration(f"{raw:f}" if isinstance(raw, float) else str(raw))
        return UNREADABLE if found is None else found
    if (
        isinstance(raw, list | tuple)
        and isinstance(origin, type)
        and issubclass(origin, Sequence)
        and origin is not str
    ):
        values = tuple(value_of(it, Leaf(get_args(kind)[0])) for it in raw)
        return UNREADABLE if UNREADABLE in values else values
    return UNREADABLE


def _fits(number: int, kind: Any) -> bool:
    """Whether a whole number can be of this kind."""
    try:
        kind(number)
    except OverflowError:
        return False
    return True


def expected(leaf: Leaf) -> str:
    """Return a description of the values of a setting.

    >>> expected(Leaf(int | None)), expected(Leaf(str)), expected(Leaf(Literal["a", "b"]))
    ('an integer, or none', 'a text', "'a' or 'b'")
    """
    forms = [forms_of(leaf.hint)]
    for kind in kinds_of(leaf.hint):
        origin = get_origin(kind) or kind
        if origin is str:
            forms.append("a text")
        elif origin is not Literal and isinstance(origin, type) and issubclass(origin, Sequence):
            forms.append("a list of texts")
    return " or ".join(filter(None, forms)) + (", or none" if leaf.optional else "")
