"""Functions of Python in SQL: typed by their annotations, called with what the annotations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from importlib import import_module
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from malflow.errors import GraphError
from malflow.sql.build.doors import fitted, outer_value
from malflow.sql.casts import cast
from malflow.sql.syntax.queries import CreateFunction
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Called, Typed
from malflow.sql.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, STRING, SqlType, timestamp
from malflow.words import did_you_mean, error_line, plural

__all__ = ["Function", "imported", "type_of_hint"]

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


def type_of_hint(hint: Any, what: str) -> SqlType:
    """Return the type of an annotation, nullable if None is among its classes.

    Raises:
        GraphError: if it has none.
    """
    options = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    kinds = [it for it in options if it is not NoneType]
    found = _OF_PYTHON.get(kinds[0]) if len(kinds) == 1 else None
    if found is None:
        known = ", ".join(it.__name__ for it in _OF_PYTHON)
        raise GraphError(f"{what} is {hint}; types with a column are {known}, each with '| None'")
    return found.as_nullable(len(kinds) < len(options))


class Function:
    """A function of Python.

    Args:
        name: its name in SQL.
        function: the function. Where a parameter is not ``| None``, it is not called with NULL: the result is NULL.

    Raises:
        GraphError: if an annotation is missing, or has no type of SQL.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function)
        self._name = name
        self._function = function
        self._takes: list[SqlType] = []
        for it in signature(function).parameters.values():
            if it.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD, Parameter.KEYWORD_ONLY}:
                raise GraphError(f"function {name!r} has a parameter {it.name!r} that has no place; name each one")
            self._takes.append(type_of_hint(hints.get(it.name, Any), f"parameter {it.name!r} of function {name!r}"))
        self._gives = type_of_hint(hints.get("return", Any), f"what function {name!r} returns")

    def bind(self, arguments: Sequence[Typed], span: Span, fault: Callable[[str, Span], SqlError]) -> Typed:
        """Return a call."""
        if len(arguments) != len(self._takes):
            wanted = plural(len(self._takes), "argument")
            raise fault(f"function {self._name!r} takes {wanted}, got {len(arguments)}", span)
        fit: list[Typed] = []
        for it, wanted_type in zip(arguments, self._takes, strict=True):
            found = cast(it, wanted_type) if it.type.kind != wanted_type.kind or it.type.kind in _SIZED else it
            if found is None:
                raise fault(f"function {self._name!r} takes {wanted_type.name}, not {it.type.name}", it.span)
            fit.append(found)
        takes = tuple(it.type.as_nullable(wanted.nullable) for it, wanted in zip(fit, self._takes, strict=True))
        call = Call(self._name, self._function, takes, self._gives)
        is_strict = any(not it.nullable and arg.type.nullable for it, arg in zip(takes, fit, strict=True))
        result = self._gives.as_nullable(self._gives.nullable or is_strict)
        return Called(result, span, call, tuple(fit))


_SIZED = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ", "TIME", "DECIMAL"})
"""Types with values that depend on their digits."""


class Call:
    """Calls a function with values as Python has them, and checks what it returns."""

    def __init__(self, name: str, function: Callable[..., Any], takes: Sequence[SqlType], gives: SqlType) -> None:
        self._name = name
        self._function = function
        self._takes = tuple(takes)
        self._gives = gives

    def __call__(self, *values: Any) -> Any:
        """Return the result; NULL if an argument is that must not be.

        Raises:
            ValueError: if the function returns another type than it says.
        """
        for it, kind in zip(values, self._takes, strict=True):
            if it is None and not kind.nullable:
                return None
        result = self._function(*map(outer_value, values, self._takes))
        return fitted(result, self._gives, f"what function {self._name!r} returned")


def imported(statement: CreateFunction, text: Source) -> Function:
    """Return the function that CREATE FUNCTION names, such as `shop.prices:dear` or `shop.prices.dear`.

    Raises:
        SqlError: if it can't be imported, or can't be one of SQL.
    """
    module, colon, name = statement.target.rpartition(":")
    if not colon:
        module, _, name = statement.target.rpartition(".")
    if not module or not name:
        raise SqlError([Fault("a function is named by its module, as in 'shop.prices:dear'", statement.span, text)])
    try:
        loaded = import_module(module)
    except Exception as error:
        raise SqlError([Fault(f"{module!r} can't be imported: {error_line(error)}", statement.span, text)]) from error
    found = getattr(loaded, name, None)
    if not callable(found):
        hint = did_you_mean(name, dir(loaded), else_="")
        raise SqlError([Fault(f"{module!r} has no function {name!r}{hint}", statement.span, text)])
    try:
        return Function(statement.name.text, found)
    except GraphError as error:
        raise SqlError([Fault(error.reason, statement.span, text)]) from None
