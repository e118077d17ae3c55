"""The kernels of the slots: counts, sums, extremes, moments, and the first and last in event time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.aggregators.slots import Slot
from malflow.columns.aggregates.kernels import (
    LEAST,
    MOST,
    Array,
    Lot,
    SlotKernel,
    as_numbers,
    check_no_null,
    numbers,
    truths,
    unordered,
)
from malflow.columns.arrays import numbers_of
from malflow.columns.column import Column
from malflow.records.columnar import Unfit

__all__ = ["kernels_of"]

_TIME_TYPES = pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC")
_TIMES = "timestamps are no integers, nor datetimes in UTC or without a zone"

_EXACT = 1 << 52
"""Half of the integers that floats represent: the difference of two of these is exact too."""


class _Sum(SlotKernel):
    """A sum. That of floats starts at -0.0, to which each float adds without a change."""

    def __init__(self, slot: Slot, merges: int = 1) -> None:
        super().__init__(slot, merges)
        self._bound = 0  # no sum of integers is greater, whatever its sign

    def blank(self) -> list[tuple[Any, Any]]:
        return [(np.float64, -0.0) if self.kind == "f" else (np.int64, 0)]

    def read(self, frame: Any, _times: Column | None) -> list[Array]:
        x = numbers(frame, self.slot.column, flags=True)
        if x.dtype.kind == "f" and self.slot.needs_integer:
            raise Unfit(f"{self.name()} has floats, and of=int promises integers")
        return [self.settle(x)]

    def check(self, lot: Lot, read: Sequence[Array]) -> None:
        (x,) = read
        if self.kind == "f" or not len(x):
            return
        most, limit = MOST // self.merges, max(int(x.max()), -int(x.min()))
        added = limit * len(x)
        if self._bound + added > most:
            (totals,) = self.fields
            self._bound = max(int(totals.max(initial=0)), -int(totals.min(initial=0)))
            if self._bound + added > most:
                sizes = np.bincount(lot.places, np.abs(x.astype(np.float64)))
                added = min(added, int(float(sizes.max()) * (1 + 1e-6)) + 1)
            if self._bound + added > most:
                raise Unfit(f"a sum of {self.name()} may be beyond 64 bits")
        self._bound += added

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        np.add.at(self.fields[0], lot.places, read[0])

    def each(self, lot: Lot, read: Sequence[Array]) -> list[Array]:
        return super().each(lot, read) if self.kind == "f" else [_running_totals(lot, read[0], self.fields[0])]

    def step(self, states: Sequence[Array], read: Sequence[Array], is_first: Array | None) -> None:
        del is_first
        np.add(states[0], read[0], out=states[0])

    def add_long(self, place: int, read: Sequence[Array], *, is_new: bool) -> list[Array]:
        del is_new
        (x,) = read
        x[0] = self.fields[0][place] + x[0]  # a copy of the records in their order
        return [np.add.accumulate(x)]

    def merge(self, one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
        return [one[0] + other[0]]

    def joins(self, read: Sequence[Array]) -> bool:
        del read
        return self.kind == "i"

    def load(self, states: Sequence[Any]) -> list[Array]:
        (totals,) = super().load(states)
        if self.kind == "i" and len(totals):
            self._bound = max(self._bound, int(totals.max()), -int(totals.min()))
            if self._bound > MOST // self.merges:
                raise Unfit(f"a sum of {self.name()} may be beyond 64 bits")
        return [totals]


class _Count(_Sum):
    """A count of records."""

    def blank(self) -> list[tuple[Any, Any]]:
        return [(np.int64, 0)]

    def read(self, frame: Any, _times: Column | None) -> list[Array]:
        if self.slot.skips:
            check_no_null(frame, self.slot.column)
        return [self.settle(np.ones(len(frame), np.int64))]

    def check(self, lot: Lot, read: Sequence[Array]) -> None:
        """Do nothing: a count of 2 ** 63 takes centuries."""

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        (counts,) = self.fields
        if len(counts) <= 4 * len(lot.places):
            found = np.bincount(lot.places)
            counts[: len(found)] += found
        else:
            super().add(lot, read)

    def join(self, lot: Lot, sent: Sequence[Array]) -> None:
        np.add.at(self.fields[0], lot.places, sent[0])


class _CountOf(_Count):
    """A count of the records with a true field."""

    def read(self, frame: Any, _times: Column | None) -> list[Array]:
        return [self.settle(truths(frame, self.slot.column).astype(np.int64))]

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        self.join(lot, read)


class _Extreme(SlotKernel):
    """The least or the greatest. Of equal ones, such as 0.0 and -0.0, the first; NaN only if it came first."""

    at: Any
    best: Any
    compare: Any
    nothing: tuple[int, float]

    def __init__(self, slot: Slot, merges: int = 1) -> None:
        super().__init__(slot, merges)
        self._has_negative_zeros = False

    def blank(self) -> list[tuple[Any, Any]]:
        return [(np.float64, self.nothing[1]) if self.kind == "f" else (np.int64, self.nothing[0])]

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        if self._has_order(read[0]):
            self.best.at(self.fields[0], lot.places, read[0])
        else:
            super().add(lot, read)

    def _has_order(self, x: Array) -> bool:
        """Whether numpy's extremes are the same: there is no NaN, and no zero with a sign."""
        if self.kind == "i" or not len(x):
            return True
        least, most = x.min(), x.max()
        if np.isnan(least):
            self._has_negative_zeros = True  # perhaps
            return False
        if not least <= 0 <= most:
            return True
        zeros = x == 0
        self._has_negative_zeros |= bool(np.signbit(x[zeros]).any())
        return not (self._has_negative_zeros and zeros.any())

    def step(self, states: Sequence[Array], read: Sequence[Array], is_first: Array | None) -> None:
        is_better = self.compare(read[0], states[0])
        np.copyto(states[0], read[0], where=is_better if is_first is None else is_better | is_first)

    def add_long(self, place: int, read: Sequence[Array], *, is_new: bool) -> list[Array]:
        (x,) = read
        if not self._has_order(x):
            return super().add_long(place, read, is_new=is_new)
        x[0] = x[0] if is_new or self.compare(x[0], self.fields[0][place]) else self.fields[0][place]
        return [self.best.accumulate(x)] if not np.isnan(x[0]) else [np.full(len(x), x[0])]

    def merge(self, one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
        return [np.where(self.compare(other[0], one[0]), other[0], one[0])]

    def joins(self, read: Sequence[Array]) -> bool:
        return self._has_order(read[0])

    def load(self, states: Sequence[Any]) -> list[Array]:
        (found,) = super().load(states)
        self._has_negative_zeros |= self.kind == "f" and bool(np.signbit(found[found == 0]).any())
        return [found]


class _Min(_Extreme):
    """The least."""

    best, compare, nothing = np.minimum, np.less, (MOST, np.inf)


class _Max(_Extreme):
    """The greatest."""

    best, compare, nothing = np.maximum, np.greater, (LEAST, -np.inf)


class _Moments(SlotKernel):
    """Count, mean and squares of deviations, by Welford's method. The mean of one integer is that integer."""

    def blank(self) -> list[tuple[Any, Any]]:
        return [(np.int64, 0), (np.float64, 0.0), (np.float64, 0.0)]

    def read(self, frame: Any, _times: Column | None) -> list[Array]:
        x = self.settle(numbers(frame, self.slot.column))
        if self.kind == "i" and len(x) and max(int(x.max()), -int(x.min())) > _EXACT:
            raise Unfit(f"{self.name()} has integers that are too large for floats")
        return [x.astype(np.float64)]

    def step(self, states: Sequence[Array], read: Sequence[Array], is_first: Array | None) -> None:
        count, mean, squares = states
        (x,) = read
        count += 1
        deviation = x - mean
        after = mean + deviation / count
        squares += deviation * (x - after)
        mean[:] = after
        if is_first is not None:
            np.copyto(mean, x, where=is_first)
            squares[is_first] = 0.0

    def merge(self, one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
        count = one[0] + other[0]
        apart = other[1] - one[1]
        mean = one[1] + apart * other[0] / count
        return [count, mean, one[2] + other[2] + apart * apart * one[0] * other[0] / count]

    def states(self, fields: Sequence[Array]) -> list[Any]:
        first = int if self.kind == "i" else float
        listed = zip(*[field.tolist() for field in fields], strict=True)
        return [[count, first(mean), 0] if count == 1 else [count, mean, squares] for count, mean, squares in listed]

    def load(self, states: Sequence[Any]) -> list[Array]:
        for count, mean, squares in states:
            if count == 1:
                self.settle(as_numbers([mean]))
            if type(mean) is not float and (count > 1 or abs(mean) > _EXACT):
                raise Unfit(f"the variance of {self.name()} is not of floats")
            if type(squares) is not float and (count > 1 or squares):
                raise Unfit(f"the variance of {self.name()} is not of floats")
        count, mean, squares = zip(*states, strict=True) if states else ((), (), ())
        return [np.array(count, np.int64), np.array(mean, np.float64), np.array(squares, np.float64)]

    def add_long(self, place: int, read: Sequence[Array], *, is_new: bool) -> list[Array]:
        if self.kind == "i":  # the first may be an integer, and the loop needs it as one
            read = [read[0].astype(np.int64)]
        return super().add_long(place, read, is_new=is_new)


class _InTime(SlotKernel):
    """The field of the first or last record in event time, with its timestamp."""

    compare: Any
    best: Any
    takes_equal: bool
    nothing: int
    is_ordered = True

    def __init__(self, slot: Slot, merges: int = 1) -> None:
        super().__init__(slot, merges)
        self._times: pa.DataType | None = None

    def blank(self) -> list[tuple[Any, Any]]:
        return [(np.int64, self.nothing), (np.float64 if self.kind == "f" else np.int64, 0)]

    def read(self, frame: Any, times: Column | None) -> list[Array]:
        if times is None or times.numbers is None:
            raise Unfit(_TIMES)
        self._fit(times.kind)
        return [times.numbers, self.settle(numbers(frame, self.slot.column))]

    def _fit(self, kind: pa.DataType) -> None:
        if kind not in _TIME_TYPES:
            raise Unfit(_TIMES)
        if self._times is not None and self._times != kind:
            raise Unfit("the type of timestamps has changed")
        self._times = kind

    def add(self, lot: Lot, read: Sequence[Array]) -> None:
        times, x = read
        held, values = self.fields
        places = lot.places
        before = held[places]
        was_empty = lot.is_empty(places)
        self.best.at(held, places, times)
        at = np.flatnonzero((times == held[places]) & (self.compare(times, before) | was_empty))
        if not self.takes_equal:
            at = at[::-1]  # of several records for a place, the last one of an assignment counts
        values[places[at]] = x[at]

    def step(self, states: Sequence[Array], read: Sequence[Array], is_first: Array | None) -> None:
        is_better = self.compare(read[0], states[0])
        for state, items in zip(states, read, strict=True):
            np.copyto(state, items, where=is_better if is_first is None else is_better | is_first)

    def add_long(self, place: int, read: Sequence[Array], *, is_new: bool) -> list[Array]:
        times, x = read
        held = [field[place : place + 1] for field in self.fields]
        if is_new or self.compare(times[0], held[0][0]):
            held = [times[:1], x[:1]]
        best = self.best.accumulate(np.concatenate([held[0], times[1:]]))
        is_better = np.empty(len(x), np.bool_)
        is_better[0] = True
        is_better[1:] = self.compare(times[1:], best[:-1])
        at = np.maximum.accumulate(np.where(is_better, np.arange(len(x)), 0))
        return [best, np.concatenate([held[1], x[1:]])[at]]

    def merge(self, one: Sequence[Array], other: Sequence[Array]) -> list[Array]:
        is_better = self.compare(other[0], one[0])
        return [np.where(is_better, b, a) for a, b in zip(one, other, strict=True)]

    def joins(self, read: Sequence[Array]) -> bool:
        del read
        return True

    def columns(self, fields: Sequence[Array]) -> list[Column]:
        return [Column(fields[0], self._times), Column(fields[1])]

    def sent(self, columns: Sequence[Column]) -> list[Array]:
        self._fit(columns[0].kind)
        return super().sent(columns)

    def states(self, fields: Sequence[Array]) -> list[Any]:
        return list(zip(*[column.tolist() for column in self.columns(fields)], strict=True))

    def load(self, states: Sequence[Any]) -> list[Array]:
        if not states:
            return [np.empty(0, np.int64), np.empty(0, np.float64)]
        times, x = zip(*states, strict=True)
        array = pa.array(times)
        self._fit(array.type)
        moments = numbers_of(array)
        if moments is None or len(set(map(type, times))) > 1:
            raise Unfit("timestamps are of several types")
        zones = {repr(getattr(time, "tzinfo", None)) for time in times}
        if len(zones) > 1 or zones != {repr(getattr(array[0].as_py(), "tzinfo", None))}:
            raise Unfit("timestamps of the state have another zone than those of columns")
        return [moments, self.settle(as_numbers(x))]


class _First(_InTime):
    """The first record; of equal timestamps, the one that came first."""

    compare, best, takes_equal, nothing = np.less, np.minimum, False, MOST


class _Last(_InTime):
    """The last record; of equal timestamps, the one that came last."""

    compare, best, takes_equal, nothing = np.greater_equal, np.maximum, True, LEAST


_KERNELS: dict[str, type[SlotKernel]] = {
    "count": _Count,
    "count of": _CountOf,
    "sum": _Sum,
    "min": _Min,
    "max": _Max,
    "moments": _Moments,
    "first": _First,
    "last": _Last,
}


def kernels_of(slots: Sequence[Slot], merges: int = 1) -> list[SlotKernel] | None:
    """Return the kernels of slots; None if one has no kernel, or reads no field by its name.

    Args:
        slots: the slots of an accumulator.
        merges: how many accumulators may be merged into one.
    """
    if not all(slot.kernel in _KERNELS and (not slot.reads("x") or isinstance(slot.column, str)) for slot in slots):
        return None
    return [_KERNELS[slot.kernel](slot, merges) for slot in slots]


def _running_totals(lot: Lot, x: Array, totals: Array) -> Array:
    """Add integers to totals; return the total of each record's place after it. Sums are exact modulo 2 ** 64."""
    segments = lot.segments
    ordered = x[segments.order]
    after = np.cumsum(ordered)
    starts = segments.starts
    after += np.repeat(totals[segments.places] - (after[starts] - ordered[starts]), segments.lengths)
    totals[segments.places] = after[starts + segments.lengths - 1]
    return unordered(segments.order, after)
