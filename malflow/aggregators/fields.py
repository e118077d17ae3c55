"""Fields: the value itself, one of its items or attributes, or the result of a function of the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from keyword import iskeyword
from numbers import Integral
from typing import Any

from malflow.checks import check_function, check_whole_number, located
from malflow.diagnostics import describe, note_missing_field
from malflow.message import DataMessage
from malflow.records.rows import ReadField, is_position
from malflow.words import short_repr

__all__ = [
    "LACKING",
    "TEXTS",
    "TEXT_CURE",
    "Field",
    "FieldKey",
    "addable",
    "check_addable",
    "check_integer",
    "checked_field",
    "checked_whole_number",
    "exact",
    "key_of",
    "names_sent",
    "nan_error",
    "none_error",
    "read",
    "read_of_message",
    "source_of_field",
]

Field = Callable[[Any], Any] | str | int | None
"""A function of the value; a text, for an item of a mapping or an attribute of other values; a number, for the item at
this place of a tuple, from 0; or None, for the value."""


FieldKey = str | int | tuple[int]
"""The name of a field, its place in a tuple of one, or the id of its function: equal for the same field."""


LACKING = "call .filter() first to drop such records, or pass a function that reads the field"
"""The remedy for values that lack a field."""

TEXTS = (str, bytes, bytearray)
"""Types that are not numbers, although some can be added."""

TEXT_CURE = "convert it when it is read, as in CsvSource(..., types={'amount': int}), or call .map() first"


def checked_field(asked_by: str, field: Any, option: str = "field") -> Any:
    """Check the field that a function of `malflow.agg` was called with, and return it."""
    if is_position(field):
        return checked_whole_number(asked_by, option, field, 0)
    if field is not None and not isinstance(field, str):
        allowed = "the name of a field", "its place in a tuple"
        check_function(located(asked_by), option, field, arguments="value", or_else=allowed)
    return field


def checked_whole_number(asked_by: str, option: str, given: int, least: int = 1) -> int:
    """Check an integer argument, and return it."""
    check_whole_number(located(asked_by), option, given, least=least)
    return given


def names_sent(fields: Iterable[ReadField]) -> list[str]:
    """Return the names of fields in records of which only these are sent: functions have their line, and a number.

    >>> names_sent(["town", len, 0])
    ['town', 'len(value) 2', 'value[0]']
    """
    names = []
    for number, field in enumerate(fields, 1):
        if isinstance(field, int):
            names.append(f"value[{field}]")
            continue
        code = getattr(field, "__code__", None)
        line = "" if code is None else f", line {code.co_firstlineno}"
        names.append(field if isinstance(field, str) else f"{getattr(field, '__name__', '')}(value) {number}{line}")
    return names


def read(field: Field, value: Any) -> Any:
    """Return a field of one value.

    >>> read("amount", {"amount": 2}), read("real", 3), read(len, "abc"), read(1, ("a", 2)), read(None, 1)
    (2, 3, 3, 2, 1)
    """
    if field is None:
        return value
    if isinstance(field, int):
        try:
            return value[field]
        except (LookupError, TypeError) as error:
            note_missing_field(error, field, value, LACKING)
            raise
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


def key_of(field: Field) -> FieldKey:
    """Return a substitute for a field that equal fields share."""
    return field if isinstance(field, str) else (field,) if isinstance(field, int) else id(field)


def source_of_field(field: str | int, *, mapping: bool) -> str:
    """Return the expression that reads a field of the value ``v``.

    >>> source_of_field("amount", mapping=True), source_of_field("amount", mapping=False)
    ("v['amount']", 'v.amount')
    """
    if mapping or isinstance(field, int):
        return f"v[{field!r}]"
    return f"v.{field}" if field.isidentifier() and not iskeyword(field) else f"getattr(v, {field!r})"


def none_error(field: Field) -> TypeError:
    """Return the error for None in place of a number or another comparable value."""
    return TypeError(f"{_subject(field)} None, which cannot be aggregated; call .filter() first to drop such records")


def check_addable(field: Field, x: Any) -> None:
    """Check that a value is not None or text, and so may be a number.

    Raises:
        TypeError: if it is one of these.
    """
    if x is None:
        raise none_error(field)
    if isinstance(x, TEXTS):
        raise TypeError(f"{_subject(field)} {short_repr(x)}, which is text and not a number; {TEXT_CURE}")


def addable(field: Field, x: Any) -> Any:
    """Return a value that may be a number.

    Raises:
        TypeError: if it is None or text.
    """
    check_addable(field, x)
    return x


def check_integer(field: Field, x: Any) -> None:
    """Check that a value is an integer or a truth value.

    Raises:
        TypeError: if it is another.
    """
    if x.__class__ is not int and x.__class__ is not bool:
        raise TypeError(
            f"{_subject(field)} {short_repr(x)}, of type {type(x).__name__}, where of=int promises integers; convert "
            "it by .map() first, or leave of=int out"
        )


def nan_error(field: Field) -> ValueError:
    """Return the error for NaN, with which sums and extremes depend on the order of records, or stay NaN."""
    return ValueError(f"{_subject(field)} NaN, which cannot be aggregated; call .filter() first to drop such records")


def _subject(field: Field) -> str:
    if field is None:
        return "the value is"
    if isinstance(field, int):
        return f"the item at place {field} is"
    return f"the field {field!r} is" if isinstance(field, str) else f"{describe(field)} returned"
