"""Expressions of Flink's cases, put into each other: bound or refused, and their values are those of their types."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.chains import chain
from malflow.sql.parser.statements import parse, parse_columns
from malflow.sql.syntax.queries import Item, Select
from malflow.sql.text import Source, SqlError
from malflow.sql.typed import Typed
from tests.oracles.sql_cases import CASES

SCHEMA = """id INT, i INT, n INT, b BIGINT, d DOUBLE, e DOUBLE, f FLOAT, p DECIMAL(10, 2), q DECIMAL(38, 10),
    s STRING, k STRING, ts TIMESTAMP(3), u TIMESTAMP(6), dt DATE, tm TIME(0), z TIMESTAMP_LTZ(3), a ARRAY<INT>,
    t ARRAY<STRING>, m MAP<STRING, INT>"""
P, Q = Decimal("2.55"), Decimal("-0.0000000005")
ROWS: list[tuple[Any, ...]] = [
    (1, 7, 2, 40, 2.5, -0.5, 0.5, P, Q, "hello", "a", 1_000, 1_001, 20_000, 3_600, 5, (3, None), ("p",), {"a": 1}),
    (2, -7, 0, -3, 0.0, 1e300, 1.5, -P, Q, "", "1", -1, -1, -1, 0, -1, (), (None, "x"), {}),
    (None,) * 19,
]
"""A usual row, one of edges, and NULLs."""

PARTS = sorted(
    {
        str(item.expression)
        for case in CASES.values()
        if case["kind"] == "expression" and case.get("tables")
        for statement in parse(Source(case["sql"]))
        if isinstance(statement, Select)
        for item in statement.items
        if isinstance(item, Item)
    }
)
LITERALS = [
    "NULL",
    "TRUE",
    "1.5",
    "'1'",
    "-1",
    "x'41'",
    "1e2",
    "DATE '2026-01-01'",
    "INTERVAL '1' DAY",
    "ARRAY[1]",
    "(1, 2)",
]
TYPES = [
    "INT",
    "TINYINT",
    "STRING",
    "CHAR(3)",
    "DOUBLE",
    "FLOAT",
    "DECIMAL(5, 2)",
    "DATE",
    "TIMESTAMP(3)",
    "TIME",
    "BOOLEAN",
]
FORMS = [
    "{0}",
    "-({0})",
    "UPPER({0})",
    "FLOOR({0})",
    "COALESCE({0}, {1})",
    "GREATEST({0}, {1})",
    "NULLIF({0}, {1})",
    "({0}) + ({1})",
    "({0}) / ({1})",
    "({0}) || ({1})",
    "({0}) = ({1})",
    "({0}) BETWEEN ({1}) AND ({1})",
    "({0}) IN ({1}, NULL)",
    "CASE {0} WHEN {1} THEN 1 ELSE 2.5 END",
    "IF(({0}) IS NULL, {1}, {0})",
    *(f"{how}({{0}} AS {kind})" for how in ("CAST", "TRY_CAST") for kind in TYPES),
]
CLASSES = {
    **dict.fromkeys(
        ("TINYINT", "SMALLINT", "INT", "BIGINT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "DAYS"), int
    ),
    **dict.fromkeys(("FLOAT", "DOUBLE"), float),
    **dict.fromkeys(("CHAR", "VARCHAR"), str),
    **dict.fromkeys(("BINARY", "VARBINARY"), bytes),
    **dict.fromkeys(("ARRAY", "ROW"), tuple),
    "DECIMAL": Decimal,
    "BOOLEAN": bool,
    "MAP": dict,
}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return a part with one of its names or literals replaced by another part, in a form."""
    part, other = draw(st.sampled_from(PARTS)), draw(st.sampled_from([*PARTS, *LITERALS]))
    places = [*re.finditer(r"\b[a-z]\w?\b|'[^']*'|\b\d+\b", part)]
    is_mixed = draw(st.booleans())
    if places and is_mixed:
        place = draw(st.sampled_from(places))
        part = f"{part[: place.start()]}{other}{part[place.end() :]}"
    return draw(st.sampled_from(FORMS)).format(part, draw(st.sampled_from([*LITERALS, *PARTS])))


def fits(value: Any, node: Typed) -> bool:
    """Whether a value is one of the type of its expression."""
    kind = node.type
    if value is None:
        return kind.nullable
    if isinstance(value, Decimal) and kind.kind == "DECIMAL":
        return -int(value.as_tuple().exponent) == kind.scale and len(value.as_tuple().digits) <= max(
            kind.size, kind.scale
        )
    return type(value) is CLASSES.get(kind.kind, type(value))


def outcome(compute: Any, row: tuple[Any, ...]) -> tuple[Any, str]:
    """Return the value for a row, or the message of what failed."""
    try:
        ((value,),) = compute([row])
    except (ValueError, ArithmeticError) as error:
        return None, str(error)
    return value, ""


@given(st.lists(texts(), min_size=10, max_size=10))
def test_values_are_those_of_the_types(parts: list[str]) -> None:
    fields = [Field(it.name.text, it.type, "n") for it in parse_columns(Source(SCHEMA))]  # type: ignore[union-attr]
    for part in parts:
        source = Source(f"SELECT {part}")
        try:
            (select,) = parse(source)
            node = ExpressionBinder(Scope(fields, source)).bind(select.items[0].expression)  # type: ignore[attr-defined]
        except SqlError:
            continue
        compute = chain(len(fields), [node], source)
        for row in ROWS:
            value, fault = outcome(compute, row)
            assert "(SQL:1:" in fault if fault else fits(value, node), (part, node.type, value, fault)
