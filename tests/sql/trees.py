"""Syntax trees, drawn: expressions and queries as a parser could have read them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from malflow.sql.syntax import expressions as tree
from malflow.sql.syntax import queries
from malflow.sql.types import BIGINT, DOUBLE, STRING, SqlType, decimal, timestamp

__all__ = ["EXPRESSIONS", "QUERIES"]

WORDS = ["a", "b", "Ab", "select", "x y", "ts", "ROW", "`", "größe", "date", "end", "Interval", "floor", "trim", "from"]
NAMES = st.builds(tree.Name, text=st.sampled_from(WORDS))
TEXTS = st.text(st.sampled_from("ab'`\\\"%_-/*\n;:😀"), max_size=5)
UNITS = st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR"])
TYPES = st.sampled_from(
    [BIGINT, DOUBLE, STRING, decimal(10, 2), timestamp(3), SqlType("CHAR", size=3), SqlType("ARRAY", items=(BIGINT,))]
)
TIMES = st.sampled_from([("DATE", "2026-03-01"), ("TIME", "12:30:00"), ("TIMESTAMP", "2026-03-01 12:30:00.5")])

LITERALS = st.one_of(
    st.builds(tree.Literal, kind=st.just("NUMBER"), text=st.sampled_from(["0", "12", "1.50", ".5", "1e3", "2E-7"])),
    st.builds(tree.Literal, kind=st.just("TEXT"), text=TEXTS),
    st.builds(tree.Literal, kind=st.just("BYTES"), text=st.sampled_from(["", "4a", "00ff"])),
    st.builds(tree.Literal, kind=st.sampled_from(["TRUE", "FALSE", "NULL"]), text=st.just("")),
    st.builds(tree.Literal, kind=st.just("PARAMETER"), text=st.sampled_from(["floor", "x1"])),
    TIMES.map(lambda it: tree.Literal(*it)),
    st.builds(lambda unit, text: tree.Literal("INTERVAL", text, (unit, unit)), UNITS, st.sampled_from(["5", "-1"])),
    st.just(tree.Literal("INTERVAL", "1 02:03:04.5", ("DAY", "SECOND"))),
)
REFERENCES = st.builds(tree.Reference, names=st.lists(NAMES, min_size=1, max_size=3).map(tuple))

BINARY = ["=", "<>", "<", ">", "<=", ">=", "+", "-", "*", "/", "%", "||"]
NEGATED = ["LIKE", "SIMILAR TO", "IN", "BETWEEN", "BETWEEN SYMMETRIC", "IS DISTINCT FROM"]
TESTS = ["IS NULL", "IS TRUE", "IS FALSE", "IS UNKNOWN"]
COUNTS = {"BETWEEN": 3, "BETWEEN SYMMETRIC": 3}


def _word(text: str) -> tree.Literal:
    return tree.Literal("WORD", text)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return expressions that have others in them."""
    several = st.lists(inner, min_size=1, max_size=3).map(tuple)
    name = st.builds(tree.Name, text=st.sampled_from(["f", "COALESCE", "Trim2", "`odd`"]))
    operations = [
        st.builds(lambda op, a, b: tree.Operation(op, (a, b)), st.sampled_from(BINARY), inner, inner),
        st.builds(lambda op, a, b: tree.Operation(op, (a, *b)), st.sampled_from(["AND", "OR"]), inner, several),
        st.builds(lambda op, a: tree.Operation(op, (a,)), st.sampled_from(["NOT", "-", "+"]), inner),
        st.builds(lambda op, a, no: tree.Operation(op, (a,), no), st.sampled_from(TESTS), inner, st.booleans()),
        st.builds(
            lambda op, a, no: tree.Operation(op, tuple(a[: COUNTS.get(op, 2)]), no),
            st.sampled_from(NEGATED),
            st.lists(inner, min_size=3, max_size=3),
            st.booleans(),
        ),
        st.builds(lambda a, b: tree.Operation("IN", (a, *b)), inner, several),
        st.builds(lambda a, b: tree.Operation("LIKE", (a, b, tree.Literal("TEXT", "!"))), inner, inner),
        st.builds(lambda a, b: tree.Operation("[]", (a, b)), inner, inner),
    ]
    calls = [
        st.builds(tree.Call, name=name, arguments=st.one_of(st.just(()), several), distinct=st.just(False)),
        st.builds(tree.Call, name=name, arguments=several, distinct=st.booleans(), where=st.none() | inner),
        st.builds(lambda unit, a: tree.Call(tree.Name("EXTRACT"), (_word(unit), a)), UNITS, inner),
        st.builds(lambda unit, a: tree.Call(tree.Name("Floor"), (a, _word(unit))), UNITS, REFERENCES),
        st.builds(lambda unit, a, b: tree.Call(tree.Name("TIMESTAMPDIFF"), (_word(unit), a, b)), UNITS, inner, inner),
        st.builds(lambda a, b: tree.Call(tree.Name("POSITION"), (a, b)), inner, inner),
        st.builds(lambda a, b: tree.Call(tree.Name("TRIM"), (_word("LEADING"), a, b)), inner, inner),
        st.builds(lambda a: tree.Call(tree.Name("OVERLAY"), (*a, a[0])), st.lists(inner, min_size=3, max_size=3)),
        st.just(tree.Call(tree.Name("COUNT"), (tree.Star(),))),
    ]
    others = [
        st.builds(
            tree.Case,
            operand=st.none() | inner,
            ways=st.lists(st.tuples(inner, inner), min_size=1, max_size=2).map(tuple),
            other=st.none() | inner,
        ),
        st.builds(tree.Cast, operand=inner, type=TYPES, is_tried=st.booleans()),
        st.builds(tree.Collection, kind=st.sampled_from(["ARRAY", "ROW"]), values=several),
        st.builds(lambda a, b: tree.Collection("MAP", (a, b)), inner, inner),
    ]
    return st.one_of(*operations, *calls, *others)


