"""The reader of a slot: copies the tables, then streams; connects, and reconnects, on a thread of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, cast

import psycopg

from malflow.connectors.postgres.changes.first_copy import (
    CopyReader,
    CopyState,
    Overlap,
    Page,
    Wanted,
    begin_copy,
    resume_copy,
)
from malflow.connectors.postgres.changes.publication_gaps import PublicationGaps, oids_of
from malflow.connectors.postgres.changes.replication import (
    Relation,
    ReplicationStream,
    Timeline,
    create_slot,
    lsn_number,
    timelines,
)
from malflow.connectors.postgres.changes.replication_slots import (
    check_slot,
    check_timeline,
    drop_slot,
    ensure_publication,
    forget_beginning,
    free_slot,
    is_beginning,
    note_beginning,
    slot_exists,
    slot_position,
    system_identifier,
    tables_without_old,
    timeline_at,
)
from malflow.connectors.postgres.changes.transactions import TransactionReader
from malflow.connectors.postgres.connection import PostgresError, PostgresServer
from malflow.connectors.postgres.identifiers import Table, types_below
from malflow.connectors.remote import Background, ServerSilent
from malflow.connectors.tables.change import Change
from malflow.sources.contract import StatefulSourcePartition

__all__ = ["ChangeOptions", "ChangesPartition", "Position", "check_new"]

Position: TypeAlias = tuple[Any, ...]
"""Plain values: ``("start",)``, then ``("copy", system, lsn, copied, timeline)``, then ``("stream", system, end of the
last whole transaction, changes taken of the next one, its commit, the copy's state while the stream may repeat it,
timeline, oids of the copied tables)``. Positions of older versions lack the oids, or the server's timeline too."""

_LOG = logging.getLogger("malflow")
_KNOWN = 7
"""The place of the tables in the position of a stream."""
_LAG_SECONDS = 5.0
"""The seconds between two requests for the end of the server's log. Half of it doubles the queries of each reader,
double makes the lag staler."""

