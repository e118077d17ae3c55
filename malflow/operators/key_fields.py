"""Keys that are fields of the values, given by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.field_columns import column_of, read_each
from malflow.operators.routing import KeyBy
from malflow.records.batch import Batch

__all__ = ["KeyByField"]


class KeyByField(KeyBy):
    """Set each record's key to a field of its value: an item of a mapping, or an attribute of any other value.

    Args:
        context: the operator's context.
        field: the name of the item or attribute.
    """

    def __init__(self, context: OperatorContext, field: str) -> None:
        super().__init__(context)
        self._field = field

    def key_column(self, batch: Batch) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        column = column_of(batch, self._field)
        return super().key_column(batch) if column is None else column

    def keys_of(self, batch: Batch, rest: Iterator[Any]) -> list[Any]:
        """Read the field of each value."""
        return read_each(batch, self._field, rest, _INSTEAD)


_INSTEAD = "pass a function of the message if keys are not in a field, or call .filter() first"
