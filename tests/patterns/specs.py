"""Descriptions of patterns: plain data, which the reference reads, and from which the public API builds the pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from malflow.patterns import absent, step

__all__ = ["Both", "Either", "Silence", "Spec", "Step", "Then", "Times", "Tree", "all_steps_in", "built", "steps_in"]


@dataclass(frozen=True, repr=False)
class Step:
    """An event."""

    name: str
    where: Callable[[Any], object]
    given: Callable[[Any, Any], object] | None = None

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Then:
    """One item and then another."""

    left: Tree
    right: Tree
    by: str = "then"
    within: Any = None
    without: Step | None = None


@dataclass(frozen=True)
class Times:
    """An item several times."""

    item: Tree
    low: int
    high: int | None
    by: str = "then"
    within: Any = None
    without: Step | None = None


@dataclass(frozen=True)
class Either:
    """One of two items."""

    left: Tree
    right: Tree


@dataclass(frozen=True)
class Both:
    """Steps in any order."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Silence:
    """An item, and then an absence; without `during` to the end of the whole pattern's time."""

    item: Tree
    step: Step
    during: Any = None


Tree = Step | Then | Times | Either | Both | Silence


@dataclass(frozen=True)
class Spec:
    """A whole pattern: its tree, its bound, and an absence before it."""

    tree: Tree
    within: Any = None
    absent: tuple[Step, Any] | None = None


def steps_in(tree: Tree) -> Iterator[Step]:
    """Yield the steps that take events, in the order in which they are written."""
    match tree:
        case Step():
            yield tree
        case Then(left=left, right=right) | Either(left=left, right=right):
            yield from steps_in(left)
            yield from steps_in(right)
        case Times(item=item) | Silence(item=item):
            yield from steps_in(item)
        case Both(steps=steps):
            yield from steps


def all_steps_in(tree: Tree) -> Iterator[Step]:
    """Yield the steps that take events, and those that must not come."""
    match tree:
        case Step():
            yield tree
        case Then(left=left, right=right, without=without):
            yield from all_steps_in(left)
            yield from all_steps_in(right)
            yield from [without] if without else []
        case Either(left=left, right=right):
            yield from all_steps_in(left)
            yield from all_steps_in(right)
        case Times(item=item, without=without):
            yield from all_steps_in(item)
            yield from [without] if without else []
        case Silence(item=item, step=step):
            yield from all_steps_in(item)
            yield step
        case Both(steps=steps):
            yield from steps


def plain_step(one: Step) -> Any:
    """Return a step with its predicates."""
    return step(one.name, one.where, given=one.given)


def built(spec: Spec, make: Callable[[Step], Any] = plain_step) -> Any:
    """Return the pattern of a description; `make` returns its steps."""
    whole = _pattern(spec.tree, make)
    if spec.within is not None:
        whole = whole.within(spec.within)
    if spec.absent is None:
        return whole
    return absent(make(spec.absent[0]), during=spec.absent[1]).then(whole)


def _pattern(tree: Tree, make: Callable[[Step], Any]) -> Any:
    match tree:
        case Step():
            return make(tree)
        case Either(left, right):
            return _pattern(left, make) | _pattern(right, make)
        case Both(steps):
            return reduce(and_, map(make, steps))
        case Silence(item, forbidden, during):
            return _pattern(item, make).then_not(make(forbidden), during=during)
        case Then(left, right, by, within, without):
            terms = {} if without is None else {"without": make(without)}
            return getattr(_pattern(left, make), by)(_pattern(right, make), within=within, **terms)
        case Times():
            return _repeated(tree, make)


def _repeated(tree: Times, make: Callable[[Step], Any]) -> Any:
    item = _pattern(tree.item, make)
    if (tree.low, tree.high) == (0, 1):
        return item.optional()
    terms: dict[str, Any] = {"by": tree.by, "within": tree.within}
    if tree.without is not None:
        terms["without"] = make(tree.without)
    if tree.high is None:
        return item.at_least(tree.low, **terms)
    return item.times(tree.low, tree.high, **terms)
