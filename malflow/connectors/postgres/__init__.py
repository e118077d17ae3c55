"""Postgres: rows of a table or query, changes of tables, an exactly-once sink, and look-ups; by psycopg 3."""

from malflow.errors import not_imported

try:
    import psycopg as _psycopg
except ImportError as _missing:
    raise not_imported("malflow.connectors.postgres needs psycopg 3", "postgres", _missing) from _missing

from malflow.connectors.postgres.changes.source import PostgresChanges
from malflow.connectors.postgres.connection import PositionLost, PostgresError
from malflow.connectors.postgres.lookup import PostgresLookup
from malflow.connectors.postgres.sink import PostgresSink
from malflow.connectors.postgres.source import PostgresSource
from malflow.connectors.tables.change import UNCHANGED, Change, NotSent, Unchanged

__all__ = [
    "UNCHANGED",
    "Change",
    "NotSent",
    "PositionLost",
    "PostgresChanges",
    "PostgresError",
    "PostgresLookup",
    "PostgresSink",
    "PostgresSource",
    "Unchanged",
]

del _psycopg
