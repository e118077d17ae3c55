"""Drawn expressions have the values that DuckDB computes, on rows full of NULLs."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.chains import chain
from malflow.sql.parser.statements import parse, parse_columns
from malflow.sql.text import Source
from tests.sql.drawn import EXPRESSIONS, ROWS, SCHEMA


@pytest.fixture(scope="module")
def database() -> Any:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE n ({SCHEMA})")
    connection.executemany(f"INSERT INTO n VALUES ({', '.join('?' * len(ROWS[0]))})", ROWS)
    return connection


def values_of_malflow(text: str) -> list[Any]:
    """Return the rows of a SELECT from one table with a condition."""
    source = Source(text)
    (select,) = parse(source)
    fields = [Field(it.name.text, it.type, "n") for it in parse_columns(Source(SCHEMA))]  # type: ignore[union-attr]
    binder = ExpressionBinder(Scope(fields, source))
    where = None if select.where is None else binder.condition(select.where)  # type: ignore[attr-defined]
    items = [binder.bind(it.expression) for it in select.items]  # type: ignore[attr-defined]
    return [it for it in chain(len(fields), items, source, where)(ROWS) if it is not None]


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a row with numbers that compare whatever their class."""
    return tuple(float(it) if isinstance(it, int | Decimal) and not isinstance(it, bool) else it for it in row)


@given(st.tuples(*EXPRESSIONS.values()), EXPRESSIONS["b"])
def test_expressions_are_those_of_duckdb(database: Any, expressions: tuple[str, ...], where: str) -> None:
    for text in (f"SELECT {', '.join(expressions)} FROM n", f"SELECT i, j, s FROM n WHERE {where}"):
        theirs = database.execute(text).fetchall()
        assert [*map(plain, values_of_malflow(text))] == [*map(plain, theirs)], text
