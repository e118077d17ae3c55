"""CREATE TABLE: the columns, time and options that a statement declares, and the source or sink that they stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from malflow.connectors.address import Address
from malflow.connectors.by_name import Replacement
from malflow.connectors.option_texts import read_text
from malflow.diagnostics import written_at
from malflow.errors import GraphError
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.names import Names
from malflow.sql.bind.scope import Field, Scope, meant
from malflow.sql.bind.sources import collected
from malflow.sql.build.chains import every
from malflow.sql.build.doors import Door, recorded
from malflow.sql.build.streams import Rows
from malflow.sql.settings import Settings
from malflow.sql.syntax import queries as tree
from malflow.sql.tables import OF_JSON, Entry, Outlet, Table, made_rows
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Typed
from malflow.sql.types import INTEGERS, TEXTS, TIMES, SqlType
from malflow.sql.watermarks import Option, Options, Watermark, watermark_of
from malflow.store import references
from malflow.words import did_you_mean

__all__ = ["Connect", "Outside", "Prompt", "created", "csv_options", "declared_options", "expanded"]

Connect = Callable[[str, str, dict[str, str]], Any]
"""Returns the source or sink of a table by its name, its URL and its options."""


class Prompt(Protocol):
    """What is known at a prompt only."""

    def created(self, path: str) -> str:
        """Return the CREATE TABLE of a path or URL in quotes."""

    def ends(self, url: str, options: Mapping[str, str]) -> bool:
        """Whether the rows of a URL end."""


class Outside(NamedTuple):
    """What the tables of a catalogue are connected by.

    Attributes:
        provider: the dataflow.
        connect: returns the source or sink of a table.
        settings: what SET has set.
        prompt: what is known at a prompt; None in flows.
    """

    provider: Any
    connect: Connect
    settings: Settings
    prompt: Prompt | None = None


def expanded(value: str, span: Span, text: Source, what: str = "the text") -> str:
    """Return a value with `${NAME}` and `${NAME:-default}` replaced from the environment, once.

    Raises:
        SqlError: if a variable is missing.
    """
    try:
        return references.expanded(value, os.environ)
    except ValueError as error:
        raise SqlError([Fault(f"{what} {error}", span, text)]) from None


def declared_options(given: Sequence[tuple[str, str, Span]], table: str, text: Source) -> Options:
    """Return options with their variables replaced.

    Raises:
        SqlError: if one comes twice, a variable is missing, or a secret is written in the text.
    """
    found: Options = {}

    def add(it: tuple[str, str, Span]) -> None:
        key, value, span = it
        wrong = f"option {key!r} comes twice" if key in found else ""
        is_written = references.is_written_secret(("operators", table, "options", key), value)
        if is_written and not references.references(value):
            wrong = f"option {key!r} has a secret that is written in the text; write ${{NAME}} for a variable"
        if wrong:
            raise SqlError([Fault(wrong, span, text)])
        found[key] = Option(expanded(value, span, text, f"option {key!r}"), span, text)

    collected(add, given)
    return found


def created(
    statement: tree.CreateTable, text: Source, names: Names, outside: Outside, hint: Options | None = None
) -> Table:
    """Return the table that a statement creates.

    Args:
        statement: the statement, without LIKE.
        text: its text.
        names: names for its operators.
        outside: the dataflow and its connections.
        hint: options that take precedence, for a reading of its own.

    Raises:
        SqlError: if it has faults.
    """
    if statement.query:
        cure = "write CREATE VIEW, or CREATE TABLE and INSERT INTO"
        raise SqlError([Fault(f"CREATE TABLE ... AS SELECT is not supported; {cure}", statement.query.span, text)])
    name = statement.name.text
    written = [(key, value, node.span) for key, value, node in statement.options]
    columns, given = collected(
        lambda it: it(), [lambda: _columns(statement, text), lambda: declared_options(written, name, text)]
    )
    options = {**given, **(hint or {})}
    mark = watermark_of(statement, columns.fields, options, text)
    if mark is not None:
        fields = tuple(replace(it, is_time=it.name == mark.column) for it in columns.fields)
        columns = columns._replace(fields=fields)
    if "url" not in options:
        if wrong := _without_url(options, columns, statement.name.span):
            raise SqlError([Fault(*wrong, text)])
        return Table(
            columns.fields, names, mark=mark, step=f"{names}.watermark" if mark and mark.bound is not None else ""
        )
    if mark is not None and mark.bound is None:
        cure = f"write {mark.column} - INTERVAL '5' SECOND"
        raise SqlError([Fault(f"a source has no watermark of its own; {cure}", mark.span, text)])
    url = options["url"].value
    plain = {key: it.value for key, it in options.items() if key != "url"}
    if columns.facts:
        _check_facts(columns.facts, url, plain, text)
    connected = _Connected(statement, text, names, outside, columns, mark, (url, plain), options)
    step = f"{names}.watermark" if mark else f"{names}.row" if columns.items else str(names)
    table = Table(
        columns.fields,
        names,
        Entry(connected.rows, None if mark or columns.items else connected.values, is_checked=not columns.items),
        outlet=Outlet(connected.made, columns.stored, columns.refusal, connected.placed),
        place=str(Address.parse(url)),
        step=step,
        mark=mark,
    )
    table.ends = outside.prompt is not None and outside.prompt.ends(url, plain)
    return table


_FLINK = {
    "kafka": "'url' = 'kafka://broker:9092/topic', 'format' = 'json', 'start' = 'earliest'",
    "upsert-kafka": "'url' = 'kafka://broker:9092/topic', 'format' = 'json'",
    "filesystem": "'url' = 'folder/*.jsonl', or an URL such as 's3://bucket/folder/*.parquet'",
    "jdbc": "'url' = 'postgres://host/database', 'table' = 'bids'",
    "datagen": "'url' = 'bids.jsonl', or a source in Python: sql.table('bids', stream, ...)",
    "print": "'url' = 'printed.jsonl'",
    "blackhole": "'url' = 'out.jsonl'",
}
"""Connectors of Flink, with the options that are written here."""


def _without_url(options: Options, columns: Columns, span: Span) -> tuple[str, Span] | None:
    """Return the fault of a table without a URL, and its place; None if it is one that INSERTs fill."""
    cure = "add 'url' = 'kafka://broker/bids' or the like"
    if connector := options.get("connector"):
        write = _FLINK.get(connector.value, "'url' = 'kafka://broker:9092/topic' or the like")
        return f"a table has a URL in place of 'connector' = {connector.value!r}; write {write}", connector.span
    for key, it in options.items():
        near = did_you_mean(key, ["url"], else_="")
        return f"option {key!r} is about a source{near or f'; {cure}'}", it.span
    if columns.is_computed:
        return f"computed columns are of a source; {cure}", span
    return None


def _key_of(reason: str, options: Options) -> str:
    """Return the option that an error of a connector is about: it names the key or the value, or else it is the URL."""
    by_key = (key for key in options if f"'{key}'" in reason or f" {key} " in reason)
    by_value = (key for key, it in options.items() if key != "url" and repr(it.value) in reason)
    return next(by_key, None) or next(by_value, "url")


class _Connected:
    """The streams and the sink of a table with a URL."""

    def __init__(
        self,
        statement: tree.CreateTable,
        text: Source,
        names: Names,
        outside: Outside,
        columns: Columns,
        mark: Watermark | None,
        address: tuple[str, dict[str, str]],
        options: Options,
    ) -> None:
        self._statement, self._text, self._names, self._outside = statement, text, names, outside
        self._columns, self._mark, self._address, self._options = columns, mark, address, options
        self._on_error: Any = outside.settings.on_error
        self._values: tuple[Rows, Door] | None = None

    def made(self) -> Any:
        """Return a new source or sink."""
        return self._outside.connect(self._statement.name.text, *self._address)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Name the line of the statement in operators, and the option that is wrong in errors.

        Raises:
            SqlError: in place of an error of the connector.
        """
        text = self._text
        try:
            with written_at(f"{text.name}:{text.position(self._statement.span.start)[0]}"):
                yield
        except SqlError:
            raise
        except GraphError as error:
            _, span, source = self._options[_key_of(error.reason, self._options)]
            raise SqlError([Fault(error.reason, span, source)]) from error

    def values(self) -> tuple[Rows, Door]:
        """Return the values of its source, and the door that makes rows of them."""
        if self._values is None:
            with self.placed():
                self._values = self._taken()
        return self._values

    def _taken(self) -> tuple[Rows, Door]:
        columns, names = self._columns, self._names
        connection, as_json = _typed(self.made(), columns.own)
        stream = self._outside.provider.new_stream().source(names.own("source"), connection)
        facts = [it for it, _, _ in columns.facts]
        if facts and getattr(connection, "connector", "") == "kafka":
            row = recorded([it.name for it in columns.own], [key for _, key, _ in columns.facts])
            stream = stream.map(names.give("record"), row, on_error=self._on_error)
        is_prompt = self._outside.prompt is not None
        return Rows(stream), Door(
            [*columns.own, *facts], self._statement.name.text, as_json=as_json, may_lack=is_prompt
        )

    def rows(self) -> Rows:
        """Return its rows."""
        with self.placed():
            columns, names = self._columns, self._names
            items = columns.items or every([*columns.own, *(it for it, _, _ in columns.facts)])
            found = made_rows(*self.values(), names, items, self._text, self._on_error)
            if self._mark is None:
                return found
            idle = self._outside.settings.idle_of(columns.fields[self._mark.place].type.size)
            mark = replace(self._mark, options={**idle, **self._mark.options, "on_error": self._on_error})
            return mark.rows(found.on_time, names.give("watermark"))


