"""The positions of a pattern, the edges between them, and the steps that values satisfy, as bits.

After Glushkov, "The abstract theory of automata" (1961).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from types import UnionType
from typing import Any, NamedTuple, assert_never

from malflow.patterns.tree import Absence, Chain, Either, Gap, Repeated, Silenced, Single, Step, Together, Tree, orders

__all__ = [
    "Edge",
    "Masks",
    "Positions",
    "Wait",
    "has_class",
]


class Wait(NamedTuple):
    """A step that must not occur.

    Attributes:
        step: its number.
        during: the duration after the last event; None for the rest of the pattern's span.
        number: the number of the absence in the tree.
    """

    step: int
    during: Any
    number: int


class Edge(NamedTuple):
    """An edge to a position that may follow.

    Attributes:
        step: the number of the step that takes the next event.
        gap: the number of the gap in the tree.
        wait: the absence that must be over first, or None.
        target: the position after it.
    """

    step: int
    gap: int
    wait: Wait | None
    target: int


@dataclass(slots=True)
class _Fragment:
    """A part of the automaton: its first positions, and its last ones, each with the absence after it."""

    can_be_empty: bool
    first: list[int]
    last: list[tuple[int, Wait | None]]


class Positions:
    """The positions of a tree.

    Attributes:
        steps: the number of the step at each position.
        names: the names of the positions; they don't depend on numbers and durations.
        edges: the edges after each position.
        gaps: the gaps between positions, by number.
        first: the positions of first events.
        ends: for each position, the absences that complete a match after it, or None if it is complete.

    Args:
        tree: the tree of a complete pattern.
        numbers: the number of each step, by its name.
    """

    def __init__(self, tree: Tree, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self.steps: list[int] = []
        self.names: list[str] = []
        self.edges: list[list[Edge]] = []
        self.gaps: dict[int, Gap] = {}
        self._leaf = self._gap_number = self._absence = 0
        self._round: tuple[int, ...] = ()
        whole = self._build(tree)
        self.first = whole.first
        self.ends: dict[int, list[Wait | None]] = {}
        for position, wait in whole.last:
            self.ends.setdefault(position, []).append(wait)

    def _build(self, tree: Tree) -> _Fragment:
        match tree:
            case Single(step=step):
                return self._single(step)
            case Chain(items=items, gaps=gaps):
                whole = self._build(items[0])
                for item, gap in zip(items[1:], gaps, strict=True):
                    whole = self._chained(whole, self._gap(gap), self._build(item))
                return whole
            case Either(items=items):
                branches = [self._build(item) for item in items]
                return _Fragment(
                    any(it.can_be_empty for it in branches),
                    [position for it in branches for position in it.first],
                    [end for it in branches for end in it.last],
                )
            case Together():
                return self._build(orders(tree))
            case Repeated():
                return self._repeated(tree)
            case Silenced(item=item, absence=absence):
                wait = self._wait(absence)
                inner = self._build(item)
                return _Fragment(inner.can_be_empty, inner.first, [(position, wait) for position, _ in inner.last])
            case _:
                assert_never(tree)

    def _single(self, step: Step) -> _Fragment:
        position = len(self.steps)
        self.steps.append(self._numbers[step.name])
        self.names.append(".".join(map(str, (self._leaf, *self._round))))
        self._leaf += 1
        self.edges.append([])
        return _Fragment(False, [position], [(position, None)])

    def _gap(self, gap: Gap) -> int:
        self.gaps[self._gap_number] = gap
        self._gap_number += 1
        return self._gap_number - 1

    def _wait(self, absence: Absence) -> Wait:
        self._absence += 1
        return Wait(self._numbers[absence.step.name], absence.during, self._absence)

    def _chained(self, left: _Fragment, gap: int, right: _Fragment) -> _Fragment:
        self._link(left, gap, right)
        return _Fragment(
            left.can_be_empty and right.can_be_empty,
            left.first + right.first if left.can_be_empty else left.first,
            right.last + left.last if right.can_be_empty else right.last,
        )

    def _link(self, left: _Fragment, gap: int, right: _Fragment) -> None:
        for position, wait in left.last:
            for target in right.first:
                self.edges[position].append(Edge(self.steps[target], gap, wait, target))

    def _repeated(self, tree: Repeated) -> _Fragment:
        """Unroll a loop, without empty rounds: if the item may be empty, so may the whole."""
        gap, outer, begun = self._gap(tree.gap), self._round, (self._leaf, self._gap_number, self._absence)
        rounds: list[_Fragment] = []
        for number in range(max(tree.low, 1) if tree.high is None else tree.high):
            self._leaf, self._gap_number, self._absence = begun
            self._round = (*outer, number)
            rounds.append(self._build(tree.item))
            if number:
                self._link(rounds[-2], gap, rounds[-1])
        self._round = outer
        if tree.high is None:
            self._link(rounds[-1], gap, rounds[-1])
        item_can_be_empty = rounds[0].can_be_empty
        least = 1 if item_can_be_empty else max(tree.low, 1)
        ends = [end for it in rounds[least - 1 :] for end in it.last]
        return _Fragment(tree.low == 0 or item_can_be_empty, rounds[0].first, ends)


_MOST_CLASSES = 10_000
"""The maximum number of cached types: a program may create types while it runs."""

_Predicate = Callable[[Any], object]


class Masks:
    """Computes which steps each value satisfies, apart from their `given`: bit `n` for step number `n`.

    Kinds are looked up in one pass for all steps; predicates are called only for the values of their step's kind.

    Args:
        steps: the steps, by number.
        kind: returns the kind of a value; None if all kinds are classes.
    """

    def __init__(self, steps: Sequence[Step], kind: Callable[[Any], Any] | None = None) -> None:
        self._kind = kind
        classes = [(1 << number, step.kind) for number, step in enumerate(steps) if has_class(step)]
        self._classes = _Classes(classes) if classes else None
        self._kinds: dict[Any, int] = {}
        self._always = 0
        self._free: list[tuple[int, _Predicate]] = []
        self._asked: list[tuple[int, _Predicate]] = []
        for number, step in enumerate(steps):
            bit = 1 << number
            if step.kind is not None:
                if not has_class(step):
                    self._kinds[step.kind] = self._kinds.get(step.kind, 0) | bit
                if step.where is not None:
                    self._asked.append((bit, step.where))
            elif step.where is None:
                self._always |= bit
            else:
                self._free.append((bit, step.where))

    def of(self, values: Sequence[Any]) -> Sequence[int]:
        """Return the bits of each value."""
        by_kind = self._by_kind(values)
        if by_kind is None:
            return self._flags(values)
        if self._free or self._always:
            return [one | two for one, two in zip(by_kind, self._flags(values), strict=True)]
        return by_kind

    def _by_kind(self, values: Sequence[Any]) -> list[int] | None:
        """Return the bits of steps with a kind; None if there are no such steps."""
        masks = None
        if self._classes is not None:
            masks = list(map(self._classes.__getitem__, map(type, values)))
        if self._kinds and self._kind is not None:
            others = map(self._kinds.get, map(self._kind, values), repeat(0))
            masks = list(others) if masks is None else [one | two for one, two in zip(masks, others, strict=True)]
        if masks is not None and self._asked:
            self._ask(values, masks)
        return masks

    def _ask(self, values: Sequence[Any], masks: list[int]) -> None:
        """Clear the bits of steps with a kind that matches but predicates that do not hold."""
        for index in compress(range(len(masks)), masks):
            mask, value = masks[index], values[index]
            for bit, where in self._asked:
                if mask & bit and not where(value):
                    mask ^= bit
            masks[index] = mask

    def _flags(self, values: Sequence[Any]) -> list[int]:
        """Return the bits of steps without a kind."""
        no, free = self._always, self._free
        if not free:
            return [no] * len(values)
        (bit, p), others = free[0], free[1:4]
        a = bit | no
        match others:
            case []:
                masks = [a if p(v) else no for v in values]
            case [(b, q)]:
                both, second = a | b, b | no
                masks = [(both if q(v) else a) if p(v) else (second if q(v) else no) for v in values]
            case [(b, q), (c, r)]:
                masks = [(a if p(v) else no) | (b if q(v) else 0) | (c if r(v) else 0) for v in values]
            case [(b, q), (c, r), (d, s)]:
                masks = [
                    (a if p(v) else no) | (b if q(v) else 0) | (c if r(v) else 0) | (d if s(v) else 0) for v in values
                ]
        for bit, predicate in free[4:]:
            masks = [mask | bit if predicate(v) else mask for mask, v in zip(masks, values, strict=True)]
        return masks


class _Classes(dict[type, int]):
    """The bits of the steps with a class that a type is derived from, by type, filled on demand."""

    def __init__(self, classes: Sequence[tuple[int, Any]]) -> None:
        super().__init__()
        self._steps = classes

    def __missing__(self, kind: type) -> int:
        if len(self) >= _MOST_CLASSES:
            self.clear()
        bits = self[kind] = sum(bit for bit, base in self._steps if issubclass(kind, base))
        return bits


def has_class(step: Step) -> bool:
    """Whether a step's kind is a class, or a union of classes."""
    return isinstance(step.kind, (type, UnionType))
