"""The catalogue: tables, views and functions by name, and the statements that change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from malflow.connectors.by_name import connect
from malflow.diagnostics import written_at
from malflow.errors import GraphError
from malflow.sql.bind.names import Names
from malflow.sql.bind.queries import QueryBinder
from malflow.sql.bind.relations import Calc, Relation, Scan, within
from malflow.sql.bind.scope import Field, meant
from malflow.sql.bind.sources import Environment, collected
from malflow.sql.build.python_functions import Function, imported
from malflow.sql.build.streams import Rows, StreamBuilder
from malflow.sql.parser.statements import parse, read_statements
from malflow.sql.syntax import queries as tree
from malflow.sql.tables import Connect, Table, check_columns, created, of_stream
from malflow.sql.text import Fault, Source, Span, SqlError, tokens
from malflow.sql.typed import Column, Typed, Value
from malflow.words import did_you_mean, plural

__all__ = ["Catalog"]


class Catalog:
    """Tables, views and functions, and the dataflow that they are part of.

    Args:
        provider: the dataflow.
        name: the beginning of the names of its operators.
        at_end: calls a function when the rest of the dataflow is complete.
        connect: returns the source or sink of a table; by default by its URL.
    """

    def __init__(
        self,
        provider: Any,
        name: str,
        at_end: Callable[[Callable[[], None]], object],
        connect: Connect | None = None,
    ) -> None:
        self._connect = connect or _by_url
        self._provider = provider
        self._at_end = at_end
        self._names = Names((name,))
        self._tables: dict[str, Table] = {}
        self._views: dict[str, Relation] = {}
        self._functions: dict[str, Any] = {}
        self._queries: set[str] = set()
        self._sinks: dict[str, str] = {}  # of INSERTs in the text, also of later ones: a query that is added moves none
        self._builder = StreamBuilder(provider, lambda name: self._tables[name].rows())

    def names(self, name: str) -> Names:
        """Return the names below that of a table or query."""
        return self._names.below(name)

    def add_stream(self, name: str, schema: Source, stream: Any, late: Any, time: str | None) -> None:
        """Make a stream a table."""
        if name in self._tables or name in self._views:
            raise GraphError(f"there is a table {name!r} already; use another name")
        self._tables[name] = of_stream(schema, stream, late, time, self.names(name))

    def add_function(self, name: str, function: Callable[..., Any]) -> None:
        """Make a function of Python one of SQL."""
        self._functions[name] = Function(name, function)

    def run(self, text: Source) -> list[str]:
        """Run the statements of a text; return the names of the tables that INSERTs write to so far.

        Raises:
            SqlError: with all faults that were found.
        """
        statements, faults = read_statements(text)
        for name in _targets(statements):
            self._sinks[name] = self._sinks.get(name) or self.names(name).own("sink")
        try:
            collected(lambda it: self._run(it, text), statements)
        except SqlError as error:
            faults += error.faults
        if faults:
            raise SqlError(faults)
        return [name for name, it in self._tables.items() if it.is_written and it.inserted]

    def query(self, name: str, text: Source, parameters: Mapping[str, Value]) -> tuple[tuple[Field, ...], Rows]:
        """Return the columns of a query, and its streams.

        Raises:
            SqlError: with all faults that were found, or if it is not a query.
        """
        if name in self._queries or name in self._tables or name in self._views:
            raise GraphError(f"there is a query, table or view {name!r} already; use another name")
        statements = parse(text)
        if len(statements) != 1 or not isinstance(statements[0], tree.Query):
            raise SqlError([Fault("expected one query", Span(0, len(text.text)), text)])
        relation = self._binder(text, self.names(name), parameters).bind(statements[0])
        unused = [it for it in parameters if not any(token.text == f":{it}" for token in tokens(text))]
        if unused:
            raise GraphError(f"query {name!r} has no parameter :{unused[0]}; remove {unused[0]}=...")
        self._queries.add(name)
        return relation.fields, self._builder.rows_of(relation, text)

    def _binder(self, text: Source, names: Names, parameters: Mapping[str, Value] | None = None) -> QueryBinder:
        environment = Environment(
            text, self._relation, lambda: [*self._tables, *self._views], parameters or {}, self._functions
        )
        return QueryBinder(environment, names)

    def _relation(self, name: str) -> Relation | None:
        table = self._tables.get(name)
        return self._views.get(name) if table is None else Scan(table.fields, str(self.names(name)), name)

    def _run(self, statement: tree.Statement, text: Source) -> None:
        with written_at(f"{text.name}:{text.position(statement.span.start)[0]}"):
            match statement:
                case tree.CreateTable() | tree.CreateView() | tree.CreateFunction():
                    self._create(statement, text)
                case tree.Insert():
                    self._insert(statement, text)
                case tree.StatementSet():
                    collected(lambda it: self._insert(it, text), statement.inserts)
                case tree.Query():
                    raise SqlError(
                        [Fault("nothing reads the rows of this query; write INSERT INTO", statement.span, text)]
                    )
                case _:
                    raise SqlError([Fault("this statement is not supported", statement.span, text)])

    def _create(self, statement: tree.CreateTable | tree.CreateView | tree.CreateFunction, text: Source) -> None:
        name, names = statement.name.text, self.names(statement.name.text)
        known = self._functions if isinstance(statement, tree.CreateFunction) else {**self._tables, **self._views}
        if name in known:
            if not statement.if_not_exists:
                raise SqlError([Fault(f"{name!r} exists already", statement.name.span, text)])
        elif isinstance(statement, tree.CreateTable):
            self._tables[name] = created(statement, text, self._provider, names, self._connect)
        elif isinstance(statement, tree.CreateFunction):
            self._functions[name] = imported(statement, text)
        else:
            binder = self._binder(text, names)
            view = binder.renamed(binder.bind(statement.query), statement.columns, statement.span)
            self._views[name] = within(view, text)

    def _insert(self, statement: tree.Insert, text: Source) -> None:
        name = statement.table.text
        table = self._tables.get(name)
        if table is None:
            hint = meant(name, self._tables, else_="CREATE TABLE makes one")
            raise SqlError([Fault(f"no table {name!r}{hint}", statement.table.span, text)])
        names = self.names(name)
        relation = self._binder(text, names).bind(statement.query)
        if statement.columns:
            relation = self._in_place(relation, statement, table.fields, text)
        wrong, span = check_columns(statement, relation, table.fields)
        if not wrong:
            is_first = not table.inserted
            wrong, span = (
                table.insert(relation, lambda it: self._builder.rows_of(it, text), names),
                statement.table.span,
            )
            wrong = wrong and f"{name!r} {wrong}"
            if is_first and table.is_written:
                place = f"{text.name}:{text.position(statement.span.start)[0]}"
                self._at_end(lambda: table.write(self._sinks[name], place))
        if wrong:
            raise SqlError([Fault(wrong, span, text)])

    def _in_place(self, relation: Relation, statement: tree.Insert, fields: Sequence[Field], text: Source) -> Relation:
        """Return rows with their columns in the places of those that INSERT names; others are NULL."""
        known = {it.name: at for at, it in enumerate(fields)}
        places: dict[str, int] = {}
        for at, it in enumerate(statement.columns):
            if it.text not in known or it.text in places:
                wrong = f"column {it.text!r} comes twice" if it.text in places else f"no column {it.text!r}"
                raise SqlError([Fault(f"{wrong}{did_you_mean(it.text, known)}", it.span, text)])
            places[it.text] = at
        if len(places) != len(relation.fields):
            wrong = f"{plural(len(places), 'column')} for {plural(len(relation.fields), 'column')} of the query"
            raise SqlError([Fault(wrong, statement.query.span, text)])
        missing = [it.name for it in fields if it.name not in places and not it.type.nullable]
        if missing:
            raise SqlError([Fault(f"column {missing[0]!r} is NOT NULL: name it", statement.table.span, text)])
        items: list[Typed] = []
        made: list[Field] = []
        for wanted in fields:
            place = places.get(wanted.name)
            if place is None:
                items.append(Value(wanted.type, statement.span, None))
                made.append(replace(wanted, is_time=False))
                continue
            given = relation.fields[place]
            items.append(Column(given.type, statement.span, place, given.name, given.is_time))
            made.append(given)
        name = self.names(statement.table.text).give("placed", relation.name)
        return Calc(tuple(made), name, relation, None, tuple(items))


def _targets(statements: Sequence[tree.Statement]) -> list[str]:
    """Return the names of the tables that statements insert into."""
    several = (it.inserts if isinstance(it, tree.StatementSet) else [it] for it in statements)
    return [it.table.text for inserts in several for it in inserts if isinstance(it, tree.Insert)]


def _by_url(table: str, url: str, options: dict[str, str]) -> Any:
    """Return the source or sink of a table."""
    return connect(url, **options)
