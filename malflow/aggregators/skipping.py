"""Aggregators that skip records with None in their field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from malflow.aggregators.collected import Collect, CollectSet, CountDistinct, EstimateDistinct, MostFrequent, Top
from malflow.aggregators.contract import call
from malflow.aggregators.extremes import Largest, Smallest
from malflow.aggregators.fields import Field
from malflow.aggregators.sketches import ExactQuantiles, Quantiles
from malflow.aggregators.slots import Layout, Slot, Slotted
from malflow.aggregators.sums import Count

__all__ = ["Skipping"]

V = TypeVar("V")

_EMPTY: dict[type, Any] = {
    **dict.fromkeys((Count, CountDistinct, EstimateDistinct), 0),
    **dict.fromkeys((Collect, Largest, Smallest, Top, MostFrequent), ()),
    CollectSet: frozenset(),
}
"""The results without a value that are not None."""


@dataclass(frozen=True, repr=False)
class Skipping(Slotted[V, Any, Any]):
    """An aggregator without the records that have None in a field: see ``skip_none`` in `malflow.agg`.

    Attributes:
        whole: the aggregator; it reads the field, or no field at all.
        field: the field.
    """

    whole: Slotted[V, Any, Any]
    field: Field

    def make_slots(self) -> tuple[Slot, ...]:
        """Return the slots of the aggregator, each of which skips records."""
        return tuple(slot.skipping(self.field) for slot in self.whole.slots)

    def combine(self, *states: Any) -> Any:
        """Return the result; without a value None, 0 or an empty collection."""
        return self._nothing if states[0] is None else self.whole.combine(*states)

    def result_source(self, layout: Layout) -> str:
        """Return the expression of the result."""
        found = self.whole.result_source(_Within(layout, self.field))
        nothing = "None" if self._nothing is None else layout.bind("nothing", self._nothing)
        return f"({nothing} if {layout.place(self.slots[0])} is None else {found})"

    @property
    def _nothing(self) -> Any:
        if isinstance(self.whole, Quantiles | ExactQuantiles):
            return (None,) * len(self.whole.fractions)
        return _EMPTY.get(type(self.whole))

    def __repr__(self) -> str:
        if isinstance(self.whole, Count):
            return call("agg.count", self.field, skip_none=True)
        return f"{repr(self.whole)[:-1]}{'' if repr(self.whole).endswith('()') else ', '}skip_none=True)"


class _Within:
    """The places of slots that skip records, in place of the ones that don't."""

    def __init__(self, layout: Layout, field: Field) -> None:
        self._layout = layout
        self._field = field

    def place(self, slot: Slot) -> str:
        """Return the expression of a slot's state."""
        return self._layout.place(slot.skipping(self._field))

    def bind(self, hint: str, thing: object) -> str:
        """Return a name for an object in generated code."""
        return self._layout.bind(hint, thing)
