"""The operators that set timestamps, from a function or a field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from malflow.errors import failures
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.timestamp_checks import checked_timestamps
from malflow.operators.field_columns import column_of, read_each
from malflow.records.batch import Batch

__all__ = ["AssignTimestamps", "AssignTimestampsByField"]


class AssignTimestamps(Operator):
    """Set each record's timestamp by the assigner; drop the epochs of the old time, except `MAX`."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the timestamp column."""
        rest = iter(batch.values)
        try:
            timestamps = self.stamps_of(batch, rest)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        timestamps = checked_timestamps(self, batch, timestamps)
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        return (Batch(batch.keys, batch.values, timestamps, epochs),)

    def stamps_of(self, batch: Batch, rest: Iterator[Any]) -> Sequence[Any]:
        """Return the timestamps of a batch's records; `rest` iterates over its values."""
        return self.call_each(self.callback, batch, rest)


class AssignTimestampsByField(AssignTimestamps):
    """Set each record's timestamp to a field of its value: an item of a mapping, or an attribute of any other value.

    Args:
        context: the operator's context.
        field: the name of the item or attribute.
    """

    def __init__(self, context: OperatorContext, field: str) -> None:
        super().__init__(context)
        self._field = field

    def stamps_of(self, batch: Batch, rest: Iterator[Any]) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        column = column_of(batch, self._field)
        return read_each(batch, self._field, rest, _INSTEAD) if column is None else column


_INSTEAD = "pass a function of the message if timestamps are not in a field, or call .filter() first"
