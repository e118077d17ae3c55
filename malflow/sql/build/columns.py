"""Columns of Arrow at the door: items of a type that fits are taken as they are, with no look at each value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from malflow.records.column import is_column
from malflow.records.columnar import Columnar
from malflow.sql.bind.scope import Field
from malflow.sql.types import INTEGERS, LONGEST, TIMES, SqlType

__all__ = ["columns_of"]

_CLASSES: dict[str, type] = {
    "BIGINT": int,
    "DOUBLE": float,
    "BOOLEAN": bool,
    "VARBINARY": bytes,
    "VARCHAR": str,
    **dict.fromkeys(INTEGERS, int),
}
"""The classes of values that types hold as they are."""

_DIGITS = {"s": 0, "ms": 3, "us": 6}
"""The digits of a second in the units of Arrow."""


def columns_of(values: Columnar[Any], fields: Sequence[Field]) -> tuple[list[Sequence[Any]], tuple[int, ...]] | None:
    """Return the items of columns, and the places of columns with items that may not fit; None if one is missing."""
    found: list[Sequence[Any]] = []
    unsure: list[int] = []
    for at, it in enumerate(fields):
        column = values.column(it.name)
        if column is None:
            return None
        instants = _instants(column, it.type) if it.type.kind in TIMES else None
        if instants is None and not _all_fit(column, it.type):
            unsure.append(at)
        found.append(column.tolist() if instants is None and is_column(column) else instants or column)
    return found, tuple(unsure)


def _all_fit(column: Sequence[Any], kind: SqlType) -> bool:
    """Whether all items of a column are known to fit a type, by the type of the column."""
    if kind.kind not in _CLASSES or (kind.size and kind.size != LONGEST):
        return False
    kinds = column.kinds() if is_column(column) else {*map(type, column)}
    if kind.nullable:
        kinds = kinds - {type(None)}
    if not kinds <= {_CLASSES[kind.kind]}:
        return False
    bits = re.fullmatch(r"int(\d+)", str(getattr(column, "kind", "")))
    return kind.kind not in INTEGERS or (bits is not None and int(bits[1]) <= INTEGERS[kind.kind])


def _instants(column: Any, kind: SqlType) -> list[int] | None:
    """Return instants as whole numbers in the unit of a type; None if that needs a look at each, or some are NULL."""
    unit = re.fullmatch(r"timestamp\[(\w+)(, tz=UTC)?\]", str(getattr(column, "kind", "")))
    if unit is None or column.numbers is None or (unit[2] is None) is (kind.kind == "TIMESTAMP_LTZ"):
        return None
    more = kind.size - _DIGITS.get(unit[1], kind.size + 1)
    if more < 0:
        return None
    numbers: list[int] = column.numbers.tolist()
    return [it * 10**more for it in numbers] if more else numbers
