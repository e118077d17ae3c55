"""Slots: the variables of accumulators, each with its step of the generated loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from types import MethodType
from typing import Any, Protocol, TypeVar

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Exact
from malflow.aggregators.fields import Field, check_addable, check_integer, key_of, none_error, read
from malflow.aggregators.numbers import number

__all__ = [
    "Called",
    "Layout",
    "Slot",
    "Slotted",
    "duplicate",
    "packed",
    "slotted",
    "unique",
]

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")

_IMMUTABLE = frozenset({int, float, str, bool, bytes, complex, type(None)})


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """One variable of an accumulator. Slots of several aggregators with the same `identity` are stored once.

    The templates are source code of the generated loop. In them, ``{a}`` is the state, ``{to}`` is where the next
    state is stored, and ``{x}`` and ``{t}`` are the column and the timestamp. Without templates the loop calls `add`.

    Attributes:
        create: returns the empty state.
        add: takes the state and the arguments in `takes`, and returns the state, possibly mutated in place.
        merge: ``(state, state) -> state``; must not mutate either, nor return one that is mutable. None if it can't
            merge.
        column: the field that ``x`` holds.
        takes: the other arguments of `add`, one letter each: ``x`` the column, ``t`` the timestamp, ``v`` the value.
        needs_value: whether ``x`` must not be None.
        needs_number: whether ``x`` must not be text or bytes; with `needs_value`.
        needs_equality: whether ``x`` must not be NaN (checked with ``debug=True`` only).
        needs_integer: whether ``x`` must be an integer or a truth value.
        first: a template: the expression of the state after one record.
        step: a template: the statement that adds a record, in place or by an assignment to ``{to}``.
        join: a template: the expression that merges ``{a}`` and ``{b}``, neither of them empty.
        exact: when merging equals adding, in value and type; None for never.
        kernel: the name of its form for arrays, in `malflow.columns.aggregates.kernels`; empty if it has none.
        skips: whether records with None in ``x`` are skipped. The state of no other record is None, whatever `create`
            returns.
    """

    create: Callable[[], Any]
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any] | None
    column: Field = None
    takes: str = "xt"
    needs_value: bool = False
    needs_number: bool = False
    needs_equality: bool = False
    needs_integer: bool = False
    first: str = ""
    step: str = ""
    join: str = ""
    exact: Exact | None = None
    kernel: str = ""
    skips: bool = False

    def skipping(self, field: Field) -> Slot:
        """Return the slot that skips records with None in a field; it adds the field where it has no column."""
        return replace(self, column=field if self.column is None else self.column, skips=True)

    def reads(self, letter: str) -> bool:
        """Whether the generated loop reads ``x``, ``t`` or ``v`` for this slot."""
        mark = letter if letter == "v" else f"{{{letter}}}"
        if self.skips and letter == "x":
            return True
        return any(mark in template if template else letter in self.takes for template in (self.first, self.step))

    @property
    def identity(self) -> object:
        """The functions and the column. They are the same for equal slots."""
        column = key_of(self.column) if isinstance(self.column, str | int) else _same(self.column)
        return _same(self.create), _same(self.add), _same(self.merge), column, self.skips

    def empty(self) -> Any:
        """Return the state of no record."""
        return None if self.skips else self.create()

    def merged(self, one: Any, other: Any) -> Any:
        """Return the state of the records of both.

        Raises:
            TypeError: if it can't merge.
        """
        if self.merge is None:
            raise TypeError("the states can't be merged")
        if self.skips and (one is None or other is None):
            if one is other or self.is_plain:
                return other if one is None else one
            return self.merge(*(self.create() if it is None else it for it in (one, other)))
        return self.merge(one, other)

    @property
    def is_plain(self) -> bool:
        """Whether its states can't change: two accumulators may share one."""
        return type(self.create()) in _IMMUTABLE

    def added(self, state: Any, value: Any, timestamp: Any) -> Any:
        """Return the state after one record."""
        x = read(self.column, value)
        if self.needs_number:
            x = number(x)
        if x is None and self.skips:
            return state
        if x is None and self.needs_value:
            raise none_error(self.column)
        if self.needs_number:
            check_addable(self.column, x)
        if self.needs_integer:
            check_integer(self.column, x)
        state = self.create() if self.skips and state is None else state
        facts = {"x": x, "t": timestamp, "v": value}
        return self.add(state, *[facts[letter] for letter in self.takes])


