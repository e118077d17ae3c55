"""Checks of the options that users pass: each error names the option, the value and the remedy.

A function named `check_` raises a `GraphError`; one named `checked_` also returns the value that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from math import isfinite
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from malflow.callables import deferred, returns_nothing, takes
from malflow.diagnostics import describe, location
from malflow.durations import as_length, as_span
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "AskedBy",
    "Cures",
    "check_choice",
    "check_choice_or_function",
    "check_flag",
    "check_function",
    "check_mapping",
    "check_name",
    "check_number",
    "check_whole_number",
    "checked_duration",
    "checked_length",
    "checked_names",
    "checked_seconds",
    "checked_wait",
    "is_number",
    "is_whole_number",
    "located",
]

AskedBy: TypeAlias = str | Callable[[str], Exception]
"""The owner of an option, such as ``"KafkaSink"``; or a function that returns the error for what is wrong."""

_ZERO = timedelta(0)


class Cures(NamedTuple):
    """Remedies for functions with calls that have no result.

    Attributes:
        deferred: for a coroutine or generator function.
        forgetful: for a function without a return.
    """

    deferred: str = "return the result itself"
    forgetful: str = "end it with a return"


_CURES = Cures()


def check_whole_number(
    asked_by: AskedBy, option: str, value: object, *, least: int = 1, most: int | None = None, or_else: str = ""
) -> None:
    """Check a whole number.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        least: the smallest number that is allowed.
        most: the greatest one; None without a limit.
        or_else: another value that the caller has allowed, for the error.

    >>> check_whole_number("HttpSink", "retries", -1, least=0)
    Traceback (most recent call last):
    malflow.errors.GraphError: HttpSink retries must be a whole number, at least 0; got -1
    """
    if not is_whole_number(value, least=least, most=most):
        other = f", or {or_else}" if or_else else ""
        wanted = f"a whole number, {_range(least, most)}{other}"
        raise _error(asked_by, option, wanted, f"{short_repr(value)}{_whole(value)}")


def is_whole_number(value: object, *, least: int | None = 1, most: int | None = None) -> TypeGuard[int]:
    """Whether a value is an integer in a range, and not a bool; None stands for no limit."""
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def check_number(
    asked_by: AskedBy,
    option: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> None:
    """Check a finite number.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        above: the number that it must exceed; None without such a limit.
        least: the smallest number that is allowed; None without a limit.
        most: the greatest one; None without a limit.

    >>> check_number("Budget", "share", 1.5, least=0, most=1)
    Traceback (most recent call last):
    malflow.errors.GraphError: Budget share must be a number, from 0 to 1; got 1.5
    """
    if not is_number(value, above=above, least=least, most=most):
        bounds = f"above {above:g}" if above is not None else _range(least, most)
        raise _error(asked_by, option, f"a number, {bounds}" if bounds else "a finite number", short_repr(value))


def is_number(
    value: object, *, above: float | None = None, least: float | None = None, most: float | None = None
) -> TypeGuard[float]:
    """Whether a value is a finite int or float in a range, and not a bool."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    is_in_range = (least is None or value >= least) and (most is None or value <= most)
    return is_in_range and (above is None or value > above) and _is_finite(value)


def checked_duration(
    asked_by: AskedBy, option: str, value: Any, *, may_be_zero: bool = False, or_else: str = ""
) -> timedelta:
    """Return a span of time as a timedelta.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        may_be_zero: whether zero is allowed.
        or_else: another value that the caller has allowed, for the error.

    >>> checked_duration("KafkaSink", "timeout", 5), checked_duration("KafkaSink", "timeout", "100ms")
    (datetime.timedelta(seconds=5), datetime.timedelta(microseconds=100000))
    >>> checked_duration("KafkaSink", "timeout", "5 parsecs")
    Traceback (most recent call last):
    malflow.errors.GraphError: KafkaSink timeout must be a time above zero, such as '10s', a number of seconds or \
a timedelta; got '5 parsecs'
    """
    found = as_span(value)
    if found is not None and (found > _ZERO or (may_be_zero and not found)):
        return found
    least = "of zero or more" if may_be_zero else "above zero"
    other = f", or {or_else}" if or_else else ""
    wanted = f"a time {least}, such as '10s', a number of seconds or a timedelta{other}"
    raise _error(asked_by, option, wanted, short_repr(value))


def checked_seconds(
    asked_by: AskedBy, option: str, value: Any, *, may_be_zero: bool = False, or_else: str = ""
) -> float:
    """Return a span of time as seconds; the rest is as for `checked_duration`.

    >>> checked_seconds("HttpSink", "timeout", "1m"), checked_seconds("HttpSink", "timeout", 30)
    (60.0, 30.0)
    """
    span = checked_duration(asked_by, option, value, may_be_zero=may_be_zero, or_else=or_else)
    return span.total_seconds()


