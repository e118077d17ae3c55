"""What travels between the workers of a tick: a few rows of Spark, each with a blob of columns."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from malflow.batch import Batch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FAILURE", "REPORT", "SCHEMA", "Row", "pack", "read_rows", "sink_of", "sink_row", "unpack", "write_rows"]

SCHEMA: Final = "worker int, channel int, sender int, blob binary, counts array<bigint>"

REPORT: Final = -1
"""The channel of what a worker reports of its tick to the driver."""

FAILURE: Final = -2
"""The channel of an error that ends the run."""

_FIRST_SINK = -3


class Row(NamedTuple):
    """One row.

    Attributes:
        worker: the logical worker that takes it, or passes it on.
        channel: the number of a channel of the program; below zero, something for the driver.
        sender: the worker that sent it.
        blob: what it holds.
        counts: of a report: how many records each operator took, and each source gave, in the order of `counted`.
    """

    worker: int
    channel: int
    sender: int
    blob: bytes
    counts: Sequence[int] | None = None


def sink_row(sink: int) -> int:
    """Give the channel of the records of a sink that is on the driver."""
    return _FIRST_SINK - sink


def sink_of(channel: int) -> int:
    """Give the sink of a channel."""
    return _FIRST_SINK - channel


def pack(batches: Sequence[Batch]) -> bytes:
    """Make one blob of some batches: their columns, pickled."""
    columns = [(batch.keys, batch.values, batch.timestamps, batch.epochs) for batch in batches]
    try:
        return pickle.dumps(columns, 5)
    except (pickle.PicklingError, AttributeError, TypeError):
        from pyspark import cloudpickle  # noqa: PLC0415 - objects of local classes and functions travel by value

        packed: bytes = cloudpickle.dumps(columns, 5)
        return packed


def unpack(blob: bytes) -> list[Batch]:
    """Read what `pack` made."""
    return [Batch(*columns) for columns in pickle.loads(blob)]  # noqa: S301 - this run wrote it


def read_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Read rows from Arrow."""
    for batch in batches:
        columns: list[Any] = [column.to_pylist() for column in batch.columns]
        yield from map(Row, *columns)


def write_rows(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Write rows to Arrow, each in a batch of its own: a blob may be large."""
    import pyarrow as pa  # noqa: PLC0415 - only the extra has it

    kinds = (pa.int32(), pa.int32(), pa.int32(), pa.binary(), pa.list_(pa.int64()))
    schema = pa.schema([*zip(Row._fields, kinds, strict=True)])
    for row in rows:
        arrays = [pa.array([value], kind) for value, kind in zip(row, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
