"""Convert values of numpy and pandas to equal Python values, which every driver accepts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

from malflow.connectors.sql.errors import SqlError
from malflow.connectors.tables.transaction_rows import RowBatch
from malflow.words import short_repr

__all__ = ["plain_batch", "plain_value"]

_PLAIN = frozenset({bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, type(None)})


def plain_batch(batch: RowBatch, without_zone: Collection[str] = ()) -> RowBatch:
    """Return a batch with numbers, text and times of numpy, pandas and subclasses replaced by equal Python values.

    Drivers do not handle the originals: SQLite's stores a numpy integer as its bytes, and MySQL's writes the zone of a
    Timestamp, or the name of a member of an enum, into the statement.

    Args:
        batch: the rows.
        without_zone: columns of times without zones, in which a time with a zone is written in UTC.
    """
    if not _PLAIN.issuperset(map(type, chain.from_iterable(batch.rows))):
        batch = batch._replace(rows=[tuple(map(plain_value, row)) for row in batch.rows])
    before = int(batch.operation == "merge")
    for place, name in enumerate(batch.columns, before):
        if name in without_zone and any(getattr(row[place], "tzinfo", None) is not None for row in batch.rows):
            batch = batch._replace(rows=[(*row[:place], _in_utc(row[place]), *row[place + 1 :]) for row in batch.rows])
    return batch


def _in_utc(value: Any) -> Any:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return value
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except OverflowError as error:
        raise SqlError(
            f"{short_repr(value)} has no time in UTC ({error}); write one within the years 1 to 9999"
        ) from None


def plain_value(value: Any) -> Any:
    """Return the value of Python's own that one of numpy, pandas or a subclass equals; others as they are."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    for base, plain in _PLAIN_OF.items():
        if isinstance(value, base):
            return plain(value)
    if kind.__module__ == "numpy" and value.shape == () and kind.__name__ not in ("datetime64", "timedelta64"):
        return value.item()
    if isinstance(value, datetime) and value == value and not getattr(value, "nanosecond", 0):  # noqa: PLR0124 - NaT
        return datetime.combine(value.date(), value.timetz())
    if isinstance(value, timedelta) and value == value and not getattr(value, "nanoseconds", 0):  # noqa: PLR0124 - NaT
        return timedelta(value.days, value.seconds, value.microseconds)
    return value


_PLAIN_OF: Mapping[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytes,
    memoryview: bytes,
    Decimal: Decimal,
}
"""The values of subclasses, such as those of enums, whatever methods they have: numpy's item() drops NUL at the end."""
