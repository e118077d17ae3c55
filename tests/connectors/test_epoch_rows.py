"""The batches of an epoch, applied as a database does, against the table whose changes they come from."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from malflow.connectors.tables.change import UNCHANGED, Change
from malflow.connectors.tables.epoch_rows import EpochRows, RowBatch
from malflow.connectors.tables.row_shapes import RowShape
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
    rng, rows = random.Random(seed), EpochRows(SHAPE)  # noqa: S311 - no secret
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
    with pytest.raises(MalflowError, match=r"a key was not sent.*replica identity full"):
        EpochRows(SHAPE).add([None], [Change("update", "t", None, {"id": UNCHANGED, "a": 1, "large": ""}, 0, NOW)])
