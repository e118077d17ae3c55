"""Warnings about changes that a publication does not send: kinds that it leaves out, and rows of tables added later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeAlias

import psycopg

from malflow.connectors.postgres.changes.replication import Relation
from malflow.connectors.postgres.identifiers import Table

__all__ = ["PublicationGaps", "oids_of"]

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_LOG = logging.getLogger("malflow")
_KINDS = ("insert", "update", "delete", "truncate")
_PUBLISHED = "select pubinsert, pubupdate, pubdelete, pubtruncate from pg_publication where pubname = %s"


class PublicationGaps:
    """Look for changes that never arrive, and warn of each gap once in a run.

    Args:
        slot: the name of the slot.
        publication: the name of the publication.
        copies: whether the tables were copied first; rows are then expected that no change of the stream has.
    """

    def __init__(self, slot: str, publication: str, *, copies: bool) -> None:
        self._slot, self._publication, self._copies = slot, publication, copies
        self._known: frozenset[int] = frozenset()
        self._has_looked = False
        self._warned: set[str] = set()

    def look(self, connection: Connection, tables: Sequence[Table], known: Sequence[int]) -> None:
        """Warn of kinds of changes that are not published, and of tables that are published since the copy.

        Args:
            connection: an open connection.
            tables: the tables that are read.
            known: the oids of those that were copied; empty if that is not known.
        """
        self._known = frozenset(known)
        for table in tables:
            self._see_table(table.oid, table.shown)
        if self._has_looked:
            return
        self._has_looked = True
        published = connection.execute(_PUBLISHED, (self._publication,)).fetchone() or ()
        lacking = [kind for kind, is_published in zip(_KINDS, published, strict=False) if not is_published]
        if lacking:
            _LOG.warning(
                "slot '%s': publication %r leaves out each %s, so they never arrive, and a copy keeps what they would "
                "change; alter publication ... set (publish = '%s')",
                self._slot,
                self._publication,
                " and ".join(lacking),
                ", ".join(_KINDS),
            )

    def see(self, relation: Relation) -> bool:
        """Warn of the first changes of a table that was not copied; return True: its changes are read."""
        self._see_table(relation.oid, relation.table)
        return True

    def _see_table(self, oid: int, shown: str) -> None:
        if not self._copies or not self._known or oid in self._known or shown in self._warned:
            return
        self._warned.add(shown)
        _LOG.warning(
            "slot '%s': %s was added to publication %r after the first copy, so rows that it had before never arrive; "
            "start the job without its snapshots to copy them, or leave it out: tables=[...]",
            self._slot,
            shown,
            self._publication,
        )


def oids_of(tables: Sequence[Table]) -> tuple[int, ...]:
    """Return the oids of tables as a part of a position."""
    return tuple(sorted(table.oid for table in tables))
