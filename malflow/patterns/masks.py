"""The steps that values satisfy, as bits, a column at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress, repeat
from types import UnionType
from typing import Any

from malflow.patterns.tree import Step

__all__ = ["Masks", "has_class"]

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
