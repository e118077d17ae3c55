"""The operator of count windows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.errors import failures
from malflow.event_time.panes import instant_after
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import REACHED, ReachedEpoch
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import KeyedState
from malflow.windows import CountWindows, Timing, WindowResult
from malflow.words import short_repr

__all__ = ["CountAggregate", "NumberedAccumulators"]

_Windows = list[Any]
"""A key's open windows: the number of records since the start of the oldest one (of the last one, if none is open), the
timestamp of the last record in a window, and two entries per window: its first timestamp and its accumulator.
"""

_HEAD = 2
"""The entries before the first window: the number of records and the last timestamp."""

_Full = tuple[int, Any, Any, Any, int]
"""A full window: the index of its last record, the key, the first and last timestamps, the accumulator."""


class CountAggregate(Operator):
    """Aggregate each `size` records of a key, in their order of arrival.

    Each of several overlapping windows has its own accumulator, to which every record is added. So results are as if
    records were added one by one, and aggregators need not merge.

    Args:
        context: the operator's context.
        windows: the kind of windows.
        aggregators: the aggregators of each window's records.
    """

    state: KeyedState

    def __init__(
        self, context: OperatorContext, windows: CountWindows, aggregators: Sequence[Aggregator[Any, Any, Any]]
    ) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self.reached = ReachedEpoch(context)
        self.hidden = {REACHED: self.reached}
        self._size, self._every = windows.size, windows.every
        self._kernel = compile_kernel(aggregators, debug=context.debug)

    def held(self) -> Waiting | None:
        """Return the number of windows that are not full."""
        count = sum((len(windows) - _HEAD) // 2 for windows in self.state.values())
        return Waiting("windows", count) if count else None

    def results_so_far(self) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of windows that are not full, in the order of their first records."""
        for key, windows in self.state.items():
            for at in range(_HEAD, len(windows), 2):
                yield key, self._result(key, windows[at], windows[1], windows[at + 1], Timing.EARLY)

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records arrive."""
        self.reached.idle = min(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records, and emit the results of full windows."""
        numbered = NumberedAccumulators(_HEAD + 1, 2)
        rows: list[int] = []
        numbers: list[int] = []
        full: list[_Full] = []
        index = -1
        try:
            for index, (key, timestamp) in enumerate(zip(batch.key_column(), batch.timestamps, strict=True)):
                windows = numbered.loaded.get(key)
                if windows is None:
                    windows = self._load(key, numbered)
                if windows[0] % self._every == 0:
                    windows += (timestamp, numbered.new_number())
                for number in windows[_HEAD + 1 :: 2]:
                    numbers.append(number)
                    rows.append(index)
                self._count(key, windows, timestamp, index, full, numbered)
        except failures() as error:
            raise self.error(error, _record(batch, index)) from error
        self._add(batch, rows, numbers, numbered.accs)
        numbered.store()
        self.state.touch(batch.key_column())
        return (self._results(batch, full, numbered.accs),)

    def _load(self, key: Any, numbered: NumberedAccumulators) -> _Windows:
        windows: _Windows | None = self.state.get(key)
        if windows is None:
            self.state.admit(key)
            windows = self.state[key] = [0, None]
        return numbered.load(key, windows)

    def _count(
        self, key: Any, windows: _Windows, timestamp: Any, index: int, full: list[_Full], numbered: NumberedAccumulators
    ) -> None:
        """Count a record. It may complete the oldest window, or be the last one before the next window."""
        windows[0] += 1
        if len(windows) > _HEAD:
            windows[1] = timestamp
        if windows[0] == self._size:
            full.append((index, key, windows[_HEAD], timestamp, windows[_HEAD + 1]))
            del windows[_HEAD : _HEAD + 2]
            if self._every < self._size:
                windows[0] -= self._every
        if windows[0] >= self._every and len(windows) == _HEAD and self._every >= self._size:
            del self.state[key], numbered.loaded[key]

    def _add(self, batch: Batch, rows: list[int], numbers: list[int], accs: dict[int, Any]) -> None:
        added = batch if self._every == self._size else batch.take(rows)
        records, rest = self._kernel.begin(added.values)
        try:
            self._kernel.add(accs, numbers, records, added.timestamps)
        except failures() as error:
            raise self.fail(error, added, rest) from error

    def _results(self, batch: Batch, full: Sequence[_Full], accs: Mapping[int, Any]) -> Batch:
        """Return the results of full windows, and at the end of the stream the results of the others."""
        positions = [index for index, *_ in full]
        epochs = [(bisect_left(positions, position), epoch) for position, epoch in batch.epochs]
        keys = [key for _, key, *_ in full]
        values = [self._result(key, first, last, accs[number], Timing.FINAL) for _, key, first, last, number in full]
        timestamps = [last for _, _, _, last, _ in full]
        if any(epoch is MAX for _, epoch in epochs):
            self._advance(epochs[:-1])
            self._end(keys, values, timestamps)
            epochs[-1] = (len(keys), MAX)
        else:
            self._advance(epochs)
        return Batch(keys, values, timestamps, epochs)

    def _advance(self, epochs: Sequence[tuple[int, Any]]) -> None:
        if epochs:
            self.reached.advance(epochs[-1][1])

    def _end(self, keys: list[Any], values: list[Any], timestamps: list[Any]) -> None:
        """Append the results of windows that are not full, on time even if their last records are behind the epoch."""
        epoch = self.reached.epoch
        for key, windows in self.state.items():
            last = windows[1]
            for at in range(_HEAD, len(windows), 2):
                keys.append(key)
                values.append(self._result(key, windows[at], last, windows[at + 1], Timing.END))
                timestamps.append(last if epoch is None or last > epoch else instant_after(epoch))

    def _result(self, key: Any, first: Any, last: Any, acc: Any, timing: Timing) -> WindowResult[Any, Any]:
        try:
            return WindowResult(first, instant_after(last), self._kernel.result(acc), timing)
        except Exception as error:
            about = (
                f"the result of key {short_repr(key)}, the window with records from {short_repr(first)} to "
                f"{short_repr(last)}"
            )
            raise self.error(error, about=about) from error


def _record(batch: Batch, index: int) -> tuple[Any, Any, Any]:
    record = batch.part(index, index + 1)
    return next(iter(zip(record.key_column(), record.values, record.timestamps, strict=True)))


class NumberedAccumulators:
    """The accumulators of a run's keys, each replaced in its state by a number.

    Args:
        first: the index of the first accumulator in a state, a list.
        step: the distance between the indices of two accumulators.

    Attributes:
        accs: the accumulators by number; a new one is inserted with its first record.
        loaded: the states by key.
        new_number: returns the number of a new accumulator.
    """

    def __init__(self, first: int, step: int) -> None:
        self.accs: dict[int, Any] = {}
        self.loaded: dict[Any, list[Any]] = {}
        self.new_number = count().__next__
        self._first = first
        self._step = step

    def load(self, key: Any, state: list[Any]) -> list[Any]:
        """Replace the accumulators of a key by numbers; return its state."""
        accs = self.accs
        for at in range(self._first, len(state), self._step):
            number = self.new_number()
            accs[number] = state[at]
            state[at] = number
        self.loaded[key] = state
        return state

    def store(self) -> None:
        """Put the accumulators back into the states."""
        accs, first, step = self.accs, self._first, self._step
        for state in self.loaded.values():
            for at in range(first, len(state), step):
                state[at] = accs[state[at]]
