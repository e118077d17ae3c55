"""Fields: the value itself, one of its items or attributes, or the result of a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from keyword import iskeyword
from numbers import Integral
from typing import Any

from malflow.callables import deferred, takes
from malflow.diagnostics import describe, location, note_missing_field
from malflow.errors import GraphError
from malflow.message import DataMessage
from malflow.returns import returns_nothing
from malflow.words import short_repr

__all__ = [
    "LACKING",
    "TEXTS",
    "TEXT_CURE",
    "Field",
    "checked_callable",
    "checked_field",
    "exact",
    "read",
    "read_of_message",
    "refuse_nan",
    "refuse_none",
    "refuse_not_integer",
    "refuse_other",
    "source_of_field",
    "whole_number",
]

Field = Callable[[Any], Any] | str | None
"""A function of the value; a text, for an item of a mapping or an attribute of other values; or None, for the value."""


LACKING = "call .filter() first to drop such records, or pass a function that reads the field"
"""The remedy for values that lack a field."""

TEXTS = (str, bytes, bytearray)
"""Types that are not numbers, although some can be added."""

TEXT_CURE = "convert it when it is read, as in CsvSource(..., types={'amount': int}), or call .map() first"


def checked_field(function: str, field: Any) -> Any:
    """Check the field that a function of `malflow.agg` was called with, and return it.

    Raises:
        GraphError: if nothing can be read with it.
    """
    if field is None or isinstance(field, str):
        return field
    if not callable(field):
        raise GraphError(
            f"{function} reads a field by its name, or with a function of the value; got {short_repr(field)}",
            location=location(),
        )
    return checked_callable(function, field, 1, "(value)")


def checked_callable(function: str, given: Any, count: int, arguments: str) -> Any:
    """Check that a function can be called with `count` arguments and runs when it is called; return it.

    Raises:
        GraphError: if it does not.
    """
    if not callable(given):
        raise GraphError(f"{function} calls a function {arguments}; got {short_repr(given)}", location=location())
    kind = deferred(given)
    if kind is not None:
        raise GraphError(
            f"{function} needs a plain function {arguments}; got {kind}, {describe(given)}, which runs nothing when "
            "it is called; write it without 'async' and 'yield'",
            location=location(),
        )
    if not takes(given, count):
        raise GraphError(
            f"{function} calls its function with {arguments}, but {describe(given)} takes other arguments",
            location=location(),
        )
    if returns_nothing(given):
        raise GraphError(
            f"{function} needs a function {arguments} that returns a value; {describe(given)} has no 'return' with one",
            location=location(),
        )
    return given


def whole_number(function: str, name: str, given: Any, least: int) -> int:
    """Check an integer argument, and return it.

    Raises:
        GraphError: if it is not an integer, or below `least`.
    """
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise GraphError(
            f"{function} needs an integer of at least {least} as its {name}; got {short_repr(given)}",
            location=location(),
        )
    return given


def read(field: Field, value: Any) -> Any:
    """Return a field of one value.

    >>> read("amount", {"amount": 2}), read("real", 3), read(len, "abc"), read(None, 1)
    (2, 3, 3, 1)
    """
    if field is None:
        return value
    if isinstance(field, str):
        try:
            return value[field] if isinstance(value, Mapping) else getattr(value, field)
        except (KeyError, AttributeError) as error:
            note_missing_field(error, field, value, LACKING)
            raise
    return field(value)


def read_of_message(field: Field, message: DataMessage[Any, Any, Any]) -> Any:
    """Return a field of the value of a message."""
    return read(field, message.value)


def exact(x: Any) -> Any:
    """Return an integer as a fraction, for exact arithmetic, and any other number unchanged."""
    return Fraction(int(x)) if isinstance(x, Integral) else x


def source_of_field(field: str, *, mapping: bool) -> str:
    """Return the expression that reads a field of the value ``v``.

    >>> source_of_field("amount", mapping=True), source_of_field("amount", mapping=False)
    ("v['amount']", 'v.amount')
    """
    if mapping:
        return f"v[{field!r}]"
    return f"v.{field}" if field.isidentifier() and not iskeyword(field) else f"getattr(v, {field!r})"


def refuse_none(field: Field) -> None:
    """Reject None in place of a number or another comparable value.

    Raises:
        TypeError: always.
    """
    raise TypeError(f"{_subject(field)} None, which cannot be aggregated; call .filter() first to drop such records")


def refuse_other(field: Field, x: Any) -> None:
    """Reject None and text in place of a number.

    Raises:
        TypeError: if it is one of these.
    """
    if x is None:
        refuse_none(field)
    if isinstance(x, TEXTS):
        raise TypeError(f"{_subject(field)} {short_repr(x)}, which is text and not a number; {TEXT_CURE}")


def refuse_not_integer(field: Field, x: Any) -> None:
    """Reject a value other than an integer or a truth value.

    Raises:
        TypeError: if it is another.
    """
    if x.__class__ is not int and x.__class__ is not bool:
        raise TypeError(
            f"{_subject(field)} {short_repr(x)}, of type {type(x).__name__}, where of=int promises integers; convert "
            "it by .map() first, or leave of=int out"
        )


def refuse_nan(field: Field) -> None:
    """Reject NaN, with which sums and extremes depend on the order of records, or stay NaN.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{_subject(field)} NaN, which cannot be aggregated; call .filter() first to drop such records")


def _subject(field: Field) -> str:
    if field is None:
        return "the value is"
    return f"the field {field!r} is" if isinstance(field, str) else f"{describe(field)} returned"
