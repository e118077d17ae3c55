"""Aggregators made of functions, of several aggregators, and of stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.contract import Aggregator, call, label
from malflow.aggregators.exactness import Exact
from malflow.aggregators.slots import Layout, Slot, Slotted, duplicate, packed, slotted, unique

__all__ = [
    "Fold",
    "Into",
    "Merged",
    "Partial",
    "Several",
]

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, repr=False)
class Fold(Slotted[V, A, R]):
    """See `malflow.agg.fold`.

    Attributes:
        timed: whether the `add` function takes the timestamp too.
    """

    creator: Callable[[], A]
    adder: Callable[..., A]
    merger: Callable[[A, A], A] | None = None
    finisher: Callable[[A], R] | None = None
    timed: bool = False

    def make_slots(self) -> tuple[Slot, ...]:
        """Return one slot for the whole accumulator."""
        return (Slot(self.creator, self.adder, self.merger, takes="xt" if self.timed else "x"),)

    def combine(self, *states: Any) -> Any:
        """Return the result of the user's function for the accumulator, or a copy of that."""
        return duplicate(*states) if self.finisher is None else self.finisher(*states)

    def __repr__(self) -> str:
        return call("agg.fold", self.creator, self.adder, merge=self.merger, result=self.finisher)


@dataclass(frozen=True, repr=False)
class Several(Slotted[V, Any, R]):
    """Several aggregators with a tuple of results: see `malflow.agg.tuple_`."""

    parts: tuple[Aggregator[V, Any, Any], ...]

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the slots of all parts, each once."""
        return unique(slot for part in self.parts for slot in slotted(part).slots)

    def exactness(self) -> list[Exact | None]:
        """Return when merging equals adding, for each slot of each part."""
        return [it for part in self.parts for it in slotted(part).exactness()]

    def combine(self, *states: Any) -> Any:
        """Return the tuple of results."""
        return tuple(self.results(states))

    def results(self, states: tuple[Any, ...]) -> list[Any]:
        """Return the result of each part."""
        places = {slot.identity: state for slot, state in zip(self.slots, states, strict=True)}
        parts = map(slotted, self.parts)
        return [part.combine(*[places[slot.identity] for slot in part.slots]) for part in parts]

    def result_source(self, layout: Layout) -> str:
        """Return the expression of the tuple of results."""
        return f"({''.join([f'{part.result_source(layout)}, ' for part in map(slotted, self.parts)])})"

    def __repr__(self) -> str:
        return f"agg.tuple_({', '.join(map(repr, self.parts))})"


@dataclass(frozen=True, repr=False)
class Into(Several[V, R]):
    """Several aggregators with results that are the arguments of a class: see `malflow.agg.into`."""

    made: Callable[..., R]
    names: tuple[str, ...]

    def combine(self, *states: Any) -> R:
        """Return an instance of the class, made from the results."""
        return self.made(**dict(zip(self.names, self.results(states), strict=True)))

    def result_source(self, layout: Layout) -> str:
        """Return the call of the class."""
        named = [
            f"{name}={slotted(part).result_source(layout)}" for name, part in zip(self.names, self.parts, strict=True)
        ]
        return f"{layout.bind('made', self.made)}({', '.join(named)})"

    def __repr__(self) -> str:
        named = [f"{name}={part!r}" for name, part in zip(self.names, self.parts, strict=True)]
        return f"agg.into({', '.join([label(self.made), *named])})"


@dataclass(frozen=True, repr=False)
class Partial(Slotted[V, A, A]):
    """See `malflow.agg.partial`."""

    whole: Aggregator[V, A, Any]

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the slots of the aggregator."""
        return slotted(self.whole).slots

    def exactness(self) -> list[Exact | None]:
        """Return that merging never equals adding: an accumulator may show the order of merges, as a set does."""
        return [None]

    def combine(self, *states: Any) -> Any:
        """Return a copy of the accumulator."""
        return duplicate(packed(list(states)))

    def result_source(self, layout: Layout) -> str:
        """Return the expression of a copy of the accumulator."""
        return f"{layout.bind('duplicate', duplicate)}({self.state_source(layout)})"

    def __repr__(self) -> str:
        return f"agg.partial({self.whole!r})"


@dataclass(frozen=True, repr=False)
class Merged(Slotted[A, A, R]):
    """See `malflow.agg.merged`."""

    whole: Aggregator[Any, A, R]

    def make_slots(self) -> tuple[Slot, ...]:
        """Return one slot for the whole accumulator."""
        return (Slot(self.whole.create, self.whole.merge, self.whole.merge, takes="x"),)

    def combine(self, *states: Any) -> R:
        """Return the aggregator's result."""
        return self.whole.result(*states)

    def __repr__(self) -> str:
        return f"agg.merged({self.whole!r})"
