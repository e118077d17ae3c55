"""Slots and publications: created at a job's first start, checked at every later one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from malflow.connectors.postgres.changes.replication import Timeline, lsn_number, lsn_text
from malflow.connectors.postgres.connection import PositionLost, PostgresError, PostgresServer
from malflow.connectors.postgres.identifiers import Table, describe

__all__ = [
    "check_slot",
    "check_timeline",
    "drop_slot",
    "ensure_publication",
    "forget_beginning",
    "free_slot",
    "is_beginning",
    "note_beginning",
    "slot_exists",
    "slot_position",
    "system_identifier",
    "tables_without_old",
    "timeline_at",
]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_SLOT = """
select plugin::text, database::text, active_pid, confirmed_flush_lsn::text, wal_status
from pg_replication_slots where slot_name = %s
"""
_IS_FULL = """
with tree as (select %(oid)s::oid as oid union select relid from pg_partition_tree(%(oid)s::oid::regclass))
select coalesce(bool_and(c.relreplident = 'f'), true) from pg_class c join tree on tree.oid = c.oid
where c.relkind <> 'p'
"""
_ANEW = "to start over, drop the slot and start the job without its snapshots"
_PATIENCE = 2.0
"""Seconds until the session that holds the slot is terminated: its process is dead or unreachable."""


def system_identifier(connection: Connection) -> str:
    """Return the server's identity. The server shares it only with its standbys."""
    row = connection.execute("select system_identifier::text from pg_control_system()").fetchone()
    return str(row[0]) if row else ""


def slot_exists(connection: Connection, slot: str) -> bool:
    """Whether a slot of this name exists."""
    return connection.execute(_SLOT, (slot,)).fetchone() is not None


def slot_position(connection: Connection, slot: str) -> int:
    """Return the confirmed position of a slot.

    Raises:
        PostgresError: if it is not a slot that malflow can read.
    """
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None or row[0] != "pgoutput" or row[3] is None:
        raise PostgresError(f"slot '{slot}' is not a logical slot of plugin pgoutput; choose another name")
    return lsn_number(row[3])


def timeline_at(history: Sequence[Timeline], position: int) -> int:
    """Return the timeline to which the log just before a position belongs."""
    return next(number for number, end in history if end is None or position <= end)


def check_timeline(history: Sequence[Timeline], slot: str, position: int, wanted: int) -> None:
    """Check that the server's log contains the position: it did not leave that timeline earlier.

    Raises:
        PositionLost: if it did.
    """
    left = dict(history).get(wanted, 0)
    if left is not None and left < position:
        here = f"left timeline {wanted} at {lsn_text(left)}" if left else f"did not come from timeline {wanted}"
        raise PositionLost(
            f"slot '{slot}', position {lsn_text(position)} of timeline {wanted}: the server is on timeline "
            f"{history[-1][0]}, which {here}: it was restored, or promoted, from a copy that had less; {_ANEW}"
        )


def check_slot(connection: Connection, slot: str, position: int, wanted_system: str) -> None:
    """Check that the slot can stream everything after a position.

    Raises:
        PositionLost: if it can't.
    """
    where = f"slot '{slot}', position {lsn_text(position)}"
    system = system_identifier(connection)
    if system != wanted_system:
        raise PositionLost(f"{where}: the position belongs to server {wanted_system}, but this is {system}; {_ANEW}")
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        raise PositionLost(f"{where}: the slot is gone, and with it the changes after the position; {_ANEW}")
    plugin, _database, _pid, confirmed, wal_status = row
    if plugin != "pgoutput":
        raise PostgresError(f"{where}: the slot's plugin is {plugin}, not pgoutput; choose another name")
    if wal_status == "lost" or confirmed is None:
        raise PositionLost(
            f"{where}: the server has removed the log that the slot needs (max_slot_wal_keep_size); {_ANEW}"
        )
    if lsn_number(confirmed) > position:
        raise PositionLost(
            f"{where}: the slot is confirmed up to {confirmed}, beyond the position: the changes between are gone. The "
            f"run resumes from a snapshot older than the last, or another job reads the slot; {_ANEW}"
        )
    end = connection.execute("select pg_current_wal_flush_lsn()::text").fetchone()
    if end is not None and lsn_number(end[0]) < position:
        raise PositionLost(
            f"{where}: the server's log ends before it, at {end[0]}: it was restored from an older copy; {_ANEW}"
        )


def free_slot(connection: Connection, slot: str, application: str, waited: float) -> None:
    """Wait a moment for the slot; after that, terminate its reader's session.

    That session may be dead without notice.
    """
    row = connection.execute(_SLOT, (slot,)).fetchone()
    if row is None or row[2] is None:
        return
    if waited > _PATIENCE:
        query = "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s and application_name = %s"
        connection.execute(query, (row[2], application))
    time.sleep(0.1)


