"""Python objects as arrays of Arrow, from which equal objects of the same types come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from malflow.columns.arrays import canonical, in_microseconds
from malflow.columns.column import PYTHON_TYPES, Column, Constant
from malflow.words import error_text, short_repr

__all__ = ["UnfitItem", "array_of", "array_of_column"]

_PLAIN = frozenset({int, float, bool, str, bytes, date, time, timedelta})
"""Types of items that come back from an array as they were."""

_DIGITS = 38
"""The digits of a decimal that 128 bits hold."""

_FAULTS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The exceptions by which Arrow refuses an object."""


class UnfitItem(ValueError):
    """An object does not fit into a column.

    Attributes:
        row: its position.
    """

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def array_of(items: Sequence[Any], name: str, kind: pa.DataType | None = None) -> pa.Array:
    """Return objects as an array.

    Args:
        items: the objects; None is null.
        name: the name of the column, for the error.
        kind: the type of the array; None for the type of the objects. They must then have one.

    Raises:
        UnfitItem: if an object does not fit.

    >>> array_of([1, None], "n").type, array_of([1, None], "n", pa.float64()).to_pylist()
    (DataType(int64), [1.0, None])
    """
    if kind is None:
        _check_kinds(items, name)
    try:
        array = canonical(pa.array(items, kind))
    except _FAULTS as error:
        at = next((at for at, item in enumerate(items) if not _is_fit(item, kind)), 0)
        raise UnfitItem(_unfit(name, items[at], kind, error_text(error)), at) from error
    _check_again(items, array, name, is_stated=kind is not None)
    if kind is None and pa.types.is_decimal128(array.type):  # the digits of other batches may be more
        return array.cast(pa.decimal128(_DIGITS, array.type.scale))
    exact = in_microseconds(array.type)
    return array if exact is None else array.cast(exact)


def array_of_column(items: Sequence[Any], name: str) -> pa.Array:
    """Return keys or timestamps as an array.

    Raises:
        UnfitItem: if they do not fit into one.
    """
    if isinstance(items, Column):
        return items.array
    if isinstance(items, Constant):
        indices = pa.repeat(pa.scalar(0, pa.int32()), len(items))
        return pa.DictionaryArray.from_arrays(indices, array_of([items.value], name))
    return array_of(list(items), name)


def _check_kinds(items: Sequence[Any], name: str) -> None:
    """Check that objects have one type.

    Raises:
        UnfitItem: naming the first one of another type.
    """
    kinds = set(map(type, items)) - {type(None)}
    if len(kinds) > 1:
        first = next(item for item in items if item is not None)
        at = next(at for at, item in enumerate(items) if item is not None and type(item) is not type(first))
        raise UnfitItem(
            f"column '{name}' has {short_repr(items[at])}, of type {type(items[at]).__name__}, after "
            f"{short_repr(first)}, of type {type(first).__name__}; {_CURE}",
            at,
        )
    if kinds == {datetime}:
        zones = {id(item.tzinfo): item for item in items if item is not None}
        if len(zones) > 1:
            first, other = [*zones.values()][:2]
            at = next(at for at, item in enumerate(items) if item is other)
            raise UnfitItem(f"column '{name}' has times in several zones: {first} and {other}; convert them to UTC", at)


_CURE = "convert such values by .map() first, or pass schema= with the column's type"


def _check_again(items: Sequence[Any], array: pa.Array, name: str, *, is_stated: bool) -> None:
    """Check that an array has the objects of which it was made. Arrow makes 2 of 2.5 where a type is stated.

    Raises:
        UnfitItem: naming the first one that is another in it.
    """
    kinds = set(map(type, items)) - {type(None)}
    if kinds <= (_own_types(array.type) if is_stated else _PLAIN):
        return
    same = _is_near if is_stated else _is_alike
    for at, (item, again) in enumerate(zip(items, array.to_pylist(), strict=True)):
        if not same(item, again):
            why = f"it would become {short_repr(again)}, of type {type(again).__name__}"
            raise UnfitItem(_unfit(name, item, array.type if is_stated else None, why), at)


def _own_types(kind: pa.DataType) -> frozenset[type]:
    """Return the types of objects that an array of a type keeps, however they are."""
    found = next((python for holds, python in PYTHON_TYPES if holds(kind)), None)
    return frozenset() if found in (None, datetime) else frozenset({found})


def _is_alike(item: Any, again: Any) -> bool:
    """Whether an object has come back as it was."""
    return type(item) is type(again) and (repr(item) == repr(again) if isinstance(item, Decimal) else item == again)


def _is_near(item: Any, again: Any) -> bool:
    """Whether an object has come back as an equal one, or as the nearest float."""
    if isinstance(again, float):
        return isinstance(item, int | float) and not isinstance(item, bool)
    return bool((list(item) if isinstance(item, tuple) else item) == again)


def _is_fit(item: Any, kind: pa.DataType | None) -> bool:
    try:
        pa.array([item], kind)
    except _FAULTS:
        return False
    return True


def _unfit(name: str, item: Any, kind: pa.DataType | None, why: str) -> str:
    to = "" if kind is None else f" of type {kind}"
    return f"column '{name}'{to} can't have {short_repr(item)}, of type {type(item).__name__}: {why}; {_CURE}"