def _typed(connection: Any, fields: Sequence[Field]) -> tuple[Any, bool]:
    """Return a connection with the types of the columns if it reads texts, and whether it reads JSON."""
    connector = getattr(connection, "connector", "")
    if connector != "file+csv":
        return connection, connector in OF_JSON
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


class Columns(NamedTuple):
    """The columns of a table.

    Attributes:
        fields: all columns.
        own: the columns that the rows of its source bring.
        facts: the columns that the source knows about a record: each with its key and its place in the text.
        items: all columns as calculations of the own ones and the facts; None if they are the same.
        stored: the columns that INSERTs fill.
        refusal: why INSERTs can't fill it; empty if they can.
    """

    fields: tuple[Field, ...]
    own: tuple[Field, ...]
    facts: tuple[tuple[Field, str, Span], ...]
    items: list[Typed] | None
    stored: tuple[Field, ...]
    refusal: str

    @property
    def is_computed(self) -> bool:
        """Whether it has columns that rows of INSERTs do not have."""
        return bool(self.facts) or self.items is not None


def _columns(statement: tree.CreateTable, text: Source) -> Columns:
    defs = [it for it in statement.elements if isinstance(it, tree.ColumnDef)]
    own = tuple(Field(it.name.text, it.type) for it in defs if it.metadata is None)
    facts = tuple((Field(it.name.text, it.type), it.metadata, it.span) for it in defs if it.metadata is not None)
    scope = Scope((*own, *(it for it, _, _ in facts)), text)
    taken: set[str] = set()

    def item(it: tree.ColumnDef | tree.Computed | tree.Watermark | tree.PrimaryKey) -> tuple[Field, Typed] | None:
        if isinstance(it, tree.PrimaryKey):
            cure = "remove it, or make a table of the last row by key in Python: to_table()"
            raise scope.fault(f"PRIMARY KEY is not supported: rows are added, none is replaced; {cure}", it.span)
        if isinstance(it, tree.Watermark):
            return None
        name = it.name.text
        if name in taken:
            raise scope.fault(f"two columns are called {name!r}", it.name.span)
        taken.add(name)
        if isinstance(it, tree.Computed):
            found = ExpressionBinder(scope).bind(it.expression)
            return Field(name, found.type), found
        at = next(at for at, known in enumerate(scope.fields) if known.name == name)
        return Field(name, it.type), scope.column(at, it.span)

    made = [it for it in collected(item, statement.elements) if it]
    if not made:
        raise scope.fault("a table needs columns", statement.name.span)
    fields, items = tuple(it for it, _ in made), [it for _, it in made]
    computed = {it.name.text for it in statement.elements if isinstance(it, tree.Computed)}
    virtual = {it.name.text for it in defs if it.virtual}
    fact = next((it for it, _, _ in facts if it.name not in virtual), None)
    refusal = f"has a column {fact.name!r} of METADATA, which is read only; write VIRTUAL after it" if fact else ""
    is_same = [it.index for it in items if isinstance(it, Column)] == [*range(len(scope.fields))] and not computed
    stored = tuple(it for it in fields if it.name not in computed | virtual)
    return Columns(fields, own, facts, None if is_same else items, stored, refusal)


