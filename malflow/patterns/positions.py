"""The positions of a pattern, one for each step of the tree with loops unrolled, and the edges between them.

After Glushkov, "The abstract theory of automata" (1961).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

from malflow.patterns.tree import Absence, Chain, Either, Gap, Repeated, Silenced, Single, Step, Together, Tree, orders

__all__ = ["Edge", "Positions", "Wait"]


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
