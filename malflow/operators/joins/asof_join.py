"""As-of join: each left record with the newest right record, or row of a table, of its key up to its time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from malflow.errors import failures
from malflow.event_time.timers import Timers
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import OperatorContext
from malflow.operators.joins.two_streams import LEFT, RIGHT, EndPair, JoinOperator
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.keyed.throttle import check_span
from malflow.operators.tables.table import Unsent
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState

__all__ = [
    "AsofJoin",
    "VersionsJoin",
    "migrated_rows",
]

_Rows = list[list[Any]]
"""The timestamps of records, and their values."""


# Idea: wait for the epoch instead of correcting results. Once the epoch has reached a left record, no earlier right
# record can arrive on time, so the answer is final, whatever the order of arrival was.
#
# Invariant: the right records of a key are sorted by timestamp. When a timer has fired, all
# before the newest one up to the epoch are dropped.
#
# Example: one key, with right records at 1 and 5.
#   left record at 7 arrives     it waits
#   right record at 6 arrives    right: 1, 5, 6
#   the epoch reaches 7          7 is emitted with 6; 1 and 5 are dropped, 6 stays for later left records
class AsofJoin(JoinOperator):
    """Emit each left record with the newest right one of its key that is not later, once no other can arrive.

    A left record waits until the epoch reaches its timestamp, when all right records up to it have arrived. The right
    records of a key are kept from the newest one up to the epoch; with a tolerance, only those still in reach of the
    next left record. Of right records with equal timestamps, the one with the greatest tie counts; with equal ties, the
    last to arrive.

    A key has two states that change independently: one for its left records, in order of arrival, and one for its right
    records, in the order of their timestamps. A timer per key marks the next change of either.

    Args:
        context: the operator's context.
        tolerance: how much older the right record may be; None if there is no limit.
        keeps_left: whether to emit left records without a partner.
        tie: returns the tie of a value for the order of right records with equal timestamps; None for order of arrival.
    """

    state: KeyedState

    def __init__(
        self,
        context: OperatorContext,
        tolerance: Any,
        *,
        keeps_left: bool,
        tie: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(context)
        self.callback = tie
        self.state = KeyedState(tracked=context.tracked)
        self._tolerance = tolerance
        self._keeps_left = keeps_left
        self._admit = admission_of(context)
        self._timers: Timers | None = None  # None: not yet built from the state

    def take(self, edge: int, run: Batch, results: Results) -> None:
        """Store the records until an epoch reaches them."""
        self.check_timestamp(run.timestamps[0])
        state, timers, ties = self.state, self._planned(), self.callback
        deadlines = timers.at
        for key, value, timestamp in zip(run.key_column(), run.values, run.timestamps, strict=True):
            times, values = state.get((edge, key)) or self._open(edge, key)
            if edge == LEFT or not times or (not timestamp < times[-1] and (ties is None or timestamp > times[-1])):
                times.append(timestamp)
                values.append(value)
            else:
                at = (
                    bisect_right(times, timestamp)
                    if ties is None
                    else self._place(times, values, key, value, timestamp)
                )
                times.insert(at, timestamp)
                values.insert(at, value)
            deadline = deadlines.get(key)
            if deadline is None or timestamp < deadline:
                timers.set(key, timestamp)
        if self.context.tracked:
            state.touch({(edge, key) for key in run.key_column()})

    def advance(self, epoch: Any, results: Results) -> None:
        """Add the results of the left records up to an epoch, and drop right records that are no longer needed."""
        timers = self._planned()
        for key in timers.due(epoch):
            self._answer(key, epoch, results)
            self._prune(key, epoch)
            self._plan(timers, key)

    def held(self) -> Waiting | None:
        """Return the number of left records without a result."""
        count = sum(len(rows[0]) for (edge, _), rows in self.state.items() if edge == LEFT)
        return Waiting("left records", count) if count else None

    def check_timestamp(self, timestamp: Any) -> None:
        """Check that the tolerance fits a timestamp.

        Raises:
            TypeError: if it doesn't.
        """
        if self._tolerance is not None:
            check_span("tolerance", self._tolerance, timestamp)

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        super().apply(delta)
        self._timers = None

    def _open(self, edge: int, key: Any) -> _Rows:
        """Add a key to a side."""
        if self._admit is not None:
            self._admit(key)
        rows: _Rows = [[], []]
        self.state[edge, key] = rows
        return rows

    def _place(self, times: list[Any], values: list[Any], key: Any, value: Any, timestamp: Any) -> int:
        """Return the place of a right record among its key's: after each one with a tie that is not greater.

        Raises:
            OperatorError: if ties can't be determined or compared.
        """
        at = bisect_right(times, timestamp)
        try:
            tie = self.callback(value)
            while at and times[at - 1] == timestamp and self.callback(values[at - 1]) > tie:
                at -= 1
        except failures() as error:
            raise self.error(error, (key, value, timestamp)) from error
        return at

    def _answer(self, key: Any, epoch: Any, results: Results) -> None:
        """Add the results of a key's left records up to an epoch, in the order of their timestamps."""
        due = self._take_due(key, epoch)
        make = EndPair if epoch is MAX else tuple
        times, values = self.state.get((RIGHT, key)) or ([], [])
        for timestamp, value in due:
            at = bisect_right(times, timestamp) - 1
            is_near = at >= 0 and (self._tolerance is None or timestamp - times[at] <= self._tolerance)
            if is_near or self._keeps_left:
                results.add((key,), (make((value, values[at] if is_near else None)),), timestamp)

    def _take_due(self, key: Any, epoch: Any) -> list[tuple[Any, Any]]:
        """Remove the left records of a key up to an epoch, and return them in the order of their timestamps."""
        rows = self.state.get((LEFT, key))
        if rows is None:
            return []
        records = list(zip(*rows, strict=True))
        self._keep(LEFT, key, [it for it in records if not it[0] <= epoch])
        return sorted((it for it in records if it[0] <= epoch), key=_timestamp_of)

    def _prune(self, key: Any, epoch: Any) -> None:
        """Drop the right records of a key that no left record after an epoch can match."""
        rows = self.state.get((RIGHT, key))
        if rows is None:
            return
        times, values = rows
        first = self._first_needed(times, values, epoch)
        if first:
            self._keep(RIGHT, key, list(zip(*rows, strict=True))[first:])

    def _first_needed(self, times: list[Any], _values: list[Any], epoch: Any) -> int:
        """Return the index of the first right record that a left one after an epoch can match."""
        first = max(0, bisect_right(times, epoch) - 1)
        if self._tolerance is not None and times[first] + self._tolerance <= epoch:
            first += 1
        return first

    def _keep(self, edge: int, key: Any, records: list[tuple[Any, Any]]) -> None:
        """Replace the records of a key and side."""
        slot = (edge, key)
        if records:
            self.state[slot] = [list(column) for column in zip(*records, strict=True)]
        else:
            del self.state[slot]
        self.state.touch((slot,))

    def _planned(self) -> Timers:
        if self._timers is None:
            self._timers = Timers()
            for key in dict.fromkeys(key for _, key in self.state):
                self._plan(self._timers, key)
        return self._timers

    def _plan(self, timers: Timers, key: Any) -> None:
        """Set the timer of a key to the first epoch that changes its states."""
        left, right = self.state.get((LEFT, key)), self.state.get((RIGHT, key))
        deadlines = [] if left is None else [min(left[0])]
        if right is not None and len(right[0]) > 1:
            deadlines.append(right[0][1])
        if right is not None and self._tolerance is not None:
            deadlines.append(right[0][0] + self._tolerance)
        if deadlines:
            timers.set(key, min(deadlines))


