"""Checks of the arguments of pattern methods."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from math import isfinite
from numbers import Real
from types import GenericAlias, UnionType
from typing import Any, get_args

from malflow.callables import deferred, takes
from malflow.diagnostics import describe, location
from malflow.durations import as_length
from malflow.errors import GraphError
from malflow.returns import returns_nothing
from malflow.words import short_repr

__all__ = [
    "check_after",
    "check_connector",
    "check_counts",
    "check_kind",
    "check_name",
    "check_predicate",
    "checked_duration",
    "is_class",
    "malformed",
]

_CONNECTORS = ("then", "next", "then_any")


def malformed(message: str) -> GraphError:
    """Return the error for a malformed pattern, with the location in the user's code."""
    return GraphError(message, location=location())


def is_class(kind: Any) -> bool:
    """Whether a step's kind is a class or a union of classes."""
    return isinstance(kind, (type, UnionType, GenericAlias)) or (isinstance(kind, tuple) and any(map(is_class, kind)))


def check_name(name: Any) -> None:
    """Check the name of a step.

    Raises:
        GraphError: if it is not a printable, non-blank string.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise malformed(f"step() needs a printable, non-blank string as its name; got {short_repr(name)}")


def check_kind(name: str, kind: Any) -> None:
    """Check that a kind is None, a class, a union of classes, or a value that can be looked up.

    Raises:
        GraphError: if it is not.
    """
    members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if isinstance(kind, (GenericAlias, tuple)) and is_class(kind):
        raise malformed(
            f"step {name!r} has {short_repr(kind)} as its kind; write a class, or several as One | Other, without "
            "parameters"
        )
    for member in members:
        if is_class(member) and not isinstance(member, type):
            raise malformed(f"step {name!r} has {short_repr(kind)} as its kind; write classes without parameters")
        try:
            hash(member)
        except TypeError:
            raise malformed(
                f"step {name!r} needs a class, a predicate, or a hashable value as its kind; got {short_repr(member)}"
            ) from None


def check_predicate(name: str, role: str, predicate: Any, arguments: str) -> None:
    """Check that a predicate is a plain function with these arguments; None is allowed.

    Raises:
        GraphError: if it is not.
    """
    if predicate is None:
        return
    if not callable(predicate):
        raise malformed(f"step {name!r} needs a function as its {role}; got {short_repr(predicate)}")
    kind = deferred(predicate)
    if kind is not None:
        raise malformed(
            f"step {name!r} needs a plain function as its {role}; got {kind}, {describe(predicate)}, which runs "
            "nothing when it is called"
        )
    if not takes(predicate, arguments.count(",") + 1):
        raise malformed(f"step {name!r} calls {role}({arguments}), but {describe(predicate)} takes other arguments")
    if returns_nothing(predicate):
        raise malformed(
            f"step {name!r} needs a {role} that returns True or False; {describe(predicate)} has no 'return' with a "
            "value"
        )


def checked_duration(called: str, role: str, given: Any) -> Any:
    """Return a duration, which is a number or a timedelta, and not negative; a text as a timedelta.

    Raises:
        GraphError: if it is not.
    """
    duration = as_length(given)
    is_number = not isinstance(duration, bool) and isinstance(duration, (Real, Decimal)) and _is_finite(duration)
    if not is_number and not isinstance(duration, timedelta):
        raise malformed(
            f"{called} needs a number or a timedelta as its {role}, or a text such as '5 min'; got {short_repr(given)}"
        )
    if duration < duration - duration:
        raise malformed(f"{called} needs a {role} that is not negative; got {short_repr(duration)}")
    return duration


def _is_finite(number: Any) -> bool:
    try:
        return isfinite(number)
    except OverflowError:  # beyond floats
        return True


def check_connector(by: Any) -> None:
    """Check the connector between repetitions.

    Raises:
        GraphError: if it is unknown.
    """
    if by not in _CONNECTORS:
        raise malformed(f"times() needs 'then', 'next' or 'then_any' as its by; got {short_repr(by)}")


def check_counts(low: Any, high: Any) -> None:
    """Check the number of repetitions of a pattern.

    Raises:
        GraphError: if it is invalid.
    """
    for count in (low,) if high is None else (low, high):
        if isinstance(count, bool) or not isinstance(count, int):
            raise malformed(f"times() needs integers; got {short_repr(count)}")
    if low < 0 or (high is not None and high < 1):
        raise malformed(f"times() needs a low of at least 0 and a high of at least 1; got {low} and {high}")
    if high is not None and low > high:
        raise malformed(f"times() needs a low that does not exceed the high; got {low} and {high}")


def check_after(after: object) -> None:
    """Check which partial matches a match discards.

    Raises:
        GraphError: if it is unknown.
    """
    if after not in ("end", "start", "all"):
        raise malformed(f"after= needs 'end', 'start' or 'all'; got {short_repr(after)}")
