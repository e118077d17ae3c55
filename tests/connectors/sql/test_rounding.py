"""Digits that a column does not keep: refused, or rounded by the database where the sink is told so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from malflow.connectors.sql import SqlError, SqlSink
from tests.connectors.sql.kit import Database, owner, write

LONG: list[tuple[str, Any, Any]] = [
    ("decimal(6, 2)", Decimal("1.005"), Decimal("1.01")),
    ("decimal(6, 2)", 0.125, Decimal("0.13")),
    ("double", Decimal("0.12345678901234567890"), 0.12345678901234568),
    ("datetime(3)", datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(2024, 1, 1, 0, 0, 0, 123000)),
    ("time", timedelta(microseconds=1), timedelta(0)),
    ("date", datetime(2024, 1, 1, 12), date(2024, 1, 1)),
]


@pytest.mark.parametrize(("kind", "value", "rounded"), LONG)
def test_digits_beyond_a_column_are_refused_or_rounded(kind: str, value: Any, rounded: Any, mariadb: Database) -> None:
    mariadb.execute(f"create table t (id int primary key, v {kind})")
    for rounds in (False, True):
        with closing(SqlSink(mariadb.url, "t", round=rounds)) as sink:
            sink.fence(owner(1 + rounds))
            write(sink, {"id": 1, "v": value})
            if rounds:
                sink.commit([sink.prepare(1)])
                continue
            with pytest.raises(SqlError, match=r"column 'v': .*; round it, or pass round=True; the row is"):
                sink.prepare(1)
    assert mariadb.rows("select v from t") == [(rounded,)]


def test_a_number_that_is_rounded_out_of_range_is_refused_all_the_same(mariadb: Database) -> None:
    mariadb.execute("create table t (id int primary key, v decimal(4, 2))")
    with closing(SqlSink(mariadb.url, "t", round=True)) as sink:
        sink.fence(owner())
        write(sink, {"id": 1, "v": Decimal("99.995")})
        with pytest.raises(SqlError, match="out of the column's range, below 100"):
            sink.prepare(1)


def test_keys_are_not_rounded_in_any_case(database: Database, sinks: Callable[..., Any]) -> None:
    database.execute("create table t (id numeric(20, 2) primary key)")
    sink = sinks(round=True)
    sink.fence(owner())
    write(sink, {"id": Decimal("0.12345678901234567890")})
    with pytest.raises(SqlError, match="column 'id'"):
        sink.prepare(1)
