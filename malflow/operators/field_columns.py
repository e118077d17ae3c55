"""Read a field of each value of a batch, given by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any

from malflow.diagnostics import note_missing_field
from malflow.records.batch import Batch
from malflow.records.rows import Rows

__all__ = ["column_of", "read_each"]


def column_of(batch: Batch, field: str) -> Sequence[Any] | None:
    """Return the column of this name; None if the values are no columns, or have none of this name."""
    return batch.values.column(field) if type(batch.values) is Rows else None


def read_each(batch: Batch, field: str, rest: Iterator[Any], instead: str) -> list[Any]:
    """Read an item of each mapping, an attribute of anything else, without a call for values of one kind.

    Args:
        batch: the batch.
        field: the name of the item or attribute.
        rest: the values that are still to be read.
        instead: what to do about values that lack the field.
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
