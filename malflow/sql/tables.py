"""Tables: their columns, where their rows come from, and what is written to them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from malflow.connectors.address import Address
from malflow.connectors.by_name import Replacement
from malflow.connectors.option_texts import read_text
from malflow.diagnostics import written_at
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.build.chains import chain
from malflow.sql.build.doors import door, exit_of
from malflow.sql.build.streams import Rows, united
from malflow.sql.functions.times import instant
from malflow.sql.parser.statements import parse_columns
from malflow.sql.syntax import queries as tree
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Strict, Typed, Value
from malflow.sql.types import INTEGERS, TEXTS, TIMES, SqlType
from malflow.words import did_you_mean

__all__ = ["Connect", "Prompt", "Table", "created", "csv_options", "expanded", "of_stream"]


class Prompt(Protocol):
    """What is known at a prompt only."""

    def created(self, path: str) -> str:
        """Return the CREATE TABLE of a path or URL in quotes."""

    def ends(self, url: str, options: Mapping[str, str]) -> bool:
        """Whether the rows of a URL end."""


Connect = Callable[[str, str, dict[str, str]], Any]
"""Returns the source or sink of a table by its name, its URL and its options."""


class Table:
    """A table.

    Args:
        fields: its columns.
        names: names for its operators.
        build: builds the streams of its rows; None for a table that INSERTs fill.
        connection: makes what its rows are written to; None if it can't be written to.
        place: where its rows come from, for EXPLAIN.
        step: the kind of the operator that queries read.
        time: the rule of its watermark; empty if it has no time.
        ends: whether its rows end.

    Attributes:
        fields: its columns.
        inserted: the rows that INSERTs have added.
        is_named: whether a query or view names it, and so may rely on its time attribute.
        place, time, ends: as above.
        step: the name of the operator that queries read.
    """

    def __init__(
        self,
        fields: tuple[Field, ...],
        names: Names,
        build: Callable[[], Rows] | None = None,
        connection: Callable[[], Any] | None = None,
        *,
        place: str = "the rows of INSERTs",
        step: str = "",
        time: str = "",
        ends: bool = True,
    ) -> None:
        self.fields = fields
        self.place = place
        self.step = f"{names}.{step}" if step else ""
        self.time = time
        self.ends = ends
        self.inserted: list[Rows] = []
        self.is_named = False
        self._names = names
        self._build = build
        self._connection = connection
        self._rows: Rows | None = None
        self._is_read = False

    def rows(self) -> Rows | None:
        """Return its streams, built once; None if nothing fills it."""
        self._is_read = True
        if self._rows is None:
            self._rows = self._inserted() if self._build is None else self._build()
        return self._rows

    def _inserted(self) -> Rows | None:
        if len(self.inserted) < 2:  # noqa: PLR2004 - one needs no union, and no name for it
            return self.inserted[0] if self.inserted else None
        is_timed = any(it.is_time for it in self.fields)
        return united(self.inserted, self._names.give("inserted"), is_timed=is_timed)

    @property
    def is_written(self) -> bool:
        """Whether its rows are written to a connection."""
        return self._connection is not None

    def insert(self, rows: Relation, build: Callable[[Relation], Rows]) -> str:
        """Add rows with its columns to the table; return why that can't be, or an empty text."""
        if self._build is not None and self._connection is None:
            return "is a stream of Python: it can't be written to"
        if self._connection is None:
            if self._is_read:
                return "has been read: write INSERT INTO before the queries that read the table"
            times = (
                it.is_time and (mine.is_time or not self.inserted) for it, mine in _pairs(rows.fields, self.fields)
            )
            fields = tuple(replace(it, is_time=is_time) for it, is_time in zip(self.fields, times, strict=True))
            lost = [it.name for it, new in _pairs(self.fields, fields) if it.is_time and not new.is_time]
            if lost and self.is_named:
                return f"is read as rows with the time attribute {lost[0]!r}, and these have none; INSERT them before"
            self.fields = fields
        self.inserted.append(build(rows))
        return ""

    def write(self, name: str, place: str) -> None:
        """Write all rows that were inserted to the connection of the table, by a sink of a name."""
        streams = [it for rows in self.inserted for it in (rows.on_time, rows.late) if it is not None]
        if self._connection is None:
            return
        with written_at(place):
            connection = self._connection()
            stream = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
            value = exit_of(self.fields, dict, as_json=getattr(connection, "connector", "") in _OF_JSON)
            stream.map(self._names.give("value"), value).sink(name, connection)


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
        raise SqlError([Fault("the schema of a stream has plain columns only", Span(0, 0), schema)])
    if time is not None:
        known = {it.name: it.type for it in fields}
        if time not in known:
            raise SqlError([Fault(f"no column {time!r}{did_you_mean(time, known)}", Span(0, 0), schema)])
        if known[time].kind not in TIMES:
            raise SqlError([Fault(f"time={time!r} is {known[time].name}; use TIMESTAMP", Span(0, 0), schema)])
        fields = tuple(replace(it, is_time=it.name == time) for it in fields)
    made, row, place = door(fields), names.give("row"), names.give("time")
    digits = next((it.type.size for it in fields if it.is_time), None)

    def rows(of: Any, end: str) -> Any:
        found = of.map(f"{row}{end}", made)
        return found if digits is None else found.convert_timestamps(f"{place}{end}", _units_of(digits))

    return Table(
        fields,
        names,
        lambda: Rows(rows(stream, ""), None if late is None else rows(late, ".late")),
        place="a stream of Python",
        step="row" if time is None else "time",
        time=time or "",
    )


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
        raise SqlError([Fault("LIKE and AS are not supported", wrong.span, text)])
    fields, physical, items = _columns(statement.elements, text)
    marks = [it for it in statement.elements if isinstance(it, tree.Watermark)]
    if len(marks) > 1:
        raise SqlError([Fault("a table has one watermark; remove this one", marks[1].span, text)])
    mark = marks[0] if marks else None
    bound = None if mark is None else _watermark(mark, fields, text)
    if mark is not None:
        fields = tuple(replace(it, is_time=it.name == mark.column.text) for it in fields)
    options = {key: expanded(value, node.span, text) for key, value, node in statement.options}
    url = options.pop("url", None)
    if url is None:
        if options or mark or items:
            cure = "add 'url' = 'kafka://broker/bids' or the like"
            wrong_ = f"a table with options, a watermark or computed columns has a source; {cure}"
            raise SqlError([Fault(wrong_, statement.name.span, text)])
        return Table(fields, names)
    place = next((at for at, it in enumerate(fields) if it.is_time), None)
    name = statement.name.text

    def build() -> Rows:
        connection, as_json = _typed(connect(name, url, options), physical)
        stream = provider.new_stream().source(names.own("source"), connection)
        rows = stream.map(names.give("row"), door(physical, as_json=as_json, may_lack=prompt is not None))
        if items is not None:
            rows = rows.filter_map_many(names.give("computed"), chain(None, items, len(physical), text))
        if place is None:
            return Rows(rows)
        timed = rows.event_time(names.give("watermark"), _time_at(place), out_of_orderness=bound)
        return Rows(timed, timed.late)

    def placed() -> Rows:
        with written_at(f"{text.name}:{text.position(statement.span.start)[0]}"):
            return build()

    return Table(
        fields,
        names,
        placed,
        lambda: connect(name, url, options),
        place=str(Address.parse(url)),
        step="watermark" if mark else "calc" if items else "row",
        time=str(mark.rule) if mark else "",
        ends=prompt is not None and prompt.ends(url, options),
    )


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
    """Return the class of the values of a type that is written as text; times stay texts, as the door reads these."""
    found: Any = _CLASSES.get(kind.kind, str)
    return found | None if kind.nullable and kind.kind not in TEXTS else found


