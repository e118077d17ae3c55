"""Functions of Python in SQL: typed by their annotations, called with what the annotations say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.errors import GraphError
from malflow.sql.build.doors import outer_value
from malflow.sql.build.fitting import fitted
from malflow.sql.build.python_aggregates import PythonAggregate, cast_arguments
from malflow.sql.build.python_types import Annotated, annotations_of
from malflow.sql.syntax.queries import CreateFunction
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Called, Typed
from malflow.sql.types import SqlType
from malflow.words import did_you_mean, error_line, short_repr

__all__ = ["Broken", "Function", "imported"]


class Function:
    """A function of Python.

    Args:
        name: its name in SQL.
        function: the function. Where a parameter is not ``| None``, it is not called with NULL: the result is NULL, and
            a table function has no rows.

    Attributes:
        name: its name.
        gives_rows: whether it is a table function.

    Raises:
        GraphError: if an annotation is missing, or has no type of SQL.
    """

    gives_rows: bool
    is_aggregate = False
    """Whether it takes the rows of a group."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._function = function
        self._types = annotations_of(name, function)
        self.gives_rows = self._types.gives_rows

    def bind(self, arguments: Sequence[Typed], span: Span, fault: Callable[[str, Span], SqlError]) -> Typed:
        """Return a call; that of a table function is an array of rows."""
        types = self._types
        fit = cast_arguments(f"function {self.name!r}", types.takes, types.required, arguments, span, fault)
        takes = tuple(it.type.as_nullable(wanted.nullable) for it, wanted in zip(fit, types.takes, strict=False))
        call = Call(self.name, self._function, takes, types)
        if self.gives_rows:
            return Called(SqlType("ARRAY", False, items=(types.gives,)), span, call, tuple(fit))
        is_strict = any(not it.nullable and arg.type.nullable for it, arg in zip(takes, fit, strict=True))
        return Called(types.gives.as_nullable(types.gives.nullable or is_strict), span, call, tuple(fit))


class Broken(Function):
    """A function that could not be made. A call of it has the fault of its CREATE FUNCTION, so one is reported.

    Args:
        name: its name in SQL.
        error: the fault.
    """

    gives_rows = False

    def __init__(self, name: str, error: SqlError) -> None:
        self.name = name
        self._error = error

    def bind(self, arguments: Sequence[Typed], span: Span, fault: Callable[[str, Span], SqlError]) -> Typed:
        """Raise the fault.

        Raises:
            SqlError: always.
        """
        raise self._error


class Call:
    """Calls a function with values as Python has them, and checks what it returns.

    Args:
        name: its name in SQL.
        function: the function.
        takes: the types of the arguments.
        types: the types of the function.
    """

    def __init__(self, name: str, function: Callable[..., Any], takes: Sequence[SqlType], types: Annotated) -> None:
        self._name = name
        self._function = function
        self._takes = tuple(takes)
        self._types = types
        self._gives = types.gives.items[0] if types.is_one else types.gives
        self._what = f"{'a row' if types.gives_rows else 'the result'} of function {name!r}"

    def __call__(self, *values: Any) -> Any:
        """Return the result, or the rows of a table function; NULL or no rows if an argument is that must not be.

        Raises:
            ValueError: if the function fails, or returns another type than it says.
        """
        has_rows = self._types.gives_rows
        for it, kind in zip(values, self._takes, strict=True):
            if it is None and not kind.nullable:
                return [] if has_rows else None
        try:
            found = self._function(*map(outer_value, values, self._takes))
            found = self._rows(found) if has_rows else found
        except Exception as error:
            raise ValueError(f"function {self._name!r} failed: {error_line(error)}") from error
        if not has_rows:
            return fitted(found, self._gives, self._what)
        rows = [fitted(it, self._gives, self._what) for it in found]
        return [(it,) for it in rows] if self._types.is_one else rows

    @staticmethod
    def _rows(found: Any) -> list[Any]:
        if isinstance(found, str | bytes | dict):
            raise TypeError(f"it returned {short_repr(found)}; a table function returns an iterator")
        return list(found)


_NAMED = "write the module and the name of a function of Python, as in 'shop.prices:dear'"


def imported(statement: CreateFunction, text: Source) -> Function | PythonAggregate:
    """Return the function or aggregator that CREATE FUNCTION names, such as `shop.prices:dear` or `shop.prices.dear`.

    Raises:
        SqlError: if it can't be imported, or can't be one of SQL.
    """
    module, colon, name = statement.target.rpartition(":")
    if not colon:
        module, _, name = statement.target.rpartition(".")
    if not module or not name:
        raise SqlError([Fault(_NAMED, statement.span, text)])
    try:
        loaded = import_module(module)
    except Exception as error:
        cure = f"; {_NAMED}" if isinstance(error, ModuleNotFoundError) else ""
        wrong = f"{module!r} can't be imported: {error_line(error)}{cure}"
        raise SqlError([Fault(wrong, statement.span, text)]) from error
    found: Any = getattr(loaded, name, None)
    is_aggregator = isinstance(found, Aggregator) or (isinstance(found, type) and issubclass(found, Aggregator))
    if not callable(found) and not is_aggregator:
        wrong = f"{name!r} of {module!r} is {short_repr(found)}, and not a function"
        if not hasattr(loaded, name):
            wrong = f"{module!r} has no function {name!r}{did_you_mean(name, dir(loaded), else_='')}"
        raise SqlError([Fault(wrong, statement.span, text)])
    try:
        return PythonAggregate(statement.name.text, found) if is_aggregator else Function(statement.name.text, found)
    except GraphError as error:
        raise SqlError([Fault(error.reason, statement.span, text)]) from None
