"""Tables: their columns, where their rows come from, and what is written to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

from malflow.connectors.by_name import Replacement
from malflow.diagnostics import written_at
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Field
from malflow.sql.build.chains import chain, every
from malflow.sql.build.doors import Door, Exit
from malflow.sql.build.layouts import epochs_of
from malflow.sql.build.streams import Leaving, Rows, united
from malflow.sql.functions.times import instant
from malflow.sql.parser.statements import parse_columns
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Typed
from malflow.sql.types import TIMES
from malflow.sql.watermarks import Watermark
from malflow.words import did_you_mean

__all__ = ["OF_JSON", "Entry", "Outlet", "Table", "late_of", "made_rows", "of_stream"]


class Entry(NamedTuple):
    """How rows come into a table.

    Attributes:
        build: builds the streams of its rows.
        values: returns streams of values, and the door that makes rows of them; None if other steps come after it.
        is_checked: whether all columns come through a door.
    """

    build: Callable[[], Rows | None]
    values: Callable[[], tuple[Rows, Door]] | None
    is_checked: bool = True


class Outlet(NamedTuple):
    """A connection that the rows of INSERTs are written to.

    Attributes:
        made: returns a new sink.
        stored: the columns that INSERTs fill.
        refusal: why they can't; empty if they can.
        placed: a context that names the place of the table in errors.
    """

    made: Callable[[], Any]
    stored: tuple[Field, ...]
    refusal: str
    placed: Callable[[], AbstractContextManager[None]]


class Table:
    """A table.

    Args:
        fields: its columns.
        names: names for its operators.
        entry: how its rows come; None for a table that INSERTs fill.
        outlet: what its rows are written to; None if it can't be written to.
        place: where its rows come from, for EXPLAIN.
        step: the name of the operator that queries read.
        time: the column of the time of a stream of Python; empty if it has none.
        mark: its watermark; None if it has none.

    Attributes:
        fields: its columns.
        names, place, mark: as above.
        ends: whether its rows end.
        is_named: whether a query or view names it, and so may rely on its time attribute.
        is_inserted: whether INSERTs add rows.
        is_checked: whether all columns have come through a door.
        step: the name of the operator that queries read.
        late: the name of the table of its late rows; empty if there is none.
        time: the rule of its watermark, or the column of its time; empty if it has none.
    """

    def __init__(
        self,
        fields: tuple[Field, ...],
        names: Names,
        entry: Entry | None = None,
        *,
        outlet: Outlet | None = None,
        place: str = "the rows of INSERTs",
        step: str = "",
        time: str = "",
        mark: Watermark | None = None,
    ) -> None:
        self.fields = fields
        self.names = names
        self.place = place
        self.step = step
        self.time = time or (mark.rule if mark else "")
        self.mark = mark
        self.late = mark.late[0] if mark and mark.late else ""
        self.ends = True
        self.is_named = False
        self.is_inserted = False
        self.is_checked = entry is not None and entry.is_checked
        self._pending: list[Callable[[], Any]] = []
        self._inserted: list[Any] = []
        self._entry = entry
        self._outlet = outlet
        self._rows: Rows | None = None
        self._is_read = False

    def rows(self) -> Rows | None:
        """Return its streams, built once; None if nothing fills it."""
        self._is_read = True
        if self._rows is None:
            self._rows = self._of_inserts() if self._entry is None else self._entry.build()
        return self._rows

    def values(self) -> tuple[Rows, Door] | None:
        """Return streams of values, and the door that makes rows of them; None if other steps come after it."""
        return self._entry.values() if self._entry and self._entry.values else None

    def late_rows(self) -> Rows | None:
        """Return its late rows, as ones that are neither on time nor late; None if there can be none."""
        rows = self.rows()
        return None if rows is None or rows.late is None else Rows(rows.late)

    def build(self) -> None:
        """Build the rows of INSERTs that nothing has read so far."""
        while self._pending:
            self._inserted.append(self._pending.pop(0)())

    def _of_inserts(self) -> Rows | None:
        self.build()
        if not self._inserted:
            return None
        is_new = self.mark is not None and self.mark.bound is not None
        layout = None if is_new else epochs_of(self.fields)
        rows = united(self._inserted, self.names.give("inserted"), layout)
        if self.mark is None or not is_new:
            return rows
        return self.mark.rows(rows.every, self.names.give("watermark"))

    @property
    def is_written(self) -> bool:
        """Whether its rows are written to a connection."""
        return self._outlet is not None

    @property
    def stored(self) -> tuple[Field, ...]:
        """The columns that INSERTs fill."""
        return self._outlet.stored if self._outlet else self.fields

    @property
    def refusal(self) -> str:
        """Why INSERTs can't fill it; empty if they can."""
        if self._outlet:
            return self._outlet.refusal
        return f"is {self.place}: it can't be written to" if self._entry is not None else ""

    def insert(self, rows: Relation, build: Callable[[], Rows | Leaving]) -> str:
        """Add rows with its columns to the table; return why that can't be, or an empty text."""
        if self._outlet is None and (wrong := self._retimed(rows)):
            return wrong
        self.is_inserted = True
        self._pending.append(build)
        return ""

    def _retimed(self, rows: Relation) -> str:
        """Note which column is the time of all rows that are inserted; return why these can't be."""
        if self._is_read:
            return "has been read: write INSERT INTO before the queries that read the table"
        if self.mark is not None:
            is_timed = self.mark.bound is not None or rows.fields[self.mark.place].is_time
            return "" if is_timed else f"needs rows with a time attribute in the column {self.mark.column!r}"
        times = (it.is_time and (mine.is_time or not self.is_inserted) for it, mine in _pairs(rows.fields, self.fields))
        fields = tuple(replace(it, is_time=is_time) for it, is_time in zip(self.fields, times, strict=True))
        lost = [it.name for it, new in _pairs(self.fields, fields) if it.is_time and not new.is_time]
        if lost and self.is_named:
            return f"is read as rows with the time attribute {lost[0]!r}, and these have none; INSERT them before"
        self.fields = fields
        return ""

    def write(self, name: str, place: str, on_error: Any) -> None:
        """Write all rows that were inserted to the connection of the table, by a sink of a name."""
        self.build()
        if self._outlet is None:
            return
        with self._outlet.placed(), written_at(place):
            connection = _without_key(self._outlet.made())
            leaving = Exit(self.stored, dict, as_json=getattr(connection, "connector", "") in OF_JSON)
            first, *others = [build(leaving) for build in self._inserted]
            stream = first.union(*others) if others else first
            stream.sink(name, connection, on_error=on_error)