_CLASSES = {**dict.fromkeys(INTEGERS, int), "FLOAT": float, "DOUBLE": float, "DECIMAL": Decimal, "BOOLEAN": bool}


def _time_at(place: int) -> Callable[[Any], Any]:
    return lambda message: message.value[place]


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


def _watermark(mark: tree.Watermark, fields: tuple[Field, ...], text: Source) -> int:
    """Return how far rows may be out of order, in units of the column."""
    scope = Scope(fields, text)
    found = next((it for it in fields if it.name == mark.column.text), None)
    if found is None:
        hint = did_you_mean(mark.column.text, [it.name for it in fields])
        raise scope.fault(f"no column {mark.column.text!r}{hint}", mark.column.span)
    if found.type.kind not in TIMES:
        raise scope.fault(f"{found.type.name} is not a time; use TIMESTAMP, or compute one", mark.column.span)
    rule = ExpressionBinder(scope).bind(mark.rule)
    if isinstance(rule, Column) and rule.name == found.name:
        return 0
    if isinstance(rule, Strict) and rule.template == "({0} - {1})":
        column, span = rule.operands
        if isinstance(column, Column) and column.name == found.name and isinstance(span, Value):
            return int(span.value)
    cure = f"write {found.name}, or {found.name} - INTERVAL '5' SECOND"
    raise scope.fault(f"a watermark follows its column at a constant distance; {cure}", mark.rule.span)


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def expanded(value: str, span: Span, text: Source) -> str:
    """Return a value with `${NAME}` and `${NAME:-default}` replaced from the environment, once."""

    def found(match: re.Match[str]) -> str:
        name, default = match.groups()
        given: str | None = os.environ.get(name, default)
        if given is None:
            cure = f"set it, or write ${{{name}:-default}}"
            raise SqlError([Fault(f"the environment variable {name} is not set; {cure}", span, text)])
        return given

    return _VARIABLE.sub(found, value)