def checked_wait(asked_by: AskedBy, value: Any, option: str = "timeout") -> float:
    """Return the seconds of a wait; a number is returned as it is, so zero or infinity are allowed.

    >>> checked_wait("why()", "1 min"), checked_wait("why()", 0)
    (60.0, 0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return checked_seconds(asked_by, option, value, may_be_zero=True)


def check_flag(asked_by: AskedBy, option: str, value: object, *, optional: bool = False) -> None:
    """Check an option that is True or False, or None if it is optional.

    >>> check_flag("CsvSource", "header", "yes", optional=True)
    Traceback (most recent call last):
    malflow.errors.GraphError: CsvSource header must be True, False or None; got 'yes'
    """
    if not isinstance(value, bool) and not (optional and value is None):
        raise _error(asked_by, option, "True, False or None" if optional else "True or False", short_repr(value))


def check_choice(asked_by: AskedBy, option: str, value: object, choices: Sequence[str | None]) -> None:
    """Check an option that is one of a few texts, or None if that is a choice.

    >>> check_choice("KafkaSink", "delivery", "twice", ("exactly-once", "at-least-once"))
    Traceback (most recent call last):
    malflow.errors.GraphError: KafkaSink delivery must be 'exactly-once' or 'at-least-once'; got 'twice'
    """
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise _error(asked_by, option, _listed(map(repr, choices)), short_repr(value))


def check_name(asked_by: AskedBy, option: str, value: object, what: str = "a name", *, optional: bool = False) -> None:
    """Check a text that is not empty, or None if it is optional.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        what: the kind of thing it names, with its article.
        optional: whether it may be None.
    """
    if (value is None and optional) or (isinstance(value, str) and value):
        return
    raise _error(asked_by, option, f"{what}{' or None' if optional else ''}, as text", short_repr(value))


def checked_names(asked_by: AskedBy, option: str, value: Iterable[str], *, what: str = "names") -> tuple[str, ...]:
    """Return the names in a list. It may be empty, but has no empty name and no name twice.

    >>> checked_names("PostgresSink", "key", "id", what="columns")
    Traceback (most recent call last):
    malflow.errors.GraphError: PostgresSink key must be a list of columns; got 'id'; write ['id']
    """
    wanted = f"a list of {what}"
    if isinstance(value, str):
        raise _error(asked_by, option, wanted, f"{short_repr(value)}; write [{short_repr(value)}]")
    if not isinstance(value, Iterable) or isinstance(value, bytes | Mapping):
        raise _error(asked_by, option, wanted, short_repr(value))
    names = tuple(value)
    if not all(isinstance(name, str) and name for name in names):
        raise _error(asked_by, option, f"{wanted}, none empty", short_repr(list(names)))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _error(
            asked_by, option, f"{wanted}, each once", f"{twice[0]!r} more than once in {short_repr(list(names))}"
        )
    return names


def check_mapping(asked_by: AskedBy, option: str, value: object, what: str) -> None:
    """Check settings for another library, or None. The error shows no values: they may be secrets.

    >>> check_mapping("SqlSink", "settings", ["echo"], "arguments of sqlalchemy.create_engine")
    Traceback (most recent call last):
    malflow.errors.GraphError: SqlSink settings must be a dict of arguments of sqlalchemy.create_engine; got a list
    """
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise _error(asked_by, option, f"a dict of {what}", f"a {type(value).__name__}")
    for name in value:
        if not isinstance(name, str):
            raise _error(asked_by, option, f"a dict of {what}, with texts as names", f"the name {short_repr(name)}")


def check_function(
    asked_by: AskedBy,
    option: str,
    value: object,
    *,
    arguments: str | None = None,
    or_else: Sequence[str] = (),
    generators: bool = False,
    returns: bool = True,
    cures: Cures = _CURES,
) -> None:
    """Check an option that is a function, and runs when it is called: not a coroutine or generator function.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        arguments: the arguments of the calls, such as ``key, value``; None if unknown.
        or_else: other values that the caller has allowed, for the error.
        generators: whether a generator function is allowed.
        returns: whether its result is used; it must then return something.
        cures: the remedies.

    >>> check_function("KafkaSource", "decode", 5, or_else=["a codec"])
    Traceback (most recent call last):
    malflow.errors.GraphError: KafkaSource decode must be a codec or a plain function; got 5
    """
    wanted = _listed([*or_else, "a plain function"])
    if not callable(value):
        raise _error(asked_by, option, wanted, short_repr(value))
    kind = deferred(value, generators=generators)
    if kind is not None:
        words = "'yield'" if kind == "a generator function" else "'async'"
        what = f"{kind}, {describe(value)}, which runs nothing when it is called"
        raise _error(asked_by, option, wanted, f"{what}; write it without {words}: {cures.deferred}")
    if arguments is not None and not takes(value, arguments.count(",") + 1 if arguments else 0):
        raise _fault(asked_by, f"calls {option}({arguments}), but {describe(value)} takes other arguments")
    if returns and returns_nothing(value):
        raise _fault(
            asked_by,
            f"{option} must return a value; {describe(value)} has no 'return' with one, so its result is always None; "
            f"{cures.forgetful}, or with 'return None' if that is meant",
        )


def check_choice_or_function(
    asked_by: AskedBy, option: str, value: object, choices: Sequence[str], *, returns: bool = True
) -> None:
    """Check an option that is one of a few texts, or a function.

    >>> check_choice_or_function("HttpSink", "encode", "xml", ("json", "json-lines"))
    Traceback (most recent call last):
    malflow.errors.GraphError: HttpSink encode must be 'json', 'json-lines' or a plain function; got 'xml'
    """
    if not isinstance(value, str) or value not in choices:
        check_function(asked_by, option, value, or_else=list(map(repr, choices)), returns=returns)


def checked_length(
    asked_by: AskedBy, option: str, value: Any, *, may_be_zero: bool = False, may_be_negative: bool = False
) -> Any:
    """Return a length of event time: a number in the unit of the timestamps, or a timedelta; a text as a timedelta.

    Args:
        asked_by: the owner of the option.
        option: the name of the option.
        value: the value that the user passed.
        may_be_zero: whether zero is allowed.
        may_be_negative: whether any length is allowed.

    >>> checked_length("operator 'it'", "within", "5 min"), checked_length("operator 'it'", "within", 300)
    (datetime.timedelta(seconds=300), 300)
    """
    length = as_length(value)
    is_one = isinstance(length, timedelta | int) or (isinstance(length, Real | Decimal) and _is_finite(length))
    if is_one and not isinstance(length, bool):
        zero = length - length
        if may_be_negative or length > zero or (may_be_zero and length == zero):
            return length
    number = "a number or timedelta" if may_be_negative or may_be_zero else "a positive number or timedelta"
    least = " of zero or more" if may_be_zero and not may_be_negative else ""
    raise _error(asked_by, option, f"{number}{least}, or a text such as '5 min' for datetimes", short_repr(value))


def located(asked_by: str) -> Callable[[str], GraphError]:
    """Return a function that returns an error with the location in the user's code, as an `AskedBy`."""
    return lambda wrong: GraphError(f"{asked_by} {wrong}", location=location())


