"""Aggregation in stages: accumulators as results, and as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Exact
from malflow.aggregators.slots import Layout, Slot, Slotted, duplicate, packed, slotted

__all__ = ["Merged", "Partial"]

V = TypeVar("V")
A = TypeVar("A")
R = TypeVar("R")


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
