"""The operator that collects records of a key in lists, by number or by time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from malflow.errors import failures
from malflow.event_time.timers import Timers
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.result_columns import Results
from malflow.operators.spans import check_span
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState

__all__ = ["Batches"]


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