class Layout(Protocol):
    """The places of slots in a common accumulator, and the names for generated code."""

    def place(self, slot: Slot) -> str:
        """Return the expression of a slot's state."""

    def bind(self, hint: str, thing: object) -> str:
        """Return a name for an object in generated code."""


class Slotted(Aggregator[V, A, R]):
    """An aggregator. Its accumulator is the state of its only slot, or a list of the states of its slots."""

    outcome = ""
    """A template of `combine`: an expression in which ``{0}``, ``{1}``, ... are the states of the slots."""

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """The slots."""
        return self.make_slots()

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the distinct slots."""
        raise NotImplementedError

    def combine(self, *states: Any) -> R:
        """Return the result for the states of the slots."""
        raise NotImplementedError

    def create(self) -> A:
        """Return an empty accumulator."""
        acc: A = packed([slot.empty() for slot in self.slots])
        return acc

    def add(self, acc: A, value: V, timestamp: Any) -> A:
        """Add a record's value and return the accumulator."""
        states = zip(self.slots, self._unpacked(acc), strict=True)
        changed: A = packed([slot.added(state, value, timestamp) for slot, state in states])
        return changed

    def merge(self, one: A, other: A) -> A:
        """Return the accumulator of the values of both."""
        parts = zip(self.slots, self._unpacked(one), self._unpacked(other), strict=True)
        merged: A = packed([slot.merged(a, b) for slot, a, b in parts])
        return merged

    def result(self, acc: A) -> R:
        """Return the result."""
        return self.combine(*self._unpacked(acc))

    @property
    def can_merge(self) -> bool:
        """Whether accumulators can be merged."""
        return all(slot.merge is not None for slot in self.slots)

    def exactness(self) -> list[Exact | None]:
        """Return when merging equals adding, for each slot; None for never."""
        return [slot.exact for slot in self.slots]

    def result_source(self, layout: Layout) -> str:
        """Return the expression of the result in generated code."""
        places = [layout.place(slot) for slot in self.slots]
        if self.outcome:
            return self.outcome.format(*places)
        return f"{layout.bind('result', self.combine)}({', '.join(places)})"

    def state_source(self, layout: Layout) -> str:
        """Return the expression of the aggregator's own accumulator in generated code."""
        places = [layout.place(slot) for slot in self.slots]
        return places[0] if len(places) == 1 else f"[{', '.join(places)}]"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the arguments, from which the slots are derived."""
        return {name: it for name, it in vars(self).items() if name != "slots"}

    def _unpacked(self, acc: Any) -> Sequence[Any]:
        return (acc,) if len(self.slots) == 1 else acc


class Called(Slotted[V, A, R]):
    """An aggregator of another kind. The generated loop calls its methods."""

    def __init__(self, aggregator: Aggregator[V, A, R]) -> None:
        self.aggregator = aggregator

    def make_slots(self) -> tuple[Slot, ...]:
        """Return one slot for the whole accumulator."""
        it = self.aggregator
        exact = Exact(ordered=True) if it.exact and it.can_merge else None
        return (Slot(it.create, it.add, it.merge if it.can_merge else None, exact=exact),)

    def combine(self, *states: Any) -> R:
        """Return the aggregator's result."""
        return self.aggregator.result(*states)

    def __repr__(self) -> str:
        return repr(self.aggregator)


def slotted(aggregator: Aggregator[V, A, R]) -> Slotted[V, A, R]:
    """Return the aggregator in the form for compilation."""
    return aggregator if isinstance(aggregator, Slotted) else Called(aggregator)


def unique(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    """Return the distinct slots, in the order of their first occurrence."""
    kept: dict[object, Slot] = {}
    for slot in slots:
        kept.setdefault(slot.identity, slot)
    return tuple(kept.values())


def duplicate(state: Any) -> Any:
    """Return a deep copy."""
    return state if type(state) in _IMMUTABLE else deepcopy(state)


def _same(function: Any) -> object:
    """Return a substitute for a function in an identity: methods of one object are equal, but not identical."""
    return function if isinstance(function, MethodType) else id(function)


def packed(states: list[Any]) -> Any:
    """Return an accumulator made of the states of its slots."""
    return states[0] if len(states) == 1 else states
