"""SQL: a table of any database for which SQLAlchemy has a dialect, as an exactly-once sink, and for look-ups."""

from malflow.errors import not_imported

try:
    import sqlalchemy as _sqlalchemy
except ImportError as _missing:
    raise not_imported("malflow.connectors.sql needs SQLAlchemy", "sql", _missing) from _missing

from malflow.connectors.sql.database import SqlError
from malflow.connectors.sql.lookup import SqlLookup
from malflow.connectors.sql.sink import SqlSink

__all__ = ["SqlError", "SqlLookup", "SqlSink"]

del _sqlalchemy
