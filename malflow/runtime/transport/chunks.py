"""Batches of records packed as columns, in chunks of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from malflow.operators.debug import verify
from malflow.records.batch import Batch, concat
from malflow.records.columnar import estimated_bytes, is_columnar
from malflow.records.rows import as_rows
from malflow.runtime.transport.pickling import dump_columns, load_columns

__all__ = ["MOST_BYTES", "Chunk", "ChunkBuffer"]

_CHUNK = 4_096
"""The minimum number of records of a full chunk, which fits in the processor's cache."""

_CHUNK_OF_COLUMNS = 65_536
"""The same of records as columns. They are packed and unpacked together, whatever their number."""

_PACKED = 2
"""The number of parts of a chunk of records as columns: the columns, and epochs."""

MOST_BYTES: Final = 4 << 20
"""About how many bytes of records are packed into one chunk."""


class Chunk(NamedTuple):
    """Records that are pickled together.

    Attributes:
        records: the number of records.
        timed: whether the chunk contains epochs (watermarks).
        data: the pickled columns.
    """

    records: int
    timed: bool
    data: bytes

    def batch(self, operator: str = "") -> Batch:
        """Return the records as a batch; errors name `operator`.

        Raises:
            NotPicklable: if a record can't be unpickled.
        """
        found = load_columns(self.data, operator)
        if len(found) > _PACKED:
            return Batch(*found)
        (keys, values, timestamps), epochs = found
        return Batch(keys, values, timestamps, epochs)


class ChunkBuffer:
    """The records that one worker sends to another, or to a sink elsewhere, in a tick.

    Records are packed as they arrive and unpacked chunk by chunk, so the packed size bounds memory. A chunk has columns
    of one schema, or rows: columns of several schemas can be joined only as rows.

    Args:
        operator: the sending operator.
        debug: whether to check that values do not change before they are packed.

    Attributes:
        records: the number of records.
        bytes: the packed size.
    """

    __slots__ = (
        "_batches",
        "_chunks",
        "_debug",
        "_operator",
        "_schema",
        "_waiting",
        "_waiting_bytes",
        "bytes",
        "records",
    )

    def __init__(self, operator: str = "", *, debug: bool = False) -> None:
        self.records = 0
        self.bytes = 0
        self._debug = debug
        self._operator = operator
        self._chunks: list[Chunk] = []
        self._batches: list[Batch] = []
        self._schema: Any = None  # that of the waiting records
        self._waiting = 0
        self._waiting_bytes = 0.0

    def __bool__(self) -> bool:
        return bool(self._chunks or self._batches)

    @property
    def marks(self) -> list[Sequence[tuple[int, Any]]] | None:
        """The epochs (watermarks), if there is nothing else; otherwise None."""
        return None if self.records or self._chunks else [batch.epochs for batch in self._batches]

    def add(self, batches: Iterable[Batch]) -> None:
        """Append batches."""
        for batch in batches:
            if len(batch):
                schema = _schema_of(batch.values)
                if self._waiting and schema != self._schema:
                    self._pack()
                self._schema = schema
            self._batches.append(batch)
            self.records += len(batch)
            self._waiting += len(batch)
            self._waiting_bytes += estimated_bytes(batch.values)
            full = _CHUNK if not is_columnar(batch.values) or batch.values.packs_small else _CHUNK_OF_COLUMNS
            if self._waiting >= full or self._waiting_bytes >= MOST_BYTES:
                self._pack()

    def take(self) -> list[Chunk]:
        """Return the chunks, and release them."""
        if self._batches:
            self._pack()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _pack(self) -> None:
        """Pack the waiting batches into a chunk.

        Raises:
            NotPicklable: if a record can't be pickled.
            OperatorError: if a value has changed since it was emitted.
        """
        if self._debug:
            for emitted in self._batches:
                verify(emitted, self._operator)
        batch = concat(self._batches)
        chunk = Chunk(len(batch), bool(batch.epochs), dump_columns(_columns(batch), self._operator))
        self.bytes += len(chunk.data)
        self._chunks.append(chunk)
        self._batches, self._waiting, self._waiting_bytes = [], 0, 0.0


def _schema_of(values: Sequence[Any]) -> Any:
    """Return the schema of columns of Arrow; None for other values."""
    columns = values.batch if is_columnar(values) else None
    return None if columns is None else columns.schema


def _columns(batch: Batch) -> tuple[Any, ...]:
    values = batch.values
    packed = values.packed(batch.keys, batch.timestamps) if is_columnar(values) else None
    if packed is not None:
        return packed, batch.epochs
    return batch.keys, as_rows(values), batch.timestamps, batch.epochs
