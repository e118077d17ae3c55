"""The loop of aggregators that can be merged exactly, over columns that were read and checked before."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from operator import length_hint
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Holds, fits
from malflow.aggregators.fields import Field, key_of
from malflow.aggregators.generated import Source
from malflow.aggregators.slots import Slot, Slotted, slotted, unique
from malflow.records.columnar import is_columnar, made

__all__ = ["AddingFailed", "ColumnLoop", "is_exact"]


def is_exact(aggregators: Sequence[Aggregator[Any, Any, Any]]) -> bool:
    """Whether there are values for which merging the accumulators of each aggregator equals adding their records."""
    return all(None not in slotted(it).exactness() for it in aggregators)


class ColumnLoop:
    """Exact aggregators compiled into a loop over columns, with the accumulators of their `Kernel`.

    Args:
        aggregators: the aggregators, for which `is_exact`.

    Attributes:
        ordered: whether an accumulator must be of records that followed each other on their way to the kernel.
        timed: whether timestamps are compared.
    """

    def __init__(self, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        facts = [fact for it in aggregators for fact in slotted(it).exactness() if fact is not None]
        self.ordered = any(fact.ordered for fact in facts)
        self.timed = any(fact.timed for fact in facts)
        slots = unique(slot for it in aggregators for slot in slotted(it).slots)
        self._fields: dict[object, Field] = {}
        self._holds: dict[object, set[Holds]] = {}
        source = Source([_Columnar(tuple(map(self._named, slots)))], refuses_nan=False)
        self._add = source.compile("columns")["add"]
        self._reads_values = source.reads_values

    def _named(self, slot: Slot) -> Slot:
        """Return the slot with a numbered column in place of its field."""
        if not slot.reads("x"):
            return slot
        name = key_of(slot.column)
        self._fields.setdefault(name, slot.column)
        if slot.exact is not None:
            self._holds.setdefault(name, set()).add(slot.exact.column)
        return replace(slot, column=f"column {[*self._fields].index(name)}", needs_integer=False)

    def read(self, values: Sequence[Any]) -> list[Sequence[Any]] | None:
        """Return the columns that the loop takes; None if merging would not be exact, or a field can't be read."""
        columns = []
        kinds: set[type] = set()
        for name, field in self._fields.items():
            column = values.column(field) if isinstance(field, str) and is_columnar(values) else None
            if column is None:
                kinds = kinds or set(map(type, values))
                column = _read(field, made(values), kinds)
            if len(column) != len(values) or not all(fits(column, it) for it in self._holds.get(name, ())):
                return None
            columns.append(column)
        return [*columns, made(values)] if columns and self._reads_values else columns

    def add(
        self,
        accs: MutableMapping[Any, Any],
        keys: Sequence[Any],
        columns: Sequence[Sequence[Any]],
        timestamps: Sequence[Any],
    ) -> list[int]:
        """Add each record to the accumulator of its key; return the positions of records with new keys.

        Raises:
            AddingFailed: with the position of the record at which a user's function failed.
        """
        first, *others = map(iter, columns or [range(len(keys))])
        found: list[int] = []

        def admit(_key: Any) -> None:
            found.append(len(keys) - length_hint(first) - 1)

        try:
            self._add(accs, keys, zip(first, *others, strict=True) if others else first, timestamps, admit)
        except Exception as error:
            raise AddingFailed(len(keys) - length_hint(first) - 1) from error
        return found


class AddingFailed(Exception):
    """A user's function failed; the cause is its error.

    Attributes:
        at: the position of the record.
    """

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


class _Columnar(Slotted[Any, Any, Any]):
    """Slots of several aggregators, without a result."""

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self._slots = slots

    def make_slots(self) -> tuple[Slot, ...]:
        return self._slots

    def combine(self, *states: Any) -> Any:
        raise NotImplementedError


def _read(field: Field, values: Sequence[Any], kinds: set[type]) -> Sequence[Any]:
    """Return a field of each value; an empty column if values of several kinds have it."""
    if field is None:
        return values
    if isinstance(field, int):
        return [value[field] for value in values]
    if not isinstance(field, str):
        return list(map(field, values))
    if kinds == {dict}:
        return [value[field] for value in values]
    return () if any(issubclass(it, Mapping) for it in kinds) else [getattr(value, field) for value in values]
