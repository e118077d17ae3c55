"""SQL from Python: a catalogue of streams, and queries that become streams."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from malflow.aggregators.contract import Aggregator
from malflow.errors import GraphError
from malflow.sql.bind.relations import Relation
from malflow.sql.build.doors import Exit
from malflow.sql.build.python_aggregates import PythonAggregate
from malflow.sql.build.python_functions import Function
from malflow.sql.build.python_types import columns_of_class, type_of_hint
from malflow.sql.build.streams import Leaving
from malflow.sql.catalog import Catalog
from malflow.sql.functions.times import instant
from malflow.sql.syntax.expressions import quoted_name
from malflow.sql.text import NOWHERE, Source
from malflow.sql.typed import Value
from malflow.sql.types import DATE, DAYS, SqlType, timestamp
from malflow.words import class_name, short_repr

__all__ = ["ColumnType", "Sql", "SqlRows", "catalog_name", "read_source", "sql_flow"]


class ColumnType(NamedTuple):
    """A column of a query.

    Attributes:
        name: its name.
        type: its type, as Flink prints it, without a word about NULL.
        nullable: whether it may be NULL.
    """

    name: str
    type: str
    nullable: bool


class SqlRows:
    """The rows of a query.

    Attributes:
        columns: its columns.
    """

    def __init__(self, relation: Relation, leaving: Leaving, explain: Callable[[], str]) -> None:
        self.columns = [ColumnType(it.name, it.type.name, it.type.nullable) for it in relation.fields]
        self._fields = relation.fields
        self._leaving = leaving
        self._explain = explain

    def explain(self) -> str:
        """Return the tree of the query as text: names of operators, what bounds their states, where late rows go."""
        return self._explain()

    def rows(self, as_: Any = dict) -> Any:
        """Return the rows as a stream of dicts, of tuples, or of instances of a class.

        TIMESTAMP columns become datetimes without a zone, TIMESTAMP_LTZ columns datetimes in UTC. The timestamps of the
        records are numbers, in units of the precision of the time attribute, also of a stream that came with datetimes:
        only its records tell their kind, and a query may read other streams beside it. Of those of a TIMESTAMP(3),
        ``.convert_timestamps("times", lambda at: datetime(1970, 1, 1) + timedelta(milliseconds=at))`` makes datetimes.

        Args:
            as_: ``dict``, ``tuple``, or a class that is called with the columns in their order.
        """
        return self._leaving(Exit(self._fields, as_))


class Sql:
    """A catalogue: tables, views and functions by name, and queries over them.

    Args:
        catalog: the tables, views and functions.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def table(self, name: str, stream: Any, schema: Any, *, time: str | None = None, late: Any = None) -> None:
        """Make a stream a table.

        Its values are mappings, tuples in the order of the columns, or objects with attributes.

        Args:
            name: the name of the table.
            stream: the stream.
            schema: the columns with their types, as in CREATE TABLE; or a dataclass, named tuple or typed dict.
            time: the column that holds the timestamps of the records. These are datetimes, or numbers in units of the
                column's precision.
            late: the late records of the stream; those of `event_time` are found without it.

        Raises:
            GraphError: if the schema has faults, or the column of the time is not in it.
        """
        if not hasattr(stream, "filter_map_many"):
            cure = "pass a stream, such as .changes() of a table"
            raise GraphError(f"table {name!r} needs rows that are added; got {class_name(stream)}; {cure}")
        text = schema if isinstance(schema, str) else _schema_of(schema)
        found = getattr(stream, "late", None) if late is None else late
        self._catalog.add_stream(name, Source(text, f"the schema of {name}"), stream, found, time)

    def function(self, function: Callable[..., Any], name: str | None = None) -> None:
        """Make a function of Python one of SQL.

        Its annotations are the types. Where a parameter is not ``| None`` it is not called with NULL, and the result is
        NULL. A row that fails is processed again, so the function may be called twice for it. After a restart it must
        return the same for the same row, or results change.

        A generator is a table function, for ``LATERAL TABLE(f(x)) AS t(a, b)``. Its annotation is ``Iterator[int]``,
        ``Iterator[tuple[int, str]]``, or an iterator of a dataclass, named tuple or typed dict with the columns. All of
        its rows for one row of the input are in memory at once.

        Args:
            function: the function.
            name: its name in SQL; by default its own. SQL writes it in any case.

        Raises:
            GraphError: if an annotation is missing, or has no type of SQL, or the name is taken.
        """
        if not callable(function):
            raise GraphError(f"sql.function needs a function; got {short_repr(function)}")
        called = name or getattr(function, "__name__", None)
        if called is None:
            raise GraphError(f"{short_repr(function)} has no name; write name='dear', for example")
        self._catalog.add_function(called, Function(called, function))

    def aggregator(
        self, name: str, aggregator: Aggregator[Any, Any, Any], *, takes: Any = None, returns: Any = None
    ) -> None:
        """Make an aggregator of Python, such as ``agg.quantile(None, 0.99)``, an aggregate of SQL.

        Rows with NULL in an argument are skipped. Without a row the result is NULL. FILTER works; DISTINCT does not.
        The aggregator gets the argument as a value of Python, or a tuple if there are several.

        Args:
            name: its name in SQL, in any case.
            aggregator: the aggregator, of `malflow.agg` or derived from `malflow.agg.Aggregator`.
            takes: the type of its argument, as in SQL or as an annotation; several in a tuple. By default that of its
                class, such as ``Aggregator[float, list[float], float]``, else one argument of any type.
            returns: the type of its result, in the same way. Results are checked.

        Raises:
            GraphError: if it is not an aggregator, a type is missing or unknown, or the name is taken.
        """
        self._catalog.add_function(name, PythonAggregate(name, aggregator, takes=takes, returns=returns))

    def run(self, text: str | Path, *, tell: Callable[[str], object] = print, python: bool = True) -> list[str]:
        """Run statements: CREATE TABLE, CREATE VIEW, INSERT INTO and the like.

        Args:
            text: the statements, or the path of a file.
            tell: gets the answer of each EXPLAIN, DESCRIBE and SHOW as text; by default it is printed.
            python: whether CREATE FUNCTION may import modules of Python. Their code runs when they are imported.

        Returns:
            The names of the tables that INSERTs write to so far.

        Raises:
            SqlError: with all faults of all statements.
        """
        return self._catalog.run(read_source(text), tell, python=python)

    def query(self, name: str, text: str, /, **parameters: Any) -> SqlRows:
        """Return the rows of a query.

        Args:
            name: the name of the query, below which its operators have their names.
            text: the query.
            parameters: the values of its parameters: ``floor=10`` for ``:floor``. They are values, never text.

        Raises:
            SqlError: with all faults of the query.
        """
        given = {key: _value_of(key, it) for key, it in parameters.items()}
        source = Source(text, name)
        relation, leaving = self._catalog.query(name, source, given)
        return SqlRows(relation, leaving, partial(self._catalog.explained, [(None, relation)], source))


