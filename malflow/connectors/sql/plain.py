"""Convert values of numpy and pandas to equal Python values, which every driver accepts."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from typing import Any

from malflow.connectors.tables.transaction_rows import RowBatch

__all__ = ["plain_batch"]

_PLAIN = frozenset({bool, int, float, str, bytes, Decimal, date, datetime, time, timedelta, type(None)})


def plain_batch(batch: RowBatch) -> RowBatch:
    """Return a batch with numbers, text and times of numpy and pandas replaced by equal Python values.

    Drivers do not handle the originals: SQLite's stores a numpy integer as its bytes, and MySQL's writes the zone of a
    Timestamp into the statement.
    """
    if _PLAIN.issuperset(map(type, chain.from_iterable(batch.rows))):
        return batch
    return batch._replace(rows=[tuple(map(_plain, row)) for row in batch.rows])


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind.__module__ == "numpy" and value.shape == () and kind.__name__ not in ("datetime64", "timedelta64"):
        return value.item()
    if isinstance(value, datetime) and value == value and not getattr(value, "nanosecond", 0):  # noqa: PLR0124 - NaT
        return datetime.combine(value.date(), value.timetz())
    return value
