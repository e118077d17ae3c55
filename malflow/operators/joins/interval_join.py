"""Interval join: pairs records of two streams with equal keys and timestamps within bounds.

Both sides keep their records in panes, spans of time as long as the interval; within a pane, by key, sorted by
timestamp. So all partners of a record are in two neighbouring panes of the other side, where bisection finds them. A
pair is emitted when its second record arrives. Panes are dropped whole, once the epoch shows that none of their records
can have a partner any more; only records to be emitted without a partner are tracked one by one, in a heap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import Any

from malflow.event_time.panes import Panes, RegularPanes
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import OperatorContext
from malflow.operators.joins.two_streams import LEFT, RIGHT, EndPair, JoinOperator
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.states.kinds import Arrangement
from malflow.states.paned import PanedState
from malflow.words import short_repr

__all__ = ["Interval", "IntervalJoin", "arranged_pane"]

_DAY = timedelta(days=1)

_Pane = dict[Any, list[list[Any]]]
"""The records of one side and pane: for each key, lists of timestamps, of values, and of whether the record has had a
partner; the last is empty if the side does not emit records without a partner.
"""

_Row = tuple[Any, Any, Any, Any, Any, Any]
"""The key, value and timestamp of a record; the timestamp that selects its pane; its partners' first and last
timestamps.
"""

_Place = tuple[int, Any, Any, _Pane, list[tuple[int, _Pane]], Callable[[Any], object] | None]
"""A pane's number, start and end; the pane; the panes with partners; the function that marks keys as dirty."""

_NOWHERE: _Place = (0, MAX, MAX, {}, [], None)

_Single = tuple[Any, int, int, Any, int]
"""A record without a partner so far: the epoch that rules one out; its number; its pane, key and index there."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The condition of a join: ``left - before <= right <= left + after``, for the timestamps of two records.

    Attributes:
        before: how much earlier the right record may be; at least ``-after``.
        after: how much later it may be.
        keeps: whether records without a partner are emitted, for the left and the right side.
    """

    before: Any
    after: Any
    keeps: tuple[bool, bool] = (False, False)

    def fit(self, timestamp: Any) -> Panes:
        """Return panes as long as the interval, for timestamps of this type.

        Raises:
            TypeError: if the bounds don't fit it.
        """
        length = self.before + self.after
        is_day = isinstance(timestamp, date) and not isinstance(timestamp, datetime)
        try:
            pane = self.before if is_day and self.before % _DAY else length or _unit_of(length)
            return RegularPanes(pane, length - length).fit(timestamp)
        except TypeError:
            raise TypeError(
                f"its timestamp {short_repr(timestamp)} of type {type(timestamp).__name__} doesn't fit the bounds "
                f"before={self.before!r} and after={self.after!r}; these can be numbers for numbers, timedeltas for "
                "datetimes, and timedeltas of whole days for dates"
            ) from None

    def sides(self) -> tuple[_Side, _Side]:
        """Return the two sides: their edges, bounds and options."""
        before, after, zero = self.before, self.after, self.before - self.before
        keeps_left, keeps_right = self.keeps
        return (
            _Side(LEFT, -before, after, 0, max(after, zero), before, keeps_left, keeps_right),
            _Side(RIGHT, -after, before, -1, max(before, zero), zero, keeps_right, keeps_left),
        )


def _unit_of(length: Any) -> Any:
    """Return the length of panes for a join of equal timestamps, for which any length works."""
    return _DAY if isinstance(length, timedelta) else 1


@dataclass(frozen=True, slots=True)
class _Side:
    """One side of a join.

    Attributes:
        edge: the edge of its records.
        low: the first timestamp of a record's partners, relative to its own.
        high: the last one, likewise.
        near: the first pane with partners, relative to the record's; the only other one is the next.
        reach: when a record is dropped, relative to its timestamp.
        shift: a record's timestamp, relative to the one that selects its pane.
        keeps: whether it emits records without a partner.
        others_keep: whether the other side does.
    """

    edge: int
    low: Any
    high: Any
    near: int
    reach: Any
    shift: Any
    keeps: bool
    others_keep: bool


