"""The catalogue: tables, views and functions by name, and the statements that change it or ask about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from malflow.checks import check_name
from malflow.connectors.by_name import connect
from malflow.diagnostics import written_at
from malflow.errors import GraphError
from malflow.sql.answers import Answers
from malflow.sql.bind.expressions import RESERVED
from malflow.sql.bind.names import Names
from malflow.sql.bind.queries import QueryBinder
from malflow.sql.bind.relations import Relation, Scan, Within, scans, within
from malflow.sql.bind.scope import meant
from malflow.sql.bind.sources import Environment, collected, path_name
from malflow.sql.build.layouts import LayoutMaker
from malflow.sql.build.python_aggregates import PythonAggregate
from malflow.sql.build.python_functions import Broken, Function, imported
from malflow.sql.build.streams import Leaving, Rows, StreamBuilder
from malflow.sql.declared import Connect, Outside, Prompt, created, declared_options
from malflow.sql.explain import Root, explained
from malflow.sql.inserts import inserted
from malflow.sql.like import liked
from malflow.sql.parser.statements import parse, read_script
from malflow.sql.settings import Settings
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Name, quoted_name
from malflow.sql.tables import Table, late_of, of_stream
from malflow.sql.text import NOWHERE, Fault, Source, Span, SqlError, tokens
from malflow.sql.typed import Value

__all__ = ["Catalog"]


class Catalog:
    """Tables, views and functions, and the dataflow that they are part of.

    Args:
        provider: the dataflow.
        name: the beginning of the names of its operators.
        at_end: calls a function when the rest of the dataflow is complete.
        connect: returns the source or sink of a table; by default by its URL.
        prompt: what is known at a prompt; None in flows.
    """

    def __init__(
        self,
        provider: Any,
        name: str,
        at_end: Callable[[Callable[[], None]], object],
        connect: Connect | None = None,
        prompt: Prompt | None = None,
    ) -> None:
        check_name("sql", "name", name)
        self._settings = Settings()
        self._outside = Outside(provider, connect or _by_url, self._settings, prompt)
        self._at_end = at_end
        self._names = Names((name,))
        self._tables: dict[str, Table] = {}
        self._views: dict[str, Relation] = {}
        self._functions: dict[str, Function | PythonAggregate] = {}
        self._imports = True
        self._queries: set[str] = set()
        self._sinks: dict[str, str] = {}  # of INSERTs in the text, also of later ones: a query that is added moves none
        self._texts: dict[str, str] = {}
        self._created: dict[str, tuple[tree.CreateTable, Source]] = {}
        self._readings: dict[str, tuple[Table, Mapping[str, str]]] = {}
        self._failed: set[str] = set()  # tables and the like with a fault in the text that runs
        self._answers = Answers(self._tables, self._views, self._functions, self._texts)
        self._used: set[str] = set()
        self._reads: dict[str, set[str]] = {}  # the tables and views that a view, or the INSERTs into a table, read
        self._now: set[str] = set()
        self._layouts = LayoutMaker(self._names.is_numbered, lambda: self._settings.from_now)
        self._builder = StreamBuilder(provider, self._table, self._layouts)

    def names(self, name: str) -> Names:
        """Return the names below that of a table or query."""
        return self._names.below(name)

    def add_stream(self, name: str, schema: Source, stream: Any, late: Any, time: str | None) -> None:
        """Make a stream a table."""
        if name in self._tables or name in self._views:
            raise GraphError(f"there is a table {name!r} already; use another name")
        self._tables[name] = of_stream(schema, stream, late, time, self.names(name))
        self._texts[name] = f"-- a stream of Python\nCREATE TABLE {quoted_name(name)} ({schema.text})"

    def add_function(self, name: str, function: Function | PythonAggregate) -> None:
        """Make a function or aggregator of Python one of SQL.

        Raises:
            GraphError: if the name is taken.
        """
        if wrong := self._taken(name):
            raise GraphError(f"{wrong}; use another name")
        self._functions[name.upper()] = function

    def _taken(self, name: str) -> str:
        """Return why a function can't have a name; an empty text if it can."""
        if not name.isidentifier():
            return f"{name!r} is not a name that SQL writes without quotes"
        if name.upper() in RESERVED:
            return f"SQL has {name.upper()} itself"
        return f"there is a function {name!r} already" if self._is_taken(name) else ""

    def _is_taken(self, name: str) -> bool:
        known = self._functions.get(name.upper())
        return known is not None and not isinstance(known, Broken)

    def run(self, text: Source, tell: Callable[[str], object], *, python: bool = True) -> list[str]:
        """Run the statements of a text; return the names of the tables that INSERTs write to so far.

        Args:
            text: the text.
            tell: gets the answer of each EXPLAIN, DESCRIBE and SHOW.
            python: whether CREATE FUNCTION may import modules.

        Raises:
            SqlError: with all faults that were found.
        """
        statements, faults, self._failed = read_script(text)
        self._imports = python
        try:
            self.do(statements, text, tell)
        except SqlError as error:
            faults += error.faults
        if faults:
            raise SqlError([it for it in faults if not it.follows] or faults)
        for it in [*self._tables.values()]:
            it.build()
        return [name for name, it in self._tables.items() if it.is_written and it.is_inserted]

    def do(
        self,
        statements: Sequence[tree.Statement],
        text: Source,
        tell: Callable[[str], object],
        show: Callable[[tree.Query], object] | None = None,
    ) -> None:
        """Run statements of a text.

        Args:
            statements: the statements.
            text: the text.
            tell: gets the answer of each EXPLAIN, DESCRIBE and SHOW.
            show: gets each query; None to refuse them.

        Raises:
            SqlError: with all faults that were found.
        """
        for name in _targets(statements):
            self._sinks[name] = self._sinks.get(name) or self.names(name).own("sink")

        def run(statement: tree.Statement) -> None:
            with written_at(f"{text.name}:{text.position(statement.span.start)[0]}"):
                if show is not None and isinstance(statement, tree.Query):
                    show(statement)
                else:
                    self._run(statement, text, tell)

        try:
            collected(run, statements)
        except SqlError as error:
            raise SqlError([it for it in error.faults if not it.follows] or error.faults) from None
        finally:
            self._failed = set()

    def query(self, name: str, text: Source, parameters: Mapping[str, Value]) -> tuple[Relation, Leaving]:
        """Return a query, and what builds the stream of its rows.

        Raises:
            SqlError: with all faults that were found, or if it is not a query.
        """
        if name in self._queries or name in self._tables or name in self._views:
            raise GraphError(f"there is a query, table or view {name!r} already; use another name")
        statements = parse(text)
        if len(statements) != 1 or not isinstance(statements[0], tree.Query):
            raise SqlError([Fault("expected one query", Span(0, len(text.text)), text)])
        names = self.names(name)
        relation = self._binder(text, names, parameters).whole(statements[0])
        unused = [it for it in parameters if not any(token.text == f":{it}" for token in tokens(text))]
        if unused:
            raise GraphError(f"query {name!r} has no parameter :{unused[0]}; remove {unused[0]}=...")
        self._queries.add(name)
        return relation, self._builder.leaving(self._within(relation, text), "rows", names)

    def relation(self, query: tree.Query, text: Source) -> Relation:
        """Return a query that is read already as a relation.

        Raises:
            SqlError: with all faults that were found.
        """
        return self._binder(text, self._names).whole(query)

    def rows(self, relation: Relation, text: Source) -> Rows:
        """Return the streams of a relation."""
        return self._builder.rows(self._within(relation, text))

    def _within(self, relation: Relation, text: Source) -> Within:
        """Return a relation with its text, and the policy that SET has set."""
        return Within(relation.fields, relation.name, relation, self._settings.on_error, text)

    def ends(self, relation: Relation) -> bool:
        """Whether the rows of a relation end."""
        return all(self._table(it.table).ends for it in scans(relation))

    def _at_path(self, path: str) -> Relation:
        """Return the rows of a path or URL in quotes; the prompt knows its columns."""
        names = self.names(path_name(path))
        if path not in self._tables and self._outside.prompt is not None:
            text = Source(self._outside.prompt.created(path), path_name(path))
            (statement,) = parse(text)
            if not isinstance(statement, tree.CreateTable):
                raise TypeError("a path is a table")
            self._tables[path] = created(statement, text, names, self._outside)
        return Scan(self._tables[path].fields, str(names), path)

    def explained(self, roots: Iterable[Root], text: Source) -> str:
        """Return the trees of relations as EXPLAIN prints them."""
        return explained([*roots], text, self._table)

    def _binder(
        self, text: Source, names: Names, parameters: Mapping[str, Value] | None = None, *, reads: bool = True
    ) -> QueryBinder:
        """Return a binder of queries.

        Args:
            text: the text.
            names: names for operators.
            parameters: the values of parameters.
            reads: whether tables count as read; EXPLAIN reads none.
        """
        self._settings.is_queried |= reads
        find = self._reading if reads else self._relation
        known = [*self._tables, *self._views]
        environment = Environment(
            text,
            lambda name: find(name, text),
            lambda: known,
            parameters or {},
            {**{it.upper(): Broken(it, _follows(it, text)) for it in self._failed}, **self._functions},
            on_error=self._settings.on_error,
            optioned=partial(self._optioned, text),
        )
        if reads:
            environment = replace(environment, lost=lambda rows, into: self._lose(rows, into, text))
        if self._outside.prompt is not None:
            environment = replace(environment, path=self._at_path, ends=self.ends)
        return QueryBinder(environment, names)

    def _table(self, key: str) -> Table:
        """Return a table by its name, or a reading of one with options by the name of its source."""
        return self._tables[key] if key in self._tables else self._readings[key][0]

    def _optioned(self, text: Source, name: Name, hint: tree.Hint, names: Names) -> Relation:
        """Return the relation of a table that is read with options of its own, by a source of its own."""
        self._check_failed(name.text, text)
        if name.text not in self._created or not self._tables[name.text].is_written:
            raise _fault("OPTIONS belong to a table with a URL", hint.span, text)
        if any(not key for key, _ in hint.arguments):
            raise _fault("OPTIONS has keys with values, as in OPTIONS('start' = 'latest')", hint.span, text)
        options = declared_options([(*it, hint.span) for it in hint.arguments], name.text, text)
        if "late" in options:
            raise _fault("the late rows of a table are named in CREATE TABLE", hint.span, text)
        values = {it: options[it].value for it in options}
        key = str(names)
        table, known = self._readings.get(key) or (None, values)
        if known != values:
            raise _fault(f"{name.text!r} is read with other options above; give it an alias", hint.span, text)
        if table is None:
            table = created(*self._created[name.text], names, self._outside, options)
            self._readings[key] = table, values
        return Scan(table.fields, key, key)

    def _reading(self, name: str, text: Source) -> Relation | None:
        self._used.add(name)
        self._now.add(name)
        if name in self._tables:
            self._tables[name].is_named = True
        return self._relation(name, text)

    def _relation(self, name: str, text: Source) -> Relation | None:
        table = self._tables.get(name)
        if table is None or not table.is_written:
            self._check_failed(name, text)
        return self._views.get(name) if table is None else Scan(table.fields, str(self.names(name)), name)

    def _run(self, statement: tree.Statement, text: Source, tell: Callable[[str], object]) -> None:
        match statement:
            case tree.CreateTable() | tree.CreateView() | tree.CreateFunction():
                with self._failing(statement.name.text):
                    self._create(statement, text)
            case tree.Insert():
                with self._failing(statement.table.text):
                    self._insert(statement, text)
            case tree.StatementSet():
                collected(lambda it: self._run(it, text, tell), statement.inserts)
            case tree.Explain():
                tell(self._explain(statement.statement, text))
            case tree.Command():
                self._command(statement, text, tell)
            case _:
                raise _fault("nothing reads the rows of this query; write INSERT INTO", statement.span, text)

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Remember a table, view or function of a statement with faults: statements that name it can't be judged."""
        try:
            yield
        except SqlError:
            self._failed.add(name)
            raise

    def _check_failed(self, name: str, text: Source) -> None:
        if name in self._failed:
            raise _follows(name, text)

    def _create(self, statement: tree.CreateTable | tree.CreateView | tree.CreateFunction, text: Source) -> None:
        name, names = statement.name.text, self.names(statement.name.text)
        if isinstance(statement, tree.CreateFunction):
            self._create_function(statement, text)
        elif name in {**self._tables, **self._views}:
            if not statement.if_not_exists:
                raise _fault(f"{name!r} exists already", statement.name.span, text)
        elif isinstance(statement, tree.CreateTable):
            self._create_table(statement, text, names)
        else:
            self._now = self._reads[name] = set()
            binder = self._binder(text, names)
            view = binder.renamed(binder.bind(statement.query), statement.columns, statement.span)
            self._views[name] = within(view, self._settings.on_error, text)
        if not isinstance(statement, tree.CreateFunction) and name not in self._texts:
            self._texts[name] = text.text[slice(*statement.span)]

    def _create_function(self, statement: tree.CreateFunction, text: Source) -> None:
        name = statement.name.text
        if statement.if_not_exists and self._is_taken(name):
            return
        try:
            self._functions[name.upper()] = self._made(statement, text)
        except SqlError as error:
            self._functions.setdefault(name.upper(), Broken(name, error))
            raise

    def _made(self, statement: tree.CreateFunction, text: Source) -> Function | PythonAggregate:
        name = statement.name.text
        if not self._imports:
            wrong = "CREATE FUNCTION imports a module of Python, which is not allowed here"
            raise _fault(wrong, statement.span, text)
        if taken := self._taken(name):
            raise _fault(taken, statement.name.span, text)
        return imported(statement, text)

    def _create_table(self, statement: tree.CreateTable, text: Source, names: Names) -> None:
        name = statement.name.text
        if base := statement.like:
            self._check_failed(base.text, text)
            if base.text not in self._created:
                known = meant(base.text, self._created, else_="CREATE TABLE makes one")
                raise _fault(f"no table {base.text!r}{known}", base.span, text)
            statement, text = liked(statement, text, *self._created[base.text])
        table = created(statement, text, names, self._outside)
        self._created[name] = statement, text
        if table.mark and table.mark.late:
            late, span = table.mark.late
            if late in {*self._tables, *self._views, name}:
                raise _fault(f"{late!r} exists already", span, text)
            self._tables[late] = late_of(table, name)
            self._texts[late] = f"-- {self._tables[late].place}; 'late' of {name}"
        self._tables[name] = table

    def _insert(self, statement: tree.Insert, text: Source) -> None:
        self._now = set()
        table, rows = self._bound(statement, text, self._names)
        self._add(table, rows, statement.table.text, statement.table.span, text)

    def _add(self, table: Table, rows: Relation, name: str, span: Span, text: Source) -> None:
        """Add rows to a table."""
        is_first = not table.is_inserted
        table.ends = table.ends and (table.is_written or self.ends(rows))
        place = f"{text.name}:{text.position(span.start)[0]}"

        given = self._within(rows, text)

        def built() -> Rows | Leaving:
            with written_at(place):
                if table.is_written:
                    return self._builder.leaving(given, "value", table.names)
                return self._builder.rows(given)

        wrong = table.insert(rows, built)
        if not table.is_written:
            self._reads.setdefault(name, set()).update(self._now)
            if self._leads_to(name, self._now):
                wrong = "reads itself; use a process function in Python"
        if wrong:
            raise _fault(f"{name!r} {wrong}", span, text)
        self._used.add(name)
        if is_first and table.is_written:
            on_error = self._settings.on_error
            self._at_end(lambda: table.write(self._sinks[name], place, on_error))

    def _lose(self, rows: Relation, into: Name, text: Source) -> None:
        """Insert late rows that a query drops into a table."""
        table, names = self._table_of(into, text), self.names(into.text)
        self._sinks[into.text] = self._sinks.get(into.text) or names.own("sink")
        statement = tree.Insert(into, tree.Values((), span=into.span), span=into.span)
        self._add(table, inserted(rows, statement, table.stored, text, names), into.text, into.span, text)

    def _table_of(self, name: Name, text: Source) -> Table:
        """Return a table by its name."""
        table = self._tables.get(name.text)
        if table is None:
            self._check_failed(name.text, text)
            hint = meant(name.text, self._tables, else_="CREATE TABLE makes one")
            raise _fault(f"no table {name.text!r}{hint}", name.span, text)
        if table.refusal:
            raise _fault(f"{name.text!r} {table.refusal}", name.span, text)
        return table

    def _leads_to(self, name: str, read: set[str]) -> bool:
        """Whether tables and views read a table, by themselves or through others."""
        seen: set[str] = set()
        while new := read - seen:
            seen |= new
            read = {it for at in new for it in self._reads.get(at, ())}
        return name in seen

    def _bound(
        self, statement: tree.Insert, text: Source, above: Names, *, reads: bool = True
    ) -> tuple[Table, Relation]:
        """Return the table of an INSERT, and its rows with the columns of the table."""
        names = above.below(statement.table.text)
        if statement.table.text in self._failed:
            self._binder(text, names, reads=reads).whole(statement.query)
        table = self._table_of(statement.table, text)
        relation = self._binder(text, names, reads=reads).whole(statement.query)
        return table, inserted(relation, statement, table.stored, text, names)

    # Statements that ask

    def _explain(self, statement: tree.Statement, text: Source) -> str:
        names = self._names.copy()
        match statement:
            case tree.Query():
                return self.explained([(None, self._binder(text, names, reads=False).whole(statement))], text)
            case tree.Insert():
                inserts: tuple[tree.Insert, ...] = (statement,)
            case tree.StatementSet():
                inserts = statement.inserts
            case _:
                raise _fault("EXPLAIN takes a query, INSERT INTO or a statement set", statement.span, text)

        def root(it: tree.Insert) -> Root:
            table, rows = self._bound(it, text, names, reads=False)
            sink = self._sinks.get(it.table.text) or names.below(it.table.text).own("sink")
            own = sink if table.is_written else ""
            return (f"INSERT INTO {it.table}", own, f"sink: {table.place}" if table.is_written else ""), rows

        return self.explained(collected(root, inserts), text)

    def _command(self, statement: tree.Command, text: Source, tell: Callable[[str], object]) -> None:
        name = statement.name or Name("")
        self._check_failed(name.text, text)
        verb, _, rest = statement.words.partition(" ")
        match verb, rest.split():
            case "SHOW", ["CREATE", what]:
                tell(self._answers.created(self._answers.known(what, name, text)))
            case "SHOW", _:
                tell(self._answers.shown(rest))
            case "DESCRIBE", _:
                relation = self._relation(name.text, text)
                if relation is None:
                    self._answers.known("TABLE", name, text)
                tell(self._answers.described(name.text, relation.fields if relation else ()))
            case "DROP", [what]:
                if not statement.if_exists or self._answers.has(name.text):
                    self._drop(what, self._answers.known(what, name, text), statement.span, text)
            case _:
                key, value = statement.setting or ("", "")
                if wrong := self._settings.set(key, value):
                    raise _fault(wrong, statement.span, text)

    def _drop(self, what: str, name: str, span: Span, text: Source) -> None:
        if what == "FUNCTION":
            del self._functions[name.upper()]
            return
        mark = self._tables[name].mark if name in self._tables else None
        names = (name, mark.late[0]) if mark and mark.late else (name,)
        if used := next((it for it in names if it in self._used), None):
            cure = "remove the DROP: a catalogue ends with its dataflow"
            raise _fault(f"{used!r} is read or written above; {cure}", span, text)
        for it in names:
            for known in (self._tables, self._views, self._texts, self._created):
                known.pop(it, None)


def _targets(statements: Sequence[tree.Statement]) -> list[str]:
    """Return the names of the tables that statements insert into."""
    several = (it.inserts if isinstance(it, tree.StatementSet) else [it] for it in statements)
    return [it.table.text for inserts in several for it in inserts if isinstance(it, tree.Insert)]


def _follows(name: str, text: Source) -> SqlError:
    """Return the error of what names a table, view or function with faults of its own."""
    return SqlError([Fault(f"{name!r} has faults of its own", NOWHERE, text, follows=True)])


def _fault(message: str, span: Span, text: Source) -> SqlError:
    return SqlError([Fault(message, span, text)])


def _by_url(table: str, url: str, options: dict[str, str]) -> Any:
    """Return the source or sink of a table."""
    return connect(url, **options)
