"""Changes from the transactions of a replication stream, and the position between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Protocol

from malflow.connectors.postgres.changes.replication import Relation, lsn_text, postgres_time, read_relation
from malflow.connectors.postgres.connection import PostgresError
from malflow.connectors.tables.change import UNCHANGED, Change, Kind

__all__ = ["ChangeFilter", "Stream", "TransactionReader"]

_INSERT, _UPDATE, _DELETE, _BEGIN, _COMMIT, _RELATION, _TRUNCATE, _NEW, _FULL = b"IUDBCRTNO"
_OF_ROWS = frozenset(b"IUDT")
_ALL = 1 << 62
"""More changes than any transaction has: all of its changes are skipped."""

_WHOLE = 1_000
"""The number of changes up to which a transaction is never split, so that one snapshot has all of it."""
_INT = Struct(">i").unpack_from
_BEGUN = Struct(">qqI").unpack_from
_LSN = Struct(">q").unpack_from
_HEADER = 25
"""The bytes before a message, by the protocol for replication: the type `w`, two positions in the log and a time, eight
bytes each."""


class Stream(Protocol):
    """The part of a replication stream that a reader uses."""

    @property
    def idle_at(self) -> int:
        """The position up to which the server has sent everything."""

    def receive(self) -> bytes | None:
        """Return the next message with its header; None if there is none now."""


class ChangeFilter(Protocol):
    """Drops changes, or parts of them, that a copy already shows."""

    until: int

    def __call__(self, oid: int, xid: int, change: Change) -> list[Change]:
        """Return the changes to emit in place of a change of a transaction and a table."""


# The frame of a message: XLogData, then a message of pgoutput, protocol version 1, as in the chapters "Streaming
# Replication Protocol" and "Logical Replication Message Formats" of Postgres' manual. Numbers are big-endian.
#
#   offset    type      meaning
#   0         byte      w
#   1         int64     position of the data in the log
#   9         int64     end of the log on the server
#   17        int64     the server's time
#   25        byte      tag of the message: B, C, R, I, U, D, T
#   26        int64     B: position of the commit; 34 int64: its time; 42 uint32: transaction id
#   26        byte      C: flags; 27 int64: position of the commit; 35 int64: end of the transaction
#   26        int32     R, I, U, D: id of the table
#   30        byte      I, U, D: kind of the row after it: N new, O whole old row, K old key
#   31        row       I, U, D: the row; after an old one, an update has N and the new row
#   26        int32     T: number of tables; 30 byte: options; 31 int32 each: ids of the tables
#
# Invariant: the stream repeats everything after the last confirmed position, in the same order. So skipping as many
# messages of rows as were taken continues within a transaction.
class TransactionReader:
    """Read changes in commit order, whole transactions at a time if they fit.

    The position is the end of the last whole transaction, the number of changes taken of the next one, and the position
    of its commit: a transaction of millions of rows is read in pieces, without being held in memory.

    Args:
        position: end of the last whole transaction, changes taken of the next one, its commit.
        text: columns that stay as Postgres writes them.
        bases: returns the base types of domains.
        unseen: drops changes that a copy already shows; None if no copy overlaps.
        is_wanted: whether changes of a table are emitted.
        needs_old: whether an update or delete must have the whole old row.
    """

    def __init__(
        self,
        position: tuple[int, int, int],
        text: frozenset[str],
        bases: Callable[[Iterable[int]], Mapping[int, int]],
        unseen: ChangeFilter | None,
        is_wanted: Callable[[Relation], bool] = lambda _: True,
        *,
        needs_old: bool = False,
    ) -> None:
        self.position = position
        """The position after the last change returned."""
        self._end, self._taken, self._commit = position
        self._text, self._bases, self._unseen, self._is_wanted = text, bases, unseen, is_wanted
        self._needs_old = needs_old
        self._overlap_ends = unseen.until if unseen is not None else 0
        self._relations: dict[int, Relation] = {}
        self._skip = 0
        self._xid = 0
        self._time = postgres_time(0)
        self._is_open = False
        self._waiting: list[Change] = []
        self._numbers: list[int] = []  # the number of each waiting change in its transaction, from 1
        self._ends: list[tuple[int, int]] = []  # per transaction: waiting changes up to its end, and its end's position

    @property
    def overlaps(self) -> bool:
        """Whether the stream may still repeat changes that the copy shows."""
        return self.position[0] < self._overlap_ends

    def read(self, stream: Stream, limit: int, *, parts: bool = False) -> list[Change]:
        """Return changes that have arrived: whole transactions up to `limit` changes, or one that has more.

        A transaction of more than 1,000 changes is returned in pieces; with `parts`, any that has more than `limit`.
        """
        most = limit if parts else max(limit, _WHOLE)
        self._receive(stream, limit, most)
        if self._ends and self._ends[0][0] <= most:
            count = sum(end[0] <= limit for end in self._ends) or 1
            size, end = self._ends[count - 1]
            self._ends = [(more - size, later) for more, later in self._ends[count:]]
            self.position = (end, 0, 0)
            return self._take(size)
        if len(self._waiting) < most:
            return []
        size = self._piece(limit)
        self.position = (self.position[0], self._numbers[size - 1], self._waiting[0].lsn)
        self._ends = [(count - size, end) for count, end in self._ends]
        return self._take(size)

    def _receive(self, stream: Stream, limit: int, most: int) -> None:
        waiting, receive, relations, new = self._waiting, stream.receive, self._relations, tuple.__new__
        emit, number = waiting.append, self._numbers.append
        while len(waiting) < limit or (len(waiting) < most and not self._ends):
            data = receive()
            if data is None:
                self._idle(stream.idle_at)
                return
            tag = data[_HEADER]
            if tag not in _OF_ROWS:
                self._control(tag, data)
            elif self._skip:
                self._skip -= 1
            else:
                self._taken += 1
                if tag == _INSERT and self._unseen is None:
                    relation = relations[_INT(data, 26)[0]]
                    if not relation.is_wanted:
                        continue
                    row = relation.row(data, 31)[0]
                    emit(new(Change, ("insert", relation.table, None, row, self._commit, self._time)))
                    number(self._taken)
                else:
                    changes = self._changes(tag, data)
                    waiting += changes
                    self._numbers += [self._taken] * len(changes)

    def _piece(self, limit: int) -> int:
        """Return the number of changes to take of a long transaction, without splitting a message."""
        numbers, size = self._numbers, limit
        if len(numbers) == size or numbers[size] != numbers[size - 1]:
            return size
        while size and numbers[size - 1] == numbers[limit]:
            size -= 1
        return size or numbers.count(numbers[0])

    def _take(self, size: int) -> list[Change]:
        taken = self._waiting[:size]
        del self._waiting[:size], self._numbers[:size]
        return taken

    def _changes(self, tag: int, data: bytes) -> list[Change]:
        if tag == _TRUNCATE:
            (count,) = _INT(data, 26)
            oids = [_INT(data, 31 + 4 * index)[0] for index in range(count)]
            wanted = [oid for oid in oids if self._relations[oid].is_wanted]
            changes = [(oid, self._change("truncate", self._relations[oid], None, None)) for oid in wanted]
        else:
            relation = self._relations[_INT(data, 26)[0]]
            if not relation.is_wanted:
                return []
            read = {_INSERT: self._insert, _UPDATE: self._update, _DELETE: self._delete}[tag]
            changes = [(relation.oid, read(relation, data))]
        if self._unseen is None:
            return [change for _, change in changes]
        return [left for oid, change in changes for left in self._unseen(oid, self._xid, change)]

    def _insert(self, relation: Relation, data: bytes) -> Change:
        return self._change("insert", relation, None, relation.row(data, 31)[0])

    def _update(self, relation: Relation, data: bytes) -> Change:
        kind, at = data[30], 31
        self._check_old(kind, relation, "an update")
        if kind == _NEW:
            return self._change("update", relation, None, relation.row(data, at)[0])
        old, at = relation.old_row(data, at, kind)
        new, _ = relation.row(data, at + 1)
        new = {name: old.get(name, value) if value is UNCHANGED else value for name, value in new.items()}
        if kind != _FULL and all(new[name] == value for name, value in old.items()):
            return self._change("update", relation, None, new)  # the key was sent only because it is large
        return self._change("update", relation, old, new)

    def _delete(self, relation: Relation, data: bytes) -> Change:
        self._check_old(data[30], relation, "a delete")
        return self._change("delete", relation, relation.old_row(data, 31, data[30])[0], None)

    def _check_old(self, kind: int, relation: Relation, what: str) -> None:
        if self._needs_old and kind != _FULL:
            raise PostgresError(
                f"table {relation.table}: {what} at {lsn_text(self._commit)} arrived without the old row, and "
                "require_old=True is set. alter table ... replica identity full, of partitions too; to skip changes "
                "from before that, start the job over"
            )

    def _change(self, kind: Kind, relation: Relation, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Change:
        return Change(kind, relation.table, old, new, self._commit, self._time)

    def _control(self, tag: int, data: bytes) -> None:
        if tag == _BEGIN:
            self._begin(*_BEGUN(data, 26))
        elif tag == _COMMIT:
            (end,) = _LSN(data, 35)
            self._taken = self._skip = 0
            self._is_open = False
            if end > self._end:
                self._end = end
                self._ends.append((len(self._waiting), end))
            if self._unseen is not None and self._end >= self._unseen.until:
                self._unseen = None
        elif tag == _RELATION:
            relation = read_relation(data, 26, self._text, self._bases)
            relation.is_wanted = self._is_wanted(relation)
            self._relations[relation.oid] = relation

    def _begin(self, commit: int, time: int, xid: int) -> None:
        if commit < self._end:
            self._skip = _ALL  # before the position: it was not confirmed to the server
        elif self._taken and commit != self._commit:
            raise PostgresError(
                f"the position is within the transaction at {lsn_text(self._commit)}; the server streams the one at "
                f"{lsn_text(commit)} instead"
            )
        else:
            self._skip = self._taken
            self._commit = commit
        self._xid, self._time, self._is_open = xid, postgres_time(time), True

    def _idle(self, idle_at: int) -> None:
        if not self._is_open and not self._taken and idle_at > self._end:
            self._end = idle_at
            self._ends.append((len(self._waiting), idle_at))
