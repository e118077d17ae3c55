"""Operators that collect records of a key: sorted by their timestamps, or in lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, islice
from typing import Any

from malflow.errors import failures
from malflow.event_time.timers import Timers
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.keyed.throttle import check_span
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState

__all__ = [
    "Batches",
    "Sort",
]

_Row = tuple[Any, Any, int, int, Any, Any]
"""A waiting record: its timestamp, tie, rank by arrival, number among its key's records, key and value."""


class Sort(Operator):
    """Hold back records, and emit those that an epoch has reached in the order of their timestamps.

    The state has the timestamp and value of each record by its slot, a number and its key. A new record's number
    follows the greatest number among its key's waiting records, so it depends only on the key's state.

    Args:
        context: the operator's context.
        tie: returns the tie of a value for the order of records with equal timestamps; None for order of arrival.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, tie: Callable[[Any], Any] | None) -> None:
        super().__init__(context, tie)
        self.state = KeyedState(tracked=context.tracked)
        self._admit = admission_of(context)
        self._heap: list[_Row] = []
        self._rank = count().__next__
        self._numbers: dict[Any, dict[int, None]] = {}  # of each key's waiting records, ascending
        self._fresh: set[tuple[int, Any]] = set()  # the slots of those in no delta yet

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Take the records, and emit those that an epoch releases."""
        rest = iter(batch.values)
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        released: list[_Row] = []
        epochs = []
        try:
            for length, epoch in batch.runs():
                for key, value, timestamp in islice(rows, length):
                    self._take(key, value, timestamp)
                if epoch is not None:
                    self._release(epoch, released)
                    epochs.append((len(released), epoch))
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        keys, values, timestamps = ([row[at] for row in released] for at in (4, 5, 0))
        return (Batch(keys, values, timestamps, epochs),)

    def _take(self, key: Any, value: Any, timestamp: Any) -> None:
        numbers = self._numbers.get(key)
        if numbers is None:
            if self._admit is not None:
                self._admit(key)
            numbers = self._numbers[key] = {}
        number = next(reversed(numbers)) + 1 if numbers else 0
        numbers[number] = None
        tie = 0 if self.callback is None else self.callback(value)
        heappush(self._heap, (timestamp, tie, self._rank(), number, key, value))
        self.state[number, key] = (timestamp, value)
        if self.context.tracked:
            self._fresh.add((number, key))

    def _release(self, epoch: Any, released: list[_Row]) -> None:
        heap, fresh = self._heap, self._fresh
        while heap and (epoch is MAX or heap[0][0] <= epoch):
            row = heappop(heap)
            released.append(row)
            number, key = slot = row[3:5]
            del self.state[slot]
            del self._numbers[key][number]
            if not self._numbers[key]:
                del self._numbers[key]
            if slot in fresh:
                fresh.discard(slot)
            else:
                self.state.touch((slot,))

    def waiting(self) -> Waiting | None:
        """Return the number of waiting records, and the first timestamp."""
        return Waiting("records", len(self._heap), self._heap[0][0]) if self._heap else None

    def sync_state(self) -> None:
        """Mark the records that arrived since the last delta and still wait as changed."""
        self.state.touch(self._fresh)
        self._fresh.clear()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and derive ranks and numbers from it."""
        super().apply(delta)
        self._heap, self._numbers, self._rank = [], {}, count().__next__
        for (number, key), (timestamp, value) in self.state.items():
            tie = 0 if self.callback is None else self.callback(value)
            self._heap.append((timestamp, tie, self._rank(), number, key, value))
            self._numbers.setdefault(key, {})[number] = None
        heapify(self._heap)


class Batches(Operator):
    """Emit a list of a key's values once it has `size` values, or `within` after its first timestamp.

    A record at or after the end of that span completes the previous list, as an epoch would, so lists do not depend on
    epochs. The state of a key is a list of this end and the values.

    Args:
        context: the operator's context.
        size: the maximum number of values in a list.
        within: the span: a number, or a timedelta.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, size: int, within: Any) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._size, self._within = size, within
        self._timers = Timers()  # timers of the ends

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records one by one."""
        results, rest = Results(), iter(batch.values)
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        try:
            if len(batch):
                check_span("within", self._within, batch.timestamps[0])
            for length, epoch in batch.runs():
                for key, value, timestamp in islice(rows, length):
                    self._take(key, value, timestamp, results)
                if epoch is not None:
                    for key in self._timers.due(epoch):
                        self._emit(key, self.state[key][0], results)
                    results.mark(((0, epoch),))
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        self.state.touch(batch.key_column())
        return (results.batch(),)

    def _take(self, key: Any, value: Any, timestamp: Any, results: Results) -> None:
        held = self.state.get(key)
        if held is not None and timestamp >= held[0]:
            self._emit(key, held[0], results)
            held = None
        if held is None:
            self.state.admit(key)
            held = self.state[key] = [timestamp + self._within]
            self._timers.set(key, held[0])
        held.append(value)
        if len(held) > self._size:
            self._emit(key, timestamp, results)

    def _emit(self, key: Any, timestamp: Any, results: Results) -> None:
        _, *values = self.state.pop(key)
        self.state.touch((key,))
        self._timers.cancel(key)
        results.add((key,), (values,), timestamp)

    def waiting(self) -> Waiting | None:
        """Return the number of incomplete lists, and when the first will be complete."""
        return Waiting("lists", len(self.state), self._timers.earliest) if self.state else None

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and set the timers of incomplete lists."""
        super().apply(delta)
        if delta.whole:
            self._timers.clear()
        for key in delta.deleted:
            self._timers.cancel(key)
        for key, held in delta.changed.items():
            self._timers.set(key, held[0])
