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


def built(spec: Spec) -> Any:
    """Return the pattern of a description."""
    whole = _pattern(spec.tree)
    if spec.within is not None:
        whole = whole.within(spec.within)
    if spec.absent is None:
        return whole
    return absent(_pattern(spec.absent[0]), during=spec.absent[1]).then(whole)


def _pattern(tree: Tree) -> Any:
    match tree:
        case Step(name, where, given):
            return step(name, where, given=given)
        case Either(left, right):
            return _pattern(left) | _pattern(right)
        case Both(steps):
            return reduce(and_, map(_pattern, steps))
        case Silence(item, forbidden, during):
            return _pattern(item).then_not(_pattern(forbidden), during=during)
        case Then(left, right, by, within, _):
            return getattr(_pattern(left), by)(_pattern(right), within=within, **_without(tree))
        case Times():
            return _repeated(tree)


def _repeated(tree: Times) -> Any:
    item = _pattern(tree.item)
    if (tree.low, tree.high) == (0, 1):
        return item.optional()
    terms = {"by": tree.by, "within": tree.within, **_without(tree)}
    if tree.high is None:
        return item.at_least(tree.low, **terms)
    return item.times(tree.low, tree.high, **terms)


def _without(tree: Then | Times) -> dict[str, Any]:
    return {} if tree.without is None else {"without": _pattern(tree.without)}
