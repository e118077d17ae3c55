"""The effect of a transaction on a table, for each key the last row or a deletion, and its segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from malflow.connectors.segments import Sealed, SegmentWriter
from malflow.connectors.tables.change import UNCHANGED, Change
from malflow.connectors.tables.refused_rows import WrittenAgain
from malflow.connectors.tables.rows import RowShape
from malflow.errors import MalflowError
from malflow.words import short_repr

__all__ = [
    "Operation",
    "Packed",
    "Row",
    "RowBatch",
    "RowsWriter",
    "TransactionRows",
]

Operation: TypeAlias = Literal["insert", "upsert", "update", "delete", "merge"]
Row: TypeAlias = tuple[Any, ...]
Packed: TypeAlias = tuple[Sequence[Any] | None, Sequence[Any]]
"""The keys and values of records; no keys if all of the values are rows."""


class RowBatch(NamedTuple):
    """Rows for one statement. Plain values: it may be kept in snapshots.

    Attributes:
        operation: insert, update, delete or merge. The rows of a merge are written, or deleted, one after the other:
            their first cell says whether the row's key is deleted.
        columns: the columns of the rows; for an update, the key that finds the row comes first.
        rows: the rows.
    """

    operation: Operation
    columns: tuple[str, ...]
    rows: Sequence[Row]


class _Partial(NamedTuple):
    """A row with values that did not change and were not sent; `before` is its key in the table."""

    before: Row
    row: Row


# Idea: only the last row of each key matters, so a transaction becomes a batch per kind, not a statement per change.
#
# Invariant: writing the batches in order has the same effect as applying the changes one by one.
#
# Example: the changes of a transaction, with the key in front.
#   insert (1, a), update (1, b), insert (2, c), delete 2, delete 3
#   rows       1: (1, b), 2: None, 3: None
#   batches    delete 2 and 3; upsert (1, b)
class TransactionRows:
    """The rows of a transaction, reduced to one for each key; all of them if there is no key.

    If a row's key changes while some of its values are unknown, an update moves the row in the table. Later batches
    then have the rows that reuse its old key, or that take a new key which is not free before.

    Python cannot tell which keys are equal for the server if a collation ignores case, a type rounds or pads, or text
    is cast. After the first such key, rows are kept in the order in which they were last written, and the server
    chooses the last of those that it considers equal.

    Its methods raise the error of the shape if a value is not a row of the table.
    """

    def __init__(self, shape: RowShape, exact: Sequence[frozenset[type]] | None = None) -> None:
        """Begin the first transaction.

        Args:
            shape: the shape of the rows.
            exact: for each column of the key, the types with values that are equal in Python if, and only if, they are
                equal for the server; None if all are.
        """
        self._shape = shape
        self._exact = exact if shape.key else None
        self._key_cells = [itemgetter(shape.columns.index(name)) for name in shape.key]
        self._in_order: dict[Row, tuple[Row, Row | None]] | None = None
        self._earlier: list[RowBatch] = []
        self._rows: dict[Row, Row | _Partial | None] = {}
        self._appended: list[Row] = []
        self._moved: set[Row] = set()  # keys in the table from which rows are moved
        self._has_partial = False
        self.cleared = False

    def empty(self) -> TransactionRows:
        """Return the rows of another transaction, without any."""
        return TransactionRows(self._shape, self._exact)

    def packed(self, keys: Sequence[Any], values: Sequence[Any]) -> Packed:
        """Check the records of a batch, and return them for a later `add`; the rows here stay as they are."""
        kinds = set(map(type, values))
        if Change not in kinds and type(None) not in kinds:
            return None, self._shape.rows(values)
        self.empty().add(keys, values)
        return keys, [it if it is None or type(it) is Change else self._shape.row(it) for it in values]

    def __len__(self) -> int:
        return len(self._earlier) + len(self._rows) + len(self._in_order or ()) + len(self._appended) + self.cleared

    def add(self, keys: Sequence[Any] | None, values: Sequence[Any]) -> None:
        """Add the records of a batch, in order; without keys if all of the values are rows."""
        kinds = set(map(type, values))
        if Change not in kinds and type(None) not in kinds:
            self._put(self._shape.rows(values))
            return
        for key, value in zip(keys or (), values, strict=True):
            if type(value) is Change:
                self._change(value)
            elif value is None:
                self._delete(self._shape.key_from(key) if self._shape.key else ())
            else:
                self._put([self._shape.row(value)])

    def reset(self) -> None:
        """Begin the next transaction."""
        self._earlier, self._rows, self._appended, self._moved = [], {}, [], set()
        self._in_order = None
        self.cleared = self._has_partial = False

    def batches(self) -> Iterator[RowBatch]:
        """Return the batches in the order in which to write them: deletes, updates, upserts."""
        yield from self._earlier
        if self._in_order:
            yield RowBatch("merge", self._shape.columns, [self._merged(*it) for it in self._in_order.values()])
        whole, partial, deleted = self._by_kind()
        if deleted:
            yield RowBatch("delete", self._shape.key, deleted)
        for names, rows in partial.items():
            yield RowBatch("update", (*self._shape.key, *names), rows)
        if whole:
            yield RowBatch("upsert", self._shape.columns, whole)
        if self._appended:
            yield RowBatch("insert", self._shape.columns, self._appended)

    def _put(self, rows: list[Row]) -> None:
        if not self._shape.key:
            self._appended += rows
            return
        key_of = self._shape.key_of
        self._see_keys(rows, self._key_cells)
        try:
            if self._has_partial or self._in_order is not None:
                for row in rows:
                    self._put_one(key_of(row), row)
            else:
                self._rows.update(zip(map(key_of, rows), rows, strict=True))
        except TypeError as error:
            keys = [key for key in map(key_of, rows) if not _is_hashable(key)]
            shown = short_repr(keys[0]) if keys else "a key"
            raise self._error(f"{shown} can't be a key ({error}); convert it first") from error

    def _put_one(self, key: Row, row: Row | _Partial | None) -> None:
        if self._in_order is not None:
            identity = tuple(map(_identity, key))
            self._in_order.pop(identity, None)
            self._in_order[identity] = key, None if type(row) is _Partial else row
            return
        present = self._rows.get(key)
        if key in self._moved:
            self._part()
        elif type(present) is _Partial and present.before != key and type(row) is not _Partial:
            self._moved.discard(present.before)
            self._rows[present.before] = None
        self._rows[key] = row

    def _delete(self, key: Row) -> None:
        if not self._shape.key:
            raise self._error("a row can't be deleted without key=[...]")
        self._see_keys([key], [itemgetter(place) for place in range(len(key))])
        self._put_one(key, None)

    def _change(self, change: Change) -> None:
        shape = self._shape
        if change.kind == "truncate":
            self.reset()
            self.cleared = True
            return
        if change.new is None:
            self._delete(shape.key_in(change.old or {}))
            return
        row = shape.row(change.new)
        if not shape.key:
            if change.kind != "insert":
                raise self._error(f"{change.kind} needs key=[...]; got {short_repr(change)}")
            self._appended.append(row)
            return
        key = shape.key_of(row)
        if _has_unchanged(key):
            mend = "alter the source to replica identity full"
            raise self._error(f"a key was not sent, as it did not change; {mend}: {short_repr(change)}")
        before = key if change.old is None else shape.key_in(change.old)
        for seen in (before, key):
            self._see_keys([seen], [itemgetter(place) for place in range(len(seen))])
        complete = self._completed(row, before) if _has_unchanged(row) else row
        if type(complete) is _Partial:
            self._put_partial(before, key, complete)
            return
        if before != key:
            self._put_one(before, None)
        self._put_one(key, complete)

    def _completed(self, row: Row, before: Row) -> Row | _Partial:
        if self._in_order is not None:
            _, written = self._in_order.get(tuple(map(_identity, before)), (before, None))
            present: Row | _Partial | None = written
        else:
            present = self._rows.get(before)
        known = present.row if type(present) is _Partial else present
        if known is not None:
            row = tuple(old if new is UNCHANGED else new for new, old in zip(row, known, strict=True))
        if not _has_unchanged(row):
            return row
        return _Partial(present.before if type(present) is _Partial else before, row)

    def _put_partial(self, before: Row, key: Row, row: _Partial) -> None:
        if self._in_order is not None:  # in a batch of its own: the server decides which row it is
            self._part()
            self._in_order = None
            self._put_partial(before, key, row)
            self._part()
            self._in_order = {}
            return
        if before != key:
            self._rows.pop(before, None)  # the update finds the row by the key that it has in the table
            self._moved.discard(row.before)
            if key in self._rows or key in self._moved:
                self._part()
        elif key in self._moved:
            self._part()
        self._rows[key] = row
        self._has_partial = True
        if row.before != key:
            self._moved.add(row.before)

    def _part(self) -> None:
        """Begin new batches: everything so far is written before anything that follows."""
        earlier, cleared, is_ordered = list(self.batches()), self.cleared, self._in_order is not None
        self.reset()
        self._earlier, self.cleared = earlier, cleared
        self._in_order = {} if is_ordered else None

    def _see_keys(self, rows: Sequence[Row], cells: Sequence[itemgetter[int]]) -> None:
        """Keep rows in order from now on, if Python does not compare a key as the server does."""
        if self._exact is None or self._in_order is not None:
            return
        if any(
            not types.issuperset(map(type, map(cell, rows))) for cell, types in zip(cells, self._exact, strict=True)
        ):
            if self._rows:
                self._part()
            self._in_order = {}

    def _merged(self, key: Row, row: Row | None) -> Row:
        if None in key:
            raise self._error(f"a key has NULL: {short_repr(key)}")
        if row is not None:
            return (False, *row)
        at = dict(zip(self._shape.key, key, strict=True))
        return (True, *(at.get(name) for name in self._shape.columns))

    def _by_kind(self) -> tuple[list[Row], dict[tuple[str, ...], list[Row]], list[Row]]:
        whole: list[Row] = []
        deleted: list[Row] = []
        partial: dict[tuple[str, ...], list[Row]] = {}
        for key, row in self._rows.items():
            if None in key:
                raise self._error(f"a key has NULL: {short_repr(key)}")
            if row is None:
                deleted.append(key)
            elif type(row) is _Partial:
                known = {name: it for name, it in zip(self._shape.columns, row.row, strict=True) if it is not UNCHANGED}
                if row.before == key and len(known) > len(key):
                    known = {name: it for name, it in known.items() if name not in self._shape.key}
                partial.setdefault(tuple(known), []).append((*row.before, *known.values()))
            else:
                whole.append(row)
        return whole, partial, deleted

    def _error(self, what: str) -> MalflowError:
        return self._shape.error(f"table {self._shape.table}: {what}")


def _identity(value: Any) -> Any:
    """Return a form that is equal for values that are written in the same way."""
    return type(value), value.isoformat() if isinstance(value, datetime) else value


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _has_unchanged(row: Row) -> bool:
    return any(value is UNCHANGED for value in row)


class RowsWriter:
    """Writes the rows of a transaction, for `malflow.sinks.ShareWriter`.

    Args:
        rows: holds the rows.
        plain: checks batches of rows, and returns them as plain values.
        segment: the segment.
        stage: is called before the segment is written, with whether the table is emptied first, and the batches; what
            it returns is added to the share.
    """

    def __init__(
        self,
        rows: TransactionRows,
        plain: Callable[[Sequence[RowBatch]], tuple[Any, ...]],
        segment: SegmentWriter,
        stage: Callable[[bool, tuple[Any, ...]], tuple[Any, ...]] = lambda *_: (),
    ) -> None:
        self._rows = rows
        self._plain = plain
        self._segment = segment
        self._stage = stage
        self._again: list[Any] = []

    def write(self, piece: Packed | WrittenAgain) -> None:
        """Add rows. They replace earlier ones of the same key; rows that are written again follow all others."""
        if isinstance(piece, WrittenAgain):
            self._again += piece.batches
            return
        self._rows.add(*piece)

    def seal(self) -> tuple[Any, ...] | None:
        """Write the segment: whether the table is emptied first, and the batches. None if there are none.

        Raises:
            MalflowError: if a row does not fit the table.
        """
        cleared, batches = self.taken()
        if not batches and not cleared:
            return None
        staged = self._stage(cleared, batches)
        self._segment.write((cleared, batches))
        sealed: Sealed = self._segment.seal()
        return (*sealed, *staged)

    def taken(self) -> tuple[bool, tuple[Any, ...]]:
        """Return whether the table is emptied first, and the batches, and forget them."""
        rows = self._rows
        batches, cleared = self._plain(list(rows.batches())) if len(rows) else (), rows.cleared
        rows.reset()
        again, self._again = tuple(self._again), []
        return cleared, (*batches, *again)

    def discard(self) -> None:
        """Drop the rows."""
        self._again = []
        self._rows.reset()
        self._segment.discard()
