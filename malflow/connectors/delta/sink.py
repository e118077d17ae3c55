"""A sink that appends to a Delta table, a commit for each snapshot."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

import deltalake
import pyarrow as pa

from malflow.callables import deferred
from malflow.connectors.delta.schemas import delta_schema, delta_type
from malflow.connectors.delta.table import Table
from malflow.connectors.parquet.columns import Columns, UnfitRow
from malflow.errors import GraphError, short_repr
from malflow.filesystem import is_local, local_path
from malflow.message import DataMessage
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl
from malflow.store.redaction import redacted, secrets_in

__all__ = ["DeltaSink", "Handle"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Handle: TypeAlias = tuple[int, bytes]
"""An epoch, and its rows as a compressed Arrow stream."""

_OURS = frozenset({"table_or_uri", "data", "mode", "storage_options", "commit_properties", "predicate"})
_SETTINGS = frozenset(inspect.signature(deltalake.write_deltalake).parameters)


class DeltaSink(TransactionalSinkImpl[K, V, T, Handle]):
    """Append records to a Delta table: one commit for each snapshot interval that had records.

    A record is a dict, a dataclass or a named tuple, or a tuple if `schema` is passed. With
    ``delivery="exactly-once"``, which needs snapshots, the rows of an interval are in the snapshot, compressed, and are
    appended once it is durable; the log of the table tells which epochs it has. So each interval is in the table once,
    as a whole. A run that was replaced can't commit. An interval should fit in memory.

    Args:
        table: the path or URL of the table, which is created if it does not exist.
        schema: the schema of the records; by default that of the table, or if there is none, inferred from the first
            records.
        delivery: ``"exactly-once"``, or ``"at-least-once"``, which commits at each snapshot and at the end of the run,
            and after a restart appends the records since the snapshot again.
        formatter: returns the row for a message; by default its value.
        settings: passed to `deltalake.write_deltalake`, such as ``{"partition_by": ["day"]}``.
        storage_options: passed to deltalake, such as credentials.
        retry_for: how long the run waits while an object store can't be reached.

    Raises:
        GraphError: if an argument is not valid.

    >>> DeltaSink("s3://bucket/orders", storage_options={"AWS_REGION": "eu-central-1"})
    DeltaSink('s3://bucket/orders')
    """

    def __init__(
        self,
        table: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        delivery: Delivery = "exactly-once",
        formatter: Callable[[DataMessage[K, V, T]], Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        storage_options: Mapping[str, str] | None = None,
        retry_for: timedelta = timedelta(minutes=1),
    ) -> None:
        if not isinstance(table, str | os.PathLike) or not os.fspath(table):
            raise GraphError(f"DeltaSink needs the path or URL of a table; got {table!r}")
        if delivery not in ("exactly-once", "at-least-once"):
            raise GraphError(f"DeltaSink delivery must be 'exactly-once' or 'at-least-once'; got {delivery!r}")
        stored = None if schema is None else _checked_schema(schema)
        if formatter is not None and (not callable(formatter) or deferred(formatter)):
            raise GraphError(
                f"DeltaSink needs a plain function as formatter; got {deferred(formatter) or short_repr(formatter)}"
            )
        ours = sorted(_OURS.intersection(settings or {}))
        if ours:
            raise GraphError(f"DeltaSink settings can't have {ours[0]!r}, on which delivery rests")
        unknown = sorted(map(str, set(settings or {}) - _SETTINGS))
        if unknown:
            known = ", ".join(sorted(_SETTINGS - _OURS))
            raise GraphError(f"DeltaSink settings can't have {unknown[0]!r}: write_deltalake takes {known}")
        if not isinstance(retry_for, timedelta) or retry_for < timedelta(0):
            raise GraphError(f"DeltaSink retry_for must be a timedelta, not negative; got {retry_for!r}")
        path = os.fspath(table)
        uri = local_path(path) if is_local(path) else path
        self.delivery = delivery
        self._shown = redacted(uri, secrets_in(storage_options or {}, uri))
        self._schema = stored
        self._formatter = formatter
        self._table = Table(uri, storage_options or {}, settings or {}, retry_for.total_seconds())
        self._begin()
        if delivery == "at-least-once":
            self.snapshot, self.restore = self._append_now, self._begin_anew

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records.

        Raises:
            UnfitRow: if a record does not fit the schema.
        """
        rows: Sequence[Any] = values
        if self._formatter is not None:
            rows = [self._formatter(message) for message in map(DataMessage, keys, values, timestamps)]
        if self._columns.schema is None:  # more rows tell more of the types
            self._rows.extend(rows)
        elif rows:
            self._batches.append(self._columns.make(rows))

    def close(self) -> None:
        """Drop what is not prepared; if delivery is at least once, append it."""
        if self.delivery == "at-least-once":
            self._append_now()
        self._drop()

    def fence(self, owner: SinkOwner) -> int:
        """Take the table over for this sink; return the last epoch in it.

        Raises:
            FencedError: if a run with a higher claim has it.
        """
        self._begin()
        last = self._table.fence(owner, self._schema)
        self._columns.schema = self._schema if self._schema is not None else self._table.schema()
        return last

    def prepare(self, epoch: int) -> Handle | None:
        """Return the rows of an epoch; None if there are none."""
        data = self._taken()
        if data is None:
            return None
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, data.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(data)
        return epoch, sink.getvalue().to_pybytes()

    def commit(self, handles: Sequence[Handle]) -> None:
        """Append epochs that are not in the table.

        Raises:
            FencedError: if a run with a higher claim has the table.
            DeltaSinkError: if the table can't be written.
        """
        for epoch, data in handles:
            with pa.ipc.open_stream(data) as reader:
                self._table.append(epoch, reader.read_all())

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop what is not prepared; nothing is staged outside."""
        del keep
        self._drop()

    def _begin(self) -> None:
        self._columns = Columns(self._shown, self._schema, delta_type)
        self._drop()

    def _drop(self) -> None:
        self._rows: list[Any] = []
        self._batches: list[pa.RecordBatch] = []

    def _taken(self) -> pa.Table | None:
        rows, self._rows = self._rows, []
        if rows:
            self._batches.append(self._first_batch(rows))
        batches, self._batches = self._batches, []
        return pa.Table.from_batches(batches) if batches else None

    def _first_batch(self, rows: list[Any]) -> pa.RecordBatch:
        columns = self._columns
        columns.schema = self._table.schema()  # another writer, or epochs of the run before, may have created it since
        batch = columns.make(rows)
        try:
            delta_schema(batch.schema)
        except ValueError as error:
            raise UnfitRow(self._shown, None, rows[0], f"the rows have {error}; pass formatter=") from None
        return batch

    def _append_now(self) -> None:
        """Append the records so far, if delivery is at least once."""
        data = self._taken()
        if data is not None:
            self._table.append(None, data)

    def _begin_anew(self, position: object) -> None:
        """Do nothing: the records since the snapshot are appended again."""

    def __repr__(self) -> str:
        return f"DeltaSink({self._shown!r})"


def _checked_schema(schema: Any) -> pa.Schema:
    """Return a schema as a table stores it."""
    if not isinstance(schema, pa.Schema):
        raise GraphError(f"DeltaSink schema must be a pyarrow.Schema; got {short_repr(schema)}")
    try:
        return delta_schema(schema)
    except ValueError as error:
        raise GraphError(f"DeltaSink schema can't have {error}") from None
