"""The tree of a pattern: steps and their connectors, as frozen data without checks or behaviour."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import Any, Literal, assert_never

__all__ = [
    "Absence",
    "By",
    "Chain",
    "Either",
    "Gap",
    "Repeated",
    "Silenced",
    "Single",
    "Step",
    "Together",
    "Tree",
    "bounds_of",
    "can_be_empty",
    "depth",
    "durations_of",
    "ends_with_open_loop",
    "orders",
    "positions",
    "steps_of",
    "taken_steps",
]

By = Literal["then", "next", "then_any"]
"""The events that may be skipped between two events: those that no step takes, none, or any."""


@dataclass(frozen=True, slots=True)
class Step:
    """A name for events that satisfy a condition.

    Attributes:
        name: the name, unique in a pattern.
        kind: a class (or a union of classes) of which the value is an instance, or the result of ``match(kind=...)``
            for it; None for any value.
        where: the predicate of a value, called only for values of the kind; None for any value.
        given: the predicate of a value and the match so far, called only if `where` holds, or None.
    """

    name: str
    kind: Any = None
    where: Callable[[Any], object] | None = None
    given: Callable[[Any, Any], object] | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """The connector between an event and the previous one.

    Attributes:
        by: which events may be skipped.
        within: how much later the event may be, inclusive; None for no limit.
        without: the step that no event strictly between the two may satisfy, or None.
    """

    by: By = "then"
    within: Any = None
    without: Step | None = None


@dataclass(frozen=True, slots=True)
class Absence:
    """A step that no event satisfies for a time.

    Attributes:
        step: the step.
        during: the duration, inclusive; None for the rest of the whole pattern's span.
    """

    step: Step
    during: Any = None


@dataclass(frozen=True, slots=True)
class Single:
    """One event."""

    step: Step


@dataclass(frozen=True, slots=True)
class Chain:
    """One item after the other.

    If items are empty, an event follows the last event before them, with the gap of its own item.

    Attributes:
        items: at least two.
        gaps: the gap before each item except the first.
    """

    items: tuple[Tree, ...]
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several items."""

    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """Two to four steps in any order, connected by ``Gap()``."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Repeated:
    """A repeated item.

    Attributes:
        item: the item.
        low: the minimum number (may be 0).
        high: the maximum number; None for no limit.
        gap: the gap before each repetition except the first.
    """

    item: Tree
    low: int
    high: int | None
    gap: Gap


@dataclass(frozen=True, slots=True)
class Silenced:
    """An item followed by the absence of a step.

    The next event is taken only when the time of the absence is over. If the item is empty, there is no absence.
    """

    item: Tree
    absence: Absence


Tree = Single | Chain | Either | Together | Repeated | Silenced


def orders(tree: Together) -> Tree:
    """Return the orders of steps, each as a chain, in the order of preference."""
    chains = (tuple(map(Single, steps)) for steps in permutations(tree.steps))
    return Either(tuple(Chain(steps, (Gap(),) * (len(steps) - 1)) for steps in chains))


def positions(tree: Tree) -> int:
    """Return the number of a tree's steps, including repetitions; an unlimited loop counts its minimum."""
    match tree:
        case Single():
            return 1
        case Chain(items=items) | Either(items=items):
            return sum(map(positions, items))
        case Together(steps=steps):
            return factorial(len(steps)) * len(steps)
        case Repeated(item=item, low=low, high=high):
            return positions(item) * (max(low, 1) if high is None else high)
        case Silenced(item=item):
            return positions(item)
        case _:
            assert_never(tree)


def depth(tree: Tree) -> int:
    """Return the depth of a tree."""
    match tree:
        case Single() | Together():
            return 1
        case Chain(items=items) | Either(items=items):
            return 1 + max(map(depth, items))
        case Repeated(item=item) | Silenced(item=item):
            return 1 + depth(item)
        case _:
            assert_never(tree)


def can_be_empty(tree: Tree) -> bool:
    """Whether a tree matches without any event."""
    match tree:
        case Single() | Together():
            return False
        case Chain(items=items):
            return all(map(can_be_empty, items))
        case Either(items=items):
            return any(map(can_be_empty, items))
        case Repeated(item=item, low=low):
            return low == 0 or can_be_empty(item)
        case Silenced(item=item):
            return can_be_empty(item)
        case _:
            assert_never(tree)


def ends_with_open_loop(tree: Tree) -> bool:
    """Whether a tree can end with an unlimited loop. It stops at its minimum."""
    match tree:
        case Single() | Together() | Silenced():
            return False
        case Repeated(item=item, high=high):
            return high is None or ends_with_open_loop(item)
        case Either(items=items):
            return any(map(ends_with_open_loop, items))
        case Chain(items=items):
            return ends_with_open_loop(items[-1])
        case _:
            assert_never(tree)


def taken_steps(tree: Tree) -> Iterator[Step]:
    """Yield the steps that take events, in the order in which they are written, with duplicates."""
    match tree:
        case Single(step=step):
            yield step
        case Chain(items=items) | Either(items=items):
            for item in items:
                yield from taken_steps(item)
        case Together(steps=steps):
            yield from steps
        case Repeated(item=item) | Silenced(item=item):
            yield from taken_steps(item)
        case _:
            assert_never(tree)


def bounds_of(tree: Tree) -> Iterator[Absence | Gap]:
    """Yield the absences and the gaps of a tree."""
    match tree:
        case Single() | Together():
            return
        case Chain(items=items, gaps=gaps):
            yield from gaps
            for item in items:
                yield from bounds_of(item)
        case Either(items=items):
            for item in items:
                yield from bounds_of(item)
        case Repeated(item=item, gap=gap):
            yield gap
            yield from bounds_of(item)
        case Silenced(item=item, absence=absence):
            yield absence
            yield from bounds_of(item)
        case _:
            assert_never(tree)


def durations_of(tree: Tree, span: Any, lead: Absence | None) -> list[Any]:
    """Return all durations of a pattern.

    Args:
        tree: the tree.
        span: the greatest distance of the last event from the first; None for no limit.
        lead: the absence before the first event, or None.
    """
    found = [span, None if lead is None else lead.during]
    found += [bound.during if isinstance(bound, Absence) else bound.within for bound in bounds_of(tree)]
    return [duration for duration in found if duration is not None]


def steps_of(tree: Tree, lead: Absence | None = None) -> list[Step]:
    """Return all steps without duplicates: those that take events, as written, then those that must not occur.

    Args:
        tree: the tree of a pattern.
        lead: the absence before its first event, or None.
    """
    found = dict.fromkeys(taken_steps(tree))
    for term in bounds_of(tree):
        step = term.without if isinstance(term, Gap) else term.step
        if step is not None:
            found.setdefault(step)
    if lead is not None:
        found.setdefault(lead.step)
    return list(found)
