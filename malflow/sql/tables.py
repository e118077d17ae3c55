"""Tables: their columns, where their rows come from, and what is written to them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple, Protocol

from malflow.connectors.address import Address
from malflow.connectors.by_name import Replacement
from malflow.connectors.option_texts import read_text
from malflow.diagnostics import written_at
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.chains import chain, every
from malflow.sql.build.doors import Door, Exit
from malflow.sql.build.layouts import epochs_of
from malflow.sql.build.streams import Leaving, Rows, united
from malflow.sql.functions.times import instant
from malflow.sql.parser.statements import parse_columns
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Typed
from malflow.sql.types import INTEGERS, TEXTS, TIMES, SqlType
from malflow.sql.watermarks import Watermark, watermark_of
from malflow.words import did_you_mean

__all__ = ["Connect", "Prompt", "Table", "created", "csv_options", "expanded", "late_of", "of_stream"]


class Prompt(Protocol):
    """What is known at a prompt only."""

    def created(self, path: str) -> str:
        """Return the CREATE TABLE of a path or URL in quotes."""

    def ends(self, url: str, options: Mapping[str, str]) -> bool:
        """Whether the rows of a URL end."""


Connect = Callable[[str, str, dict[str, str]], Any]
"""Returns the source or sink of a table by its name, its URL and its options."""


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


class Table:
    """A table.

    Args:
        fields: its columns.
        names: names for its operators.
        entry: how its rows come; None for a table that INSERTs fill.
        connection: makes what its rows are written to; None if it can't be written to.
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
        time: the rule of its watermark, or the column of its time; empty if it has none.
    """

    def __init__(
        self,
        fields: tuple[Field, ...],
        names: Names,
        entry: Entry | None = None,
        *,
        connection: Callable[[], Any] | None = None,
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
        self.ends = True
        self.is_named = False
        self.is_inserted = False
        self.is_checked = entry is not None and entry.is_checked
        self._pending: list[Callable[[], Any]] = []
        self._inserted: list[Any] = []
        self._entry = entry
        self._connection = connection
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
        return self._connection is not None

    def insert(self, rows: Relation, build: Callable[[Relation], Rows | Leaving]) -> str:
        """Add rows with its columns to the table; return why that can't be, or an empty text."""
        if self._entry is not None and self._connection is None:
            return f"is {self.place}: it can't be written to"
        if self._connection is None and (wrong := self._retimed(rows)):
            return wrong
        self.is_inserted = True
        self._pending.append(lambda: build(rows))
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

    def write(self, name: str, place: str) -> None:
        """Write all rows that were inserted to the connection of the table, by a sink of a name."""
        self.build()
        if self._connection is None:
            return
        with written_at(place):
            connection = _without_key(self._connection())
            leaving = Exit(self.fields, dict, as_json=getattr(connection, "connector", "") in _OF_JSON)
            first, *others = [build(leaving) for build in self._inserted]
            stream = first.union(*others) if others else first
            stream.sink(name, connection)


_OF_JSON = frozenset({"file+json", "kafka", "http", "https", "redis", "rediss"})
"""Connectors that write JSON."""


def _pairs(one: tuple[Field, ...], other: tuple[Field, ...]) -> list[tuple[Field, Field]]:
    return [*zip(one, other, strict=True)]


def of_stream(schema: Source, stream: Any, late: Any, time: str | None, names: Names) -> Table:
    """Return a stream as a table.

    Raises:
        SqlError: if the schema has faults, or lacks the column of the time.
    """
    elements = parse_columns(schema)
    fields, _, items = _columns(elements, schema)
    if items is not None or any(isinstance(it, tree.Watermark | tree.PrimaryKey) for it in elements):
        raise _fault("the schema of a stream has plain columns only", Span(0, 0), schema)
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
        Entry(lambda: _made(*values(), names, every(fields), schema), values),
        place="a stream of Python",
        step="" if time is None else f"{names}.time",
        time=time or "",
    )


def _made(values: Rows, door: Door, names: Names, items: Sequence[Typed], text: Source) -> Rows:
    """Return the rows that a door makes of values."""
    name, made = names.give("row"), chain(door, items, text)
    late = None if values.late is None else values.late.filter_map_many(f"{name}.late", made)
    return Rows(values.on_time.filter_map_many(name, made), late)


def _units_of(digits: int) -> Callable[[Any], Any]:
    """Return the function that makes numbers of units of datetimes; numbers are taken as they are."""

    def units(moment: Any) -> Any:
        return instant(moment, digits) if isinstance(moment, datetime) else moment

    return units