def drop_slot(server: PostgresServer, slot: str, application: str) -> None:
    """Drop a slot if it exists; the session that reads it is terminated."""
    with server.connect() as connection:
        begun = time.monotonic()
        while slot_exists(connection, slot):
            try:
                connection.execute("select pg_drop_replication_slot(%s)", (slot,))
            except psycopg.errors.UndefinedObject:
                return
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() - begun > max(server.retry_for, _PATIENCE + 1):
                    raise server.failure(f"dropping slot '{slot}'", error) from None
                free_slot(connection, slot, application, time.monotonic() - begun)


def ensure_publication(
    connection: Connection, publication: str, tables: Sequence[str], *, is_new: bool, copies: bool
) -> list[Table]:
    """Create the publication if it does not exist; return its tables.

    Args:
        connection: an open connection.
        publication: the name of the publication.
        tables: the names of its tables.
        is_new: whether the job is new; if it continues, the publication must exist.
        copies: whether the tables are copied, by their keys.

    Raises:
        PostgresError: if the publication lacks one of the tables, or is empty or gone; if a table has no key.
    """
    wanted = [describe(connection, name, "PostgresChanges") for name in tables]
    exists = connection.execute("select from pg_publication where pubname = %s", (publication,)).fetchone() is not None
    if not exists:
        if not wanted:
            raise PostgresError(f"there is no publication {publication!r}; make it, or pass tables=[...]")
        if not is_new:
            raise PostgresError(
                f"publication {publication!r} is gone, and with it the changes since it was dropped; {_ANEW}"
            )
        _check_identities(wanted, copies=copies)
        _create(connection, publication, wanted)
    query = "select format('%%I.%%I', schemaname, tablename) from pg_publication_tables where pubname = %s order by 1"
    published = [describe(connection, name, "PostgresChanges") for (name,) in connection.execute(query, (publication,))]
    missing = [table.shown for table in wanted if table.oid not in {other.oid for other in published}]
    if missing or not published:
        lacks = f"lacks {', '.join(missing)}" if missing else "has no table"
        raise PostgresError(f"publication {publication!r} {lacks}; alter publication ... add table ...")
    if copies:
        _check_identities(wanted or published, copies=copies)
    return wanted or published


def tables_without_old(connection: Connection, publication: str, tables: Sequence[Table]) -> list[str]:
    """Return the tables with updates and deletes published without the old row."""
    query = "select pubupdate or pubdelete from pg_publication where pubname = %s"
    if connection.execute(query, (publication,)).fetchone() != (True,):
        return []
    return [table.shown for table in tables if connection.execute(_IS_FULL, {"oid": table.oid}).fetchone() != (True,)]


def note_beginning(connection: Connection, publication: str, slot: str) -> None:
    """Note in the publication's comment that a job without a position creates the slot.

    If a later start finds the note and the slot, the slot is left from a start that was interrupted before its first
    snapshot. Nothing is noted if there is a comment already, or another role owns the publication.
    """
    if _comment(connection, publication) is None:
        with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction):
            _set_comment(connection, publication, _beginning(slot))


def is_beginning(connection: Connection, publication: str, slot: str) -> bool:
    """Whether the note of `note_beginning` is still there: no snapshot has a position in the slot yet."""
    return _comment(connection, publication) == _beginning(slot)


def forget_beginning(connection: Connection, publication: str, slot: str) -> None:
    """Remove the note, since a snapshot has a position in the slot."""
    if is_beginning(connection, publication, slot):
        _set_comment(connection, publication, None)


def _beginning(slot: str) -> str:
    return f"malflow: no snapshot has a position in slot {slot} yet"


def _comment(connection: Connection, publication: str) -> str | None:
    query = "select obj_description(oid, 'pg_publication') from pg_publication where pubname = %s"
    row = connection.execute(query, (publication,)).fetchone()
    return None if row is None else row[0]


def _set_comment(connection: Connection, publication: str, text: str | None) -> None:
    statement = sql.SQL("comment on publication {} is {}")
    connection.execute(statement.format(sql.Identifier(publication), sql.Literal(text)))


def _check_identities(tables: Sequence[Table], *, copies: bool) -> None:
    keyless = ", ".join(table.shown for table in tables if not table.identity and (copies or not table.is_full))
    if keyless and copies:
        raise PostgresError(
            f"tables without a primary key can't be copied: {keyless}; add one, use the replica identity of a unique "
            "index, leave them out, or pass copy=False"
        )
    if keyless:
        raise PostgresError(
            f"tables without a primary key can't be published: {keyless}; the server would reject updates and deletes "
            "of their rows. Add a key, alter them to replica identity full, or create a publication with (publish = "
            "'insert') and pass publication=..."
        )


def _create(connection: Connection, publication: str, tables: Sequence[Table]) -> None:
    statement = sql.SQL("create publication {} for table {} with (publish_via_partition_root = true)")
    names = sql.SQL(", ").join(table.identifier for table in tables)
    try:
        connection.execute(statement.format(sql.Identifier(publication), names))
    except psycopg.errors.DuplicateObject:
        return
    except psycopg.errors.InsufficientPrivilege as error:
        made = statement.format(sql.Identifier(publication), names).as_string(connection)
        said = PostgresServer.reason(error)
        raise PostgresError(
            f"the role can't create publication {publication!r} ({said}); let the owner of the tables do it: {made}"
        ) from None
