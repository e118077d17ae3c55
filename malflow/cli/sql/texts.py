"""Texts of SQL at a prompt: which statements run together, and how the rows of queries are shown."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from malflow.cli.output.exits import Exit, Leave
from malflow.cli.output.output import Output
from malflow.cli.sql.prompt import Prompt
from malflow.cli.sql.showing import FORMS, ShownRows
from malflow.events import Event, Run, TickFinished
from malflow.graph import Graph
from malflow.runtime.single_thread import SingleThreadRuntime
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Scope
from malflow.sql.build.chains import chain
from malflow.sql.catalog import Catalog
from malflow.sql.parser.statements import read_statements
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Literal
from malflow.sql.text import Fault, Source, SqlError
from malflow.sql.typed import Typed
from malflow.streams.stream import StreamProvider
from malflow.words import plural

__all__ = ["Texts"]

_SILENCE = 5.0
"""Seconds without a record after which people are told: connecting takes less."""


class _Step(NamedTuple):
    """Statements that belong together: definitions, and a query, INSERTs or what asks about definitions.

    Attributes:
        statements: the statements.
        runs: whether they are a dataflow.
    """

    statements: Sequence[tree.Statement]
    runs: bool = True


class Texts:
    """Runs texts: the rows of each query are shown, the INSERTs between two queries run together.

    Args:
        name: the name of the catalogue.
        output: how to write.
        form: the form of rows: `table`, `json` or `csv`.

    Attributes:
        prompt: the paths and URLs in quotes.
    """

    def __init__(self, name: str, output: Output, form: str) -> None:
        self._name = name
        self._output = output
        self._form = form
        self.prompt = Prompt()

    def check(self, text: Source) -> list[tree.Statement]:
        """Return the statements of a text.

        Raises:
            SqlError: with the faults of all statements.
        """
        statements, faults = read_statements(text)
        try:
            self._built(statements, text, self._shown)
        except SqlError as error:
            faults += error.faults
        if faults:
            raise SqlError(faults)
        return statements

    def run(self, text: Source) -> None:
        """Run a text.

        Raises:
            SqlError: with the faults of all statements; nothing has run.
            Leave: if the reader of the rows is gone, or the user has stopped it.
        """
        steps = [*_steps(self.check(text))]
        if not steps:
            self._output.say("no query or INSERT; nothing has run")
        for step in steps:
            self._run(step, text)

    def explain(self, text: Source) -> None:
        """Write how each query and INSERT of a text would run.

        Raises:
            SqlError: with the faults of all statements.
        """
        statements: list[tree.Statement] = []
        for it in self.check(text):
            if isinstance(it, tree.Query):
                statements.append(tree.Explain(_bare(it)[0], span=it.span))
            else:
                is_asked = isinstance(it, tree.Insert | tree.StatementSet)
                statements += [tree.Explain(it, span=it.span), it] if is_asked else [it]
        self._built(statements, text, self._shown, tell=self._output.write)

    def _run(self, step: _Step, text: Source) -> None:
        if not step.runs:
            self._built(step.statements, text, self._shown, tell=self._output.write)
            return
        shown: list[ShownRows] = []
        watch = _Watch(self._output)

        def show(catalog: Catalog, query: tree.Query, of: Source) -> None:
            stream, made = self._shown(catalog, query, of, watch.stop)
            shown.append(made)
            stream.sink(f"{self._name}.shown", made)

        def build(provider: StreamProvider) -> None:
            self._built(step.statements, text, show, provider)

        try:
            SingleThreadRuntime(build, listeners=[watch]).execute()
        except SystemExit:
            raise Leave(Exit.BROKEN_PIPE) from None
        for it in shown:
            it.finish()
            if self._form == "table":
                self._output.say(f"({plural(it.count, 'row')}{', stopped' if watch.was_stopped else ''})")
        if watch.was_stopped:
            raise Leave(Exit.DONE)

    def _built(
        self,
        statements: Sequence[tree.Statement],
        text: Source,
        show: Callable[..., Any],
        provider: StreamProvider | None = None,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Build statements; queries by a function of them."""
        at_end: list[Callable[[], None]] = []
        provider = provider or StreamProvider(Graph())
        catalog = Catalog(provider, self._name, at_end.append, self.prompt.connect, self.prompt)
        catalog.do(statements, text, tell, lambda it: show(catalog, it, text))
        for write in at_end:
            write()

    def _shown(
        self, catalog: Catalog, query: tree.Query, text: Source, enough: Callable[[], object] = lambda: None
    ) -> tuple[Any, ShownRows]:
        """Return the stream of a query, and the sink that shows it."""
        bare, order, most, skipped = _bare(query)
        relation = catalog.relation(bare, text)
        fields, key = relation.fields, None
        if order and not catalog.ends(relation):
            cure = "add ?stop=latest to a topic"
            raise SqlError([Fault(f"ORDER BY needs an input that ends; {cure}", order[0].span, text)])
        if order:
            relation, items = _ordered(order, bare, relation, lambda it: catalog.relation(it, text), text)
            key = _key(order, items, relation, text)
        rows = catalog.rows(relation, text)
        stream = rows.on_time if rows.late is None else rows.on_time.union(rows.late)
        return stream, ShownRows(FORMS[self._form](fields), key, skipped, most, enough)