def _error(asked_by: AskedBy, option: str, wanted: str, got: str) -> Exception:
    return _fault(asked_by, f"{option} must be {wanted}; got {got}")


def _fault(asked_by: AskedBy, wrong: str) -> Exception:
    return GraphError(f"{asked_by} {wrong}") if isinstance(asked_by, str) else asked_by(wrong)


def _is_finite(number: Any) -> bool:
    try:
        return isfinite(number)
    except (OverflowError, ValueError):  # an integer beyond floats, a signalling NaN
        return False


def _range(least: float | None, most: float | None) -> str:
    """Return a range in words; empty without a limit."""
    if least is None:
        return "" if most is None else f"at most {most}"
    return f"at least {least}" if most is None else f"from {least} to {most}"


def _whole(value: object) -> str:
    """Return the remedy for a value that stands for a whole number, such as ``"5"``; empty for others.

    >>> _whole("5"), _whole(5.0), _whole(5.5), _whole("five"), _whole(5)
    ('; write 5', '; write 5', '', '', '')
    """
    if isinstance(value, int):
        return ""
    if isinstance(value, float):
        return f"; write {value:.0f}" if value.is_integer() else ""
    if isinstance(value, Integral):  # such as numpy's, whose arithmetic overflows
        return "; convert it with int()"
    is_text = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
    return f"; write {value}" if is_text else ""


_MOST_DIGITS = 20
"""The digits of a number that a remedy repeats: those of any 64-bit integer. A longer text is not repeated."""


def _listed(choices: Iterable[str]) -> str:
    """Return choices in words, for a sentence.

    >>> _listed(["'fail'", "'drop'", "None"]), _listed(["a function"])
    ("'fail', 'drop' or None", 'a function')
    """
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last
