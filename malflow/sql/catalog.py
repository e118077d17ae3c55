"""The catalogue: tables, views and functions by name, and the statements that change it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from malflow.connectors.by_name import Connection, connect
from malflow.diagnostics import written_at
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.names import Names
from malflow.sql.bind.queries import QueryBinder
from malflow.sql.bind.relations import Calc, Relation, Scan
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.bind.sources import Environment, collected
from malflow.sql.build.chains import chain
from malflow.sql.build.doors import door, exit_of
from malflow.sql.build.python_functions import Function, imported
from malflow.sql.build.streams import Rows, StreamBuilder
from malflow.sql.casts import cast
from malflow.sql.parser.statements import parse
from malflow.sql.syntax import queries as tree
from malflow.sql.text import NOWHERE, Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Strict, Typed, Value
from malflow.sql.types import TIMES, fits
from malflow.words import did_you_mean, plural

__all__ = ["Catalog"]


class _Table:
    """A table: its columns, and the streams of its rows.

    Args:
        fields: its columns.
        names: the names of its operators.
        build: builds the streams of its rows; None for one that has no URL: INSERTs fill it.
        connection: makes what its rows are written to; None if it can't be written to.
    """

    def __init__(
        self,
        fields: tuple[Field, ...],
        names: Names,
        build: Callable[[], Rows] | None,
        connection: Callable[[], Connection] | None = None,
    ) -> None:
        self.fields = fields
        self.names = names
        self.connection = connection
        self.inserted: list[Rows] = []
        self._build = build
        self._rows: Rows | None = None

    @property
    def is_internal(self) -> bool:
        """Whether INSERTs fill it."""
        return self._build is None

    def rows(self) -> Rows | None:
        """Return its streams, built once; None if nothing fills it."""
        if self._rows is None:
            self._rows = self._build() if self._build is not None else self._united()
        return self._rows

    def _united(self) -> Rows | None:
        """Return the rows that were inserted."""
        if not self.inserted:
            return None
        on_time, late = [it.on_time for it in self.inserted], [it.late for it in self.inserted if it.late is not None]
        return Rows(on_time[0].union(*on_time[1:]), late[0].union(*late[1:]) if late else None)


class Catalog:
    """Tables, views and functions, and the dataflow that they are part of.

    Args:
        provider: the dataflow.
        name: the beginning of the names of its operators.
    """

    def __init__(self, provider: Any, name: str) -> None:
        self._provider = provider
        self.name = name
        self._names = Names((name,))
        self._tables: dict[str, _Table] = {}
        self._views: dict[str, Relation] = {}
        self._functions: dict[str, Any] = {}

    def names(self, name: str) -> Names:
        """Return the names below that of a query."""
        return self._names.below(name)

    def add_stream(self, name: str, schema: Source, stream: Any, late: Any, time: str | None) -> None:
        """Make a stream a table."""
        fields, _ = self._columns(self._schema_of(schema), schema)
        if time is not None:
            fields = tuple(replace(it, is_time=it.name == time) for it in fields)
        made = door(fields)
        names = self._names.below(name)
        operator = names.give("row")

        def build() -> Rows:
            on_time = stream.map(operator, made)
            return Rows(on_time, None if late is None else late.map(f"{operator}.late", made))

        self._tables[name] = _Table(fields, names, build)

    def _schema_of(self, schema: Source) -> tree.CreateTable:
        """Return the columns of a schema's text."""
        statements, faults = parse(Source(f"CREATE TABLE t ({schema.text})", schema.name))
        if faults:
            raise SqlError(faults)
        if len(statements) != 1 or not isinstance(statements[0], tree.CreateTable):
            raise SqlError([Fault("expected columns, as in 'id BIGINT, city STRING'", Span(0, 0), schema)])
        return statements[0]

    def run(self, text: Source) -> None:
        """Run the statements of a text.

        Raises:
            SqlError: with all faults that were found.
        """
        statements, faults = parse(text)
        try:
            collected(lambda it: self._run(it, text), statements)
        except SqlError as error:
            faults += error.faults
        if faults:
            raise SqlError(faults)

    def add_function(self, name: str, function: Callable[..., Any]) -> None:
        """Make a function of Python one of SQL."""
        self._functions[name] = Function(name, function)

    def query(self, name: str, text: Source, parameters: Mapping[str, Value]) -> tuple[tuple[Field, ...], Rows]:
        """Return the columns of a query, and its streams."""
        statements, faults = parse(text)
        if faults:
            raise SqlError(faults)
        if len(statements) != 1 or not isinstance(statements[0], tree.Query):
            raise SqlError([Fault("expected one query", Span(0, len(text.text)), text)])
        relation = self._binder(text, parameters, self._names.below(name)).bind(statements[0])
        return relation.fields, self._builder(text).rows(relation)

    def _binder(self, text: Source, parameters: Mapping[str, Value], names: Names) -> QueryBinder:
        environment = Environment(text, self._relation, lambda: [*self._tables, *self._views], parameters)
        return QueryBinder(replace(environment, functions=self._functions), names)

    def _builder(self, text: Source) -> StreamBuilder:
        return StreamBuilder(self._provider, self._rows, text)

    def _relation(self, name: str) -> Relation | None:
        if name in self._views:
            return self._views[name]
        table = self._tables.get(name)
        return None if table is None else Scan(table.fields, name, name)

    def _rows(self, name: str) -> Rows:
        rows = self._tables[name].rows()
        if rows is None:
            raise TypeError(f"nothing fills table {name!r}")
        return rows

    def _run(self, statement: tree.Statement, text: Source) -> None:
        with written_at(f"{text.name}:{text.position(statement.span.start)[0]}"):
            self._run_here(statement, text)

    def _run_here(self, statement: tree.Statement, text: Source) -> None:
        match statement:
            case tree.CreateTable():
                self._create_table(statement, text)
            case tree.CreateView():
                names = self._names.below(statement.name.text)
                self._views[statement.name.text] = self._binder(text, {}, names).bind(statement.query)
            case tree.Insert():
                self._insert(statement, text)
            case tree.StatementSet():
                collected(lambda it: self._insert(it, text), statement.inserts)
            case tree.CreateFunction():
                self._functions[statement.name.text] = imported(statement, text)
            case tree.Query():
                raise SqlError([Fault("the rows of a query go nowhere; write INSERT INTO", statement.span, text)])
            case _:
                raise SqlError([Fault("this statement is not supported here", statement.span, text)])

    def _columns(self, statement: tree.CreateTable, text: Source) -> tuple[tuple[Field, ...], Any]:
        """Return the columns of a table, and the calculation of those that are computed; None if there is none."""
        physical = tuple(Field(it.name.text, it.type) for it in statement.elements if isinstance(it, tree.ColumnDef))
        binder = ExpressionBinder(Scope(physical, text))
        fields: list[Field] = []
        items: list[Typed] = []
        for it in statement.elements:
            if isinstance(it, tree.ColumnDef):
                at = next(at for at, known in enumerate(physical) if known.name == it.name.text)
                items.append(Column(it.type, it.span, at, it.name.text))
                fields.append(physical[at])
            elif isinstance(it, tree.Computed):
                items.append(binder.bind(it.expression))
                fields.append(Field(it.name.text, items[-1].type))
        doubled = [it.name for at, it in enumerate(fields) if it.name in {known.name for known in fields[:at]}]
        if doubled:
            raise SqlError([Fault(f"two columns are called {doubled[0]!r}", statement.span, text)])
        is_computed = len(items) > len(physical)
        return tuple(fields), (physical, items if is_computed else None)

    def _create_table(self, statement: tree.CreateTable, text: Source) -> None:
        name = statement.name.text
        if name in self._tables or name in self._views:
            if statement.if_not_exists:
                return
            raise SqlError([Fault(f"there is a table {name!r} already", statement.name.span, text)])
        if statement.like or statement.query:
            raise SqlError([Fault("LIKE and AS are not supported", statement.span, text)])
        fields, (physical, items) = self._columns(statement, text)
        mark = next((it for it in statement.elements if isinstance(it, tree.Watermark)), None)
        bound = None if mark is None else self._watermark(mark, fields, text)
        if mark is not None:
            fields = tuple(replace(it, is_time=it.name == mark.column.text) for it in fields)
        options = {key: expanded(value, node.span, text) for key, value, node in statement.options}
        url = options.pop("url", None)
        names = self._names.below(name)
        if url is None:
            if options or mark or items:
                cure = "add 'url' = '...', such as 'kafka://broker/bids'"
                raise SqlError([Fault(f"a table with options, a watermark or computed columns has a source; {cure}",
                                      statement.name.span, text)])  # fmt: skip
            self._tables[name] = _Table(fields, names, None)
            return
        place = next((at for at, it in enumerate(fields) if it.is_time), None)

        def build() -> Rows:
            with written_at(f"{text.name}:{text.position(statement.span.start)[0]}"):
                return read()

        def read() -> Rows:
            stream = self._provider.new_stream().source(names.own("source"), connect(url, **options))
            rows = stream.map(names.give("row"), door(physical))
            if items is not None:
                rows = rows.filter_map_many(names.give("calc"), chain(None, items, len(physical), text))
            if place is None:
                return Rows(rows)
            timed = rows.event_time(names.give("watermark"), _time_at(place), out_of_orderness=bound)
            return Rows(timed, timed.late)

        self._tables[name] = _Table(fields, names, build, lambda: connect(url, **options))

    def _watermark(self, mark: tree.Watermark, fields: tuple[Field, ...], text: Source) -> int:
        """Return how far rows may be out of order, in units of the column."""
        found = next((it for it in fields if it.name == mark.column.text), None)
        if found is None:
            hint = did_you_mean(mark.column.text, [it.name for it in fields])
            raise SqlError([Fault(f"no column {mark.column.text!r}{hint}", mark.column.span, text)])
        if found.type.kind not in TIMES:
            raise SqlError([Fault(f"{found.type.name} is no time; use TIMESTAMP", mark.column.span, text)])
        rule = ExpressionBinder(Scope(fields, text)).bind(mark.rule)
        if isinstance(rule, Column) and rule.name == found.name:
            return 0
        if isinstance(rule, Strict) and rule.template == "({0} - {1})":
            column, span = rule.operands
            if isinstance(column, Column) and column.name == found.name and isinstance(span, Value):
                return int(span.value)
        cure = f"write {found.name}, or {found.name} - INTERVAL '5' SECOND"
        raise SqlError([Fault(f"a watermark follows its column at a constant distance; {cure}", mark.rule.span, text)])

    def _insert(self, statement: tree.Insert, text: Source) -> None:
        name = statement.table.text
        table = self._tables.get(name)
        if table is None:
            hint = did_you_mean(name, self._tables, else_="CREATE TABLE makes one")
            raise SqlError([Fault(f"no table {name!r}{hint}", statement.table.span, text)])
        names = self._names.below(name)
        relation = self._binder(text, {}, names).bind(statement.query)
        if len(relation.fields) != len(table.fields):
            given = f"{plural(len(relation.fields), 'column')} for {plural(len(table.fields), 'column')} of {name!r}"
            raise SqlError([Fault(given, statement.query.span, text)])
        for it, wanted in zip(relation.fields, table.fields, strict=True):
            if not fits(it.type, wanted.type):
                wrong = f"column {wanted.name!r} of {name!r} is {wanted.type.name}, the query's {it.type.name}; CAST it"
                raise SqlError([Fault(wrong, statement.query.span, text)])
        if table.is_internal:
            fit = self._as(relation, table.fields, names)
            times = [
                it.is_time and (known.is_time or not table.inserted)
                for it, known in zip(fit.fields, table.fields, strict=True)
            ]
            table.fields = tuple(replace(it, is_time=is_time) for it, is_time in zip(table.fields, times, strict=True))
            table.inserted.append(self._builder(text).rows(fit))
            return
        if table.connection is None:
            raise SqlError(
                [Fault(f"{name!r} is a stream of Python: it can't be written to", statement.table.span, text)]
            )
        rows = self._builder(text).rows(self._as(relation, table.fields, names))
        stream = rows.on_time if rows.late is None else rows.on_time.union(rows.late)
        connection = table.connection()
        value = exit_of(table.fields, dict, as_json=connection.connector in _OF_JSON)
        stream.map(names.give("value"), value).sink(names.own("sink"), connection)

    @staticmethod
    def _as(relation: Relation, fields: tuple[Field, ...], names: Names) -> Relation:
        """Return rows as the columns of a table hold them."""
        columns = [Column(it.type, NOWHERE, at, it.name, it.is_time) for at, it in enumerate(relation.fields)]
        items = tuple(cast(it, wanted.type) or it for it, wanted in zip(columns, fields, strict=True))
        made = tuple(replace(it, is_time=given.is_time) for it, given in zip(fields, relation.fields, strict=True))
        if [*items] == columns:
            return replace(relation, fields=made)
        return Calc(made, names.give("calc"), relation, None, items)


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-([^}]*))?\}")


def expanded(value: str, span: Span, text: Source) -> str:
    """Return a value with `${NAME}` and `${NAME:-default}` replaced from the environment.

    Raises:
        SqlError: if a variable has no value.
    """

    def found(match: re.Match[str]) -> str:
        name, default = match.groups()
        given: str | None = os.environ.get(name, default)
        if given is None:
            cure = f"set it, or write ${{{name}:-default}}"
            raise SqlError([Fault(f"the environment variable {name} is not set; {cure}", span, text)])
        return given

    return _VARIABLE.sub(found, value)


_OF_JSON = frozenset({"file+json", "kafka", "http", "https", "redis", "rediss"})
"""Connectors that write JSON."""


def _time_at(place: int) -> Callable[[Any], Any]:
    return lambda message: message.value[place]
