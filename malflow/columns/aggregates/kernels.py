"""The forms of slots for arrays: a slot of many accumulators is one array, or a few, with a place for each.

Records are added with the same result, to the last bit, as one by one. So nothing here adds floats in another order:
``np.add.at`` goes from record to record, and `Segments` let the first records of all places go together, then the
second ones, and so on. A library's grouped sum would differ in the last digit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.aggregators.slots import Slot
from malflow.columns.arrays import numbers_of
from malflow.columns.column import Column
from malflow.records.columnar import Unfit

__all__ = [
    "LEAST",
    "MOST",
    "Array",
    "Ints",
    "Lot",
    "Segments",
    "SlotKernel",
    "as_numbers",
    "check_no_null",
    "numbers",
    "order_of",
    "truths",
    "unordered",
]

Array = np.ndarray[Any, Any]
Ints = np.ndarray[Any, Any]

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max

_LONG = 16, 7
"""Records of one place from which they go by themselves: 16, or one in 2 ** 7 of the batch. Each round costs some 10 us
whatever its size, so half of it makes rounds emptier, and double makes loops of Python longer."""


class Segments:
    """The records of a batch ordered by place, and within a place as they came.

    Args:
        places: the place of each record; there is one or more.
        size: the number of places.

    Attributes:
        order: the records' indices, in this order.
        starts: where the records of each place begin in it.
        lengths: how many each place has.
        places: the places, in ascending order.

    >>> segments = Segments(np.array([5, 2, 5]), 8)
    >>> segments.order.tolist(), segments.places.tolist(), segments.lengths.tolist()
    ([1, 0, 2], [2, 5], [1, 2])
    """

    def __init__(self, places: Ints, size: int) -> None:
        self.order = order_of(places, size)
        ordered = places[self.order]
        is_new = np.empty(len(ordered), np.bool_)
        is_new[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
        self.starts = np.flatnonzero(is_new)
        self.lengths = np.diff(self.starts, append=len(ordered))
        self.places = ordered[self.starts]

    def __len__(self) -> int:
        return len(self.order)


def order_of(places: Ints, size: int) -> Ints:
    """Return the stable order by place. Numpy sorts 16 bits by radix, in a sixth of the time."""
    if size <= 1 << 16:
        return np.argsort(places.astype(np.uint16), kind="stable")
    if size > 1 << 32:
        return np.argsort(places, kind="stable")
    low = np.argsort((places & 0xFFFF).astype(np.uint16), kind="stable")
    return low[np.argsort((places >> 16).astype(np.uint16)[low], kind="stable")]


class Lot:
    """Records that are added together.

    Args:
        places: the place of each record.
        size: the number of places.
        is_empty: whether places have no record yet.
    """

    def __init__(self, places: Ints, size: int, is_empty: Callable[[Ints], Array]) -> None:
        self.places = places
        self.size = size
        self.is_empty = is_empty

    @cached_property
    def segments(self) -> Segments:
        """The records by place."""
        return Segments(self.places, self.size)


class SlotKernel(ABC):
    """One slot of many accumulators, as arrays.

    Its items are integers or floats; the first batch or state that it meets decides.

    Args:
        slot: the slot.
        merges: how many of its states may be merged into one.

    Attributes:
        slot: the slot.
        merges: how many of its states may be merged into one.
        fields: its arrays.
        kind: ``"i"`` for integers, ``"f"`` for floats, empty while it is open.
    """

    def __init__(self, slot: Slot, merges: int = 1) -> None:
        self.slot = slot
        self.kind = ""
        self.fields: list[Array] = []
        self.merges = merges

    @abstractmethod
    def blank(self) -> list[tuple[Any, Any]]:
        """Return the type of each array, and the item for a place without records."""

    def allocate(self, size: int) -> None:
        """Make empty arrays of some size."""
        self.fields = [np.full(size, fill, kind) for kind, fill in self.blank()]

    def clear(self, places: slice) -> None:
        """Empty some places."""
        for field, (_, fill) in zip(self.fields, self.blank(), strict=True):
            field[places] = fill

    def read(self, frame: Any, _times: Column | None) -> list[Array]:
        """Return the arrays that records are added from; nothing is changed yet.

        Raises:
            Unfit: if the column has items that the arrays can't hold.
        """
        return [self.settle(numbers(frame, self.slot.column))]

    def check(self, lot: Lot, read: Sequence[Array]) -> None:
        """Check that the arrays can hold the results. They always can, unless a kernel says otherwise.

        Raises:
            Unfit: if they can't.
        """
        del lot, read

    @abstractmethod
    def step(self, states: Sequence[Array], read: Sequence[Array], is_first: Array | None) -> None:
        """Add one record to each of several states in place; `is_first` marks states without any, or is None."""

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        """Add records, in order."""
        self._fold(lot, read, each=False)

    def each(self, lot: Lot, read: Sequence[Array]) -> list[Array]:
        """Add records, in order; return the state of a record's place after it, record by record."""
        ordered = self._fold(lot, read, each=True)
        return [unordered(lot.segments.order, field) for field in ordered]

    @abstractmethod
    def merge(self, one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
        """Return the states of the records of both, state by state; `one` first."""

    is_ordered = False
    """Whether `join` depends on the order of records of several accumulators."""

    def joins(self, read: Sequence[Array]) -> bool:
        """Whether adding records to an accumulator of their own, and that one to another, is as adding them to it."""
        del read
        return False

    def columns(self, fields: Sequence[Array]) -> list[Column]:
        """Return states as columns, to be sent."""
        return list(map(Column, fields))

    def sent(self, columns: Sequence[Column]) -> list[Array]:
        """Return the arrays of states that were sent, from which `join` adds them; nothing is changed yet.

        Raises:
            Unfit: if the arrays can't hold them.
        """
        arrays = [column.numbers for column in columns if column.numbers is not None]
        return [*arrays[:-1], self.settle(arrays[-1])]

    def join(self, lot: Lot, sent: Sequence[Array]) -> None:
        """Add accumulators that were sent, in order, at the places of the lot."""
        self.add(lot, sent)

    def states(self, fields: Sequence[Array]) -> list[Any]:
        """Return states as objects of Python, as they are in an accumulator."""
        items: list[Any] = fields[0].tolist()
        return items

    def load(self, states: Sequence[Any]) -> list[Array]:
        """Return the arrays of states.

        Raises:
            Unfit: if arrays can't hold them.
        """
        return [self.settle(as_numbers(states))]

    def settle(self, x: Array) -> Array:
        """Return numbers with the type of this slot. They decide it if it is still open."""
        kind = "f" if x.dtype.kind == "f" else "i"
        if self.kind not in ("", kind):
            raise Unfit(f"the type of {self.name()} has changed between integers and floats")
        self.kind = kind
        return x

    def name(self) -> str:
        """Return the name of the column, for errors."""
        return f"the column '{self.slot.column}'" if isinstance(self.slot.column, str) else "the values"

    def _fold(self, lot: Lot, read: Sequence[Array], *, each: bool) -> list[Array]:
        """Add records in rounds: the first record of each place, then the second ones, and so on.

        Return the states after each record, in the order of the segments, if they are asked for.
        """
        segments = lot.segments
        starts, lengths, places = segments.starts, segments.lengths, segments.places
        ordered = [items[segments.order] for items in read]
        outcomes = [np.empty(len(segments), field.dtype) for field in self.fields] if each else []
        is_empty = lot.is_empty(places)
        is_long = lengths > max(_LONG[0], len(segments) >> _LONG[1])
        for at in np.flatnonzero(is_long).tolist():
            part = slice(int(starts[at]), int(starts[at] + lengths[at]))
            after = self.add_long(int(places[at]), [items[part] for items in ordered], is_new=bool(is_empty[at]))
            for field, states in zip(self.fields, after, strict=True):
                field[places[at]] = states[-1]
            for outcome, states in zip(outcomes, after if each else (), strict=True):
                outcome[part] = states
        short = np.flatnonzero(~is_long)
        if len(short):
            short = short[np.argsort(-lengths[short], kind="stable")]
            self._add_short(places[short], starts[short], lengths[short], is_empty[short], ordered, outcomes)
        return outcomes

    def _add_short(
        self,
        places: Ints,
        starts: Ints,
        lengths: Ints,
        is_empty: Array,
        ordered: Sequence[Array],
        outcomes: Sequence[Array],
    ) -> None:
        states = [field[places] for field in self.fields]
        going = np.searchsorted(-lengths, -np.arange(1, int(lengths[0]) + 1), side="right")
        for turn, count in enumerate(going.tolist()):
            at = starts[:count] + turn
            current = [state[:count] for state in states]
            self.step(current, [items[at] for items in ordered], None if turn else is_empty)
            for outcome, state in zip(outcomes, current, strict=False):
                outcome[at] = state
        for field, state in zip(self.fields, states, strict=True):
            field[places] = state

    def add_long(self, place: int, read: Sequence[Array], *, is_new: bool) -> list[Array]:
        """Return the states after each of many records of one place, by the loop of Python."""
        add, state = self.slot.add, None
        state = self.slot.create() if is_new else self.states([field[place : place + 1] for field in self.fields])[0]
        after = []
        for x in read[0].tolist():
            state = add(state, x, None)
            after.append(state)
        return self.load(after)


def numbers(frame: Any, field: Any, *, flags: bool = False) -> Array:
    """Return a column as integers or floats of 64 bits; with `flags`, truth values count as integers."""
    column = frame.column(field)
    if column is None:
        raise Unfit(f"there is no column '{field}'")
    found = None if pa.types.is_temporal(column.kind) else column.numbers
    if found is None:
        array = _decoded(column)
        if array.null_count:
            raise Unfit(f"the column '{field}' has a null")
        if flags and pa.types.is_boolean(array.type):
            truth: Array = array.to_numpy(zero_copy_only=False).astype(np.int64)
            return truth
        found = None if pa.types.is_temporal(array.type) else numbers_of(array)
        if found is None:
            raise Unfit(f"the column '{field}' is of type {array.type}")
    if found.dtype == np.uint64 and len(found) and int(found.max()) > MOST:
        raise Unfit(f"the column '{field}' has integers beyond 64 bits with a sign")
    return found.astype(np.float64 if found.dtype.kind == "f" else np.int64, copy=False)


def check_no_null(frame: Any, field: Any) -> None:
    """Check that a column has no null.

    Raises:
        Unfit: if it has, or there is no such column.
    """
    column = frame.column(field)
    if column is None:
        raise Unfit(f"there is no column '{field}'")
    if _decoded(column).null_count:
        raise Unfit(f"the column '{field}' has a null")


def truths(frame: Any, field: Any) -> Array:
    """Return whether each item of a column is true in Python: NaN is, a null is not."""
    column = frame.column(field)
    if column is None:
        raise Unfit(f"there is no column '{field}'")
    array = _decoded(column)
    kind = array.type
    if not (pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise Unfit(f"the column '{field}' is of type {kind}")
    if array.null_count:
        array = array.fill_null(False if pa.types.is_boolean(kind) else 0)
    are_true: Array = array.to_numpy(zero_copy_only=False) != 0
    return are_true


def _decoded(column: Column) -> pa.Array:
    array = column.array
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def as_numbers(states: Sequence[Any]) -> Array:
    """Return states that are all integers of 64 bits, or all floats, as an array."""
    kinds = set(map(type, states))
    if kinds == {float}:
        return np.array(states, np.float64)
    if kinds != {int} or max(states) > MOST or min(states) < LEAST:
        raise Unfit("its state is not all integers of 64 bits, or all floats")
    return np.array(states, np.int64)


def unordered(order: Ints, ordered: Array) -> Array:
    """Return items that are in an order of records as the records came."""
    items = np.empty_like(ordered)
    items[order] = ordered
    return items
