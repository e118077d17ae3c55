"""The types of Python's annotations: of parameters, results, and the fields of classes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from inspect import Parameter, isclass, iscoroutinefunction, isgeneratorfunction, isroutine, signature
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

from malflow.errors import GraphError
from malflow.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, STRING, SqlType, timestamp
from malflow.words import error_line

__all__ = ["Annotated", "annotations_of", "columns_of_class", "type_of_hint"]

_OF_PYTHON: dict[Any, SqlType] = {
    bool: BOOLEAN,
    int: BIGINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    datetime: timestamp(6),
    date: DATE,
    time: SqlType("TIME", size=6),
    Decimal: SqlType("DECIMAL", size=38, scale=18),
}
"""The type of each class; a datetime without a zone, as TIMESTAMP has none."""

_COLLECTIONS = {list: ("ARRAY", 1), dict: ("MAP", 2), tuple: ("ARRAY", 1)}
"""The type of each class with items, and how many types these have."""


def type_of_hint(hint: Any, what: str) -> SqlType:
    """Return the type of an annotation, nullable if None is among its classes.

    Raises:
        GraphError: if it has none.
    """
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    kinds = [it for it in options if it is not NoneType]
    found = _type_of_class(kinds[0], what) if len(kinds) == 1 else None
    if found is None:
        known = ", ".join(it.__name__ for it in _OF_PYTHON)
        raise GraphError(f"{what} is {hint}; types with a column are {known}, list[...] and dict[...], or '| None'")
    return found.as_nullable(len(kinds) < len(options))


def _type_of_class(kind: Any, what: str) -> SqlType | None:
    name, count = _COLLECTIONS.get(get_origin(kind), ("", 0))
    items = tuple(it for it in get_args(kind) if it is not Ellipsis)
    is_fixed = get_origin(kind) is tuple and len(items) == len(get_args(kind))
    if not name or len(items) != count or is_fixed:
        return _OF_PYTHON.get(kind)
    return SqlType(name, items=tuple(type_of_hint(it, what).as_nullable() for it in items))


def columns_of_class(kind: Any) -> dict[str, SqlType] | None:
    """Return the columns of a dataclass, a named tuple or a typed dict; None for another class.

    Raises:
        GraphError: if a field has no type of SQL.
    """
    if not isinstance(kind, type) or not (is_dataclass(kind) or is_typeddict(kind) or hasattr(kind, "_fields")):
        return None
    names = [it.name for it in fields(kind)] if is_dataclass(kind) else getattr(kind, "_fields", None)
    hints = get_type_hints(kind)
    return {it: type_of_hint(hints.get(it, Any), f"field {it!r} of {kind.__name__}") for it in names or hints}


class Annotated(NamedTuple):
    """A function by its annotations.

    Attributes:
        takes: the types of its parameters.
        required: how many of them have no default.
        gives: the type of its result, or of each row of a table function.
        gives_rows: whether it is a table function: a generator, or another function with an iterator as its result.
        is_one: whether each row is a plain value, so the only column.
    """

    takes: tuple[SqlType, ...]
    required: int
    gives: SqlType
    gives_rows: bool
    is_one: bool


def annotations_of(name: str, function: Callable[..., Any]) -> Annotated:
    """Return the types of a function by its annotations.

    Raises:
        GraphError: if an annotation is missing, or has no type of SQL.
    """
    what = f"function {name!r}"
    hints, parameters = _hints_of(what, function)
    takes = []
    for it in parameters:
        if it.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.KEYWORD_ONLY}:
            raise GraphError(f"{what} has a parameter {it.name!r} that has no place; name each one")
        takes.append(type_of_hint(_given(hints, it.name), f"parameter {it.name!r} of {what}"))
    given = _given(hints, "return")
    if iscoroutinefunction(function):
        raise GraphError(f"{what} is asynchronous; SQL calls plain functions, and map_async in Python such ones")
    gives_rows = get_origin(given) in {Iterator, Iterable, Generator}
    if not gives_rows and isgeneratorfunction(function):
        raise GraphError(f"{what} is a generator; write the type of its rows, as in -> Iterator[int]")
    required = sum(it.default is Parameter.empty for it in parameters)
    if not gives_rows:
        return Annotated(tuple(takes), required, type_of_hint(given, f"the result of {what}"), False, False)
    rows = _columns_of_rows(get_args(given)[0], f"a row of {what}")
    columns = rows if isinstance(rows, dict) else {"f0": rows}
    kind = SqlType("ROW", False, items=tuple(columns.values()), names=tuple(columns))
    return Annotated(tuple(takes), required, kind, True, not isinstance(rows, dict))


class _Missing:
    """Stands for an annotation that is missing."""

    def __repr__(self) -> str:
        return "not annotated"


def _given(hints: dict[str, Any], name: str) -> Any:
    return hints.get(name, _MISSING)


_MISSING = _Missing()


def _hints_of(what: str, function: Any) -> tuple[dict[str, Any], Sequence[Parameter]]:
    inner = function.func if isinstance(function, partial) else function
    try:
        hints = get_type_hints(inner if isroutine(inner) or isclass(inner) else type(inner).__call__)
        return hints, [*signature(function).parameters.values()]
    except (NameError, TypeError, ValueError, AttributeError) as error:
        raise GraphError(f"the annotations of {what} can't be read: {error_line(error)}") from None


def _columns_of_rows(hint: Any, what: str) -> dict[str, SqlType] | SqlType:
    """Return the columns of the rows of a table function, or the type of the only one."""
    items = get_args(hint)
    if get_origin(hint) is tuple and items and Ellipsis not in items:
        return {f"f{at}": type_of_hint(it, what) for at, it in enumerate(items)}
    return columns_of_class(hint) or type_of_hint(hint, what)
