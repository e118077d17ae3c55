"""Rows by key from the changes of databases, for `to_table`, and changes of tables in the form of Debezium."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from malflow.connectors.tables.change import UNCHANGED, Change
from malflow.connectors.tables.connect_values import exact_number, is_unavailable, row_reader
from malflow.diagnostics import location
from malflow.errors import GraphError, MalflowError
from malflow.message import TableChange
from malflow.words import listed, short_repr

__all__ = ["KeyedRow", "debezium", "rows_by_key", "to_debezium"]

OnTruncate = Literal["fail", "skip"]
_ReadRow = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_OPERATIONS = {"insert": "c", "update": "u", "delete": "d"}
_NAMED = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}


class KeyedRow(NamedTuple):
    """The row that a key has from now on.

    Attributes:
        key: the value of the key's column; a tuple of them if there are several.
        row: the row, by column; None if it was deleted.
    """

    key: Any
    row: Mapping[str, Any] | None


def rows_by_key(*columns: str, on_truncate: OnTruncate = "fail") -> Callable[[Change], list[KeyedRow]]:
    """Return a function for `flat_map` that makes rows by key of the changes that `PostgresChanges` emits.

    A change of a row's key is a deletion of the old key and a row of the new one. A value may be `UNCHANGED`:
    `to_table` takes it from the row before.

    Args:
        columns: the columns of the key: those by which the table sends old rows, usually its primary key.
        on_truncate: ``fail`` to raise an error for a truncation (it has no key); ``skip`` to leave the rows that it
            deletes in the table.

    Raises:
        GraphError: if there are no columns, or `on_truncate` is neither.

    >>> from datetime import datetime
    >>> moved = Change("update", "public.users", {"id": 1}, {"id": 2, "name": "Ann"}, 7, datetime(2026, 1, 1))
    >>> rows_by_key("id")(moved)
    [KeyedRow(key=1, row=None), KeyedRow(key=2, row={'id': 2, 'name': 'Ann'})]
    """
    return _Rows(_checked("rows_by_key", columns, on_truncate), on_truncate)


def debezium(*columns: str, on_truncate: OnTruncate = "fail") -> Callable[[Any], list[KeyedRow]]:
    """Return a function for `flat_map` that makes rows by key of the change events of Debezium.

    An event is a dict, or its JSON as text or bytes, with its schema or without. Tombstones (None) have nothing to say.
    Values that Debezium calls unavailable are `UNCHANGED`. With its schema, values have the types that it names: dates,
    times, Decimals, bytes, UUIDs. Without it, they are as JSON writes them.

    Args:
        columns: the columns of the key.
        on_truncate: as for `rows_by_key`.

    Raises:
        GraphError: if there are no columns, or `on_truncate` is neither.

    >>> debezium("id")('{"op": "c", "before": null, "after": {"id": 1, "name": "Ann"}}')
    [KeyedRow(key=1, row={'id': 1, 'name': 'Ann'})]
    """
    return _DebeziumRows(_checked("debezium", columns, on_truncate), on_truncate)


def to_debezium(change: TableChange[Any]) -> dict[str, Any]:
    """Return a change of a table as an event of Debezium without its schema, for `map`.

    Rows are dicts; named tuples, dataclasses and other objects become dicts of their fields.

    >>> to_debezium(TableChange(None, {"id": 1}))
    {'before': None, 'after': {'id': 1}, 'op': 'c'}
    """
    return {"before": _fields(change.before), "after": _fields(change.after), "op": _OPERATIONS[change.kind]}


class _Rows:
    """Makes rows by key of changes; a class, for pickling."""

    def __init__(self, columns: Sequence[str], on_truncate: OnTruncate) -> None:
        self._columns = columns
        self._skips = on_truncate == "skip"

    def __call__(self, change: Change) -> list[KeyedRow]:
        if not isinstance(change, Change):
            raise TypeError(f"takes the changes that PostgresChanges emits; got {short_repr(change)}")
        return list(self.rows(change.kind, change.table, change.old, change.new))

    def rows(
        self, kind: str, table: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
    ) -> Iterator[KeyedRow]:
        """Yield the rows of a change."""
        if kind == "truncate":
            if self._skips:
                return
            raise MalflowError(
                f"table {table} was truncated, which has no key, so that rows that are gone would stay; delete them by "
                'delete from, or pass on_truncate="skip" to leave them'
            )
        if new is None:
            if old is None:
                raise MalflowError(f"a deletion from {table} has no key; alter table {table} replica identity full")
            yield KeyedRow(self._key(table, old), None)
            return
        key = self._key(table, new)
        if old is not None and (before := self._key(table, old)) != key:
            unsent = [name for name, value in new.items() if value is UNCHANGED]
            if unsent:
                raise MalflowError(
                    f"table {table} moved a row from key {short_repr(before)} to {short_repr(key)} without the value "
                    f"of {', '.join(map(repr, unsent))}, which did not change, and may be on another worker; alter "
                    f"table {table} replica identity full, so that it is sent"
                )
            yield KeyedRow(before, None)
        yield KeyedRow(key, new)

    def _key(self, table: str, row: Mapping[str, Any]) -> Any:
        try:
            values = tuple(row[name] for name in self._columns)
        except KeyError as error:
            known = ", ".join(map(repr, row))
            raise MalflowError(
                f"a row of {table} lacks the column {error} of its key; it has {known}; name the columns of its "
                "replica identity, which is the primary key by default"
            ) from error
        if UNCHANGED in values:
            raise MalflowError(f"table {table} did not send a key; alter table {table} replica identity full")
        return values[0] if len(values) == 1 else values


class _DebeziumRows(_Rows):
    """Makes rows by key of events of Debezium."""

    _schema: Any = None
    _reads: Mapping[str, _ReadRow] = {}

    def __call__(self, event: Any) -> list[KeyedRow]:
        if event is None:
            return []
        is_text = isinstance(event, (str, bytes, bytearray))
        fields = json.loads(event, parse_float=exact_number) if is_text else event
        if fields is None:
            return []
        schema: Any = None
        if isinstance(fields, Mapping) and isinstance(fields.get("payload"), Mapping):
            schema, fields = fields.get("schema"), fields["payload"]
        if not isinstance(fields, Mapping) or "op" not in fields:
            raise MalflowError(
                f"takes events of Debezium with op, before and after, or their JSON; got {short_repr(event)}; if its "
                "transformation ExtractNewRecordState is on, the values are rows already"
            )
        source = fields.get("source")
        table = source.get("table", "of an event") if isinstance(source, Mapping) else "of an event"
        operation = fields["op"]
        if operation == "t":
            return list(self.rows("truncate", table, None, None))
        if operation not in _NAMED:
            raise MalflowError(f"knows the operations c, r, u, d and t of Debezium; got {short_repr(operation)}")
        reads = self._readers(schema, table)
        old, new = (_as_sent(fields.get(name), reads.get(name)) for name in ("before", "after"))
        return list(self.rows(_NAMED[operation], table, old, None if operation == "d" else new))

    def _readers(self, schema: Any, table: str) -> Mapping[str, _ReadRow]:
        """Return the functions that read the rows before and after a change; none if there is no schema."""
        if not isinstance(schema, Mapping):
            return {}
        if schema != self._schema:
            rows = [it for it in schema.get("fields", ()) if it.get("field") in ("before", "after")]
            self._reads = {it["field"]: row_reader(it, table) for it in rows}
            self._schema = schema
        return self._reads

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_schema": None, "_reads": {}}


def _as_sent(row: Mapping[str, Any] | None, read: _ReadRow | None) -> Mapping[str, Any] | None:
    """Return a row with the types of its schema, and `UNCHANGED` for values that are not sent."""
    if row is None:
        return None
    if read is not None:
        return read(row)
    return {name: UNCHANGED if is_unavailable(value) else value for name, value in row.items()}


def _checked(what: str, columns: tuple[Any, ...], on_truncate: Any) -> tuple[str, ...]:
    if not columns or not all(isinstance(name, str) for name in columns):
        got = listed(columns, write=short_repr)
        raise GraphError(f"{what} takes the names of the key's columns, such as 'id'; got {got}", location=location())
    if on_truncate not in ("fail", "skip"):
        raise GraphError(
            f"{what} needs 'fail' or 'skip' as its on_truncate; got {short_repr(on_truncate)}", location=location()
        )
    return columns


def _fields(row: Any) -> Any:
    if row is None or isinstance(row, Mapping):
        return row
    if hasattr(row, "_asdict"):
        return row._asdict()
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return dataclasses.asdict(row)
    if hasattr(row, "__dict__"):
        return vars(row)
    raise TypeError(
        f"a row of Debezium has names; got {short_repr(row)}; call .map() on the table with a function that makes "
        "a dict of it"
    )
