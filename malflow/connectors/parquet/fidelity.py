"""Check that a column holds its original values: pyarrow truncates some fractions and drops unknown fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_changed"]

_COMPARED = (bool, int, float, Decimal, str, bytes, date, time, timedelta)
_NONE = type(None)


def first_changed(array: pa.Array, column: Sequence[Any], *, encodes: bool = False) -> tuple[int, Any] | None:
    """Return the index of the first value that a column has changed, and the changed value; None if none has changed.

    Args:
        array: the column.
        column: the original values.
        encodes: whether a column of bytes may hold texts in UTF-8, as its schema says.

    >>> first_changed(pa.array([1, 2.5], pa.int64()), [1, 2.5])
    (1, 2)
    """
    kinds = set(map(type, column))
    if encodes and _is_binary(array.type):
        kinds.discard(str)
    if kinds <= _kept_kinds(array.type) and not _overflows(array):
        zoned = datetime in kinds and pa.types.is_timestamp(array.type)
        return _first_of_other_zone(array.type, column) if zoned else None
    stored = array.to_pylist()
    return next(
        (
            (at, stored[at])
            for at, value in enumerate(column)
            if not _is_kept(value, stored[at], array.type, encodes=encodes)
        ),
        None,
    )


def _kept_kinds(kind: pa.DataType) -> set[type]:
    """Return the Python types whose values a column either rejects or keeps unchanged."""
    if pa.types.is_integer(kind):
        return {int, _NONE}
    if pa.types.is_float16(kind):  # the only float type that rounds integers
        return {_NONE}
    if pa.types.is_floating(kind):
        return {int, float, _NONE}
    if pa.types.is_decimal(kind):
        return {int, Decimal, _NONE}
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"):
        return {datetime, _NONE}
    if pa.types.is_date32(kind):
        return {date, _NONE}
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        return {_NONE}
    if _is_text(kind):
        return {str, _NONE}
    if _is_binary(kind):
        return {bytes, _NONE}
    return {bool, str, bytes, _NONE}


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_binary(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _overflows(array: pa.Array) -> bool:
    """Whether a column of small floats has an infinity, which may have been a number."""
    return bool(pa.types.is_float32(array.type) and pc.any(pc.is_inf(array)).as_py())


def _first_of_other_zone(kind: pa.DataType, column: Sequence[Any]) -> tuple[int, Any] | None:
    """Return the first time with a zone in a column without one, or the reverse."""
    wants = kind.tz is not None
    for at, value in enumerate(column):
        if value is not None and (value.tzinfo is not None) != wants:
            return at, f"a time {'with' if wants else 'without'} time zone"
    return None


def _is_kept(value: Any, stored: Any, kind: pa.DataType, *, encodes: bool) -> bool:
    if value is None or stored is None:
        return value is stored
    if pa.types.is_struct(kind):
        return not isinstance(value, dict) or all(
            name in stored and _is_kept(inner, stored[name], kind.field(name).type, encodes=encodes)
            for name, inner in value.items()
        )
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        return len(pairs) == len(stored) and all(
            _is_kept(key, held_key, kind.key_type, encodes=encodes)
            and _is_kept(item, held, kind.item_type, encodes=encodes)
            for (key, item), (held_key, held) in zip(pairs, stored, strict=True)
        )
    if pa.types.is_nested(kind):
        return len(value) == len(stored) and all(
            _is_kept(inner, held, kind.value_type, encodes=encodes) for inner, held in zip(value, stored, strict=True)
        )
    if pa.types.is_floating(kind):
        return _is_same_float(value, stored)
    if not isinstance(value, _COMPARED):
        return True
    if type(value) is datetime and not isinstance(stored, datetime):
        return False
    if isinstance(value, str | bytes) and isinstance(stored, str | bytes):
        return isinstance(value, str) == isinstance(stored, str) or (encodes and isinstance(value, str))
    if pa.types.is_integer(kind) or not isinstance(stored, str | bytes):
        return not isinstance(value, type(stored) | int | float | Decimal) or bool(value == stored)
    return True


def _is_same_float(value: Any, stored: float) -> bool:
    """Whether a stored number equals the original, except for rounding."""
    if isinstance(value, int):
        return value == stored
    return not isinstance(value, float) or math.isinf(stored) == math.isinf(value)
