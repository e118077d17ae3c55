"""Operators that drop, hold back or reorder records behave the same on every runtime."""

from __future__ import annotations

from typing import Any

import pytest

from malflow.windows import FOREVER
from tests.conformance.dataflow import messages_of, values_of
from tests.conformance.test_windows import READINGS, stamped
from tests.selection.model import batched_rows, by_key, changed_rows, distinct_rows, limited_rows, throttled_rows

BOUND = 9
ROWS = [(reading["sensor"], reading["at"], reading["at"] // 9) for reading in READINGS]


def rows_of(runtime: Any, add: Any) -> dict[Any, list[Any]]:
    """Return the rows that operators emit, by key."""

    def build(stream: Any) -> Any:
        return add(stamped(stream, BOUND).map("value", lambda reading: reading["at"] // 9))

    return by_key((it.key, it.timestamp, it.value) for it in messages_of(runtime, READINGS, build))


def test_distinct(any_parallelism: Any) -> None:
    rows = rows_of(any_parallelism, lambda keyed: keyed.distinct("distinct", lambda value: value, within=5))
    assert rows == by_key(distinct_rows(ROWS, BOUND, 5))
    rows = rows_of(any_parallelism, lambda keyed: keyed.distinct("distinct", within=FOREVER))
    assert rows == by_key(distinct_rows(ROWS, BOUND, FOREVER))


def test_changes(any_parallelism: Any) -> None:
    assert rows_of(any_parallelism, lambda keyed: keyed.changes("changes")) == by_key(changed_rows(ROWS, BOUND))


@pytest.mark.parametrize(("kind", "model"), [("sliding", limited_rows), ("bucket", throttled_rows)])
def test_throttle(any_parallelism: Any, kind: Any, model: Any) -> None:
    def mark(keyed: Any) -> Any:
        passed, held_back = keyed.throttle("limit", 2, per=20, kind=kind)
        return passed.union(held_back.map("negative", lambda value: -value - 1))

    rows = rows_of(any_parallelism, mark)
    passed, held_back = model(ROWS, BOUND, 2, 20)
    assert passed
    assert held_back
    assert by_key(row for key in rows for row in rows[key] if row[2] >= 0) == by_key(passed)
    assert {row[1] for key in rows for row in rows[key] if row[2] < 0} == {row[1] for row in held_back}


def test_batch(any_parallelism: Any) -> None:
    rows = rows_of(any_parallelism, lambda keyed: keyed.batch("lists", 3, within=20))
    assert rows == by_key(batched_rows(ROWS, BOUND, 3, 20))


def test_sample(any_parallelism: Any) -> None:
    rows = values_of(any_parallelism, range(100), lambda stream: stream.sample("sample", 0.05))
    assert sorted(rows) == [30, 59, 71, 93]


def test_records_in_order(any_parallelism: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream, 50).sort("sort", "value")

    by_key: dict[str, list[int]] = {}
    for message in messages_of(any_parallelism, READINGS, build):
        by_key.setdefault(message.key, []).append(message.timestamp)
    assert sum(map(len, by_key.values())) == len(READINGS)
    assert all(ats == sorted(ats) for ats in by_key.values())


def test_epochs_release_records(runtime: Any) -> None:
    def build(stream: Any) -> Any:
        return stamped(stream, 50).sort("sort").changes("changes", lambda reading: reading["at"] // 100)

    assert [reading["at"] // 100 for reading in values_of(runtime, READINGS[::3], build)] == [0, 1]