def created(
    statement: tree.CreateTable, text: Source, provider: Any, names: Names, connect: Connect, prompt: Prompt | None
) -> Table:
    """Return the table that a statement creates.

    Raises:
        SqlError: if it has faults.
    """
    if wrong := next((it for it in (statement.like, statement.query) if it), None):
        raise _fault("LIKE and AS are not supported", wrong.span, text)
    fields, physical, items = _columns(statement.elements, text)
    options = {key: (expanded(value, node.span, text), node.span) for key, value, node in statement.options}
    mark = watermark_of(statement, fields, options, text)
    if mark is not None:
        fields = tuple(replace(it, is_time=it.name == mark.column) for it in fields)
    name = statement.name.text
    url, span = options.pop("url", ("", statement.name.span))
    if not url:
        for key, (_, at) in options.items():
            raise _fault(f"option {key!r} is about a source; {_NO_URL}", at, text)
        if items is not None:
            raise _fault(f"computed columns are of a source; {_NO_URL}", span, text)
        return Table(fields, names, mark=mark, step=f"{names}.watermark" if mark and mark.bound is not None else "")
    if mark is not None and mark.bound is None:
        cure = f"write {mark.column} - INTERVAL '5' SECOND"
        raise _fault(f"a source has no watermark of its own; {cure}", mark.span, text)
    plain = {key: value for key, (value, _) in options.items()}

    written = f"{text.name}:{text.position(statement.span.start)[0]}"

    @cache
    def values() -> tuple[Rows, Door]:
        with written_at(written):
            connection, as_json = _typed(connect(name, url, plain), physical)
            door = Door(physical, name, as_json=as_json, may_lack=prompt is not None)
            return Rows(provider.new_stream().source(names.own("source"), connection)), door

    def rows() -> Rows:
        with written_at(written):
            found = _made(*values(), names, items or every(physical), text)
            return found if mark is None else mark.rows(found.on_time, names.give("watermark"))

    table = Table(
        fields,
        names,
        Entry(rows, None if mark or items else values, is_checked=not items),
        connection=lambda: connect(name, url, plain),
        place=str(Address.parse(url)),
        step=f"{names}.watermark" if mark else f"{names}.row" if items else str(names),
        mark=mark,
    )
    table.ends = prompt is not None and prompt.ends(url, plain)
    return table


def _without_key(connection: Any) -> Any:
    """Return a connection. Records of a topic have no key unless an option says it, as groups have keys of any type."""
    if getattr(connection, "connector", "") != "kafka" or connection.option("key") is not None:
        return connection
    return connection.replaced(Replacement(None, {"key": _no_key}, ""))


def _no_key(_message: Any) -> None:
    """Return no key."""
    return None  # noqa: RET501 - a function of a sink says so if that is meant


def _typed(connection: Any, fields: Sequence[Field]) -> tuple[Any, bool]:
    """Return a connection with the types of the columns if it reads texts, and whether it reads JSON."""
    connector = getattr(connection, "connector", "")
    if connector != "file+csv":
        return connection, connector in _OF_JSON
    return connection.replaced(Replacement(None, csv_options(fields, connection.option("header")), "")), False


def csv_options(fields: Sequence[Field], header: str | None) -> dict[str, Any]:
    """Return the options by which a file of CSV has values of the types of columns."""
    kinds = {it.name: _of_text(it.type) for it in fields}
    return {"types": kinds, "fields": [*kinds]} if read_text(header or "yes", bool) is False else {"types": kinds}


def _of_text(kind: SqlType) -> Any:
    """Return the class of the values of a type that is written as text."""
    found: Any = _CLASSES.get(kind.kind, str)
    return found | None if kind.nullable and kind.kind not in TEXTS else found


_CLASSES = {**dict.fromkeys(INTEGERS, int), "FLOAT": float, "DOUBLE": float, "DECIMAL": Decimal, "BOOLEAN": bool}
_CLASSES |= {**dict.fromkeys(TIMES, datetime), "DATE": date, "TIME": time}


_NO_URL = "add 'url' = 'kafka://broker/bids' or the like"


def late_of(table: Table, name: str) -> Table:
    """Return the late rows of a table as one without a time attribute: they have passed the watermark."""
    fields = tuple(replace(it, is_time=False) for it in table.fields)
    late = Table(fields, table.names, Entry(table.late_rows, None, table.is_checked), place=f"the late rows of {name}")
    late.ends = table.ends
    return late


def _columns(
    elements: Sequence[tree.ColumnDef | tree.Computed | tree.Watermark | tree.PrimaryKey], text: Source
) -> tuple[tuple[Field, ...], tuple[Field, ...], list[Typed] | None]:
    """Return the columns of a table, those that its rows bring, and all as calculations if some are computed."""
    physical = tuple(Field(it.name.text, it.type) for it in elements if isinstance(it, tree.ColumnDef))
    scope = Scope(physical, text)
    fields: list[Field] = []
    items: list[Typed] = []
    for it in elements:
        if isinstance(it, tree.PrimaryKey):
            raise scope.fault("PRIMARY KEY is not supported: rows are added, none is replaced", it.span)
        if isinstance(it, tree.Watermark):
            continue
        if any(known.name == it.name.text for known in fields):
            raise scope.fault(f"two columns are called {it.name.text!r}", it.name.span)
        if isinstance(it, tree.Computed):
            items.append(ExpressionBinder(scope).bind(it.expression))
        elif it.metadata is not None:
            raise scope.fault("METADATA columns are not supported; read the table in Python", it.span)
        else:
            items.append(scope.column(sum(isinstance(known, Column) for known in items), it.span))
        fields.append(Field(it.name.text, items[-1].type))
    if not fields:
        raise scope.fault("a table needs columns", Span(0, 0))
    is_computed = len(items) > len(physical)
    return tuple(fields), physical, items if is_computed else None


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def expanded(value: str, span: Span, text: Source) -> str:
    """Return a value with `${NAME}` and `${NAME:-default}` replaced from the environment, once."""

    def found(match: re.Match[str]) -> str:
        name, default = match.groups()
        given: str | None = os.environ.get(name, default)
        if given is None:
            cure = f"set it, or write ${{{name}:-default}}"
            raise _fault(f"the environment variable {name} is not set; {cure}", span, text)
        return given

    return _VARIABLE.sub(found, value)


def _fault(message: str, span: Span, text: Source) -> SqlError:
    return SqlError([Fault(message, span, text)])