OF_JSON = frozenset({"file+json", "kafka", "http", "https", "redis", "rediss"})
"""Connectors that read and write JSON."""


def _pairs(one: tuple[Field, ...], other: tuple[Field, ...]) -> list[tuple[Field, Field]]:
    return [*zip(one, other, strict=True)]


def of_stream(schema: Source, stream: Any, late: Any, time: str | None, names: Names) -> Table:
    """Return a stream as a table.

    Raises:
        SqlError: if the schema has faults, or lacks the column of the time.
    """
    elements = parse_columns(schema)
    plain = [it for it in elements if isinstance(it, tree.ColumnDef) and it.metadata is None]
    fields = tuple(Field(it.name.text, it.type) for it in plain)
    if other := next((it for it in elements if it not in plain), None):
        raise _fault("the schema of a stream has plain columns only", other.span, schema)
    if twice := next((it for at, it in enumerate(plain) if it.name in (known.name for known in plain[:at])), None):
        raise _fault(f"two columns are called {twice.name.text!r}", twice.span, schema)
    if time is not None:
        known = {it.name: it.type for it in fields}
        if time not in known:
            raise _fault(f"no column {time!r}{did_you_mean(time, known)}", Span(0, 0), schema)
        if known[time].kind not in TIMES:
            raise _fault(f"time={time!r} is {known[time].name}; use TIMESTAMP", Span(0, 0), schema)
        fields = tuple(replace(it, is_time=it.name == time) for it in fields)
    digits = next((it.type.size for it in fields if it.is_time), None)
    place, door = names.give("time"), Door(fields, str(names).partition(".")[2])

    def timed(of: Any, end: str) -> Any:
        return of if digits is None else of.convert_timestamps(f"{place}{end}", _units_of(digits))

    @cache
    def values() -> tuple[Rows, Door]:
        return Rows(timed(stream, ""), None if late is None else timed(late, ".late")), door

    return Table(
        fields,
        names,
        Entry(lambda: made_rows(*values(), names, every(fields), schema), values),
        place="a stream of Python",
        step="" if time is None else f"{names}.time",
        time=time or "",
    )


def made_rows(
    values: Rows, door: Door, names: Names, items: Sequence[Typed], text: Source, on_error: Any = "fail"
) -> Rows:
    """Return the rows that a door makes of values."""
    name, made = names.give("row"), chain(door, items, text)
    late = None if values.late is None else values.late.filter_map_many(f"{name}.late", made, on_error=on_error)
    return Rows(values.on_time.filter_map_many(name, made, on_error=on_error), late)


def _units_of(digits: int) -> Callable[[Any], Any]:
    """Return the function that makes numbers of units of datetimes; numbers are taken as they are."""

    def units(moment: Any) -> Any:
        return instant(moment, digits) if isinstance(moment, datetime) else moment

    return units


def _without_key(connection: Any) -> Any:
    """Return a connection. Records of a topic have no key unless an option says it, as groups have keys of any type."""
    if getattr(connection, "connector", "") != "kafka" or connection.option("key") is not None:
        return connection
    return connection.replaced(Replacement(None, {"key": _no_key}, ""))


def _no_key(_message: Any) -> None:
    """Return no key."""
    return None  # noqa: RET501 - a function of a sink says so if that is meant


def late_of(table: Table, name: str) -> Table:
    """Return the late rows of a table as one without a time attribute: they have passed the watermark."""
    fields = tuple(replace(it, is_time=False) for it in table.fields)
    late = Table(fields, table.names, Entry(table.late_rows, None, table.is_checked), place=f"the late rows of {name}")
    late.ends = table.ends
    return late


def _fault(message: str, span: Span, text: Source) -> SqlError:
    return SqlError([Fault(message, span, text)])
