"""Epochs (watermarks) and late records of a column of timestamps, a fixed bound behind the newest record.

The newest timestamp up to each record is a running maximum, and the epoch is that minus the bound, rounded down. So a
record is late if it is not after the epoch of the record before it, and an epoch is issued where it grows. All of it is
arithmetic on whole numbers: timestamps that are integers, or microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.arrays import in_years, to_python
from malflow.columns.column import Column, Constant
from malflow.records.batch import Batch

__all__ = ["Stamps", "are_few", "stamps_of"]

_NAIVE = datetime(1970, 1, 1)  # noqa: DTZ001 - for times without a zone
_MICROSECOND = timedelta(microseconds=1)
_NONE = np.iinfo(np.int64).min
"""Stands for "no epoch"; less than all that `stamps_of` admits."""

_WIDE = 1 << 62
"""Timestamps, bounds and steps below it can be added and subtracted without an overflow."""

_MOST_PARTS = 32
"""For more parts in a batch, a loop over the records is as fast as one over the parts."""


class Stamps:
    """The timestamps of a batch as whole numbers, with the epochs and late records found so far.

    Attributes:
        late: the flags of the late records.
        marks: the epochs issued, each with the number of records before it.

    Args:
        numbers: the timestamps.
        bound: the distance between a timestamp and its epoch.
        every: the step of the epochs; 0 for none.
        like: a timestamp, from which epochs have their type and zone.
    """

    def __init__(self, numbers: np.ndarray[Any, Any], bound: int, every: int, like: Any) -> None:
        self._numbers = numbers
        self._bound = bound
        self._every = every
        self._zone = like.tzinfo if isinstance(like, datetime) else None
        self._origin = None if not isinstance(like, datetime) else _NAIVE if like.tzinfo is None else _aware(like)
        self.late: Any = np.zeros(len(numbers), np.bool_)
        self.marks: list[tuple[int, Any]] = []
        self._lateness = _NONE

    def count_late(self) -> int:
        """Return the number of late records."""
        return int(np.count_nonzero(self.late))

    @property
    def on_time(self) -> Any:
        """The flags of the records that are on time."""
        return ~self.late

    @property
    def lateness(self) -> Any:
        """The greatest difference between the epoch and the timestamp of a late record; None if none is late."""
        if self._lateness == _NONE:
            return None
        return self._lateness if self._origin is None else self._lateness * _MICROSECOND

    def number_of(self, epoch: Any) -> int | None:
        """Return an epoch as a number; None if it has another type than the timestamps."""
        if self._origin is None:
            return epoch if type(epoch) is int and abs(epoch) < _WIDE else None
        if type(epoch) is not datetime or (epoch.tzinfo is None) != (self._zone is None):
            return None
        return (epoch - self._origin) // _MICROSECOND

    def epoch_of(self, number: int) -> Any:
        """Return the epoch that a number stands for."""
        return number if self._origin is None else self._origin + number * _MICROSECOND

    def walk(self, start: int, stop: int, low: Any) -> Any:
        """Find the late records and the epochs from one record up to another; return the last epoch.

        Args:
            start: the number of the first record.
            stop: the number after the last one.
            low: the epoch so far, or None.
        """
        before = _NONE if low is None else self.number_of(low)
        if start == stop or before is None:
            return low
        epochs = self._epochs(self._numbers[start:stop], before)
        self._note(start, stop, _shifted(epochs, before))
        self._mark(start, epochs, before)
        return self._reached(epochs, before, low)

    def walk_parts(
        self,
        keys: Column | Constant,
        start: int,
        stop: int,
        low: Any,
        *,
        by_part: Mapping[Any, Any],
        holding: Collection[Any],
    ) -> tuple[Any, dict[Any, Any]]:
        """Do the same with an epoch for each part; the stream's is the least of the parts that hold it back.

        Args:
            keys: the part of each record.
            start: the number of the first record.
            stop: the number after the last one.
            low: the epoch of the stream so far, or None.
            by_part: the epoch of each part so far.
            holding: the parts that hold the epoch of the stream back.

        Returns:
            The epoch of the stream, and of the parts with one that has grown.
        """
        before = _NONE if low is None else self.number_of(low)
        if start == stop or before is None:
            return low, {}
        size = stop - start
        reached: dict[Any, Any] = {}
        own_before = np.empty(size, np.int64)
        stream: np.ndarray[Any, Any] | None = None
        rows_of = _rows_by_part(keys[start:stop])
        for part, rows in rows_of.items():
            epoch = by_part.get(part)
            own = _NONE if epoch is None else self.number_of(epoch) or 0
            epochs = self._epochs(self._numbers[start:stop][rows], own)
            own_before[rows] = _shifted(epochs, own)
            if epochs[-1] != own:
                reached[part] = self.epoch_of(int(epochs[-1]))
            if part in holding:
                filled = np.full(size, own, np.int64)
                filled[rows] = epochs
                np.maximum.accumulate(filled, out=filled)
                stream = filled if stream is None else np.minimum(stream, filled, out=stream)
        others = [by_part.get(part) for part in holding if part not in rows_of]
        if stream is None or any(epoch is None for epoch in others):
            stream = np.full(size, before, np.int64)
        else:
            for epoch in others:
                np.minimum(stream, self.number_of(epoch) or 0, out=stream)
            np.maximum(stream, before, out=stream)
        self._note(start, stop, np.maximum(own_before, _shifted(stream, before)))
        self._mark(start, stream, before)
        return self._reached(stream, before, low), reached

    def _reached(self, epochs: np.ndarray[Any, Any], before: int, low: Any) -> Any:
        """Return the last epoch; the one before as it came, if it has not grown."""
        last = int(epochs[-1])
        return low if last == before else self.epoch_of(last)

    def _epochs(self, numbers: np.ndarray[Any, Any], low: int) -> np.ndarray[Any, Any]:
        """Return the epoch after each record."""
        epochs = np.maximum.accumulate(numbers) - self._bound
        if self._every > 1:
            epochs -= epochs % self._every
        if epochs[0] < low:
            np.maximum(epochs, low, out=epochs)
        return epochs

    def _note(self, start: int, stop: int, lows: np.ndarray[Any, Any]) -> None:
        """Note the records that are not after the epoch before them."""
        numbers = self._numbers[start:stop]
        late = self.late[start:stop]
        np.less_equal(numbers, lows, out=late)
        if late.any():
            self._lateness = max(self._lateness, int((lows[late] - numbers[late]).max()))

    def _mark(self, start: int, epochs: np.ndarray[Any, Any], before: int) -> None:
        """Issue the epochs where they grow."""
        at = np.flatnonzero(epochs != _shifted(epochs, before))
        positions, numbers = (at + (start + 1)).tolist(), epochs[at].tolist()
        self.marks += zip(positions, map(self.epoch_of, numbers), strict=True)


def stamps_of(batch: Batch, bound: Any, every: Any) -> Stamps | None:
    """Return the timestamps of a batch for epochs by arithmetic; None if they, the bound or the step do not fit.

    Args:
        batch: the batch.
        bound: the distance between a timestamp and its epoch.
        every: the step of the epochs, or None.
    """
    timestamps: Sequence[Any] = batch.timestamps
    if isinstance(timestamps, range):
        timestamps = Column(np.arange(timestamps.start, timestamps.stop, timestamps.step))
    if not isinstance(timestamps, Column) or not len(timestamps):
        return None
    numbers, kind = timestamps.numbers, timestamps.kind
    if numbers is None or numbers.dtype.kind not in "iu":
        return None
    if pa.types.is_timestamp(kind):
        if type(bound) is not timedelta or not (every is None or type(every) is timedelta):
            return None
        like: Any = to_python(timestamps.array.slice(0, 1))[0]
        spans = bound // _MICROSECOND, 0 if every is None else every // _MICROSECOND
        if not (timestamps.is_sound() and in_years(numbers - (spans[0] + spans[1]))):
            return None
    elif pa.types.is_integer(kind):
        if type(bound) is not int or not (every is None or type(every) is int):
            return None
        like, spans = 0, (bound, every or 0)
    else:
        return None
    wide = [int(numbers.min()), int(numbers.max()), *spans]
    if any(abs(number) >= _WIDE // 2 for number in wide):
        return None
    return Stamps(numbers.astype(np.int64, copy=False), *spans, like)


def are_few(keys: Any) -> bool:
    """Whether keys are a column of a few parts."""
    if isinstance(keys, Constant):
        return True
    return isinstance(keys, Column) and len(keys.encoded().dictionary) <= _MOST_PARTS


def _rows_by_part(keys: Any) -> dict[Any, Any]:
    """Return the numbers of the records of each part."""
    if isinstance(keys, Constant):
        return {keys.value: slice(0, len(keys))}
    array = keys.encoded()
    codes = array.indices.to_numpy()
    parts = to_python(array.dictionary)
    counts = np.bincount(codes, minlength=len(parts))
    return {parts[code]: np.flatnonzero(codes == code) for code in np.flatnonzero(counts).tolist()}


def _shifted(epochs: np.ndarray[Any, Any], first: int) -> np.ndarray[Any, Any]:
    """Return the epoch before each record."""
    before = np.empty_like(epochs)
    before[0], before[1:] = first, epochs[:-1]
    return before


def _aware(like: datetime) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC).astimezone(like.tzinfo)
