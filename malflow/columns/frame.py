"""Values of a batch as columns of Arrow, from which rows are made when somebody reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from malflow.columns.arrays import canonical, from_ipc, is_same, to_ipc, to_python
from malflow.columns.column import Column, Constant, flags, join_columns, joined_column, places, turns
from malflow.columns.row_classes import MadeRows, record_fields
from malflow.records.columnar import Columnar, count_made
from malflow.records.rows import SomeFields, make_dicts
from malflow.words import listed, short_repr

__all__ = ["Frame"]

_READ_SINGLY = 16
"""How many rows are made one by one, for errors, letters and taps. Whoever reads more of them reads all."""

_NO_FIELD = "malflow: no field"
"""The name of the column that keeps the length of a frame without fields."""


class Frame(Columnar[Any]):
    """Rows over one record batch of Arrow, as columns for as long as nobody reads a row.

    A frame can be read like a list of rows. All rows are made when the first one is read, and replace the columns: the
    reader may change them.

    Args:
        batch: the columns. Each name occurs once.
        row: the rows: `dict`, a row by column name; `tuple`; the name of a column, for its items; a class of records
            that is called with the items of the columns in order, and has them as attributes of these names; or
            `MadeRows`.
        is_whole: whether the columns are all fields of the records; if not, rows are `SomeFields`.

    Raises:
        TypeError: if the columns are no record batch, or there are no rows of this kind.
        ValueError: if a name occurs twice.

    >>> frame = Frame(pa.record_batch({"town": ["Ulm", "Bonn"], "people": [130_000, 336_000]}))
    >>> frame.column("town"), frame[1]
    (['Ulm', 'Bonn'], {'town': 'Bonn', 'people': 336000})
    """

    __slots__ = ("_batch", "_held", "_reads", "is_whole", "row")

    joins_uneven = True

    def __init__(self, batch: pa.RecordBatch, row: Any = dict, *, is_whole: bool = True) -> None:
        if not isinstance(batch, pa.RecordBatch):
            raise TypeError(
                f"a frame needs a pyarrow.RecordBatch; got an object of type {type(batch).__name__}; of a table, pass "
                "table.combine_chunks().to_batches()[0]"
            )
        if not (isinstance(row, str) or callable(row) or isinstance(row, MadeRows)):
            raise TypeError(f"row= must be dict, tuple, the name of a column or a class; got {short_repr(row)}")
        names = batch.schema.names
        if len(set(names)) < len(names):
            twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
            raise ValueError(f"a frame can't have two columns of one name: {listed(twice)}; rename them")
        self._set(_canonical(batch), row, is_whole=is_whole)

    def _set(self, batch: pa.RecordBatch, row: Any, *, is_whole: bool) -> None:
        super().__init__({}, batch.num_rows)
        self._batch: pa.RecordBatch | None = batch
        self._held: dict[str, Column] = {}
        self._reads = 0
        self.row = row
        self.is_whole = is_whole

    @property
    def has_arrays(self) -> bool:  # type: ignore[override] # a frame does until its rows are made
        """Whether the rows have not been made."""
        return self._batch is not None

    @property
    def is_composed(self) -> bool:  # type: ignore[override] # as its rows are
        """Whether a row is made of several columns together."""
        return isinstance(self.row, MadeRows)

    @property
    def is_accumulated(self) -> bool:  # type: ignore[override] # as its rows are
        """Whether the rows are accumulators, each of several records."""
        return isinstance(self.row, MadeRows) and self.row.are_accumulators

    @property
    def batch(self) -> pa.RecordBatch | None:
        """The columns as a record batch, not to be written to; None if the rows have been made."""
        return self._batch

    @property
    def schema(self) -> pa.Schema | None:
        """The names and types of the columns; None if the rows have been made."""
        return None if self._batch is None else self._batch.schema

    def column(self, name: str) -> Column | None:
        """Return the column with a field of each row; None if rows have no such field, or have been made."""
        if self._batch is None or self.row is tuple or isinstance(self.row, str):
            return None
        if isinstance(self.row, MadeRows) and name not in self.row.fields:
            return None
        column = self._held.get(name)
        if column is None:
            at = self._batch.schema.get_field_index(name)
            if at < 0:
                return None
            column = self._held[name] = Column(self._batch.column(at))
        return column

    @property
    def columns(self) -> Mapping[str, Sequence[Any]] | None:
        """All columns by name; None if the rows have been made."""
        if self._batch is None:
            return None
        return {name: Column(self._batch.column(at)) for at, name in enumerate(self._batch.schema.names)}

    def made(self) -> list[Any]:
        """Return the rows."""
        if self._values is None:
            assert self._batch is not None  # noqa: S101 - one of the two is there
            self._values = self._rows(self._batch, self._held)
            self._batch, self._held = None, {}
            count_made(self._length)
        return self._values

    def _make(self, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
        raise NotImplementedError  # `made` makes them of the batch

    def _rows(self, batch: pa.RecordBatch, held: Mapping[str, Column]) -> list[Any]:
        names = tuple(batch.schema.names)
        items = [
            held[name].tolist() if name in held else to_python(column, name)
            for name, column in zip(names, batch.columns, strict=True)
        ]
        if names in ((), (_NO_FIELD,)):
            return [{} if self.is_whole else SomeFields() for _ in range(batch.num_rows)]
        if self.row is dict:
            rows = make_dicts(names)(items)
            return rows if self.is_whole else list(map(SomeFields, rows))
        if isinstance(self.row, str):
            return list(items[names.index(self.row)])
        if isinstance(self.row, MadeRows):
            return self.row.rows(items)
        return list(zip(*items, strict=True)) if self.row is tuple else list(map(self.row, *items))

    def record_batch(self) -> pa.RecordBatch | None:
        """Return the columns, if each is a field of the rows and the rows have no other; otherwise None."""
        batch = self._batch
        if batch is None or not self.is_whole:
            return None
        names = batch.schema.names
        return batch if names == (names if self.row is dict else record_fields(self.row)) else None

    def apart(self) -> Frame:
        """Return the rows for another reader. If it makes them, these remain columns."""
        return self if self._batch is None else self._of(self._batch)

    def select(self, mask: Sequence[Any]) -> Sequence[Any]:
        """Return the rows with a true flag."""
        if self._batch is None:
            return super().select(mask)
        chosen = flags(mask)
        return self if chosen.all() else self._of(self._batch.filter(pa.array(chosen)))

    def take(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the rows at indices."""
        if self._batch is None:
            return super().take(indices)
        return self._of(self._batch.take(pa.array(places(indices))))

    def join(self, parts: Sequence[Columnar[Any]], *, in_turn: bool) -> Sequence[Any] | None:
        """Return the rows of frames as one frame, of which this is the first; None if their schemas differ.

        Args:
            parts: the frames, including this one.
            in_turn: whether to take one row from each frame in turn.
        """
        frames = [part for part in parts if isinstance(part, Frame)]
        if len(frames) < len(parts) or any(it.row != self.row or it.is_whole != self.is_whole for it in frames):
            return None
        if len(frames) == 1:
            return self
        joined = _joined([it.batch for it in frames if it.batch is not None])
        if joined is None:
            return None
        return self._of(joined.take(pa.array(turns(tuple(map(len, parts))))) if in_turn else joined)

    def join_beside(self, parts: Sequence[Sequence[Any]], *, in_turn: bool) -> Sequence[Any]:
        """Join columns of keys or timestamps that stand beside frames."""
        return join_columns(parts, in_turn=in_turn)

    def constant(self, key: Any) -> Constant:
        """Return a key for each row, as a column."""
        return Constant(key, self._length)

    def only(self, names: Sequence[str]) -> Sequence[Any]:
        """Return only some fields; the same rows if they are not dicts, as their fields may be read in other ways.

        Raises:
            KeyError: if there is no such column.
        """
        if self.row is not dict or self._batch is None:
            return self
        if not names:
            return Frame(pa.record_batch([pa.nulls(len(self))], names=[_NO_FIELD]), is_whole=False)
        return Frame(self._batch.select(list(names)), is_whole=False)

    def renamed(self, fields: Mapping[str, str]) -> Frame | None:
        """Return dicts of some fields; None if there is no column for one, or the rows have been made."""
        columns = [self.column(field) for field in fields.values()]
        if self._batch is None or any(it is None for it in columns):
            return None
        return Frame(pa.record_batch([it.array for it in columns if it is not None], names=[*fields]))

    @property
    def is_arrow(self) -> bool:  # type: ignore[override] # a frame is until its rows are made
        """Whether no row has been made."""
        return self._batch is not None

    @property
    def packs_small(self) -> bool:  # type: ignore[override] # a frame does until its rows are made
        """Whether the rows have been made."""
        return self._batch is None

    def packed(self, keys: Sequence[Any] | None, timestamps: Sequence[Any]) -> Packed | None:
        """Return keys, rows and timestamps as one stream of Arrow; None if the rows have been made."""
        if self._batch is None:
            return None
        held: list[Any] = [*self._batch.columns]
        at = [_placed(items, held) for items in (keys, timestamps)]
        names = self._batch.schema.names
        return Packed(to_ipc(held), (names, self.row, self.is_whole), at)

    def size(self) -> float:
        """Return the size in bytes."""
        return super().size() if self._batch is None else float(self._batch.nbytes)

    def __getitem__(self, at: Any) -> Any:
        batch = self._batch
        if batch is None:
            return self.made()[at]
        if isinstance(at, slice):
            start, stop, step = at.indices(self._length)
            if step != 1:
                return self.take(range(start, stop, step))
            return self._of(batch.slice(start, max(0, stop - start)))
        self._reads += 1
        if self._reads > _READ_SINGLY:
            return self.made()[at]
        return self._rows(batch.slice(range(self._length)[at], 1), {})[0]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._batch is None:
            return list, (self.made(),)
        return _read_frame, (to_ipc(self._batch.columns), self._batch.schema.names, self.row, self.is_whole)

    def _of(self, batch: pa.RecordBatch) -> Frame:
        """Return rows of this kind over columns that need no check of names and types."""
        frame = Frame.__new__(Frame)
        frame._set(batch, self.row, is_whole=self.is_whole)  # noqa: SLF001 - of this class
        return frame