def read_source(text: str | Path) -> Source:
    """Return a text, or that of a file.

    Raises:
        GraphError: if the file can't be read, or is not UTF-8.
    """
    if isinstance(text, str):
        return Source(text)
    try:
        return Source(text.read_text(encoding="utf-8-sig"), text.name)
    except UnicodeDecodeError as error:
        raise GraphError(f"{text} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise GraphError(f"{text} can't be read: {error}") from None


def _schema_of(kind: Any) -> str:
    """Return the columns of a class as text."""
    columns = columns_of_class(kind)
    if columns is None:
        raise GraphError(f"a schema is text, a dataclass, a named tuple or a typed dict; got {short_repr(kind)}")
    return ", ".join(f"{quoted_name(name)} {it}" for name, it in columns.items())


def _value_of(name: str, value: Any) -> Value:
    """Return a parameter as a typed literal.

    Raises:
        GraphError: if it has no type.
    """
    if value is None:
        return Value(SqlType("NULL"), NOWHERE, None)
    if isinstance(value, timedelta):
        return Value(DAYS.as_nullable(False), NOWHERE, value // timedelta(microseconds=1))
    if isinstance(value, datetime):
        kind = timestamp(6, "TIMESTAMP" if value.tzinfo is None else "TIMESTAMP_LTZ")
        return Value(kind.as_nullable(False), NOWHERE, instant(value, 6))
    if isinstance(value, date):
        return Value(DATE.as_nullable(False), NOWHERE, value.toordinal() - date(1970, 1, 1).toordinal())
    if isinstance(value, Decimal) and value.is_finite():
        _, digits, exponent = value.as_tuple()
        scale = max(0, -int(exponent))
        return Value(SqlType("DECIMAL", False, max(len(digits), scale, 1), scale), NOWHERE, value)
    if type(value) not in {bool, int, float, str, bytes}:
        raise GraphError(f"parameter {name!r} is {short_repr(value)}, which has no type of SQL")
    return Value(type_of_hint(type(value), name), NOWHERE, value)


def catalog_name(stem: str) -> str:
    """Return the name of the catalogue of a file."""
    return re.sub(r"\W", "_", stem)


def sql_flow(file: Path, *, python: bool = True) -> Callable[[Any], None]:
    """Return the build function of a file of statements; its catalogue has the name of the file.

    Args:
        file: the file.
        python: whether CREATE FUNCTION may import modules of Python.
    """
    name = catalog_name(file.stem)

    def build(provider: Any) -> None:
        provider.sql(name).run(file, tell=lambda answer: print(answer, file=sys.stderr), python=python)

    return build
