"""The batches of a transaction, applied as by a database, compared with the table of the original changes."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from malflow.connectors.tables.change import UNCHANGED, Change
from malflow.connectors.tables.rows import RowShape
from malflow.connectors.tables.transaction_rows import RowBatch, TransactionRows
from malflow.errors import MalflowError

SHAPE = RowShape("t", ("id", "a", "large"), ("id",))
NOW = datetime(2024, 1, 1, tzinfo=UTC)

Table = dict[int, tuple[int, int, str]]


def changed(table: Table, rng: random.Random, number: int) -> Change:
    """Change a table at random; return the change as the server describes it."""
    free = [key for key in range(5) if key not in table]
    kind = rng.choice(("insert", "update", "move", "move", "delete", "truncate" if number % 20 == 0 else "move"))
    if not table or (kind in ("insert", "move") and not free):
        kind = "insert" if free else "delete"
    if kind == "truncate":
        table.clear()
        return Change("truncate", "t", None, None, 0, NOW)
    if kind == "insert":
        key = rng.choice(free)
        table[key] = key, number, f"large {number}"
        return Change("insert", "t", None, row_of(table[key]), 0, NOW)
    key = rng.choice(list(table))
    _, _, large = table.pop(key)
    if kind == "delete":
        return Change("delete", "t", {"id": key}, None, 0, NOW)
    new = rng.choice(free) if kind == "move" else key
    is_sent = rng.random() < 0.2
    table[new] = new, number, f"large {number}" if is_sent else large
    row = row_of(table[new]) if is_sent else {**row_of(table[new]), "large": UNCHANGED}
    return Change("update", "t", {"id": key} if new != key else None, row, 0, NOW)


def row_of(row: tuple[int, int, str]) -> dict[str, Any]:
    return dict(zip(SHAPE.columns, row, strict=True))


def apply(table: Table, batch: RowBatch, rng: random.Random) -> None:
    """Apply a batch as one statement does: in no order, each row by itself."""
    rows: list[Any] = list(batch.rows)
    rng.shuffle(rows)
    before = dict(table)
    for row in rows:
        if batch.operation == "delete":
            table.pop(row[0], None)
        elif batch.operation == "upsert":
            table[row[0]] = row
        else:
            new = dict(zip(batch.columns[1:], row[1:], strict=True))
            _, _, large = before[row[0]]
            del table[row[0]]
            assert new.get("id") not in table, f"duplicate key {new}"
            key = new.get("id", row[0])
            table[key] = (key, new["a"], new.get("large", large))


@pytest.mark.parametrize("seed", range(60))
def test_tables_whose_keys_change_while_large_values_do_not(seed: int) -> None:
    rng, rows = random.Random(seed), TransactionRows(SHAPE)  # noqa: S311 - no secret
    source: Table = {}
    target: Table = {}
    for number in range(1, 60):
        rows.add([None], [changed(source, rng, number)])
        if rng.random() < 0.15:
            if rows.cleared:
                target.clear()
            for batch in rows.batches():
                apply(target, batch, rng)
            rows.reset()
            assert target == source


def test_key_that_was_not_sent() -> None:
    change = Change("update", "t", None, {"id": UNCHANGED, "a": 1, "large": ""}, 0, NOW)
    with pytest.raises(MalflowError, match=r"a key was not sent.*replica identity full"):
        TransactionRows(SHAPE).add([None], [change])


SPELLINGS = [name for plain in "abc" for name in (plain, plain.upper(), f"{plain} ")]


def written_one_by_one(events: list[tuple[str, int | None]]) -> dict[str, int]:
    """Return what a server has that ignores case and spaces, and is told of each event by itself."""
    table: dict[str, int] = {}
    for key, value in events:
        table.pop(key.strip().lower(), None)
        if value is not None:
            table[key.strip().lower()] = value
    return table


@pytest.mark.parametrize("seed", range(60))
def test_keys_that_only_the_server_takes_for_equal(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    rows = TransactionRows(RowShape("t", ("id", "a"), ("id",)), [frozenset({int})])
    events = [(rng.choice(SPELLINGS), rng.choice((None, number))) for number in range(rng.randrange(1, 30))]
    written: list[tuple[str, int | None]] = []
    for number, (key, value) in enumerate(events, 1):
        rows.add([key], [None if value is None else {"id": key, "a": value}])
        if rng.random() < 0.15 or number == len(events):
            merged = [row for batch in rows.batches() for row in batch.rows]
            written += [(name, None if is_deleted else last) for is_deleted, name, last in merged]
            rows.reset()
            assert written_one_by_one(written) == written_one_by_one(events[:number])


def test_keys_that_python_compares_otherwise_begin_a_batch() -> None:
    rows = TransactionRows(RowShape("t", ("id", "a"), ("id",)), [frozenset({int})])
    rows.add([1, 2], [{"id": 1, "a": 1}, {"id": 2, "a": 2}])
    rows.add(["1", True], [None, {"id": True, "a": 3}])
    rows.add([1], [{"id": 1, "a": 4}])
    assert [(batch.operation, batch.rows) for batch in rows.batches()] == [
        ("upsert", [(1, 1), (2, 2)]),
        ("merge", [(True, "1", None), (False, True, 3), (False, 1, 4)]),
    ]
    unchanged = Change("update", "t", {"id": "x"}, {"id": "y", "a": UNCHANGED}, 0, NOW)
    rows.reset()
    rows.add([None], [{"id": "x", "a": 1}])
    rows.add([None, None], [unchanged, Change("update", "t", {"id": "X"}, {"id": "z", "a": UNCHANGED}, 0, NOW)])
    rows.add([None], [{"id": "Z", "a": 2}])
    assert [(batch.operation, batch.rows) for batch in rows.batches()] == [
        ("merge", [(True, "x", None), (False, "y", 1)]),
        ("update", [("X", "z")]),
        ("merge", [(False, "Z", 2)]),
    ]
