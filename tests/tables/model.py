"""The meaning of tables: folds, joins and counts, record by record over plain dicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["Record", "changed", "changed_rows", "counted", "folded", "joined_in_time", "joined_tables", "on_time"]

Record = tuple[Any, Any, Any]
"""A key, a timestamp and a row or None."""

Changed = tuple[Any, Any, Any, Any]
"""A key, a timestamp, the row before and the row after."""


def on_time(records: Iterable[Record], bound: Any) -> list[tuple[Record, Any]]:
    """Return the records that are not late, each with the epoch after it."""
    epoch: Any = None
    found: list[tuple[Record, Any]] = []
    for record in records:
        if epoch is None or record[1] > epoch:
            epoch = record[1] - bound if epoch is None else max(epoch, record[1] - bound)
            found.append((record, epoch))
    return found


def changed(records: Iterable[Record]) -> list[Changed]:
    """Return the changes of a table."""
    table: dict[Any, Any] = {}
    found: list[Changed] = []
    for key, timestamp, row in records:
        before = table.get(key)
        table[key] = row
        if before != row:
            found.append((key, timestamp, before, row))
    return found


def changed_rows(records: Iterable[tuple[Record, Any]], ttl: Any) -> list[Changed]:
    """Return the changes of a table whose rows expire; each record has the epoch after it."""
    table: dict[Any, tuple[Any, Any]] = {}
    found: list[Changed] = []
    for (key, timestamp, row), epoch in records:
        before = table.pop(key, (None, None))[0]
        if row is not None:
            table[key] = (row, timestamp + ttl)
        if before != row:
            found.append((key, timestamp, before, row))
        for old, (last, due) in sorted(table.items(), key=lambda it: it[1][1]):
            if due <= epoch:
                del table[old]
                found.append((old, due, last, None))
    return found


def folded(changes: Iterable[Changed]) -> dict[Any, Any]:
    """Return the table that changes make; each must begin with the row so far."""
    table: dict[Any, Any] = {}
    for key, _, before, after in changes:
        assert table.pop(key, None) == before
        assert before != after
        if after is not None:
            table[key] = after
    return table


def joined_in_time(left: Sequence[Record], rows: Sequence[Record], how: str) -> Counter[Any]:
    """Return the pairs of each left record with the row that was valid at its time, of equal times the last."""
    found: Counter[Any] = Counter()
    for key, timestamp, value in left:
        valid: Any = (None, None)
        for other, since, row in rows:
            if other == key and since <= timestamp and (valid[0] is None or since >= valid[0]):
                valid = (since, row)
        if how == "left" or valid[1] is not None:
            found[key, (value, valid[1]), timestamp] += 1
    return found


def joined_tables(left: dict[Any, Any], right: dict[Any, Any], how: str) -> dict[Any, Any]:
    """Return the join of two whole tables, whose joined rows are pairs."""
    keys = {"inner": left.keys() & right.keys(), "left": left.keys(), "outer": left.keys() | right.keys()}[how]
    return {key: (left.get(key), right.get(key)) for key in keys}


def counted(table: dict[Any, Any], group: Callable[[Any], Any]) -> Counter[Any]:
    """Return how many rows each group has."""
    return Counter(map(group, table.values()))
