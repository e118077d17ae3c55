"""Rows of tables, whatever the database: their shapes, their changes, and transactions of them.

`rows_by_key` and `debezium` make rows by key of changes, which `KeyedStream.to_table` takes; `to_debezium` is the way
back.
"""

from malflow.connectors.tables.change import UNCHANGED, Change, NotSent
from malflow.connectors.tables.keyed_rows import KeyedRow, debezium, rows_by_key, to_debezium

__all__ = ["UNCHANGED", "Change", "KeyedRow", "NotSent", "debezium", "rows_by_key", "to_debezium"]