EXPRESSIONS: st.SearchStrategy[Any] = st.recursive(LITERALS | REFERENCES, _compound, max_leaves=8)
FEW: st.SearchStrategy[Any] = st.recursive(LITERALS | REFERENCES, _compound, max_leaves=2)
"""Expressions within queries: short ones, since there are many."""


def _some(of: st.SearchStrategy[Any], most: int = 2) -> st.SearchStrategy[Any]:
    return st.lists(of, min_size=1, max_size=most).map(tuple)


HINTS = st.just(()) | st.just((queries.Hint(tree.Name("NAME"), (("", "it's"), ("k", "v"))),))
ORDERINGS = st.builds(
    queries.Ordering, expression=FEW, descending=st.booleans(), nulls_first=st.sampled_from([None, True, False])
)
WINDOWS = st.builds(
    queries.WindowSpec,
    partition=st.just(()) | _some(FEW),
    order=st.just(()) | _some(ORDERINGS),
)
ITEMS = st.builds(queries.Item, expression=FEW, alias=st.none() | NAMES) | st.builds(
    queries.Item, expression=st.builds(tree.Star, table=st.none() | NAMES)
)
TABLES = st.builds(queries.NamedTable, name=NAMES, hints=HINTS, alias=st.none() | NAMES)
WINDOWED = st.builds(
    lambda name, table, column, size: queries.WindowCall(
        name=name,
        arguments=(("", queries.TableArgument(table)), ("", queries.Descriptor((column,))), ("SIZE", size)),
    ),
    st.builds(tree.Name, text=st.sampled_from(["TUMBLE", "HOP"])),
    st.builds(queries.NamedTable, name=NAMES, is_path=st.booleans()),
    NAMES,
    FEW,
)


def _queries(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    derived = st.builds(queries.Derived, query=inner, alias=st.none() | NAMES)
    single = TABLES | WINDOWED | derived | st.builds(queries.Unnest, operand=FEW, alias=NAMES)
    joins = st.builds(queries.Join, how=st.sampled_from(["INNER", "LEFT", "FULL"]), left=single, right=single, on=FEW)
    select = st.builds(
        queries.Select,
        items=_some(ITEMS),
        source=single | joins,
        where=st.none() | FEW,
        group=st.none() | _some(FEW),
        having=st.none() | FEW,
        qualify=st.none() | FEW,
        distinct=st.booleans(),
        hints=HINTS,
    )
    unions = st.builds(queries.SetOperation, op=st.just("UNION ALL"), left=inner, right=inner)
    named = st.builds(queries.NamedQuery, name=NAMES, query=inner, columns=st.just(()) | _some(NAMES))
    with_ = st.builds(queries.With, body=inner, views=_some(named))
    return st.one_of(select, unions, with_)


VALUES = st.builds(queries.Values, rows=_some(_some(FEW)))
QUERIES: st.SearchStrategy[Any] = st.recursive(VALUES, _queries, max_leaves=3)
