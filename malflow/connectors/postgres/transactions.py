"""Transactions of a replication stream as changes, and the position between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Protocol

from malflow.connectors.postgres.change import UNCHANGED, Change, Kind
from malflow.connectors.postgres.errors import PostgresError
from malflow.connectors.postgres.pgoutput import Relation, lsn_text, read_relation
from malflow.connectors.postgres.replication import postgres_time

__all__ = ["ChangeFilter", "Stream", "TransactionReader"]

_INSERT, _UPDATE, _DELETE, _BEGIN, _COMMIT, _RELATION, _TRUNCATE, _NEW, _WHOLE = b"IUDBCRTNO"
_OF_ROWS = frozenset(b"IUDT")
_ALL = 1 << 62
_INT = Struct(">i").unpack_from
_BEGUN = Struct(">qqI").unpack_from
_LSN = Struct(">q").unpack_from
_HEADER = 25


class Stream(Protocol):
    """What a reader needs of a replication stream."""

    @property
    def idle_at(self) -> int:
        """Up to where the server has sent everything."""

    def receive(self) -> bytes | None:
        """Return the next message with its header; None if there is none now."""


class ChangeFilter(Protocol):
    """What is left of a change that a copy may already show."""

    until: int

    def __call__(self, oid: int, xid: int, change: Change) -> list[Change]:
        """Return the changes to emit instead of one of a transaction and a table."""


class TransactionReader:
    """Read changes in the order of their commits.

    The position is where the last whole transaction ends, how many changes of the next one were taken, and where that
    one's commit is: a transaction of millions of rows is not held in memory.

    Args:
        position: end of the last whole transaction, changes taken of the next one, its commit.
        text: columns whose values stay as Postgres writes them.
        bases: returns the types below domains.
        unseen: what is left of a change that a copy shows; None if no copy overlaps.
    """

    def __init__(
        self,
        position: tuple[int, int, int],
        text: frozenset[str],
        bases: Callable[[Iterable[int]], Mapping[int, int]],
        unseen: ChangeFilter | None,
    ) -> None:
        self._end, self._taken, self._commit = position
        self._text, self._bases, self._unseen = text, bases, unseen
        self._relations: dict[int, Relation] = {}
        self._skip = 0
        self._xid = 0
        self._time = postgres_time(0)
        self._is_open = False

    @property
    def position(self) -> tuple[int, int, int]:
        """The position after the last change returned."""
        return (self._end, self._taken, self._commit) if self._taken else (self._end, 0, 0)

    @property
    def overlaps(self) -> bool:
        """Whether changes still come that a copy may show."""
        return self._unseen is not None

    def read(self, stream: Stream, limit: int) -> list[Change]:
        """Return up to `limit` changes that have arrived; more if one message holds several."""
        changes: list[Change] = []
        receive, relations, build, emit = stream.receive, self._relations, Change._make, changes.append
        while len(changes) < limit:
            data = receive()
            if data is None:
                self._idle(stream.idle_at)
                break
            tag = data[_HEADER]
            if tag not in _OF_ROWS:
                self._control(tag, data)
            elif self._skip:
                self._skip -= 1
            elif tag == _INSERT and self._unseen is None:
                relation = relations[_INT(data, 26)[0]]
                new, _ = relation.row(data, 31)
                self._taken += 1
                emit(build(("insert", relation.table, None, new, self._commit, self._time)))
            else:
                changes += self._changes(tag, data)
                self._taken += 1
        return changes

    def _changes(self, tag: int, data: bytes) -> list[Change]:
        if tag == _TRUNCATE:
            (count,) = _INT(data, 26)
            oids = [_INT(data, 31 + 4 * index)[0] for index in range(count)]
            changes = [(oid, self._change("truncate", self._relations[oid], None, None)) for oid in oids]
        else:
            relation = self._relations[_INT(data, 26)[0]]
            read = {_INSERT: self._insert, _UPDATE: self._update, _DELETE: self._delete}[tag]
            changes = [(relation.oid, read(relation, data))]
        if self._unseen is None:
            return [change for _, change in changes]
        return [left for oid, change in changes for left in self._unseen(oid, self._xid, change)]

    def _insert(self, relation: Relation, data: bytes) -> Change:
        return self._change("insert", relation, None, relation.row(data, 31)[0])

    def _update(self, relation: Relation, data: bytes) -> Change:
        kind, at, old = data[30], 31, None
        if kind != _NEW:
            old, at = relation.old_row(data, 31, kind)
            at += 1
        new, _ = relation.row(data, at)
        if kind == _WHOLE and old is not None:
            new = {name: old[name] if value is UNCHANGED else value for name, value in new.items()}
        return self._change("update", relation, old, new)

    def _delete(self, relation: Relation, data: bytes) -> Change:
        return self._change("delete", relation, relation.old_row(data, 31, data[30])[0], None)

    def _change(self, kind: Kind, relation: Relation, old: dict[str, Any] | None, new: dict[str, Any] | None) -> Change:
        return Change(kind, relation.table, old, new, self._commit, self._time)

    def _control(self, tag: int, data: bytes) -> None:
        if tag == _BEGIN:
            self._begin(*_BEGUN(data, 26))
        elif tag == _COMMIT:
            (self._end,) = _LSN(data, 35)
            self._taken = self._skip = 0
            self._is_open = False
            if self._unseen is not None and self._end >= self._unseen.until:
                self._unseen = None
        elif tag == _RELATION:
            relation = read_relation(data, 26, self._text, self._bases)
            self._relations[relation.oid] = relation

    def _begin(self, commit: int, time: int, xid: int) -> None:
        if commit < self._end:
            self._skip = _ALL  # before the position: the server did not hear that it was durable
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
            if self._unseen is not None and idle_at >= self._unseen.until:
                self._unseen = None
