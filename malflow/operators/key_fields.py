"""Keys that are fields of the values, given by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any

from malflow.batch import Batch
from malflow.diagnostics import short_repr
from malflow.operators.contract import OperatorContext
from malflow.operators.routing import KeyBy
from malflow.rows import Rows

__all__ = ["KeyByField"]


class KeyByField(KeyBy):
    """Set each record's key to a field of its value: an item of a mapping, an attribute of anything else.

    Args:
        context: what every operator gets.
        field: the name of the item or attribute.
    """

    def __init__(self, context: OperatorContext, field: str) -> None:
        super().__init__(context)
        self._field = field

    def key_column(self, batch: Batch) -> Sequence[Any]:
        """Return the column of this name, or read the field of each value."""
        values = batch.values
        column = values.column(self._field) if type(values) is Rows else None
        return super().key_column(batch) if column is None else column

    def keys_of(self, batch: Batch, rest: Iterator[Any]) -> list[Any]:
        """Read the field of each value, without a call for values of one kind."""
        field, values = self._field, batch.values
        are_mappings = {issubclass(kind, Mapping) for kind in set(map(type, values))}
        try:
            if are_mappings == {True}:
                return [value[field] for value in rest]
            if are_mappings == {False}:
                return [getattr(value, field) for value in rest]
            return [value[field] if issubclass(type(value), Mapping) else getattr(value, field) for value in rest]
        except (KeyError, AttributeError) as error:
            self._explain(error, batch.values[len(batch) - length_hint(rest) - 1])
            raise

    def _explain(self, error: KeyError | AttributeError, value: Any) -> None:
        instead = "pass a function of the message for keys that are no fields, or call .filter() first"
        if isinstance(error, KeyError):
            if isinstance(value, Mapping) and error.args == (self._field,):
                error.add_note(f"the value has no item {self._field!r}; it has {short_repr(list(value))}; {instead}")
        elif error.obj is value and error.name == self._field:
            error.add_note(f"the value has no attribute {self._field!r}; {instead}")
