"""Times that Spark, Hive and Impala store as INT96: nanoseconds of a day and the number of the day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from malflow.connectors.parquet.rows import UnreadableColumn, too_fine

__all__ = ["ExactTimes", "int96_columns"]


def int96_columns(schema: Any, names: Sequence[str]) -> frozenset[str]:
    """Return the columns that have times stored as INT96, in structs and lists too.

    Args:
        schema: the schema of the Parquet file.
        names: the names of its columns.
    """
    stored = (schema.column(index) for index in range(len(schema)))
    paths = [it.path for it in stored if it.physical_type == "INT96"]
    return frozenset(name for name in names if any(path == name or path.startswith(f"{name}.") for path in paths))


class ExactTimes:
    """Finds times with a fraction of a microsecond that reading in microseconds cuts off.

    pyarrow reads INT96 in nanoseconds, modulo 2**64, or in microseconds, rounded down. A thousand times the
    microseconds, modulo 2**64, equals the nanoseconds if nothing was cut off.

    Args:
        file: the file, read in nanoseconds.
        columns: its columns with times stored as INT96.
    """

    def __init__(self, file: pq.ParquetFile, columns: Sequence[str]) -> None:
        self._file = file
        self._columns = list(columns)

    def checked(self, batches: Iterator[pa.RecordBatch], rows: int, group: int) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a row group.

        Raises:
            UnreadableColumn: if a time has a fraction of a microsecond.
        """
        exact = self._file.iter_batches(rows, row_groups=[group], columns=self._columns, use_threads=False)
        for batch, fine in zip(batches, exact, strict=True):
            for name in self._columns:
                if not _is_exact(batch.column(name), fine.column(name)):
                    raise UnreadableColumn(too_fine(name))
            yield batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _is_exact(coarse: pa.Array, fine: pa.Array) -> bool:
    """Whether times in microseconds are those in nanoseconds, in nested arrays too."""
    kind = coarse.type
    if pa.types.is_timestamp(kind) and kind != fine.type:
        micros, nanos = coarse.cast(pa.int64()), fine.cast(pa.int64())
        return bool(pc.all(pc.equal(pc.multiply(micros, 1000), nanos), min_count=0).as_py())
    if pa.types.is_struct(kind):
        return all(map(_is_exact, coarse.flatten(), fine.flatten()))
    if pa.types.is_map(kind):
        return _is_exact(coarse.keys, fine.keys) and _is_exact(coarse.items, fine.items)
    if pa.types.is_nested(kind):
        return _is_exact(coarse.flatten(), fine.flatten())
    return True