def _timestamp_of(record: tuple[Any, Any]) -> Any:
    return record[0]


class VersionsJoin(AsofJoin):
    """Emit the joiner's result for each left record and the row that was valid at its time.

    None is a version too: there was no row from then on. It is dropped once no older row is kept and an epoch has
    reached it.

    Args:
        context: the operator's context.
        joiner: returns the result for a value and a row (may be None).
        keeps_left: whether to emit left records without a row.
    """

    def __init__(self, context: OperatorContext, joiner: Callable[[Any, Any], Any], *, keeps_left: bool) -> None:
        super().__init__(context, None, keeps_left=keeps_left)
        self._joiner = joiner

    def take(self, edge: int, run: Batch, results: Results) -> None:
        """Store the records until an epoch reaches them."""
        unsent = Unsent.known() if edge == RIGHT else None
        if unsent is not None and not unsent.are_whole(run.values, set(map(type, run.values))):
            for record in zip(run.key_column(), run.values, run.timestamps, strict=True):
                self._check_whole(unsent, record)
        super().take(edge, run, results)

    def _check_whole(self, unsent: Unsent, record: tuple[Any, Any, Any]) -> None:
        try:
            unsent.check_not_change(record[1])
        except TypeError as error:
            raise self.error(error, record) from error
        if record[1] is not None and unsent.is_partial(record[1]):
            raise self.error(
                "a value of the row was not sent, as it did not change; call .to_table() first, which takes it from "
                "the row before, and join with the table",
                record,
            )

    def _answer(self, key: Any, epoch: Any, results: Results) -> None:
        joiner, keeps_left = self._joiner, self._keeps_left
        due = self._take_due(key, epoch)
        times, rows = self.state.get((RIGHT, key)) or ([], [])
        for timestamp, value in due:
            at = bisect_right(times, timestamp) - 1
            row = rows[at] if at >= 0 else None
            if row is None and not keeps_left:
                continue
            try:
                joined = joiner(value, row)
            except Exception as error:
                self.callback = joiner  # whose place the error tells
                raise self.error(error, (key, value, timestamp)) from error
            results.add((key,), (joined,), timestamp)

    def _first_needed(self, times: list[Any], rows: list[Any], epoch: Any) -> int:
        first = super()._first_needed(times, rows, epoch)
        return first + 1 if times[first] <= epoch and rows[first] is None else first

    def _plan(self, timers: Timers, key: Any) -> None:
        super()._plan(timers, key)
        right = self.state.get((RIGHT, key))
        if right is not None and right[1][0] is None and not timers.at.get(key, right[0][0]) < right[0][0]:
            timers.set(key, right[0][0])


def migrated_rows(rows: Any, version: int, *, migrate: Callable[[Any, int], Any]) -> Any:
    """Return the records of a key, as lists of timestamps and values, with migrated values; None stays None."""
    timestamps, values = rows
    return [timestamps, [None if value is None else migrate(value, version) for value in values]]
