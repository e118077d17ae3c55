"""The accumulators of many keys as arrays: a kernel for each slot, and a place for each accumulator."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from malflow.aggregators.slots import Slot
from malflow.columns.aggregates.kernels import Array, Ints, Lot
from malflow.columns.aggregates.outcomes import Fields
from malflow.columns.aggregates.slot_kernels import kernels_of
from malflow.columns.column import Column
from malflow.records.columnar import Unfit

__all__ = ["Accumulators", "grown", "times_of"]

_STARTING_SIZE = 1024
"""Places to begin with: fewer are soon too few, more take memory for nothing."""

_FAR = 1 << 62
"""Timestamps up to this one leave room in 64 bits for the bounds of their windows."""


class Accumulators:
    """Accumulators of the same slots.

    Args:
        slots: the slots of an accumulator.
        merges: how many accumulators may be merged into one.
        sends: whether they are sent, for others to join them exactly.

    Attributes:
        size: the number of places.

    Raises:
        Unfit: if a slot has no kernel.
    """

    def __init__(self, slots: Sequence[Slot], merges: int = 1, *, sends: bool = False) -> None:
        kernels = kernels_of(slots, merges)
        if kernels is None:
            raise Unfit("an aggregator has no form for arrays, or reads more than a field by its name")
        self.kernels = kernels
        self.size = 0
        self._sends = sends

    @property
    def is_ordered(self) -> bool:
        """Whether joined accumulators depend on the order of records of several of them."""
        return any(kernel.is_ordered for kernel in self.kernels)

    @property
    def is_timed(self) -> bool:
        """Whether timestamps are compared."""
        return any(kernel.slot.reads("t") for kernel in self.kernels)

    def read(self, frame: Any, times: Column | None) -> list[list[Array]]:
        """Return the arrays that records are added from, of each slot; nothing is changed yet.

        Raises:
            Unfit: if a column has items that arrays can't hold, or from which no accumulators can be sent.
        """
        read = [kernel.read(frame, times) for kernel in self.kernels]
        if self._sends and not all(kernel.joins(arrays) for kernel, arrays in zip(self.kernels, read, strict=True)):
            raise Unfit("joining accumulators of these records would not be exact")
        return read

    def columns(self, fields: Fields) -> list[list[Column]]:
        """Return states as columns, to be sent."""
        return [kernel.columns(arrays) for kernel, arrays in zip(self.kernels, fields, strict=True)]

    def sent(self, columns: Sequence[Column]) -> list[list[Array]]:
        """Return the arrays of states that were sent; nothing is changed yet.

        Raises:
            Unfit: if the arrays can't hold them.
        """
        each = iter(columns)
        return [kernel.sent(list(islice(each, len(kernel.blank())))) for kernel in self.kernels]

    def join(self, lot: Lot, sent: Sequence[Sequence[Array]]) -> None:
        """Add accumulators that were sent, in order."""
        for kernel, arrays in zip(self.kernels, sent, strict=True):
            kernel.join(lot, arrays)

    def check(self, lot: Lot, read: Sequence[Sequence[Array]]) -> None:
        """Check that the arrays can hold the results, before they are changed.

        Raises:
            Unfit: if they can't.
        """
        for kernel, arrays in zip(self.kernels, read, strict=True):
            kernel.check(lot, arrays)

    def add(self, lot: Lot, read: Sequence[Sequence[Array]]) -> None:
        """Add records, in order."""
        for kernel, arrays in zip(self.kernels, read, strict=True):
            kernel.add(lot, arrays)

    def each(self, lot: Lot, read: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Add records, in order; return the states of a record's place after it, record by record."""
        return [kernel.each(lot, arrays) for kernel, arrays in zip(self.kernels, read, strict=True)]

    def resize(self, size: int) -> None:
        """Set the number of places. The first ones keep their states; new ones are empty."""
        kept = min(size, self.size)
        for kernel in self.kernels:
            before = kernel.fields
            kernel.allocate(size)
            for field, old in zip(kernel.fields, before, strict=False):
                field[:kept] = old[:kept]
        self.size = size

    def rearrange(self, size: int, old: Ints, new: Ints) -> None:
        """Set the number of places, and move the states at old places to new ones; others are empty."""
        for kernel in self.kernels:
            before = kernel.fields
            kernel.allocate(size)
            for field, items in zip(kernel.fields, before, strict=False):
                field[new] = items[old]
        self.size = size

    def clear(self, places: slice) -> None:
        """Empty some places."""
        for kernel in self.kernels:
            kernel.clear(places)

    def at(self, places: Any) -> list[list[Array]]:
        """Return a copy of the states at places."""
        return [[field[places] for field in kernel.fields] for kernel in self.kernels]

    def states(self, fields: Fields) -> list[Any]:
        """Return states as accumulators of Python."""
        listed = [kernel.states(arrays) for kernel, arrays in zip(self.kernels, fields, strict=True)]
        return listed[0] if len(listed) == 1 else list(map(list, zip(*listed, strict=True)))

    def load(self, accumulators: Sequence[Any]) -> list[list[Array]]:
        """Return the states of accumulators of Python, of which there is one or more.

        Raises:
            Unfit: if arrays can't hold them.
        """
        is_bare = len(self.kernels) == 1
        listed = [accumulators] if is_bare else list(zip(*accumulators, strict=True))
        if any(kernel.slot.skips and None in states for kernel, states in zip(self.kernels, listed, strict=True)):
            raise Unfit("a state has skipped all of its records so far")
        return [kernel.load(states) for kernel, states in zip(self.kernels, listed, strict=True)]

    def put(self, places: Ints, fields: Fields) -> None:
        """Set the states at places."""
        for kernel, arrays in zip(self.kernels, fields, strict=True):
            for field, items in zip(kernel.fields, arrays, strict=True):
                field[places] = items

    def merge(self, one: Fields, other: Fields) -> list[list[Array]]:
        """Return the states of the records of both, state by state; `one` first."""
        with np.errstate(all="ignore"):
            return [kernel.merge(a, b) for kernel, a, b in zip(self.kernels, one, other, strict=True)]


def grown(size: int, needed: int) -> int:
    """Return a size for as many places as are needed; growth doubles it, as in lists."""
    return size if needed <= size else max(needed, 2 * size, _STARTING_SIZE)


def times_of(timestamps: Sequence[Any]) -> Column | None:
    """Return timestamps as a column of numbers; None for other types, and for several types."""
    if isinstance(timestamps, Column):
        return timestamps if timestamps.numbers is not None else None
    if isinstance(timestamps, range):
        bounds = timestamps.start, timestamps.stop
        is_small = max(bounds) < _FAR and min(bounds) > -_FAR
        return Column(np.arange(*bounds, timestamps.step, dtype=np.int64)) if is_small else None
    if set(map(type, timestamps)) == {int} and max(timestamps) < _FAR and min(timestamps) > -_FAR:
        return Column(np.array(timestamps, np.int64))
    return None
