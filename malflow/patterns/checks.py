"""Checks of the arguments of pattern methods, and that the parts of a pattern fit together."""

from __future__ import annotations

from datetime import timedelta
from types import GenericAlias, UnionType
from typing import Any, Protocol, get_args

from malflow.checks import check_choice, check_function, check_whole_number, located
from malflow.diagnostics import location
from malflow.errors import GraphError
from malflow.patterns.positions import has_class
from malflow.patterns.tree import (
    Absence,
    Chain,
    Either,
    Repeated,
    Silenced,
    Step,
    Tree,
    bounds_of,
    can_be_empty,
    depth,
    durations_of,
    positions,
    steps_of,
)
from malflow.words import short_repr

__all__ = [
    "Parts",
    "check_after",
    "check_can_end",
    "check_can_follow",
    "check_can_go_on",
    "check_can_repeat",
    "check_counts",
    "check_is_part",
    "check_kind",
    "check_kind_function",
    "check_name",
    "check_parts",
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


_MOST_POSITIONS = 1_000
"""Limits the automaton. Double: twice the positions to compile and search; half: refuses more patterns."""

_DEEPEST = 100
"""Recursive functions walk a pattern. Deeper could exceed Python's recursion limit; less refuses more patterns."""

_DURING = "write then_not(..., during=...)"


class Parts(Protocol):
    """The parts of a pattern."""

    @property
    def tree(self) -> Tree:
        """The tree of the steps and their connectors."""

    @property
    def span(self) -> Any:
        """The greatest distance of the last event from the first; None for no limit."""

    @property
    def lead(self) -> Absence | None:
        """The absence before the first event, or None."""


def check_is_part(pattern: Parts, asked_by: str) -> None:
    """Check that a pattern can be part of another one."""
    _check_has_no_span(pattern, asked_by)
    if pattern.lead is not None:
        raise malformed(f"{pattern} begins with absent(), which belongs before the whole pattern, not in {asked_by}")


def check_can_go_on(pattern: Parts, asked_by: str) -> None:
    """Check that another pattern can follow."""
    _check_has_no_span(pattern, asked_by)
    if _waits_for_the_end(pattern.tree):
        raise malformed(f"{pattern} waits for the end of the whole pattern, so nothing can follow; {_DURING}")


def check_can_follow(pattern: Parts, asked_by: str) -> None:
    """Check that an absence can follow."""
    _check_has_no_span(pattern, asked_by)
    if _ends_silent(pattern.tree):
        raise malformed(
            f"{pattern} ends with an absence, so then_not() can't follow; write one step for both: "
            'step("either", lambda value: ...)'
        )


def check_can_repeat(pattern: Parts) -> None:
    """Check that a pattern can be repeated."""
    if _waits_for_the_end(pattern.tree):
        raise malformed(f"{pattern} waits for the end of the whole pattern, so it can't be repeated; {_DURING}")


def check_can_end(pattern: Parts) -> None:
    """Check that a pattern is complete: that it needs an event, and that its absences end."""
    if can_be_empty(pattern.tree):
        raise malformed(f"{pattern} needs no event; write at least one step that is not optional()")
    if pattern.span is None and _waits_for_the_end(pattern.tree):
        raise malformed(f"{pattern} waits forever; {_DURING}, or call .within() on the whole pattern")


def check_parts(pattern: Parts) -> None:
    """Check that a pattern is not too large, and that its names and durations are consistent."""
    count = positions(pattern.tree)
    if count > _MOST_POSITIONS:
        raise malformed(
            f"a pattern may have up to {_MOST_POSITIONS:,} steps, including repetitions; this one has {count:,}"
        )
    if depth(pattern.tree) > _DEEPEST:
        raise malformed(
            f"a pattern may be nested up to {_DEEPEST} deep; call .then() on the whole pattern, not inside "
            "each argument"
        )
    _check_names(pattern)
    _check_units(pattern)


def check_kind_function(pattern: Parts, kind: Any) -> None:
    """Check that the function that returns the kind of a value is given if and only if steps need it."""
    kinds = [it for it in steps_of(pattern.tree, pattern.lead) if it.kind is not None and not has_class(it)]
    if kinds and kind is None:
        raise malformed(
            f"step {kinds[0].name!r} of {pattern} has the kind {short_repr(kinds[0].kind)}, which is not a class; pass "
            "kind=, the field of a value that is its kind, or a function that returns it"
        )
    if kind is not None and not kinds:
        raise malformed(f'{pattern} has no step with a kind that kind= could return; write step("name", "the kind")')
    if kind is None or isinstance(kind, str):
        return
    check_function(located("a match's"), "kind", kind, or_else=("the name of a field",))


def _check_has_no_span(pattern: Parts, asked_by: str) -> None:
    if pattern.span is not None:
        raise malformed(f"{pattern} has a within(), which applies to a whole pattern; call it after {asked_by}")


def _check_names(pattern: Parts) -> None:
    known: dict[str, Step] = {}
    for one in steps_of(pattern.tree, pattern.lead):
        if known.setdefault(one.name, one) != one:
            raise malformed(f"{pattern} has two different steps named {one.name!r}; name each of them differently")


def _check_units(pattern: Parts) -> None:
    given = durations_of(pattern.tree, pattern.span, pattern.lead)
    if len({isinstance(it, timedelta) for it in given}) > 1:
        shown = ", ".join(map(short_repr, given))
        raise malformed(f"{pattern} has durations of different types: {shown}; write timedeltas, or numbers")


def _waits_for_the_end(tree: Tree) -> bool:
    """Whether an absence of a tree lasts for the rest of the whole pattern's span."""
    return any(bound.during is None for bound in bounds_of(tree) if isinstance(bound, Absence))


def _ends_silent(tree: Tree) -> bool:
    """Whether a match of a tree can end with an absence."""
    match tree:
        case Silenced():
            return True
        case Chain(items=items):
            for item in reversed(items):
                if _ends_silent(item):
                    return True
                if not can_be_empty(item):
                    return False
            return False
        case Either(items=items):
            return any(map(_ends_silent, items))
        case Repeated(item=item):
            return _ends_silent(item)
        case _:
            return False
