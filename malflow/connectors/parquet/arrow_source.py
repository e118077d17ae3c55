"""A source over tables, datasets and streams of record batches of Arrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from malflow.connectors.parquet.rows import (
    Nanoseconds,
    Row,
    RowMaker,
    RowOptions,
    Timestamp,
    UnreadableColumn,
    row_options,
)
from malflow.errors import GraphError, MalflowError
from malflow.message import NoKey, NoKeyType
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.words import short_repr

__all__ = ["ArrowPartition", "ArrowSource", "ArrowSourceError"]

_ROWS = 65_536
"""The most rows of a batch: as many as a poll reads of columns. Fewer have more overhead, more leave the CPU cache."""

Data: TypeAlias = Any
"""A table, a record batch, a dataset, a reader or iterable of record batches, or a function that returns one."""


class ArrowSourceError(MalflowError, ValueError):
    """A row of Arrow can't be converted to a record, or the data is shorter than before."""


@dataclass(frozen=True, slots=True)
class _Options:
    rows: RowOptions
    condition: Any


class ArrowPartition(StatefulSourcePartition[Any, Any, int]):
    """Record batches with a position: the number of rows read."""

    def __init__(self, data: Data, options: _Options, position: int) -> None:
        self._data = data
        self._options = options
        self._position = position
        self._skip = position
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._batch: pa.RecordBatch | None = None
        self._at = 0
        self._finished = False

    def poll(self) -> tuple[Any, Any] | None:
        """Return the next record."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the next records of a batch, at most `limit`.

        Raises:
            ArrowSourceError: if a column is missing, or Python cannot represent a value.
        """
        batch = self._next_batch()
        if batch is None:
            return (), ()
        taken = batch.slice(self._at, limit)
        first = self._position
        try:
            values, timestamps = self._maker.make(taken, range(first, first + taken.num_rows))
        except UnreadableColumn as error:
            raise ArrowSourceError(f"the data of ArrowSource {error}") from error.__cause__
        self._at += taken.num_rows
        self._position += taken.num_rows
        if self._at == batch.num_rows:
            self._batch = None
        return values, timestamps

    def is_finished(self) -> bool:
        """Whether all rows were read."""
        return self._finished

    def snapshot(self) -> int:
        """Return the number of rows read."""
        return self._position

    def suspend(self) -> None:
        """Release the data."""
        self._batches, self._batch = iter(()), None

    def _next_batch(self) -> pa.RecordBatch | None:
        if self._batches is None:
            self._batches = _batches(self._data, self._options.condition)
        while self._batch is None:
            batch = next(self._batches, None)
            if batch is None:
                self._finish()
                return None
            self._start(batch)
        return self._batch

    def _start(self, batch: pa.RecordBatch) -> None:
        skipped = min(self._skip, batch.num_rows)
        self._skip -= skipped
        if skipped < batch.num_rows:
            try:
                self._maker = RowMaker(self._options.rows, batch.schema)
            except UnreadableColumn as error:
                raise ArrowSourceError(f"the data of ArrowSource {error}") from None
            self._batch, self._at = batch, skipped

    def _finish(self) -> None:
        if self._skip:
            raise ArrowSourceError(
                f"the data of ArrowSource has fewer rows than the {self._position} read before; pass the "
                "same data, or restore=None to start without the snapshot"
            )
        self._finished = True


class ArrowSource(StatefulSourceImpl[NoKeyType, Any, Any, int]):
    """Emit the rows of Arrow data, by default as dicts by column name, with their index from 0 as timestamp.

    It has one part, on one worker, without a key. A run that resumes skips the rows already read: the data must be the
    same, in the same order. An Arrow reader can be read only once: pass a function that opens it if a run may be
    repeated, and on Spark, where a part moves between processes.

    Args:
        data: a table, a record batch, a dataset, an iterable or reader of record batches, a function that returns one
            of these, or any object with ``__arrow_c_stream__``, such as a data frame of pandas or polars.
        columns: the columns of a record, in order; all by default.
        filter: which rows to read, as an expression such as ``pyarrow.compute.field("n") > 3``; for tables and
            datasets.
        timestamp: the column that is the record's timestamp, or a function of the record's value; by default the
            index of the row.
        row: the type of a record, as for `ParquetSource`.
        nanoseconds: the handling of times that Python can't represent exactly: ``"fail"``, or ``"truncate"`` them.

    Raises:
        GraphError: if an argument is not valid.

    >>> import pyarrow as pa
    >>> ArrowSource(pa.table({"n": [1, 2], "town": ["Ulm", "Bonn"]})).build_part(NoKey, None).poll_batch(10)
    ([{'n': 1, 'town': 'Ulm'}, {'n': 2, 'town': 'Bonn'}], range(0, 2))
    """

    keyed = False

    def __init__(
        self,
        data: Data,
        *,
        columns: Sequence[str] | None = None,
        filter: Any = None,
        timestamp: Timestamp = None,
        row: Row = dict,
        nanoseconds: Nanoseconds = "fail",
    ) -> None:
        kinds = (pa.Table, pa.RecordBatch, Iterable)
        if (
            not isinstance(data, kinds)
            and not _is_dataset(data)
            and not callable(data)
            and not hasattr(data, "__arrow_c_stream__")
        ):
            raise GraphError(f"ArrowSource needs a table, a dataset or record batches; got {short_repr(data)}")
        if filter is not None and not (isinstance(data, pa.Table | pa.RecordBatch) or _is_dataset(data)):
            raise GraphError("ArrowSource can filter tables and datasets only; filter the stream")
        if filter is not None and not isinstance(filter, pc.Expression):
            raise GraphError(f"ArrowSource filter must be an expression of pyarrow.compute; got {short_repr(filter)}")
        self._data = data
        rows = row_options("ArrowSource", columns, row, timestamp, nanoseconds)
        self.emits_columns = rows.stay_columns
        self._options = _Options(rows, filter)

    def list_parts(self) -> list[NoKeyType]:
        """Return the only part, `NoKey`."""
        return [NoKey]

    def build_part(self, part: NoKeyType, state: int | None) -> ArrowPartition:
        """Return a reader that skips the rows before the position."""
        del part
        return ArrowPartition(self._data, self._options, state or 0)


def _batches(data: Data, condition: Any) -> Iterator[pa.RecordBatch]:
    """Return the batches of the data, in its order."""
    if isinstance(data, Callable) and not hasattr(data, "__arrow_c_stream__"):  # type: ignore[arg-type] # a protocol
        return _batches(data(), condition)
    if _is_dataset(data):
        return _of_dataset(data, condition)
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        table = data if condition is None else data.filter(condition)
        return iter(table.to_batches(max_chunksize=_ROWS))
    if isinstance(data, Iterable) and not hasattr(data, "__arrow_c_stream__"):
        return _checked(data)
    return iter(pa.RecordBatchReader.from_stream(data))


def _is_dataset(data: Data) -> bool:
    """Whether data is a dataset. The module of datasets is not imported for it, since it imports pandas."""
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(data, module.Dataset)


def _of_dataset(data: Data, condition: Any) -> Iterator[pa.RecordBatch]:
    for fragment in data.get_fragments():
        yield from fragment.to_batches(schema=data.schema, filter=condition, batch_size=_ROWS, use_threads=False)


def _checked(data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for batch in data:
        if not isinstance(batch, pa.RecordBatch):
            raise ArrowSourceError(f"ArrowSource needs record batches; got {short_repr(batch)}")
        yield batch
