"""The as-of join of records with the rows of a table: None stands for a row that is not there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from malflow.event_time.timers import Timers
from malflow.operators.contract import OperatorContext
from malflow.operators.joins.asof_join import AsofJoin
from malflow.operators.joins.two_streams import RIGHT
from malflow.operators.result_columns import Results
from malflow.operators.tables.unsent import Unsent
from malflow.records.batch import Batch

__all__ = ["VersionsJoin", "migrated_rows"]


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
