"""Limits for the number of a key's records that pass in a span of event time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from itertools import islice
from numbers import Number
from typing import Any

from malflow.errors import failures
from malflow.event_time.timers import Timers
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState
from malflow.words import short_repr

__all__ = [
    "SlidingLimit",
    "TokenBuckets",
    "check_span",
    "misfit",
]

_DAY = timedelta(days=1)


def check_span(argument: str, span: Any, timestamp: Any) -> None:
    """Check that a span can be added to a timestamp.

    Args:
        argument: the name of the span's argument.
        span: a number, or a timedelta.
        timestamp: the timestamp of a record; a user-defined type is not checked.

    Raises:
        TypeError: if it can't.
    """
    if isinstance(timestamp, datetime | timedelta):
        fits = isinstance(span, timedelta)
    elif isinstance(timestamp, date):
        fits = isinstance(span, timedelta) and not span % _DAY
    else:
        fits = not isinstance(timestamp, Number) or isinstance(span, Number)
    if not fits:
        raise misfit(argument, span, timestamp)


def misfit(argument: str, span: Any, timestamp: Any) -> TypeError:
    """Return the error for a span that does not fit a timestamp."""
    return TypeError(
        f"{argument}={span!r} does not fit the timestamp {short_repr(timestamp)} of type {type(timestamp).__name__}; "
        f"{argument}= is a number for numbers, a timedelta for datetimes and timedeltas, and one of whole days for "
        "dates"
    )


_Rows = Iterable[tuple[Any, Any, Any]]


class _Throttle(Operator):
    """Emit the records of a key within a limit to the first output, and the others to the second.

    The state of a key is dropped at the first epoch that is `per` past its `_since`, when it no longer has any effect.

    Args:
        context: the operator's context.
        n: the number of records.
        per: the span: a number, or a timedelta.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, n: int, per: Any) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._n, self._per = n, per
        self._timers = Timers()  # timers of keys with a state, at or before the time at which it is dropped

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Select the records that pass, run by run."""
        rest = iter(batch.values)
        mask: list[bool] = []
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        try:
            if len(batch):
                check_span("per", self._per, batch.timestamps[0])
            for count, epoch in batch.runs():
                self._judge(islice(rows, count), mask)
                self._advance(epoch)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        self.state.touch(batch.key_column())
        return batch.select(mask), batch.select([not passes for passes in mask])

    def _advance(self, epoch: Any) -> None:
        """Drop the states that an epoch makes obsolete."""
        if epoch is None or epoch is MAX:
            return
        for key in self._timers.due(epoch):
            over = self._since(self.state[key]) + self._per
            if over <= epoch:
                del self.state[key]
                self.state.touch((key,))
            else:
                self._timers.set(key, over)

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and set timers for dropping states."""
        super().apply(delta)
        if delta.whole:
            self._timers.clear()
        for key in delta.deleted:
            self._timers.cancel(key)
        for key, kept in list(delta.changed.items()):
            known = self.state[key] = self._known(kept)
            self._timers.set(key, self._since(known) + self._per)

    def _judge(self, rows: _Rows, mask: list[bool]) -> None:
        """Append whether each record passes to the mask."""
        raise NotImplementedError

    def _since(self, kept: Any) -> Any:
        """Return the time from which a state matters for `per`."""
        raise NotImplementedError

    def _known(self, kept: Any) -> Any:
        """Return a state from a snapshot as one of this kind. It may be of the other kind."""
        raise NotImplementedError


class SlidingLimit(_Throttle):
    """Pass a record if no span of `per` would contain more than `n` records that passed.

    A record does not pass if more than `n` newer ones have passed. So the newest ``2 * n`` timestamps that passed are
    sufficient: `n` before a record, and `n` after it. The state is their list, in ascending order.
    """

    def _judge(self, rows: _Rows, mask: list[bool]) -> None:
        n, per, states = self._n, self._per, self.state
        for key, _, timestamp in rows:
            times = states.get(key)
            if times is None:
                states.admit(key)
                self._timers.set(key, timestamp + per)
                states[key] = [timestamp]
                mask.append(True)
                continue
            place = len(times)
            if timestamp < times[-1]:
                place = bisect_right(times, timestamp)
                passes = place + n >= len(times) and self._leaves_room(times, place, timestamp)
            else:
                passes = place < n or timestamp - times[-n] >= per
            mask.append(passes)
            if passes:
                times.insert(place, timestamp)
                if len(times) > 2 * n:
                    del times[0]

    def _leaves_room(self, times: list[Any], place: int, timestamp: Any) -> bool:
        """Whether any ``n + 1`` timestamps in a row, with a new one at this place, span `per` or more."""
        n, row = self._n, [*times[:place], timestamp, *times[place:]]
        firsts = range(max(0, place - n), min(place, len(row) - 1 - n) + 1)
        return all(row[first + n] - row[first] >= self._per for first in firsts)

    def _since(self, kept: Any) -> Any:
        return kept[-1]

    def _known(self, kept: Any) -> Any:
        """Return timestamps; missing tokens of a bucket count as taken at its last update."""
        if isinstance(kept, list):
            return kept
        then, debt = kept
        return [then] * int(-(-debt // self._per))


class TokenBuckets(_Throttle):
    """Pass a record if its key's bucket has a token for it.

    A bucket has `n` tokens; a record that passes takes one, and they are refilled at the rate of `n` per `per`. The
    state is the time of the last update and the debt: the time to refill the missing tokens, times `n`: there is no
    division, and integers stay exact. It is dropped once the bucket must be full.
    """

    def _judge(self, rows: _Rows, mask: list[bool]) -> None:
        n, per, states = self._n, self._per, self.state
        nothing, free = per - per, n * per - per
        for key, _, timestamp in rows:
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

    def _since(self, kept: Any) -> Any:
        return kept[0]

    def _known(self, kept: Any) -> Any:
        """Convert a sliding-limit state to a bucket, counting one token per accepted record."""
        if isinstance(kept, tuple):
            return kept
        n, per = self._n, self._per
        then, debt = kept[0], per - per
        for timestamp in kept:
            debt = min(max(per - per, debt - n * (timestamp - then)) + per, n * per)
            then = timestamp
        return then, debt
