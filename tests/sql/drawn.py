"""Typed expressions, drawn as texts that malflow and DuckDB read alike, and rows full of NULLs."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

from hypothesis import strategies as st

__all__ = ["COLUMNS", "EXPRESSIONS", "ROWS", "SCHEMA"]

Texts = st.SearchStrategy[str]

SCHEMA = "i BIGINT, j BIGINT, d DOUBLE, e DOUBLE, p DECIMAL(8, 2), s STRING, t STRING, b BOOLEAN, c BOOLEAN"
COLUMNS = {"i": "ij", "d": "de", "p": "p", "s": "st", "b": "bc"}
"""The columns of each kind."""

VALUES: dict[str, list[Any]] = {
    "i": [None, 0, 1, -3, 7],
    "d": [None, 0.0, 0.5, -2.25, 8.0],
    "p": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-0.25"), Decimal("7.00")],
    "s": [None, "", "a", "ab", "b_%é"],
    "b": [None, True, False],
}
PAIRS = [[*product(VALUES[kind], VALUES[kind])] for kind in "idsb"]
ROWS: list[tuple[Any, ...]] = [
    (*PAIRS[0][at % 25], *PAIRS[1][at * 7 % 25], VALUES["p"][at % 5], *PAIRS[2][at * 11 % 25], *PAIRS[3][at % 9])
    for at in range(225)
]
"""Each pair of two numbers, texts and truths comes, with other pairs each time."""

LITERALS: dict[str, list[str]] = {
    "i": ["0", "1", "7", "-3", "CAST(NULL AS BIGINT)"],
    "d": ["0.5e0", "-2.25e0", "8e0", "CAST(NULL AS DOUBLE)"],
    "p": ["1.5", "-0.25", "7", "CAST(NULL AS DECIMAL(8, 2))"],
    "s": ["''", "'a'", "'ab'", "'b_%é'", "CAST(NULL AS VARCHAR)"],
    "b": ["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"],
}
PATTERNS = ["'%'", "''", "'a%'", "'%b'", "'_'", "'%a%b%'", "'b!_!%_' ESCAPE '!'", "'%!%%' ESCAPE '!'", "t"]
DEEPEST = 3


def _form(template: str, *kinds: str, depth: int) -> Texts:
    return st.tuples(*(_expression(kind, depth - 1) for kind in kinds)).map(lambda it: template.format(*it))


@cache
def _expression(kind: str, depth: int) -> Texts:
    """Return expressions of a kind, so deep at most."""
    leaves = st.sampled_from([*COLUMNS[kind], *COLUMNS[kind], *LITERALS[kind]])
    if not depth:
        return leaves
    return st.deferred(lambda: leaves | st.one_of(*_choosing(kind, depth), *_BY_KIND[kind](depth)))


def _choosing(kind: str, depth: int) -> list[Texts]:
    """Return what chooses among expressions of any kind."""
    return [
        _form("CASE WHEN {} THEN {} ELSE {} END", "b", kind, kind, depth=depth),
        _form("CASE WHEN {} THEN {} WHEN {} THEN {} END", "b", kind, "b", kind, depth=depth),
        _form("CASE {} WHEN {} THEN {} WHEN {} THEN {} END", kind, kind, kind, kind, kind, depth=depth),
        _form("COALESCE({}, {})", kind, kind, depth=depth),
        _form("NULLIF({}, {})", kind, kind, depth=depth),
    ]


def _numbers(kind: str, depth: int) -> list[Texts]:
    return [
        *(_form(f"({{}} {op} {{}})", kind, kind, depth=depth) for op in "+-"),
        _form("(- {})", kind, depth=depth),
        _form("ABS({})", kind, depth=depth),
    ]


def _truths(depth: int) -> list[Texts]:
    kinds = st.sampled_from("idpsb")

    def of_any(template: str, count: int) -> Texts:
        return kinds.flatmap(lambda kind: _form(template, *kind * count, depth=depth))

    return [
        *(of_any(f"({{}} {op} {{}})", 2) for op in ("=", "<>", "<", ">", "<=", ">=")),
        *(_form(f"({{}} {op} {{}})", *kinds, depth=depth) for op in ("<", "=", ">=") for kinds in ("id", "ip", "pi")),
        of_any("({} IS DISTINCT FROM {})", 2),
        of_any("({} IS NOT DISTINCT FROM {})", 2),
        of_any("({} IN ({}, {}, NULL))", 3),
        of_any("({} NOT IN ({}, {}))", 3),
        of_any("({} IN ({}))", 2),
        of_any("({} BETWEEN {} AND {})", 3),
        of_any("({} NOT BETWEEN {} AND {})", 3),
        of_any("({} IS NULL)", 1),
        of_any("({} IS NOT NULL)", 1),
        *(_form(f"({{}} {op} {{}})", "b", "b", depth=depth) for op in ("AND", "OR")),
        _form("({} AND {} AND {})", "b", "b", "b", depth=depth),
        _form("({} OR {} OR {})", "b", "b", "b", depth=depth),
        _form("(NOT {})", "b", depth=depth),
        *(_form(f"({{}} IS {test})", "b", depth=depth) for test in ("TRUE", "FALSE", "NOT TRUE", "NOT FALSE")),
        *(
            st.tuples(_expression("s", depth - 1), st.sampled_from(PATTERNS)).map(
                lambda it, no=no: f"({it[0]} {no}LIKE {it[1]})"  # type: ignore[misc]  # a default of a lambda
            )
            for no in ("", "NOT ")
        ),
    ]


_BY_KIND: dict[str, Any] = {
    "i": lambda depth: [
        *_numbers("i", depth),
        _form("({} * {})", "i", "i", depth=depth),
        _form("({} % 4)", "i", depth=depth),
    ],
    "d": lambda depth: [
        *_numbers("d", depth),
        _form("({} * 0.5e0)", "d", depth=depth),
        _form("({} + {})", "d", "i", depth=depth),
    ],
    "p": lambda depth: [*_numbers("p", depth), _form("({} + {})", "p", "i", depth=depth)],
    "s": lambda depth: [_form("({} || {})", "s", "s", depth=depth), _form("REPLACE({}, 'a', 'bb')", "s", depth=depth)],
    "b": _truths,
}

EXPRESSIONS: dict[str, Texts] = {kind: _expression(kind, DEEPEST) for kind in COLUMNS}
"""Expressions of each kind."""
