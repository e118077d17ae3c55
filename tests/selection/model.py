"""The meaning of operators that drop, hold back or reorder records: models that keep all records in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from malflow import MAX
from malflow.testing import PAUSE
from malflow.windows import FOREVER
from tests.windows.running import Item

Row = tuple[Any, Any, Any]
"""A key, a timestamp and a value."""


def ascending(items: Iterable[Item]) -> list[Item]:
    """Return records whose timestamps ascend by two, and differ from that by what they were."""
    return [it if it is PAUSE else (it[0], it[1] + 2 * n, it[2]) for n, it in enumerate(items)]


def events(items: Iterable[Item], bound: int) -> Iterator[tuple[Row | None, Any]]:
    """Yield each record on time with None, and each epoch with no record."""
    epoch: Any = None
    for item in items:
        if item is PAUSE:
            continue
        if epoch is None or item[1] > epoch:
            yield item, None
        if epoch is None or item[1] - bound > epoch:
            epoch = item[1] - bound
            yield None, epoch
    yield None, MAX


def on_time(items: Iterable[Item], bound: int) -> list[Row]:
    """Return the records that are on time."""
    return [row for row, _ in events(items, bound) if row is not None]


def distinct_rows(items: Iterable[Item], bound: int, within: Any) -> list[Row]:
    """Return the records that none before them repeats."""
    passed: list[Row] = []
    for key, at, value in on_time(items, bound):
        if not any((k, v) == (key, value) and (within is FOREVER or abs(t - at) < within) for k, t, v in passed):
            passed.append((key, at, value))
    return passed


def changed_rows(items: Iterable[Item], bound: int) -> list[Row]:
    """Return the records that differ from their key's record before."""
    rows = on_time(items, bound)
    return [
        row for n, row in enumerate(rows) if next((v for k, _, v in reversed(rows[:n]) if k == row[0]), None) != row[2]
    ]


def limited_rows(items: Iterable[Item], bound: int, n: int, per: int) -> tuple[list[Row], list[Row]]:
    """Return the records that leave at most `n` in each span, and the others."""
    passed: list[Row] = []
    held_back: list[Row] = []
    for row in on_time(items, bound):
        times = [at for key, at, _ in passed if key == row[0]]
        after = [*times, row[1]]
        fits = all(sum(start <= at < start + per for at in after) <= n for start in after)
        newer = sum(at > row[1] for at in times)
        (passed if fits and newer <= n else held_back).append(row)
    return passed, held_back


def throttled_rows(items: Iterable[Item], bound: int, n: int, per: int) -> tuple[list[Row], list[Row]]:
    """Return the records that find a whole token, and the others."""
    buckets: dict[Any, tuple[Fraction, int]] = {}
    passed: list[Row] = []
    held_back: list[Row] = []
    for row in on_time(items, bound):
        tokens, then = buckets.get(row[0], (Fraction(n), row[1]))
        now = max(then, row[1])
        tokens = min(Fraction(n), tokens + Fraction(n * (now - then), per))
        (passed if tokens >= 1 else held_back).append(row)
        buckets[row[0]] = (tokens - 1 if tokens >= 1 else tokens, now)
    return passed, held_back


def sorted_rows(items: Iterable[Item], bound: int, tie: Callable[[Any], Any]) -> list[Row]:
    """Return the records in the order of their timestamps, as epochs release them."""
    waiting: list[Row] = []
    released: list[Row] = []
    for row, epoch in events(items, bound):
        if row is not None:
            waiting.append(row)
            continue
        due = [it for it in waiting if epoch is MAX or it[1] <= epoch]
        released += sorted(due, key=lambda it: (it[1], tie(it[2])))
        waiting = [it for it in waiting if it not in due]
    return released


def batched_rows(items: Iterable[Item], bound: int, size: int, within: int) -> list[Row]:
    """Return the lists of each key; the epochs do not matter."""
    lists: list[Row] = []
    for key, rows in by_key(on_time(items, bound)).items():
        while rows:
            end = rows[0][1] + within
            behind = next((n for n, row in enumerate(rows) if row[1] >= end), len(rows))
            taken, rows = rows[: min(size, behind)], rows[min(size, behind) :]  # noqa: PLW2901 - it is consumed
            at = taken[-1][1] if len(taken) == size else end
            lists.append((key, at, [value for _, _, value in taken]))
    return lists


def by_key(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    """Return the records of each key in their order."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found
