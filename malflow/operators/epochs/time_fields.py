"""Timestamps that are fields of the values, given by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.generator import AssignTimestamps
from malflow.operators.field_columns import column_of, read_each
from malflow.records.batch import Batch

__all__ = ["AssignTimestampsByField"]


class AssignTimestampsByField(AssignTimestamps):
    """Set each record's timestamp to a field of its value: an item of a mapping, an attribute of anything else.

    Args:
        context: what every operator gets.
        field: the name of the item or attribute.
    """

    def __init__(self, context: OperatorContext, field: str) -> None:
        super().__init__(context)
        self._field = field

    def stamps_of(self, batch: Batch, rest: Iterator[Any]) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        column = column_of(batch, self._field)
        return read_each(batch, self._field, rest, _INSTEAD) if column is None else column


_INSTEAD = "pass a function of the message for timestamps that are no fields, or call .filter() first"
