"""Expressions with their types: what `malflow.sql.python` writes as Python.

A template has `{0}`, `{1}` where the source of its operands is put.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from malflow.sql.text import Span
from malflow.sql.types import SqlType

__all__ = [
    "Aggregated",
    "Called",
    "Column",
    "Comparison",
    "Connected",
    "First",
    "IsNull",
    "IsTruth",
    "Keeping",
    "Kept",
    "Lenient",
    "Not",
    "OneOf",
    "Picked",
    "RowNumber",
    "Strict",
    "Typed",
    "Value",
    "all_within",
    "replaced",
    "stands_alone",
]


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression.

    Attributes:
        type: its type.
        span: its place in the text.
        written: its canonical text, or what makes it; None if it is a part of another, or nobody wrote it.
    """

    type: SqlType
    span: Span = field(compare=False)
    written: object = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Column(Typed):
    """A column of the row, by its place.

    Attributes:
        index: its place in the row, from 0.
        name: its name, for messages.
        is_time: whether it is the time attribute of its rows.
    """

    index: int
    name: str
    is_time: bool = False


@dataclass(frozen=True, slots=True)
class Value(Typed):
    """A literal."""

    value: Any


@dataclass(frozen=True, slots=True)
class Strict(Typed):
    """A calculation that is NULL if an operand is.

    Attributes:
        template: its source.
        operands: its operands.
        may_be_null: whether it can be NULL though no operand is.
    """

    template: str
    operands: tuple[Typed, ...]
    may_be_null: bool = False


@dataclass(frozen=True, slots=True)
class Lenient(Typed):
    """A calculation that gets NULLs as None."""

    template: str
    operands: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Called(Typed):
    """A call of an object with the operands; it gets NULLs as None."""

    function: Any
    operands: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Comparison(Typed):
    """A comparison, by an operator of Python."""

    op: str
    left: Typed
    right: Typed


@dataclass(frozen=True, slots=True)
class Connected(Typed):
    """AND or OR."""

    op: str
    operands: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Not(Typed):
    """NOT."""

    operand: Typed


@dataclass(frozen=True, slots=True)
class IsNull(Typed):
    """IS NULL, or IS NOT NULL."""

    operand: Typed
    negated: bool


@dataclass(frozen=True, slots=True)
class IsTruth(Typed):
    """IS TRUE or IS FALSE, or their negation."""

    operand: Typed
    value: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class OneOf(Typed):
    """IN a list. `has_null`: NULL is in the list. Then a value that is not found is unknown."""

    operand: Typed
    values: tuple[Typed, ...]
    has_null: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Picked(Typed):
    """CASE: the value of the first test that is true."""

    ways: tuple[tuple[Typed, Typed], ...]
    other: Typed


@dataclass(frozen=True, slots=True)
class First(Typed):
    """COALESCE: the first operand that is not NULL."""

    operands: tuple[Typed, ...]


@dataclass(frozen=True, slots=True)
class Kept(Typed):
    """The value that an expression around it keeps.

    Attributes:
        key: which one.
    """

    key: int = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Keeping(Typed):
    """An expression that takes a value several times; the value is computed once.

    Attributes:
        key: by what its body calls the value.
        operand: the value.
        body: the expression.
    """

    key: int = field(compare=False, repr=False)
    operand: Typed
    body: Typed


@dataclass(frozen=True, slots=True)
class Aggregated(Typed):
    """A call of an aggregate, before the rows are grouped.

    Attributes:
        function: its name, in capitals.
        operands: what it aggregates; nothing for COUNT(*).
        distinct: whether each value counts once.
        where: the rows that it takes; None for all.
        made: the aggregator of the user; None for an aggregate of SQL.
    """

    function: str
    operands: tuple[Typed, ...]
    distinct: bool
    where: Typed | None
    made: Any = None


@dataclass(frozen=True, slots=True)
class RowNumber(Typed):
    """ROW_NUMBER(): the number of a row in its partition.

    Attributes:
        partition: the partition.
        order: what its rows are ordered by: the expression, whether descending, and whether NULL comes first.
    """

    partition: tuple[Typed, ...]
    order: tuple[tuple[Typed, bool, bool], ...]


def all_within(node: Typed) -> Iterator[Typed]:
    """Yield an expression and all within it, outer ones first."""
    yield node
    for it in fields(node):
        yield from _nodes(getattr(node, it.name))


def _nodes(part: Any) -> Iterator[Typed]:
    if isinstance(part, Typed):
        yield from all_within(part)
    elif isinstance(part, tuple) and not isinstance(part, Span):
        for it in part:
            yield from _nodes(it)


def stands_alone(node: Typed) -> bool:
    """Whether an expression needs no value that another one keeps."""
    parts = [*all_within(node)]
    return {it.key for it in parts if isinstance(it, Kept)} <= {it.key for it in parts if isinstance(it, Keeping)}


def replaced(node: Typed, change: Callable[[Typed], Typed | None]) -> Typed:
    """Return an expression with parts replaced, outer ones first; `change` returns None for what stays."""
    found = change(node)
    if found is not None:
        return found
    return replace(node, **{it.name: _changed(getattr(node, it.name), change) for it in fields(node)})


def _changed(part: Any, change: Callable[[Typed], Typed | None]) -> Any:
    if isinstance(part, Typed):
        return replaced(part, change)
    if isinstance(part, tuple) and not isinstance(part, Span):
        return tuple(_changed(it, change) for it in part)
    return part
