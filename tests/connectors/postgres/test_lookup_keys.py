"""Keys of look-ups: each finds what it would find alone, whatever else is in its batch; equal keys find the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow.connectors.postgres import PostgresError, PostgresLookup
from malflow.testing import python_values
from tests.connectors.postgres.kit import Database

ROWS = {
    "int": ("1", "-5", "2147483647"),
    "numeric": ("1", "2.5", "NaN"),
    "float8": ("1", "0.1", "9007199254740992"),
    "bool": ("true", "false"),
    "text": ("1", "de", "True"),
    "varchar(3)": ("de", "1.5"),
    "bytea": ("'", "\\\\x"),
    "date": ("2024-05-01",),
    "timestamp": ("2024-05-01 12:00",),
    "interval": ("1 hour", "-1 hour"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
}
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def tables(database: Database) -> Iterator[dict[str, PostgresLookup]]:
    found = {}
    for kind, rows in ROWS.items():
        table = f'"of {kind}"'
        database.execute(f"create table {table} (k {kind} primary key, at int)")
        for at, row in enumerate(rows):
            database.execute(f"insert into {table} values (%s::text::{kind}, %s)", row, at)
        found[kind] = PostgresLookup(database.dsn, table, columns=["at"], row=tuple)
    yield found
    for lookup in found.values():
        lookup.close()


def asked(table: PostgresLookup, keys: Sequence[Any]) -> list[Any]:
    found = table.get_many(keys)
    return [found[key][0] if key in found else None for key in keys]


def test_keys_of_several_types_in_one_batch(tables: dict[str, PostgresLookup]) -> None:
    assert asked(tables["text"], ["de", None, "fr"]) == [1, None, None]
    assert asked(tables["int"], [None, 1, 2.5, -5.0, Decimal("2147483647"), 2**40, "7"]) == [
        None,
        0,
        None,
        1,
        2,
        None,
        None,
    ]
    assert asked(tables["numeric"], [True, 2.5, 3]) == [0, 1, None]
    assert asked(tables["bool"], [True, 0, 2]) == [0, 1, None]
    assert asked(tables["float8"], [0.1, 2**53 + 1, 2**53]) == [1, None, 2]
    assert asked(tables["bytea"], [b"'", b"\\x", b"\\\\x"]) == [0, 1, None]
    assert asked(tables["interval"], [timedelta(hours=-1), timedelta(hours=1)]) == [1, 0]
    assert asked(tables["uuid"], [UUID(ROWS["uuid"][0]), None]) == [0, None]
    assert asked(tables["varchar(3)"], ["de", "de  x", 1.5]) == [0, None, 1]


def test_times_of_several_zones_in_one_batch(tables: dict[str, PostgresLookup]) -> None:
    east = NOON.astimezone(timezone(timedelta(hours=2)))
    assert asked(tables["timestamp"], [east, NOON.replace(tzinfo=None)]) == [0, 0]
    assert asked(tables["date"], [date(2024, 5, 1), NOON]) == [0, None]


@pytest.mark.parametrize("same", [[1, 1.0, Decimal("1.00"), True, np.int64(1)], [2.5, Decimal("2.50")]])
def test_equal_numbers_are_one_key(tables: dict[str, PostgresLookup], same: list[Any]) -> None:
    for kind in ("int", "numeric", "float8", "bool", "text"):
        assert len({str(asked(tables[kind], [key])) for key in same}) == 1


@pytest.mark.parametrize(
    ("kind", "key"), [("date", 20240501), ("bytea", 5), ("int", "one"), ("uuid", b"x"), ("text", b"de")]
)
def test_keys_of_types_that_a_column_does_not_compare(tables: dict[str, PostgresLookup], kind: str, key: Any) -> None:
    with pytest.raises(PostgresError, match=f"{kind.replace('int', 'integer')}|can't be looked up.*{kind}"):
        asked(tables[kind], [key])


def test_part_of_a_key_that_is_missing(database: Database) -> None:
    database.execute("create table t (a int, b text, v int, primary key (a, b)); insert into t values (1, 'x', 7)")
    lookup = PostgresLookup(database.dsn, "t", columns=["v"], row=tuple)
    assert lookup.get_many([(1, "x"), (1, None), (None, "x"), (2.0, "x")]) == {(1, "x"): (7,)}
    assert lookup.get_many([(None, None)]) == {}
    lookup.close()


def test_columns_that_python_lacks_are_text_if_asked(database: Database) -> None:
    database.execute("create table t (k int primary key, until date); insert into t values (1, 'infinity')")

    def row(**options: Any) -> Any:
        with closing(PostgresLookup(database.dsn, "t", **options)) as lookup:
            return lookup.get_many([1])

    with pytest.raises(PostgresError, match=r"table t, column 'until': .*'infinity'.*text=\['until'\]"):
        row()
    assert row(text=["until"]) == {1: {"k": 1, "until": "infinity"}}
    with pytest.raises(PostgresError, match=r"text=\['when'\] are not columns"):
        row(text=["when"])


@pytest.mark.slow
def test_a_key_finds_what_it_finds_alone(tables: dict[str, PostgresLookup]) -> None:
    hashable = python_values(nested=False).filter(lambda it: type(it).__hash__ is not None and not _is_odd(it))

    @settings(deadline=None, max_examples=max(5, settings().max_examples // 4))
    @given(st.sampled_from(list(ROWS)), st.lists(hashable, max_size=6))
    def each(kind: str, keys: list[Any]) -> None:
        alone = {}
        for key in keys:
            try:
                alone[key] = asked(tables[kind], [key])[0]
            except PostgresError as error:
                assert str(error)  # noqa: PT017 - a refused key fails its batch
        assert asked(tables[kind], list(alone)) == list(alone.values())

    each()


def _is_odd(value: Any) -> bool:
    """Whether a value can't be a key at all."""
    try:
        hash(value)
    except (TypeError, ValueError):
        return True
    return bool(type(value).__module__.startswith(("numpy", "pandas")))
