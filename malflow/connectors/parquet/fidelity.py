"""Check that a column holds its original values: pyarrow truncates some fractions and drops unknown fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["first_changed"]

_COMPARED = (int, float, Decimal, date, time, timedelta)
_BYTES = (bytes, bytearray, memoryview)
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
    stored = _stored(array)
    return next(
        (
            (at, stored[at])
            for at, value in enumerate(column)
            if not _is_kept(value, stored[at], array.type, encodes=encodes)
        ),
        None,
    )


def _stored(array: pa.Array) -> list[Any]:
    """Return the values of a column for Python; those that Python lacks, such as the year 0, as Arrow's scalars."""
    try:
        values: list[Any] = array.to_pylist()
    except (ValueError, OverflowError):
        return [_python(scalar) for scalar in array]
    return values


def _python(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        return scalar


def _kept_kinds(kind: pa.DataType) -> set[type]:
    """Return the Python types that a column either rejects or keeps unchanged."""
    if pa.types.is_decimal(kind) or (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)):
        return _kept_numbers(kind)
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ns"):
        return {datetime, _NONE}
    if pa.types.is_date32(kind):
        return {date, _NONE}
    if pa.types.is_nested(kind) or pa.types.is_temporal(kind):
        return {_NONE}
    if _is_text(kind.value_type if pa.types.is_dictionary(kind) else kind):
        return {str, _NONE}
    if _is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return {bytes, _NONE}
    return {_NONE}


def _kept_numbers(kind: pa.DataType) -> set[type]:
    if pa.types.is_boolean(kind):
        return {bool, _NONE}
    if pa.types.is_integer(kind):
        return {int, _NONE}
    if pa.types.is_float16(kind):  # the only float type that rounds integers
        return {_NONE}
    return {int, float, _NONE} if pa.types.is_floating(kind) else {int, Decimal, _NONE}


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_binary(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _overflows(array: pa.Array) -> bool:
    """Whether a column of small floats has an infinity. It may have been a number."""
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
    if pa.types.is_nested(kind) and isinstance(value, (*_BYTES, str)):
        return False  # Arrow takes empty ones for a list
    if pa.types.is_struct(kind):
        fields = value if isinstance(value, dict) else _of_pairs(value)
        return (bool(fields) or fields is value) and all(
            name in stored and _is_kept(inner, stored[name], kind.field(name).type, encodes=encodes)
            for name, inner in fields.items()
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
    return _is_same(value, stored, encodes=encodes)


def _of_pairs(value: Any) -> dict[Any, Any]:
    """Return the fields of a struct with a list of pairs as its value; Arrow takes None for a pair, too."""
    return dict(value) if all(isinstance(it, tuple) for it in value) else {}


def _is_same(value: Any, stored: Any, *, encodes: bool) -> bool:
    """Whether a stored value is that of its origin, and of the same kind: Arrow makes numbers of all that has any."""
    if getattr(value, "dtype", None) is not None and value.dtype.kind in "mM":
        return _is_same_numpy_time(value, stored)
    if isinstance(stored, str | bytes):
        return _is_same_text(value, stored, encodes=encodes)
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        value = value.item()  # a scalar of numpy
    if isinstance(value, bool) or isinstance(stored, bool):
        return value is stored
    if isinstance(stored, float):
        return _is_same_float(value, stored)
    if isinstance(stored, UUID):
        return bool(stored in (value, UUID(bytes=value) if isinstance(value, bytes) else None))
    if isinstance(value, datetime) and isinstance(stored, datetime):
        return _is_same_instant(value, stored)
    return isinstance(value, _COMPARED) and bool(value == stored)


def _is_same_text(value: Any, stored: str | bytes, *, encodes: bool) -> bool:
    if isinstance(value, str):
        return str.__eq__(value, stored) if isinstance(stored, str) else encodes
    if isinstance(stored, str) or not isinstance(value, _BYTES):
        return False
    return bytes.__eq__(value, stored) if isinstance(value, bytes) else bytes(value) == stored


def _is_same_float(value: Any, stored: float) -> bool:
    """Whether a stored number equals the original, except for rounding."""
    if isinstance(value, int):
        return value == stored
    return isinstance(value, float | Decimal) and math.isinf(stored) == math.isinf(value)


def _is_same_instant(value: datetime, stored: datetime) -> bool:
    """Whether two points in time are one; Python never calls those equal that are in a fold of different zones."""
    if value == stored:
        return True
    here, there = value.utcoffset(), stored.utcoffset()
    if here is None or there is None or hasattr(value, "nanosecond") or hasattr(stored, "nanosecond"):
        return False
    return value.replace(tzinfo=None) - stored.replace(tzinfo=None) == here - there


def _is_same_numpy_time(value: Any, stored: Any) -> bool:
    kinds = date if value.dtype.kind == "M" else timedelta
    if not isinstance(stored, kinds) or getattr(stored, "tzinfo", None) is not None:
        return False
    return bool(value == type(value)(getattr(stored, "asm8", stored)))