_BEGIN_SECONDS = 2.0
"""How long the first poll waits for the slot, so that the reader's position shows that the slot exists: on Spark, a
reader in another process would otherwise create it again."""
_NOTHING: tuple[list[Change], list[datetime]] = ([], [])


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of `PostgresChanges`. Picklable."""

    server: PostgresServer
    slot: str
    publication: str
    tables: tuple[str, ...]
    text: frozenset[str]
    copy: bool
    until_now: bool
    replace_slot: bool
    page_rows: int
    require_old: bool | None


class _Copying(NamedTuple):
    system: str
    history: Sequence[Timeline]
    lsn: int
    reader: CopyReader
    known: tuple[int, ...]


class _Streaming(NamedTuple):
    system: str
    history: Sequence[Timeline]
    stream: ReplicationStream
    reader: TransactionReader
    copied: CopyState | None
    overlap: Overlap | None
    known: tuple[int, ...]


def check_new(options: ChangeOptions) -> None:
    """Check that a job without a position does not take a slot that may belong to another job.

    A slot left by a start that was interrupted before its first snapshot is allowed: it is created again.

    Raises:
        PostgresError: if the slot may belong to another job.
    """
    if options.replace_slot or not options.copy:
        return
    server = options.server
    with server.retry(server.connect, "connecting") as connection:
        if not slot_exists(connection, options.slot):
            return
        if not is_beginning(connection, options.publication, options.slot):
            raise PostgresError(
                f"slot '{options.slot}' exists, but this job has no position in it. It belongs to another job, or to "
                "an earlier run of this one whose snapshots are gone: choose another name, call drop_slot(), pass "
                "replace_slot=True, or pass copy=False to begin at the slot's position"
            )


class ChangesPartition(StatefulSourcePartition[Change, datetime, Position]):
    """The reader of one slot."""

    def __init__(self, slot: str, options: ChangeOptions, position: Position, clock: Callable[[], float]) -> None:
        self._slot, self._options, self._clock = slot, options, clock
        self._position = position
        self._attention = options.server.attention()
        self._opening: Background[_Copying | _Streaming] | None = None
        self._open: _Copying | _Streaming | None = None
        self._fetching: Background[Page | None] | None = None
        self._page: tuple[Page, int] | None = None
        self._lost_since: float | None = None
        self._target: int | None = None
        self._finished = self._has_begun = False
        self._server_end: Background[int] | None = None
        self._has_looked_for_old = False
        self._gaps = PublicationGaps(slot, options.publication, copies=options.copy)
        self._known_end = 0
        self._asked_at = float("-inf")

    def poll(self) -> tuple[Change, datetime] | None:
        """Return the next change and the time of its commit."""
        changes, times = self._poll_safely(1, parts=True)
        return (changes[0], times[0]) if changes else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Change], Sequence[datetime]]:
        """Return the changes that have arrived, and the times of their commits.

        There may be more than `limit`: a transaction of up to 1,000 changes is never split.

        Raises:
            PostgresError: if the server has lost the position, or can't be reached for too long.
        """
        return self._poll_safely(limit, parts=False)

    def is_finished(self) -> bool:
        """Whether the reader has read everything that it has to read."""
        return self._finished

    def snapshot(self) -> Position:
        """Return the position after the last change returned."""
        now = self._open
        if isinstance(now, _Copying):
            timeline = timeline_at(now.history, now.lsn)
            self._position = ("copy", now.system, now.lsn, now.reader.state.plain(), timeline)
        elif now is not None:
            copied = now.copied.plain() if now.copied is not None and now.reader.overlaps else ()
            end, taken, commit = now.reader.position
            timeline = timeline_at(now.history, commit if taken else end)
            self._position = ("stream", now.system, end, taken, commit, copied, timeline, now.known)
        return self._position

    def go_on_from(self, position: Position) -> bool:
        """Whether the reader is at this position."""
        return self._open is not None and self.snapshot() == position

    def committed(self, position: Position) -> None:
        """Confirm to the server that a snapshot with this position is durable."""
        if not self._has_begun and position[0] != "start":
            self._has_begun = self._forgets_beginning()
        if position[0] == "stream" and isinstance(self._open, _Streaming):
            try:
                self._open.stream.confirm(position[2])
            except psycopg.Error as error:
                _LOG.info("slot '%s': a position was not confirmed: %s", self._slot, error)

    def lag(self) -> int | None:
        """Return the number of bytes in the server's log after the position; None if not known yet."""
        if self._server_end is not None and self._server_end.done:
            try:
                self._known_end = self._server_end.result()
            except psycopg.Error:
                _LOG.debug("slot '%s': the server did not say where its log ends", self._slot)
            self._server_end = None
        if self._server_end is None and self._clock() - self._asked_at > _LAG_SECONDS:
            self._asked_at = self._clock()
            self._server_end = Background(self._ask_end)
        position = self.snapshot()
        return max(0, self._known_end - position[2]) if self._known_end and len(position) > 1 else None

    def suspend(self) -> None:
        """Close the connections. Another reader can then use the slot."""
        self.snapshot()
        self._release()

    def _poll_safely(self, limit: int, *, parts: bool) -> tuple[Sequence[Change], Sequence[datetime]]:
        try:
            return self._poll(limit, parts=parts)
        except psycopg.Error as error:
            self._release()
            self._tolerate(error)
            return _NOTHING
        except BaseException:
            self._release()
            raise

    def _poll(self, limit: int, *, parts: bool) -> tuple[Sequence[Change], Sequence[datetime]]:
        if self._finished:
            return _NOTHING
        if self._open is None and not self._opened():
            return _NOTHING
        if isinstance(self._open, _Copying):
            return self._poll_copy(self._open, limit)
        return self._poll_stream(cast("_Streaming", self._open), limit, parts=parts)

    def _opened(self) -> bool:
        if self._opening is None:
            position = self._position
            self._opening = Background(lambda: self._connect(position))
            self._attention.heard()
            if position[0] == "start":
                self._opening.join(_BEGIN_SECONDS)
        if not self._opening.done:
            self._check_silence()
            return False
        opening, self._opening = self._opening, None
        self._open = opening.result()
        self._lost_since = None
        return True

    def _check_silence(self) -> None:
        """Raise if the server stops answering while a slot is being opened; libpq would wait forever."""
        try:
            self._attention.check()
        except ServerSilent as silent:
            raise psycopg.OperationalError(str(silent)) from None

    def _poll_stream(self, now: _Streaming, limit: int, *, parts: bool) -> tuple[Sequence[Change], Sequence[datetime]]:
        changes = now.reader.read(now.stream, limit, parts=parts)
        if not changes and self._target is not None:
            self._finished = now.reader.position[0] >= self._target and not now.reader.position[1]
        return changes, [change.time for change in changes]

    def _poll_copy(self, now: _Copying, limit: int) -> tuple[Sequence[Change], Sequence[datetime]]:
        copy = now.reader
        time = copy.state.snapshots[copy.index].time
        if copy.restarted:
            truncations = [Change("truncate", table, None, None, now.lsn, time) for table in copy.restarted]
            copy.restarted = []
            return truncations, [time] * len(truncations)
        if self._page is None and not self._fetched(copy):
            return _NOTHING
        page, at = cast("tuple[Page, int]", self._page)
        rows = page.rows[at : at + limit]
        names, width = page.names, len(page.names)
        changes = [
            Change("insert", page.table, None, dict(zip(names, row[:width], strict=True)), now.lsn, time)
            for row in rows
        ]
        self._advance(copy, page, at + len(rows))
        if self._page is None and copy.state.done:
            self._end_copy(now)
        return changes, [time] * len(changes)

    def _fetched(self, copy: CopyReader) -> bool:
        if self._fetching is None:
            self._fetching = Background(copy.next_page)
        if not self._fetching.done:
            return False
        page = self._fetching.result()
        self._fetching = Background(copy.next_page) if page is not None else None
        self._page = (page, 0) if page is not None else None
        if page is None:
            self._end_copy(cast("_Copying", self._open))
        return page is not None

    def _advance(self, copy: CopyReader, page: Page, at: int) -> None:
        table = copy.state.tables[page.table]
        if at:
            table.advance(copy.index, tuple(page.rows[at - 1][len(page.names) :]))
        self._page = (page, at) if at < len(page.rows) else None
        if self._page is None and page.last:
            table.finish(copy.index)

    def _end_copy(self, now: _Copying) -> None:
        self._release()
        timeline = timeline_at(now.history, now.lsn)
        self._position = ("stream", now.system, now.lsn, 0, 0, now.reader.state.plain(), timeline, now.known)

    def _connect(self, position: Position) -> _Copying | _Streaming:
        server, options = self._options.server, self._options
        with server.connect() as connection:
            tables = self._tables(connection, is_new=position[0] == "start")
            self._look_for_old(connection, tables)
            system, history = system_identifier(connection), timelines(server)
            if self._target is None and options.until_now:
                self._target = _end(connection)
            known = position[_KNOWN] if len(position) > _KNOWN else oids_of(tables)
            self._gaps.look(connection, tables, known)
            if position[0] == "start":
                if options.copy:
                    note_beginning(connection, options.publication, options.slot)
                    lsn, copy = begin_copy(server, options.slot, self._wanted(tables))
                    return _Copying(system, history, lsn, copy, known)
                position = ("stream", system, self._begin_without_copy(connection), 0, 0, ())
            if position[0] == "copy":
                _, wanted, lsn, copied, *timeline = position
                self._check(connection, wanted, history, lsn, lsn, timeline)
                copy = resume_copy(server, self._wanted(tables), CopyState.of_plain(copied))
                return _Copying(system, history, lsn, copy, known)
            _, wanted, end, taken, commit, copied, *timeline = position
            self._check(connection, wanted, history, end, commit if taken else end, timeline)
            state = CopyState.of_plain(copied) if copied else None
            overlap = Overlap(server, tables, state) if state is not None and state.seen_until > end else None
            wanted = _wanted_of(tables) if options.tables else self._gaps.see
            old = bool(options.require_old)
            reader = TransactionReader((end, taken, commit), options.text, self._bases, overlap, wanted, needs_old=old)
            stream = self._stream(connection, end)
            return _Streaming(system, history, stream, reader, state, overlap, known)

    def _check(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        system: str,
        history: Sequence[Timeline],
        end: int,
        read: int,
        timeline: Sequence[int],
    ) -> None:
        """Check that the slot can stream everything after the end of a transaction, on the timeline that was read."""
        check_slot(connection, self._options.slot, end, system)
        if timeline:
            check_timeline(history, self._options.slot, read, timeline[0])

    def _stream(self, connection: psycopg.Connection[tuple[Any, ...]], position: int) -> ReplicationStream:
        begun = self._clock()
        options = self._options
        while True:
            try:
                return ReplicationStream(options.server, options.slot, position, options.publication)
            except psycopg.errors.ObjectInUse:
                waited = self._clock() - begun
                if waited > options.server.retry_for:
                    raise
                free_slot(connection, options.slot, options.server.application, waited)

    def _begin_without_copy(self, connection: psycopg.Connection[tuple[Any, ...]]) -> int:
        options = self._options
        if options.replace_slot:
            drop_slot(options.server, options.slot, options.server.application)
        if not slot_exists(connection, options.slot):
            with options.server.connect(replication="database") as replication:
                return create_slot(replication, options.slot)[0]
        return slot_position(connection, options.slot)

    def _tables(self, connection: psycopg.Connection[tuple[Any, ...]], *, is_new: bool) -> list[Table]:
        options = self._options
        return ensure_publication(connection, options.publication, options.tables, is_new=is_new, copies=options.copy)

    def _look_for_old(self, connection: psycopg.Connection[tuple[Any, ...]], tables: Sequence[Table]) -> None:
        """Warn once, or fail, if updates and deletes arrive without the old row."""
        options = self._options
        if options.require_old is False or self._has_looked_for_old:
            return
        self._has_looked_for_old = True
        lacking = ", ".join(tables_without_old(connection, options.publication, tables))
        cure = "alter table ... replica identity full, of partitions too"
        if lacking and options.require_old:
            raise PostgresError(
                f"slot '{self._slot}' needs the old row of each change (require_old=True); {lacking} lack it; {cure}"
            )
        if lacking:
            _LOG.warning(
                "slot '%s': updates and deletes arrive without the old row, since the replica identity is not full: "
                "%s. `old` is None, or only the key. If you read it: %s, and pass require_old=True; if you "
                "don't: require_old=False",
                self._slot,
                lacking,
                cure,
            )

    def _wanted(self, tables: Sequence[Table]) -> Wanted:
        options = self._options
        return Wanted(tuple(tables), options.publication, options.text, options.page_rows)

    def _bases(self, oids: Iterable[int]) -> Mapping[int, int]:
        unknown = list(oids)
        if not unknown:
            return {}
        with self._options.server.connect() as connection:
            return types_below(connection, unknown)

    def _forgets_beginning(self) -> bool:
        """Mark the slot as used by a snapshot; return True once the mark is stored, or never can be."""
        options = self._options
        try:
            with options.server.connect(connect_timeout=2) as connection:
                forget_beginning(connection, options.publication, options.slot)
        except psycopg.Error as error:
            _LOG.info("publication '%s' of slot '%s' keeps its comment: %s", options.publication, options.slot, error)
            return not self._options.server.is_lost(error)
        return True

    def _ask_end(self) -> int:
        with self._options.server.connect() as connection:
            return _end(connection)

    def _tolerate(self, error: psycopg.Error) -> None:
        server = self._options.server
        if not self._options.server.is_lost(error):
            raise server.failure(f"reading slot '{self._slot}'", error) from None
        now = self._clock()
        if self._lost_since is None:
            self._lost_since = now
            _LOG.warning("slot '%s' was disconnected; reconnecting: %s", self._slot, server.without_secrets(str(error)))
        elif now - self._lost_since > server.retry_for:
            raise server.failure(f"reading slot '{self._slot}'", error) from None

    def _release(self) -> None:
        self.snapshot()
        now, self._open = self._open, None
        opening, self._opening = self._opening, None
        fetching, self._fetching = self._fetching, None
        self._page = None
        if opening is not None:
            Background(lambda: _close(opening.result()))
        if now is not None:
            _close(now, fetching)


def _wanted_of(tables: Sequence[Table]) -> Callable[[Relation], bool]:
    """Return a test whether a relation is one of the tables, even if it is renamed or recreated while it is read."""
    oids, names = {table.oid for table in tables}, {table.shown for table in tables}
    return lambda relation: relation.oid in oids or relation.table in names


def _end(connection: psycopg.Connection[tuple[Any, ...]]) -> int:
    row = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    return lsn_number(row[0]) if row else 0


def _close(opened: _Copying | _Streaming, fetching: Background[Any] | None = None) -> None:
    if isinstance(opened, _Copying):
        opened.reader.close(fetching)
        return
    opened.stream.close()
    if opened.overlap is not None:
        opened.overlap.close()
