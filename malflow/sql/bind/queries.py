"""Binding queries: a text about tables becomes relations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Calc, Group, Literals, Relation, Union, Windowed, WindowSpec
from malflow.sql.bind.scope import Field, Scope
from malflow.sql.bind.windows import WINDOW_COLUMNS, window_of
from malflow.sql.casts import converted
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Expression, Name, Reference, Star
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Aggregated, Column, Picked, Typed, Value, all_within, replaced
from malflow.sql.types import INT, NULL, common_type
from malflow.words import did_you_mean, plural

__all__ = ["Environment", "QueryBinder"]


@dataclass(frozen=True)
class Environment:
    """What a query may refer to.

    Attributes:
        source: the text.
        table: returns the relation of a table or view by its name, below some names; None if there is none.
        tables: the names of all tables and views.
        parameters: the values of parameters.
        functions: the functions of the user.
        views: the common tables that are in sight, with the names below which each is bound.
    """

    source: Source
    table: Callable[[str], Relation | None]
    tables: Callable[[], Iterable[str]]
    parameters: Mapping[str, Value] = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, Relation] = field(default_factory=dict)


class QueryBinder:
    """Binds queries.

    Args:
        environment: what they may refer to.
        names: names for their operators.
    """

    def __init__(self, environment: Environment, names: Names) -> None:
        self._environment = environment
        self._names = names

    def _fault(self, message: str, span: Span) -> SqlError:
        return SqlError([Fault(message, span, self._environment.source)])

    def bind(self, query: tree.Query) -> Relation:
        """Return the rows of a query.

        Raises:
            SqlError: with all faults that were found.
        """
        match query:
            case tree.With():
                return self._with(query)
            case tree.SetOperation():
                return self._union(query)
            case tree.Values():
                return self._values(query)
            case tree.Select():
                return self._select(query)
        raise TypeError(f"{type(query).__name__} is no query")

    def _below(self, name: str) -> QueryBinder:
        return QueryBinder(self._environment, self._names.below(name))

    def _binder(self, relation: Relation, clause: str, *, aggregates: bool = False) -> ExpressionBinder:
        scope = Scope(relation.fields, self._environment.source)
        given = self._environment
        return ExpressionBinder(
            scope, parameters=given.parameters, functions=given.functions, aggregates=aggregates, clause=clause
        )

    def _with(self, query: tree.With) -> Relation:
        for part, what in ((query.order, "ORDER BY"), (query.limit, "LIMIT"), (query.offset, "OFFSET")):
            if part or part == 0:
                cure = "the first rows of each window are ROW_NUMBER() OVER (...) <= n"
                raise self._fault(f"{what} needs an input that ends; {cure}", query.span)
        views = dict(self._environment.views)
        for it in query.views:
            binder = QueryBinder(replace(self._environment, views=views), self._names.below(it.name.text))
            views[it.name.text] = self._renamed(binder.bind(it.query), it.columns, it.span)
        return QueryBinder(replace(self._environment, views=views), self._names).bind(query.body)

    def _renamed(self, relation: Relation, columns: Sequence[Name], span: Span) -> Relation:
        """Return rows with the names that the text gives their columns."""
        if not columns:
            return relation
        if len(columns) != len(relation.fields):
            given = f"{plural(len(columns), 'name')} for {plural(len(relation.fields), 'column')}"
            raise self._fault(given, span)
        fields = [replace(it, name=name.text) for it, name in zip(relation.fields, columns, strict=True)]
        return replace(relation, fields=tuple(fields))

    def _union(self, query: tree.SetOperation) -> Relation:
        if query.op != "UNION ALL":
            raise self._fault(f"{query.op} is not supported; write UNION ALL, and group its rows", query.span)
        parts: list[tree.Query] = [query.right]
        left = query.left
        while isinstance(left, tree.SetOperation) and left.op == "UNION ALL":
            parts.append(left.right)
            left = left.left
        inputs = collected(self.bind, [left, *reversed(parts)])
        return self._united(inputs, query.span)

    def _united(self, inputs: Sequence[Relation], span: Span) -> Relation:
        widths = [len(it.fields) for it in inputs]
        if len(set(widths)) > 1:
            raise self._fault(f"UNION ALL of {', '.join(map(str, widths))} columns; they must be as many", span)
        fields: list[Field] = []
        for place in zip(*(it.fields for it in inputs), strict=True):
            both = common_type([it.type for it in place])
            if both is None:
                kinds = " and ".join(dict.fromkeys(it.type.name for it in place))
                raise self._fault(f"column {place[0].name!r} is {kinds}; CAST them to one type", span)
            is_time = all(it.is_time for it in place)
            fields.append(Field(place[0].name, both, is_time=is_time))
        same = [self._as(it, fields, span) for it in inputs]
        return Union(tuple(fields), self._names.give("union"), tuple(same))

    def _as(self, relation: Relation, fields: Sequence[Field], span: Span) -> Relation:
        """Return rows with columns of other types."""
        scope = Scope(relation.fields, self._environment.source)
        columns = [scope.column(at, span) for at in range(len(fields))]
        items = [converted(it, wanted.type) for it, wanted in zip(columns, fields, strict=True)]
        if items == columns:
            return relation
        return Calc(tuple(fields), self._names.give("calc"), relation, None, tuple(items))

    def _values(self, query: tree.Values) -> Relation:
        nothing = Literals((), "", ())
        binder = self._binder(nothing, "VALUES")
        rows = [tuple(map(binder.bind, row)) for row in query.rows]
        if len({len(row) for row in rows}) > 1:
            raise self._fault("the rows of VALUES are of different lengths", query.span)
        types = [common_type([it.type for it in place]) for place in zip(*rows, strict=True)]
        if None in types:
            raise self._fault("a column of VALUES has values of different types; CAST them to one", query.span)
        known = [it for it in types if it is not None]
        fields = tuple(Field(f"EXPR${at}", INT if it == NULL else it) for at, it in enumerate(known))
        same = tuple(tuple(converted(it, to.type) for it, to in zip(row, fields, strict=True)) for row in rows)
        return Literals(fields, self._names.give("values"), same)

    # SELECT

    def _select(self, query: tree.Select) -> Relation:
        for part, what in ((query.distinct, "SELECT DISTINCT"), (query.windows, "WINDOW"), (query.qualify, "QUALIFY")):
            if part:
                raise self._fault(f"{what} is not supported", query.span)
        relation = self._from(query.source) if query.source else Literals((), self._names.give("values"), ((),))
        where = self._binder(relation, "WHERE").condition(query.where) if query.where else None
        binder = self._binder(relation, "SELECT", aggregates=True)
        columns = [it for item in query.items for it in self._columns(item, relation)]
        bound = collected(binder.bind, [it for _, it in columns])
        having = self._binder(relation, "HAVING", aggregates=True).condition(query.having) if query.having else None
        names = self._named([name for name, _ in columns])
        has_aggregates = any(isinstance(it, Aggregated) for node in (*bound, having) if node for it in all_within(node))
        if query.group is not None or has_aggregates or having:
            return self._grouped(query, relation, where, (names, bound, having))
        return self._calc(relation, where, names, bound)

    def _columns(self, item: tree.Item, relation: Relation) -> list[tuple[str, Expression]]:
        """Return the columns of an item, with their names; an empty name for one that has none."""
        if not isinstance(item.expression, Star):
            name = item.alias.text if item.alias else ""
            if not name and isinstance(item.expression, Reference):
                name = item.expression.names[-1].text
            return [(name, item.expression)]
        table = item.expression.table
        chosen = [it for it in relation.fields if table is None or it.table == table.text]
        if not chosen:
            known = dict.fromkeys(it.table for it in relation.fields if it.table)
            text = table.text if table else "*"
            raise self._fault(f"no table {text!r}{did_you_mean(text, known)}", item.span)
        found: list[tuple[str, Expression]] = []
        for it in chosen:
            path = ([Name(it.table, span=item.span)] if it.table else []) + [Name(it.name, span=item.span)]
            found.append((it.name, Reference(tuple(path), span=item.span)))
        return found

    @staticmethod
    def _named(names: Sequence[str]) -> list[str]:
        """Return names of columns: EXPR$1 and so on where there is none, and a number behind those that are taken."""
        found: list[str] = []
        for at, given in enumerate(names):
            name, number = given or f"EXPR${at}", 0
            while name in found:
                name, number = f"{given or f'EXPR${at}'}{number}", number + 1
            found.append(name)
        return found

    def _calc(self, relation: Relation, where: Typed | None, names: Sequence[str], items: Sequence[Typed]) -> Relation:
        fields: list[Field] = []
        for name, it in zip(names, items, strict=True):
            is_time = isinstance(it, Column) and it.is_time and not any(known.is_time for known in fields)
            fields.append(Field(name, it.type if it.type.kind != "NULL" else INT, is_time=is_time))
        return Calc(tuple(fields), self._names.give("calc"), relation, where, tuple(items))

    # GROUP BY

    def _grouped(self, query: tree.Select, relation: Relation, where: Typed | None, parts: Any) -> Relation:
        names, items, having = parts
        binder = self._binder(relation, "GROUP BY")
        keys: list[Typed] = []
        for it in query.group or ():
            if isinstance(it, tree.GroupingSets):
                raise self._fault(f"{it.kind} is not supported; write UNION ALL of several groupings", it.span)
            keys.append(binder.bind(it))
        if not isinstance(relation, Windowed):
            cure = "group the rows of a window: FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...))"
            raise self._fault(f"GROUP BY without a window is not supported; {cure}", query.span)
        return self._windows(query, relation, where, keys, (names, items, having))

    def _windows(
        self, query: tree.Select, relation: Windowed, where: Typed | None, keys: Sequence[Typed], parts: Any
    ) -> Relation:
        names, items, having = parts
        base = len(relation.fields) - len(WINDOW_COLUMNS)
        marks = {it.index - base for it in keys if isinstance(it, Column) and it.index >= base}
        if not {0, 1} <= marks:
            raise self._fault("GROUP BY of a window needs window_start and window_end", query.span)
        own = [it for it in dict.fromkeys(keys) if not (isinstance(it, Column) and it.index >= base)]
        used = {at.index for node in own for at in all_within(node) if isinstance(at, Column)}
        if any(at >= base for at in used):
            raise self._fault("a key of GROUP BY is computed from the window; group by the columns alone", query.span)
        own = [*dict.fromkeys((*relation.partition, *own))]
        aggregates = [*dict.fromkeys(it for node in (*items, having) if node for it in _aggregates(node))]
        group = self._group(relation, where, own, aggregates)
        place = {**{it: 3 + at for at, it in enumerate(own)}}
        place |= {it: 3 + len(own) + at for at, it in enumerate(aggregates)}
        scope = Scope(group.fields, self._environment.source)

        def change(node: Typed) -> Typed | None:
            if node in place:
                return scope.column(place[node], node.span)
            if isinstance(node, Column):
                if node.index >= base and node.index - base in marks:
                    return scope.column(node.index - base, node.span)
                cure = f"add it to GROUP BY, or write MAX({node.name})"
                raise self._fault(f"column {node.name!r} is neither grouped nor aggregated; {cure}", node.span)
            return None

        after = collected(lambda it: replaced(it, change), items)
        return self._calc(group, having and replaced(having, change), names, after)

    def _group(
        self, relation: Windowed, where: Typed | None, keys: Sequence[Typed], aggregates: Sequence[Aggregated]
    ) -> Group:
        """Return the aggregates of each window and group."""
        operands: list[Typed] = []
        placed: list[Aggregated] = []
        for it in aggregates:
            taken = [_where(it, operand) for operand in it.operands or (Value(INT.as_nullable(False), it.span, 1),)]
            if it.where is None and not it.operands:
                taken = []
            for operand in taken:
                if operand not in operands:
                    operands.append(operand)
            columns = (Column(one.type, it.span, len(keys) + operands.index(one), "") for one in taken)
            placed.append(replace(it, operands=tuple(columns), where=None))
        time = relation.fields[relation.time]
        fields = [Field(f"key{at}", it.type) for at, it in enumerate(keys)]
        fields += [Field(f"value{at}", it.type) for at, it in enumerate(operands)]
        calc = Calc(tuple(fields), self._names.give("calc"), relation.input, where, (*keys, *operands))
        kind = time.type.as_nullable(False)
        made = [Field(name, kind, is_time=name == "window_time") for name in WINDOW_COLUMNS]
        made += [Field(f"key{at}", it.type) for at, it in enumerate(keys)]
        made += [Field(f"result{at}", it.type) for at, it in enumerate(placed)]
        return Group(tuple(made), self._names.give("window"), calc, len(keys), tuple(placed), relation.spec)

    # FROM

    def _from(self, ref: tree.TableRef) -> Relation:
        if isinstance(ref, tree.Join):
            raise self._fault("joins are not supported", ref.span)
        found = self._table(ref)
        name = ref.alias.text if ref.alias else ref.name.text if isinstance(ref, tree.NamedTable) else ""
        found = self._renamed(found, ref.columns, ref.span)
        return replace(found, fields=tuple(replace(it, table=name) for it in found.fields))

    def _table(self, ref: tree.TableRef) -> Relation:
        binder = self._below(ref.alias.text) if ref.alias else self
        match ref:
            case tree.NamedTable():
                return self._named_table(ref)
            case tree.Derived() if not ref.lateral:
                return binder.bind(ref.query)
            case tree.WindowCall():
                return binder.window(ref)
        raise self._fault("this is not supported in FROM", ref.span)

    def _named_table(self, ref: tree.NamedTable) -> Relation:
        if ref.as_of:
            raise self._fault("FOR SYSTEM_TIME AS OF is not supported; use join_table in Python", ref.span)
        given, name = self._environment, ref.name.text
        found = given.views.get(name) or given.table(name)
        if found is None:
            hint = did_you_mean(name, [*given.views, *given.tables()], else_="CREATE TABLE makes one")
            raise self._fault(f"no table {name!r}{hint}", ref.name.span)
        return found

    def window(self, ref: tree.WindowCall) -> Windowed:
        """Return the rows of a window function, with their windows."""
        table, time, numbers = window_of(ref, self._environment.source)
        relation = self._from(table.table)
        at = next((at for at, it in enumerate(relation.fields) if it.name == time.text), None)
        if at is None:
            names = [it.name for it in relation.fields]
            raise self._fault(f"no column {time.text!r}{did_you_mean(time.text, names)}", time.span)
        field_ = relation.fields[at]
        if not field_.is_time and ref.name.text != "COUNTING":
            times = [it.name for it in relation.fields if it.is_time]
            cure = f"write DESCRIPTOR({times[0]})" if times else "the table needs WATERMARK FOR"
            raise self._fault(f"{time.text!r} is no time attribute; {cure}", time.span)
        unit = 10 ** (6 - field_.type.size)
        for number, span in numbers:
            if number % unit:
                raise self._fault(f"the span is finer than {field_.type.name}", span)
        sizes = [number // unit for number, _ in numbers]
        partition = tuple(map(self._binder(relation, "PARTITION BY").bind, table.partition))
        kind = field_.type.as_nullable(False)
        added = [Field(name, kind, is_time=name == "window_time") for name in WINDOW_COLUMNS]
        fields = [replace(it, is_time=False) for it in relation.fields]
        spec = WindowSpec(ref.name.text, *sizes)
        return Windowed((*fields, *added), self._names.give("windows"), relation, at, spec, partition)


def _aggregates(node: Typed) -> list[Aggregated]:
    return [it for it in all_within(node) if isinstance(it, Aggregated)]


def _where(aggregate: Aggregated, operand: Typed) -> Typed:
    """Return an operand that is NULL, and so skipped, in rows that the aggregate does not take."""
    if aggregate.where is None:
        return operand
    null = Value(operand.type.as_nullable(), operand.span, None)
    return Picked(operand.type.as_nullable(), operand.span, ((aggregate.where, operand),), null)


def collected(bind: Callable[[Any], Any], nodes: Iterable[Any]) -> list[Any]:
    """Bind several things, and report the faults of all.

    Raises:
        SqlError: if any has faults.
    """
    found: list[Any] = []
    faults: list[Fault] = []
    for it in nodes:
        try:
            found.append(bind(it))
        except SqlError as error:
            faults += error.faults
    if faults:
        raise SqlError(faults)
    return found