def _steps(statements: Sequence[tree.Statement]) -> Iterator[_Step]:
    """Yield what runs together. INSERTs into tables without a URL are definitions, as views are."""
    written = {
        it.name.text
        for it in statements
        if isinstance(it, tree.CreateTable) and any(key == "url" for key, _, _ in it.options)
    }
    definitions: list[tree.Statement] = []
    inserts: list[tree.Statement] = []
    for statement in statements:
        asks = isinstance(statement, tree.Explain) or (
            isinstance(statement, tree.Command) and not statement.words.startswith("DROP")
        )
        if asks or isinstance(statement, tree.Query):
            if inserts:
                yield _Step([*definitions, *inserts])
            inserts = []
            yield _Step([*definitions, statement], runs=not asks)
            continue
        for it in statement.inserts if isinstance(statement, tree.StatementSet) else (statement,):
            is_written = isinstance(it, tree.Insert) and it.table.text in written
            (inserts if is_written else definitions).append(it)
    if inserts:
        yield _Step([*definitions, *inserts])


# ORDER BY and LIMIT


def _bare(query: tree.Query) -> tuple[tree.Query, tuple[tree.Ordering, ...], int | None, int]:
    """Return a query without its order and limits, and these: order, limit and offset."""
    if not isinstance(query, tree.With):
        return query, (), None, 0
    bare = replace(query, order=(), limit=None, offset=None)
    return bare, query.order, query.limit, query.offset or 0


class _Down:
    """A value that is less than those that it is greater than."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __lt__(self, other: _Down) -> bool:
        return bool(other._value < self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Down) and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]  # it is only compared


def _ordered(
    order: Sequence[tree.Ordering],
    query: tree.Query,
    relation: Relation,
    bind: Callable[[tree.Query], Relation],
    text: Source,
) -> tuple[Relation, list[Typed]]:
    """Return the rows of a query and what they are ordered by; other columns of its tables are added at the end.

    Raises:
        SqlError: if an expression is neither of the columns of the result nor of the tables.
    """
    found: list[Typed | None] = []
    hidden: list[tree.Item] = []
    body = query.body if isinstance(query, tree.With) else query
    is_plain = isinstance(body, tree.Select) and body.group is None and not body.distinct
    for it in order:
        try:
            found.append(_ordered_by(it, query, Scope(relation.fields, text)))
        except SqlError:
            if not is_plain or isinstance(it.expression, Literal):
                raise
            found.append(None)
            hidden.append(tree.Item(it.expression, span=it.span))
    if hidden and isinstance(body, tree.Select):
        width = len(relation.fields)
        wider = replace(body, items=(*body.items, *hidden))
        relation = bind(replace(query, body=wider) if isinstance(query, tree.With) else wider)
        more = iter(range(width, len(relation.fields)))
        scope = Scope(relation.fields, text)
        found = [
            it or scope.column(next(more), ordering.expression.span) for it, ordering in zip(found, order, strict=True)
        ]
    return relation, [it for it in found if it]


def _key(
    order: Sequence[tree.Ordering], items: Sequence[Typed], relation: Relation, text: Source
) -> Callable[[tuple[Any, ...]], Any]:
    """Return the function of the key by which rows are sorted. NULL is the least value, as in Flink."""
    keys = chain(len(relation.fields), items, text)
    ways = [(it.descending, not it.descending if it.nulls_first is None else it.nulls_first) for it in order]

    def key(row: tuple[Any, ...]) -> Any:
        values = keys([row])[0]
        return [
            (0 if is_first else 2, 0) if it is None else (1, _Down(it) if is_down else it)
            for it, (is_down, is_first) in zip(values, ways, strict=True)
        ]

    return key


def _ordered_by(ordering: tree.Ordering, query: tree.Query, scope: Scope) -> Typed:
    """Return the expression of an ordering: a column by its number, its text in SELECT, or of its names."""
    node = ordering.expression
    body = query.body if isinstance(query, tree.With) else query
    written = [str(it.expression) for it in body.items] if isinstance(body, tree.Select) else []
    found: Typed
    if isinstance(node, Literal):
        if not (node.text.isdecimal() and 0 < int(node.text) <= len(scope.fields)):
            raise scope.fault(f"there is no column {node}; write the name of one", node.span)
        found = scope.column(int(node.text) - 1, node.span)
    elif len(written) == len(scope.fields) and str(node) in written:
        found = scope.column(written.index(str(node)), node.span)
    else:
        found = ExpressionBinder(scope, clause="ORDER BY").bind(node)
    if found.type.kind in {"ARRAY", "MAP", "ROW"}:
        raise scope.fault(f"{found.type.name} has no order", node.span)
    return found


class _Watch:
    """A listener that stops a run when enough rows are shown, and tells of silence."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._run: Run | None = None
        self._stops = self._has_records = False
        self._timer = threading.Timer(_SILENCE, self._tell)
        self._timer.daemon = True

    @property
    def was_stopped(self) -> bool:
        """Whether the user has stopped the run."""
        return bool(getattr(self._run, "is_stopping", False)) and not self._stops

    def on_start(self, run: Run, /) -> None:
        """Begin to wait."""
        self._run = run
        self._timer.start()

    def on_event(self, event: Event, /) -> None:
        """Note that records come."""
        if isinstance(event, TickFinished) and event.polled and not self._has_records:
            self._has_records = True
            self._timer.cancel()

    def stop(self) -> None:
        """Stop the run."""
        self._stops = True
        if self._run is not None:
            self._run.stop()

    def _tell(self) -> None:
        if self._run is not None and not self._run.has_ended:
            self._output.say("no record so far; Ctrl-C ends")