# Invariant: all partners of a left record are in the right pane of the same time as its own, and in the next one.
#
# Example: before=2 and after=3, so a left record at 10 has its partners from 8 to 13, and panes are 5 long.
#   left record at 10     its pane is that of 8, the span from 5 to 10
#   right panes           from 5 to 10 and from 10 to 15; bisection finds 8 to 13 in them
#   right record at 12    arrives later, and looks in left panes for records from 9 to 14
class IntervalJoin(JoinOperator):
    """Emit each pair of a left and a right record with equal keys and timestamps that satisfy the condition.

    A pair is emitted when the second of the two records arrives. A record is kept as long as a partner may arrive:
    until the epoch reaches the end of its interval, or its own timestamp if that is later. If it has had no partner by
    then, and its side emits such records, it is emitted with that timestamp and None for the partner.

    Records are kept in panes of the interval's length; panes of the left side have even numbers, panes of the right
    side odd ones. The pane of a left record is the one that contains the start of its interval, so its partners are in
    the right pane of the same time and in the next one.

    Args:
        context: the operator's context.
        interval: the condition.
    """

    state: PanedState

    def __init__(self, context: OperatorContext, interval: Interval) -> None:
        super().__init__(context)
        self.state = PanedState(tracked=context.tracked)
        self._interval = interval
        self._sides = interval.sides()
        self._fitted: Panes | None = None
        self._slack = 0  # additional panes to search, and to keep longer, since sums of floats are rounded
        self._admit = admission_of(context)
        self._single: list[_Single] | None = None  # a heap; None: not yet built from the state
        self._arrived = 0
        self._places: dict[int, _Place] = {}  # of the current run of records, by the number of the pane on its side
        self._next_drop: Any = None  # the least epoch at which a pane is over; None: unknown

    def take(self, edge: int, run: Batch, results: Results) -> None:
        """Add records to their side, and add their pairs with records of the other side."""
        side = self._sides[edge]
        self._fit(run.timestamps[0])
        self._places.clear()
        lows, highs = _moved(run.timestamps, side.low), _moved(run.timestamps, side.high)
        starts = lows if edge == LEFT else run.timestamps
        rows = zip(run.key_column(), run.values, run.timestamps, starts, lows, highs, strict=True)
        if side.keeps or side.others_keep:
            self._pair_and_settle(side, rows, results)
        else:
            self._pair(side, rows, results)

    def advance(self, epoch: Any, results: Results) -> None:
        """Add the records without a partner up to the epoch, and drop the panes that are over."""
        if not self.state.panes:
            return
        single = self._listed()
        while single and single[0][0] <= epoch:
            deadline, _, number, key, index = heappop(single)
            _, values, settled = self.state.panes[number][key]
            if not settled[index]:
                self._settle(number, key, index)
                pair = (values[index], None) if number % 2 == LEFT else (None, values[index])
                results.add((key,), (EndPair(pair) if epoch is MAX else pair,), deadline)
        if self._next_drop is None or self._next_drop <= epoch:
            self._drop(epoch)

    def held(self) -> Waiting | None:
        """Return the number of records that would be emitted without a partner."""
        count = sum(not is_settled for _, _, settled in self.state.values() for is_settled in settled)
        return Waiting("unpaired records", count) if count else None

    def check_timestamp(self, timestamp: Any) -> None:
        """Check that the bounds fit a timestamp.

        Raises:
            TypeError: if they don't, or did not fit earlier timestamps.
        """
        if self._interval.fit(timestamp) != self._fit(timestamp):
            raise TypeError(
                f"its timestamp {short_repr(timestamp)} is of type {type(timestamp).__name__}, and earlier ones are "
                "not; set timestamps of one type by .assign_timestamps()"
            )

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        super().apply(delta)
        self._single = self._next_drop = None

    def _pair(self, side: _Side, rows: Iterable[_Row], results: Results) -> None:
        """Add records to a side, and add their pairs."""
        add_key, add_value, add_timestamp = results.keys.append, results.values.append, results.timestamps.append
        is_left = side.edge == LEFT
        here = before = _NOWHERE  # records out of order mostly alternate between two panes
        _, first, last, pane, near, touch = here
        for key, value, timestamp, start, low, high in rows:
            if not first <= start < last:
                here, before = before, here
                if not here[1] <= start < here[2]:
                    here = self._enter(side, start)
                _, first, last, pane, near, touch = here
            own = pane.get(key)
            if own is None:
                self._open(pane, key, [[timestamp], [value], []])
            else:
                own[0].append(timestamp)
                own[1].append(value)
            if touch is not None:
                touch(key)
            for _, others in near:
                found = others.get(key)
                if found is not None:
                    for index, time in enumerate(found[0]):
                        if low <= time <= high:
                            partner = found[1][index]
                            add_key(key)
                            add_value((value, partner) if is_left else (partner, value))
                            add_timestamp(timestamp if timestamp > time else time)

    def _pair_and_settle(self, side: _Side, rows: Iterable[_Row], results: Results) -> None:
        """Add records to a side, add their pairs, and note which records have a partner."""
        add_key, add_value, add_timestamp = results.keys.append, results.values.append, results.timestamps.append
        is_left, single = side.edge == LEFT, self._listed()
        first = last = None
        for key, value, timestamp, start, low, high in rows:
            if first is None or not first <= start < last:
                number, first, last, pane, near, touch = self._enter(side, start)
            times, values, settled = pane.get(key) or self._open(pane, key, [[], [], []])
            times.append(timestamp)
            values.append(value)
            is_paired = False
            for other, index, time, partner in _partners(near, key, low, high):
                is_paired = True
                add_key(key)
                add_value((value, partner) if is_left else (partner, value))
                add_timestamp(timestamp if timestamp > time else time)
                if side.others_keep:
                    self._settle(other, key, index)
            if side.keeps:
                settled.append(is_paired)
                if not is_paired:
                    self._arrived += 1
                    heappush(single, (timestamp + side.reach, self._arrived, number, key, len(times) - 1))
            if touch is not None:
                touch(key)

    def _enter(self, side: _Side, start: Any) -> _Place:
        """Return the pane that a timestamp selects, with its context."""
        panes = self._fit(start)
        at = panes.number(start)
        place = self._places.get(at)
        if place is None:
            number, state = 2 * at + side.edge, self.state
            if number not in state.panes:
                self._next_drop = None
            place = (
                number,
                panes.start(at),
                panes.start(at + 1),
                state.pane(number),
                self._near(side, number),
                state.toucher(number),
            )
            self._places[at] = place
        return place

    def _near(self, side: _Side, number: int) -> list[tuple[int, _Pane]]:
        """Return the panes with partners of a pane's records, and their numbers."""
        at, other, held = number // 2 + side.near, 1 - side.edge, self.state.panes
        numbers = (2 * it + other for it in range(at - self._slack, at + 2 + self._slack))
        return [(it, held[it]) for it in numbers if it in held]

    def _open(self, pane: _Pane, key: Any, rows: list[list[Any]]) -> list[list[Any]]:
        """Add a key to a pane with its first records."""
        if self._admit is not None:
            self._admit(key)
        pane[key] = rows
        return rows

    def _settle(self, number: int, key: Any, index: int) -> None:
        """Note that a record has had a partner, so it is not emitted alone."""
        settled = self.state.panes[number][key][2]
        if not settled[index]:
            settled[index] = True
            self.state.touch(number, (key,))

    def _fit(self, timestamp: Any) -> Panes:
        if self._fitted is None:
            self._fitted = self._interval.fit(timestamp)
            self._slack = int(isinstance(timestamp + self._sides[LEFT].low, float))
        return self._fitted

    def _listed(self) -> list[_Single]:
        """Return the records without a partner so far, as a heap by the epoch that rules one out."""
        if self._single is None:
            self._single = []
            for number, key in self.state:
                times, _, settled = self.state[number, key]
                for index, is_settled in enumerate(settled):
                    if not is_settled:
                        self._arrived += 1
                        deadline = times[index] + self._sides[number % 2].reach
                        self._single.append((deadline, self._arrived, number, key, index))
            heapify(self._single)
        return self._single

    def _drop(self, epoch: Any) -> None:
        """Drop the panes with records that can have no more partners."""
        panes = self._fitted or self._fit(next(iter(self.state.values()))[0][0])
        ends = {number: self._end(panes, number) for number in self.state.panes}
        for number, end in ends.items():
            if end <= epoch:
                self.state.drop(number)
        self._next_drop = min((end for end in ends.values() if end > epoch), default=None)

    def _end(self, panes: Panes, number: int) -> Any:
        """Return the least epoch that rules out partners for all records of a pane."""
        side = self._sides[number % 2]
        return panes.last(number // 2 + self._slack) + side.shift + side.reach


def _moved(timestamps: Sequence[Any], by: Any) -> Sequence[Any]:
    return [timestamp + by for timestamp in timestamps] if by else timestamps


def _partners(near: Iterable[tuple[int, _Pane]], key: Any, low: Any, high: Any) -> Iterable[tuple[int, int, Any, Any]]:
    """Yield the pane, index, timestamp and value of the records of a key between two timestamps."""
    for number, pane in near:
        if key in pane:
            times, values, _ = pane[key]
            for index, time in enumerate(times):
                if low <= time <= high:
                    yield number, index, time, values[index]


def arranged_pane(slot: tuple[int, Any], rows: Sequence[Sequence[Any]], arrangement: Arrangement) -> Any:
    """Return the records of a key and pane with the items of their values in other places."""
    timestamps, values, *rest = rows
    return [timestamps, [tuple(arrangement(value, slot[0] % 2)) for value in values], *rest]
