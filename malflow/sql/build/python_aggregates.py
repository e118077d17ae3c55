"""Aggregators of Python in SQL: of `malflow.agg`, or of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args, get_origin

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.definition import definition_of
from malflow.aggregators.fuse import checked_aggregator
from malflow.errors import GraphError
from malflow.sql.build.doors import outer_value
from malflow.sql.build.fitting import fitted
from malflow.sql.build.python_types import type_of_hint
from malflow.sql.casts import cast
from malflow.sql.parser.type_names import TypeReader
from malflow.sql.text import Source, Span, SqlError
from malflow.sql.typed import Typed
from malflow.sql.types import INTEGERS, NULL, TIMES, SqlType, common_type
from malflow.words import error_line, plural

__all__ = ["PythonAggregate", "cast_arguments"]


class PythonAggregate:
    """An aggregator of Python.

    Args:
        name: its name in SQL.
        aggregator: the aggregator, or its class.
        takes: the types of its arguments; None where the class says it, or for one argument of any type.
        returns: the type of its result; None where the class says it.

    Attributes:
        name: its name.

    Raises:
        GraphError: if it is not an aggregator, or a type is missing or unknown.
    """

    is_aggregate = True
    """Whether it takes the rows of a group."""

    gives_rows = False
    """Whether it is a table function."""

    def __init__(self, name: str, aggregator: Any, *, takes: Any = None, returns: Any = None) -> None:
        self.name = name
        what = f"aggregator {name!r}"
        try:
            self._aggregator = checked_aggregator(aggregator() if isinstance(aggregator, type) else aggregator)
        except TypeError as error:
            raise GraphError(f"{what} can't be made of its class: {error_line(error)}") from None
        value, result = _hints_of(type(self._aggregator))
        given = value if takes is None else takes
        several = given if isinstance(given, list | tuple) else () if given is None else (given,)
        self._takes = tuple(_type_of(it, f"the argument of {what}") for it in several)
        if returns is None and result is None:
            raise GraphError(f"{what} needs the type of its result; write returns='DOUBLE', for example")
        self._gives = _type_of(result if returns is None else returns, f"the result of {what}").as_nullable()

    @property
    def definition(self) -> str:
        """The aggregator, as a text that is the same in every run of a program."""
        return definition_of((self._aggregator,))

    def bind(
        self, arguments: Sequence[Typed], span: Span, fault: Callable[[str, Span], SqlError]
    ) -> tuple[tuple[Typed, ...], SqlType]:
        """Return its arguments as it takes them, and the type of its result."""
        takes = self._takes or (arguments[0].type if arguments else NULL,)
        fit = cast_arguments(f"aggregator {self.name!r}", takes, len(takes), arguments, span, fault)
        return tuple(fit), self._gives

    def over(self, places: Sequence[int], kinds: Sequence[SqlType]) -> Aggregator[Any, Any, Any]:
        """Return the aggregator of rows, of which it takes the columns at some places."""
        return OverRows(self.name, self._aggregator, tuple(places), tuple(kinds), self._gives)


class OverRows(Aggregator[Any, Any, Any]):
    """An aggregator of columns of rows. Rows with NULL in one of them are skipped, and no row at all is NULL."""

    def __init__(
        self,
        name: str,
        aggregator: Aggregator[Any, Any, Any],
        places: tuple[int, ...],
        kinds: tuple[SqlType, ...],
        gives: SqlType,
    ) -> None:
        self._name = name
        self._aggregator = aggregator
        self._places = places
        self._kinds = kinds
        self._gives = gives

    def create(self) -> Any:
        """Return the accumulator of no row."""
        return None

    def add(self, acc: Any, value: Any, timestamp: Any) -> Any:
        """Add a row, unless a column is NULL."""
        values = [value[place] for place in self._places]
        if None in values:
            return acc
        given = [*map(outer_value, values, self._kinds)]
        acc = self._aggregator.create() if acc is None else acc
        return self._aggregator.add(acc, given[0] if len(given) == 1 else tuple(given), timestamp)

    def merge(self, one: Any, other: Any) -> Any:
        """Return the accumulator of the rows of both."""
        if one is None or other is None:
            return other if one is None else one
        return self._aggregator.merge(one, other)

    @property
    def can_merge(self) -> bool:
        """Whether its accumulators can be merged."""
        return self._aggregator.can_merge

    def result(self, acc: Any) -> Any:
        """Return the result as its type holds it.

        Raises:
            ValueError: if it does not fit.
        """
        result = None if acc is None else self._aggregator.result(acc)
        return fitted(result, self._gives, f"the result of aggregator {self._name!r}")

    def __repr__(self) -> str:
        columns = ", ".join(f"{at} {kind.name}" for at, kind in zip(self._places, self._kinds, strict=True))
        return f"{self._aggregator!r} OF ({columns})"


def cast_arguments(
    what: str,
    takes: Sequence[SqlType],
    required: int,
    arguments: Sequence[Typed],
    span: Span,
    fault: Callable[[str, Span], SqlError],
) -> list[Typed]:
    """Return the arguments of a call, as its parameters take them.

    Raises:
        SqlError: if there are too few or too many, or the type of one does not fit.
    """
    if not required <= len(arguments) <= len(takes):
        wanted = f"{required} to " if required < len(takes) else ""
        raise fault(f"{what} takes {wanted}{plural(len(takes), 'argument')}, got {len(arguments)}", span)
    fit: list[Typed] = []
    for it, wanted_type in zip(arguments, takes, strict=False):
        found = it if _is_alike(wanted_type, it.type) else None
        if found is None and _holds(wanted_type, it.type):
            found = cast(it, wanted_type)
        if found is None:
            raise fault(f"{what} takes {wanted_type.name}, not {it.type.name}; CAST it", it.span)
        fit.append(found)
    return fit


def _is_alike(wanted: SqlType, given: SqlType) -> bool:
    """Whether the values of a collection are also values of another type: as items, all whole numbers are integers."""
    if wanted.kind != given.kind or not given.items or len(wanted.items) != len(given.items):
        return False
    pairs = zip(wanted.items, given.items, strict=True)
    return all(
        one.as_nullable() == other.as_nullable() or {one.kind, other.kind} <= {*INTEGERS} or _is_alike(one, other)
        for one, other in pairs
    )


def _holds(wanted: SqlType, given: SqlType) -> bool:
    """Whether a type holds the values of another one; a DECIMAL may be rounded."""
    common = common_type([given, wanted])
    if {given.kind, wanted.kind} <= TIMES:
        return given.size <= wanted.size
    if common is None or common.kind != wanted.kind:
        return False
    return wanted.kind == "DECIMAL" or common.size == wanted.size


def _hints_of(kind: type) -> tuple[Any, Any]:
    """Return the annotations of the value and the result of an aggregator by its bases; None where they say nothing."""
    for it in kind.__mro__:
        for base in getattr(it, "__orig_bases__", ()):
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Aggregator):
                value, result = get_args(base)[0], get_args(base)[-1]
                return _known(value), _known(result)
    return None, None


def _known(hint: Any) -> Any:
    if isinstance(hint, TypeVar) or hint in {Any, object}:
        return None
    return get_args(hint) if get_origin(hint) is tuple and Ellipsis not in get_args(hint) else hint


def _type_of(given: Any, what: str) -> SqlType:
    """Return the type that a text or an annotation says."""
    if not isinstance(given, str):
        return type_of_hint(given, what)
    reader = TypeReader(Source(given, what))
    found = reader.type()
    if reader.token.kind != "end":
        raise reader.fault("expected one type")
    return found
