"""Checks of the arguments of pattern methods."""

from __future__ import annotations

from types import GenericAlias, UnionType
from typing import Any, get_args

from malflow.checks import check_choice, check_function, check_whole_number, located
from malflow.diagnostics import location
from malflow.errors import GraphError
from malflow.words import short_repr

__all__ = [
    "check_after",
    "check_counts",
    "check_kind",
    "check_name",
    "check_predicate",
    "is_class",
    "malformed",
]


def malformed(message: str) -> GraphError:
    """Return the error for a malformed pattern, with the location in the user's code."""
    return GraphError(message, location=location())


def is_class(kind: Any) -> bool:
    """Whether a step's kind is a class or a union of classes."""
    return isinstance(kind, (type, UnionType, GenericAlias)) or (isinstance(kind, tuple) and any(map(is_class, kind)))


def check_name(name: Any) -> None:
    """Check the name of a step: a printable, non-blank string."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise malformed(f"step() needs a printable, non-blank string as its name; got {short_repr(name)}")


def check_kind(name: str, kind: Any) -> None:
    """Check that a kind is None, a class, a union of classes, or a value that can be looked up."""
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
    """Check that a predicate is a plain function with these arguments; None is allowed."""
    if predicate is not None:
        check_function(located(f"step {name!r}"), role, predicate, arguments=arguments)


def check_counts(low: Any, high: Any) -> None:
    """Check the number of repetitions of a pattern."""
    check_whole_number(located("times()"), "low", low, least=0)
    if high is not None:
        check_whole_number(located("times()"), "high", high)
    if high is not None and low > high:
        raise malformed(f"times() needs a low that does not exceed the high; got {low} and {high}")


def check_after(after: object) -> None:
    """Check which partial matches a match discards."""
    check_choice(located("a match's"), "after", after, ("end", "start", "all"))
