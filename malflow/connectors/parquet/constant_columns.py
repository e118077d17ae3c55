"""Columns that a file does not have, with one value in all rows, for the conditions of a filter."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from malflow.connectors.files.partitions import FolderValues
from malflow.connectors.files.typed import without_none

__all__ = ["ConstantColumns"]

_TYPES: Mapping[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bool: pa.bool_(),
    dt.date: pa.date32(),
    dt.time: pa.time64("us"),
}
"""The types of columns. For others, Arrow finds the type by the value."""


class ConstantColumns(NamedTuple):
    """Columns that have one value in all rows of a file.

    Attributes:
        scalars: the values that Arrow can represent, by column.
    """

    scalars: Mapping[str, pa.Scalar]

    @classmethod
    def of(cls, folders: FolderValues) -> ConstantColumns:
        """Return the partition columns of a file."""
        found = ((name, _scalar(value, folders.kinds[name])) for name, value in folders.values.items())
        return cls({name: scalar for name, scalar in found if scalar is not None})

    def joined_to(self, table: pa.Table) -> pa.Table:
        """Return a table that has these columns too."""
        for name, scalar in self.scalars.items():
            table = table.append_column(name, pa.repeat(scalar, table.num_rows))
        return table

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema that has these columns too."""
        for name, scalar in self.scalars.items():
            schema = schema.append(pa.field(name, scalar.type))
        return schema

    @property
    def guarantee(self) -> Any:
        """The condition that all rows meet; None without columns."""
        known = [
            pc.field(it) == scalar if scalar.is_valid else pc.field(it).is_null() for it, scalar in self.scalars.items()
        ]
        return reduce(and_, known) if known else None


def _scalar(value: Any, kind: Any) -> pa.Scalar | None:
    try:
        return pa.scalar(value, _TYPES.get(without_none(kind)), from_pandas=False)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
