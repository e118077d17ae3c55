"""Changes of tables as a source: a first copy, then every committed transaction, in order."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from malflow.checks import check_choice, check_flag, check_name, check_whole_number, checked_names
from malflow.connectors.postgres.changes.reader import ChangeOptions, ChangesPartition, Position, check_new
from malflow.connectors.postgres.changes.replication_slots import drop_slot
from malflow.connectors.postgres.connection import PostgresServer
from malflow.connectors.tables.change import Change
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.sources.contract import StatefulSourceImpl

__all__ = ["PostgresChanges"]

_LONGEST_NAME = 63
"""The longest name of a slot in Postgres: NAMEDATALEN without the zero byte at the end."""


class PostgresChanges(StatefulSourceImpl[str, Change, datetime, Position]):
    """Emit each change of some tables as a `Change`, with the time of its commit as timestamp.

    First the tables are copied: each row is an ``"insert"``. Then every transaction follows, whole and in commit order,
    by logical replication (``pgoutput``). The server needs ``wal_level = logical``, the role ``replication``.

    The position is a place in the server's log, and a replication slot keeps the log after the last confirmed position.
    A position is confirmed when a snapshot with it is durable. A run without snapshots confirms nothing, so the log
    grows: use a persistence. See docs/postgres.md for failures.

    Args:
        dsn: a libpq connection string or URL; every setting of libpq is passed through.
        tables: names as in SQL: ``public.orders``, or ``orders`` by the search path. None: all of the publication.
        slot: the name of the replication slot, one for each job. It is created at the job's first start, and dropped
            only by `drop_slot`.
        publication: the publication to read; created for `tables` if it does not exist. None: it is named as the slot.
        copy: whether existing rows are emitted first. If False, the stream begins at the position of an existing slot,
            or at the job's first start.
        text: columns to emit as Postgres writes them, such as dates that may be ``infinity``.
        until: ``"now"`` ends the source after everything that was committed before the run began.
        replace_slot: whether a job that starts without a position drops an existing slot of that name, or fails.
        page_rows: the number of rows in a page of the first copy.
        require_old: whether each update and delete must have the whole old row: if a table's replica identity is not
            full, the run fails at its start, or at the change. None: only a warning in the log; False: neither.
        retry_for: how long to retry a lost connection before the run fails.

    Raises:
        GraphError: if an argument is invalid.
    """

    keyed: ClassVar[bool] = False

    def __init__(
        self,
        dsn: str,
        tables: Iterable[str] | None = None,
        *,
        slot: str,
        publication: str | None = None,
        copy: bool = True,
        text: Iterable[str] = (),
        until: Literal["now"] | None = None,
        replace_slot: bool = False,
        page_rows: int = 5_000,
        require_old: bool | None = None,
        retry_for: Duration = timedelta(minutes=1),
    ) -> None:
        me = "PostgresChanges"
        if not _is_slot_name(slot):
            raise GraphError(f"{me} slot must be 1 to 63 letters a-z, digits and underscores; got {slot!r}")
        names = () if tables is None else checked_names(me, "tables", tables)
        check_name(me, "publication", publication, "the name of a publication", optional=True)
        if not names and publication is None:
            raise GraphError(f"{me} needs tables=[...], or a publication")
        check_choice(me, "until", until, ("now", None))
        check_whole_number(me, "page_rows", page_rows)
        check_flag(me, "copy", copy)
        check_flag(me, "replace_slot", replace_slot)
        check_flag(me, "require_old", require_old, optional=True)
        server = PostgresServer(dsn, retry_for, me)
        self._options = ChangeOptions(
            server,
            slot,
            publication or slot,
            names,
            frozenset(checked_names(me, "text", text, what="columns")),
            copy,
            until == "now",
            replace_slot,
            page_rows,
            require_old,
        )

    def list_parts(self) -> Sequence[str]:
        """Return the one part: the slot."""
        return (self._options.slot,)

    def build_part(self, part: str, state: Position | None) -> ChangesPartition:
        """Return the reader of the slot.

        Raises:
            PostgresError: if the job has no position and the slot exists.
        """
        if state is None:
            check_new(self._options)
        return ChangesPartition(part, self._options, state or ("start",), time.monotonic)

    def drop_slot(self) -> None:
        """Drop the slot, if it exists. The server then no longer keeps its log for this job.

        The job's position is lost: start it without its snapshots. The publication stays.
        """
        drop_slot(self._options.server, self._options.slot, self._options.server.application)

    def __repr__(self) -> str:
        what: Any = self._options.tables or self._options.publication
        return f"PostgresChanges({self._options.server!r}, {what!r}, slot={self._options.slot!r})"


def _is_slot_name(name: object) -> bool:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        return False
    return all(letter in "abcdefghijklmnopqrstuvwxyz0123456789_" for letter in name)
