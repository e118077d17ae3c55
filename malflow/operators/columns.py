"""Columns of a batch: a field of each value, and the results of an operator with the epochs between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import length_hint
from typing import Any

from malflow.diagnostics import note_missing_field
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar

__all__ = [
    "Results",
    "column_of",
    "read_each",
    "read_one",
]


def column_of(batch: Batch, field: str) -> Sequence[Any] | None:
    """Return the column of this name; None if the values are not columns, or lack it."""
    return batch.values.column(field) if is_columnar(batch.values) else None


def read_each(batch: Batch, field: str, rest: Iterator[Any], instead: str) -> list[Any]:
    """Read an item of each mapping, or an attribute of any other value, without a call per value if all have one kind.

    Args:
        batch: the batch.
        field: the name of the item or attribute.
        rest: the remaining values.
        instead: the remedy for values that lack the field.
    """
    are_mappings = {issubclass(kind, Mapping) for kind in set(map(type, batch.values))}
    try:
        if are_mappings == {True}:
            return [value[field] for value in rest]
        if are_mappings == {False}:
            return [getattr(value, field) for value in rest]
        return [value[field] if issubclass(type(value), Mapping) else getattr(value, field) for value in rest]
    except (KeyError, AttributeError) as error:
        value = batch.values[len(batch) - length_hint(rest) - 1]
        note_missing_field(error, field, value, instead)
        raise


def read_one(value: Any, field: str) -> Any:
    """Read an item of a mapping, or an attribute of any other value; the error for a missing one has a note."""
    try:
        return value[field] if isinstance(value, Mapping) else getattr(value, field)
    except (KeyError, AttributeError) as error:
        note_missing_field(error, field, value, "filter such records, or pass a function of the message")
        raise


class Results:
    """The results of a batch, as columns, with the epochs between them."""

    __slots__ = ("epochs", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []

    def add(self, keys: Iterable[Any], values: Iterable[Any], timestamp: Any) -> None:
        """Append results with one timestamp."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(repeat(timestamp, len(self.values) - len(self.timestamps)))

    def add_each(self, keys: Iterable[Any], values: Iterable[Any], timestamps: Iterable[Any]) -> None:
        """Append results."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(timestamps)

    def mark(self, epochs: Iterable[tuple[int, Any]]) -> None:
        """Append epochs after the results so far."""
        at = len(self.keys)
        self.epochs.extend([(at, epoch) for _, epoch in epochs])

    def batch(self) -> Batch:
        """Return results and epochs as one batch."""
        return Batch(self.keys, self.values, self.timestamps, self.epochs)
