"""The meaning of joins: nested loops over all records of both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["Record", "asof_joined", "interval_joined", "on_time"]

Record = tuple[Any, Any, Any]
"""A key, a timestamp and a value."""


def on_time(records: Iterable[Record], bound: Any) -> list[Record]:
    """Return the records, in order of arrival, that are not late."""
    newest: Any = None
    found: list[Record] = []
    for key, timestamp, value in records:
        if newest is None or timestamp > newest - bound:
            found.append((key, timestamp, value))
        newest = timestamp if newest is None else max(newest, timestamp)
    return found


def interval_joined(left: Sequence[Record], right: Sequence[Record], before: Any, after: Any, how: str) -> Counter[Any]:
    """Return the results as ``(key, (left, right), timestamp)``."""
    found: Counter[Any] = Counter()
    paired: set[tuple[str, int]] = set()
    for at, (key, one, value) in enumerate(left):
        for index, (other_key, other, partner) in enumerate(right):
            if key == other_key and one - before <= other <= one + after:
                found[key, (value, partner), max(one, other)] += 1
                paired |= {("left", at), ("right", index)}
    for side, records, reach in (("left", left, after), ("right", right, before)):
        for at, (key, timestamp, value) in enumerate(records if how in (side, "outer") else ()):
            if (side, at) not in paired:
                pair = (value, None) if side == "left" else (None, value)
                found[key, pair, max(timestamp, timestamp + reach)] += 1
    return found


def asof_joined(
    left: Sequence[Record], right: Sequence[Record], tolerance: Any, how: str, tie: Callable[[Any], Any] = lambda _: 0
) -> Counter[Any]:
    """Return the results as ``(key, (left, right), timestamp)``."""
    found: Counter[Any] = Counter()
    for key, timestamp, value in left:
        best: Record | None = None
        for record in right:
            near = record[0] == key and record[1] <= timestamp
            if near and (tolerance is None or timestamp - record[1] <= tolerance):
                best = record if best is None or _rank(record, tie) >= _rank(best, tie) else best
        if best is not None or how == "left":
            found[key, (value, None if best is None else best[2]), timestamp] += 1
    return found


def _rank(record: Record, tie: Callable[[Any], Any]) -> tuple[Any, Any]:
    return record[1], tie(record[2])
