"""A limit to how many records of a key pass in a span of event time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from malflow.batch import Batch
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.state import Delta, KeyedState
from malflow.timers import Timers

__all__ = ["Throttle"]


class Throttle(Operator):
    """Emit up to `n` records of a key in `per` of event time on the first output, and the others on the second.

    Each key has a token bucket: `n` tokens, of which a record that passes takes one, and which are replaced at the
    rate of `n` in `per`. The state is the time at which it was last looked at, and its debt: the time in which the
    missing tokens are replaced, times `n`, so that nothing is divided and integers stay exact. A bucket that is full
    again is dropped.

    Args:
        context: what every operator gets.
        n: how many records.
        per: the span: a number, or a timedelta.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, n: int, per: Any) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._n, self._per, self._free = n, per, n * per - per
        self._timers = Timers()  # of the keys with a bucket, at or before the time at which it must be full

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Select the records that pass, run by run."""
        n, per, free, states, rest = self._n, self._per, self._free, self.state, iter(batch.values)
        nothing = per - per
        mask: list[bool] = []
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        try:
            for count, epoch in batch.runs():
                for key, _, timestamp in islice(rows, count):
                    bucket = states.get(key)
                    if bucket is None:
                        states.admit(key)
                        self._timers.set(key, timestamp + per)
                        then, debt = timestamp, nothing
                    else:
                        then, debt = bucket
                        if then < timestamp:
                            debt = max(nothing, debt - n * (timestamp - then))
                            then = timestamp
                    passes = debt <= free
                    mask.append(passes)
                    states[key] = (then, debt + per if passes else debt)
                self._advance(epoch)
        except Exception as error:
            raise self.fail(error, batch, rest) from error
        states.touch(batch.key_column())
        return batch.select(mask), batch.select([not passes for passes in mask])

    def _advance(self, epoch: Any) -> None:
        """Drop the buckets that are full at an epoch."""
        if epoch is None or epoch is MAX:
            return
        for key in self._timers.due(epoch):
            full = self.state[key][0] + self._per
            if full <= epoch:
                del self.state[key]
                self.state.touch((key,))
            else:
                self._timers.set(key, full)

    def apply(self, delta: Delta) -> None:
        """Bring the state to where `delta` left it, and plan when buckets are full."""
        super().apply(delta)
        if delta.whole:
            self._timers.clear()
        for key in delta.deleted:
            self._timers.cancel(key)
        for key, (then, _) in delta.changed.items():
            self._timers.set(key, then + self._per)
