"""A tree is printed as a text that is read as the same tree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from malflow.sql.parser.statements import parse
from malflow.sql.syntax.queries import Item, Select
from malflow.sql.text import Source, SqlError
from tests.oracles.sql_cases import CASES
from tests.sql.trees import EXPRESSIONS, QUERIES

NOT_READ = {"error-syntax", "error-arguments", "error-extract", "error-bit"}
"""Cases whose text is no SQL."""


@given(EXPRESSIONS)
def test_expressions_are_read_as_they_are_printed(expression: Any) -> None:
    written = Select((Item(expression),))
    assert parse(Source(str(written))) == [written]


@given(QUERIES)
def test_queries_are_read_as_they_are_printed(query: Any) -> None:
    assert parse(Source(str(query))) == [query]


@pytest.mark.parametrize("name", CASES)
def test_texts_of_flink_are_read_as_they_are_printed(name: str) -> None:
    case = CASES[name]
    for text in (*case.get("setup", ()), case["sql"]):
        try:
            statements = parse(Source(text))
        except SqlError:
            assert case["kind"] == "error" or case["slice"] != "12a", text
            continue
        assert [parse(Source(str(it))) for it in statements] == [[it] for it in statements]