# METADATA


def _is_millis(kind: SqlType) -> bool:
    return kind.kind == "BIGINT" or (kind.kind in TIMES and kind.size == _MILLIS)


def _is_headers(kind: SqlType) -> bool:
    return kind.kind == "MAP" and kind.items[0].kind == "VARCHAR" and kind.items[1].kind == "VARBINARY"


_MILLIS = 3
"""Digits of a second that Kafka's timestamps have."""

_FACTS: dict[str, tuple[Callable[[SqlType], bool], str]] = {
    "key": (lambda kind: True, ""),
    "timestamp": (_is_millis, "TIMESTAMP_LTZ(3)"),
    "headers": (_is_headers, "MAP<STRING, BYTES>"),
    "topic": (lambda kind: kind.kind in TEXTS, "STRING"),
    "partition": (lambda kind: kind.kind in INTEGERS, "INT"),
    "offset": (lambda kind: kind.kind in INTEGERS, "BIGINT"),
}
"""The facts about a record of Kafka: whether a type holds them, and the usual type."""


def _check_facts(facts: Sequence[tuple[Field, str, Span]], url: str, options: dict[str, str], text: Source) -> None:
    """Check METADATA columns, and set the options by which the source gives them.

    Raises:
        SqlError: if a fact is unknown, or its type does not hold it.
    """
    faults: list[Fault] = []
    for it, key, span in facts:
        fits, usual = _FACTS.get(key, (None, ""))
        wrong = "" if fits else f"no metadata {key!r}{meant(key, _FACTS)}"
        if fits and not fits(it.type):
            wrong = f"the metadata {key!r} is {usual}, not {it.type.name}"
        if Address.parse(url).scheme != "kafka":
            wrong = "METADATA columns are of Kafka's records only; read others in Python, and call sql.table"
        faults += [Fault(wrong, span, text)] if wrong else []
        if key == "key":
            kinds = {"VARBINARY": "bytes", "BINARY": "bytes", "VARCHAR": "text", "CHAR": "text"}
            options.setdefault("decode_key", kinds.get(it.type.kind, "json"))
    if options.setdefault("emit", "record") != "record":
        faults.append(Fault("METADATA columns need 'emit' = 'record'; remove the option", facts[0][2], text))
    if faults:
        raise SqlError(faults)
