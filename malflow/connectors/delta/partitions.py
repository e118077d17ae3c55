"""Values of partition columns that deltalake can't write into the name of a folder, or writes as others."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from malflow.connectors.parquet.columns import UnfitRow

__all__ = ["check_partitions"]

_LONGEST = 255
"""The number of bytes of the longest name of a folder."""

_CURE = "partition by a column of integers, dates or texts that are not empty, or change the value in formatter="


def check_partitions(target: str, batch: pa.RecordBatch, columns: Sequence[str], rows: Sequence[Any]) -> None:
    """Refuse rows whose partition can't be written.

    Args:
        target: the table.
        batch: the rows as columns.
        columns: the partition columns.
        rows: the rows as they came.

    Raises:
        UnfitRow: naming the row.
    """
    if set(batch.schema.names) <= set(columns):
        raise UnfitRow(target, None, rows[0], "the table needs a column that is not a partition; change partition_by")
    for name in columns:
        if name not in batch.schema.names:
            continue
        column = batch.column(name)
        for value in column.unique().to_pylist():
            reason = _fault(name, value, column.type)
            if reason is not None:
                at = column.to_pylist().index(value)
                raise UnfitRow(target, name, rows[at], f"{reason}; {_CURE}")


def _fault(name: str, value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    if isinstance(value, Decimal) and value < 0 and kind.scale > 0:
        return f"deltalake can't write the folder of the partition {value}, a negative decimal with a fraction"
    if isinstance(value, bytes):
        return "deltalake writes other bytes than these as a partition"
    if value == "":
        return "deltalake writes an empty text as null in a partition"
    text = f"{Decimal(value):f}" if isinstance(value, float) else f"{value}"
    if len(quote(name)) + 1 + len(quote(text)) > _LONGEST:
        return f"the name of the folder of this partition would be longer than {_LONGEST} bytes"
    return None