class Packed:
    """Records as one stream of Arrow; a pickle of it becomes a tuple of keys, values and timestamps.

    Args:
        data: the stream: the columns of the rows, then keys and timestamps that are not among them.
        kind: the names of the rows' columns, the rows, and whether they are whole.
        at: the place of the keys in the stream, or the keys if they are no column; the same for the timestamps.
    """

    def __init__(self, data: bytes, kind: tuple[list[str], Any, bool], at: list[tuple[int | None, Any]]) -> None:
        self._parts = data, kind, at

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, self._parts


def _placed(items: Any, columns: list[pa.Array]) -> tuple[int | None, Any]:
    """Return the place of keys or timestamps among columns, at the end of them if need be; the items if no column."""
    if not isinstance(items, Column):
        return None, items
    array = items.array
    for at, column in enumerate(columns):
        if is_same(array, column):
            return at, None
    columns.append(array)
    return len(columns) - 1, None


def _unpacked(
    data: bytes, kind: tuple[list[str], Any, bool], at: list[tuple[int | None, Any]]
) -> tuple[Sequence[Any] | None, Frame, Sequence[Any]]:
    names, row, is_whole = kind
    columns = from_ipc(data)
    keys, timestamps = (items if place is None else Column(columns[place]) for place, items in at)
    frame = Frame(pa.record_batch(columns[: len(names)], names=names), row, is_whole=is_whole)
    return keys, frame, timestamps


def _read_frame(data: bytes, names: list[str], row: Any, is_whole: bool) -> Frame:
    return Frame(pa.record_batch(from_ipc(data), names=names), row, is_whole=is_whole)


def _canonical(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [canonical(column) for column in batch.columns]
    if all(new is old for new, old in zip(columns, batch.columns, strict=True)) and batch.schema.metadata is None:
        return batch
    fields = [pa.field(name, it.type) for name, it in zip(batch.schema.names, columns, strict=True)]
    return pa.record_batch(columns, schema=pa.schema(fields))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Join batches by column; None if their names or the types of their items differ."""
    names = batches[0].schema.names
    if any(batch.schema.names != names for batch in batches):
        return None
    columns = []
    for at in range(len(names)):
        joined = joined_column([Column(batch.column(at)) for batch in batches])
        if not isinstance(joined, Column):
            return None
        columns.append(joined.array)
    return pa.record_batch(columns, names=names)
