"""Binding what a query reads: tables, queries in brackets, windows, joins, and the elements of collections."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from malflow.errors import MalflowError
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.hints import hints_of
from malflow.sql.bind.joins import join_parts, together
from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Calc, Collected, Expanded, Joined, Literals, Numbered, Relation, Windowed
from malflow.sql.bind.scope import Field, Scope, WindowSpec, at_end, meant
from malflow.sql.bind.windows import WINDOW_COLUMNS, counting_of, window_of
from malflow.sql.bind.written import Path
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Expression, Literal, Name, quoted_name
from malflow.sql.text import Fault, Source, Span, SqlError
from malflow.sql.typed import Column, Typed, Value
from malflow.sql.types import BIGINT, INT, SqlType
from malflow.words import did_you_mean, plural

__all__ = ["Environment", "SourceBinder", "collected", "path_name"]


@dataclass(frozen=True)
class Environment:
    """What a query may refer to.

    Attributes:
        source: the text.
        table: returns the relation of a table or view by its name; None if there is none.
        tables: the names of all tables and views.
        parameters: the values of parameters.
        functions: the functions of the user.
        views: the common tables that are in sight.
        path: returns the relation of a path or URL in quotes; None where tables have their columns in CREATE TABLE.
        ends: whether the rows of a relation end; None where that is not asked.
        on_error: the policy for rows that fail.
        optioned: returns the relation of a table by its name, read with the options of a hint by an operator's names.
        lost: adds late rows that a query drops to a table; None where queries are explained.
    """

    source: Source
    table: Callable[[str], Relation | None]
    tables: Callable[[], Iterable[str]]
    parameters: Mapping[str, Value] = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, Relation] = field(default_factory=dict)
    path: Callable[[str], Relation] | None = None
    ends: Callable[[Relation], bool] | None = None
    on_error: str = "fail"
    optioned: Callable[[Name, tree.Hint, Names], Relation] | None = None
    lost: Callable[[Relation, Name], object] | None = None


class SourceBinder:
    """Binds what queries read.

    Args:
        environment: what they may refer to.
        names: names for their operators.
    """

    def __init__(self, environment: Environment, names: Names) -> None:
        self._environment = environment
        self._names = names

    @abstractmethod
    def bind(self, query: tree.Query) -> Relation:
        """Return the rows of a query."""

    def _fault(self, message: str, span: Span) -> SqlError:
        return SqlError([Fault(message, span, self._environment.source)])

    def _below(self, name: str) -> Any:
        return type(self)(self._environment, self._names.below(name))

    def _scope(self, relation: Relation) -> Scope:
        return Scope(relation.fields, self._environment.source)

    def _binder(self, relation: Relation, clause: str, *, aggregates: bool = False) -> ExpressionBinder:
        given = self._environment
        return ExpressionBinder(
            self._scope(relation),
            parameters=given.parameters,
            functions=given.functions,
            aggregates=aggregates,
            clause=clause,
        )

    def closed(self, relation: Relation, span: Span) -> Relation:
        """Return rows with the window that they are in: those of sessions and counts come when it closes.

        Raises:
            SqlError: if they have numbers without a limit, that may change with each row that comes.
        """
        if isinstance(relation, Numbered):
            name = relation.fields[relation.number].name
            raise self._fault(f"the number of a row needs a limit; write WHERE {name} <= 3 around the query", span)
        return self._collected(relation) if isinstance(relation, Windowed) and relation.is_open else relation

    def _collected(self, relation: Windowed) -> Relation:
        rows, added = relation.input.fields, counting_fields()[:2]
        if relation.spec.kind == "SESSION":
            kind = rows[relation.time].type.as_nullable(False)
            added = window_fields(kind, WindowSpec("TUMBLE", 1), is_time=True)
        made = [replace(it, is_time=False, window=None) for it in rows]
        named_ = (replace(it, table=old.table) for it, old in zip([*made, *added], relation.fields, strict=True))
        name = self._names.give("collected")
        keyed = self._keyed(relation.input, relation.partition, name, "input")
        return Collected(tuple(named_), name, keyed, len(relation.partition), relation.spec)

    def renamed(self, relation: Relation, columns: Sequence[Name], span: Span) -> Relation:
        """Return rows with the names that the text gives their columns."""
        if not columns:
            return relation
        if len(columns) != len(relation.fields):
            given = f"{plural(len(columns), 'name')} for {plural(len(relation.fields), 'column')}"
            raise self._fault(given, span)
        pairs = zip(relation.fields, columns, strict=True)
        fields = [replace(it, name=name.text, written=it.origin) for it, name in pairs]
        return replace(relation, fields=tuple(fields))

    def _calc(self, relation: Relation, where: Typed | None, names: Sequence[str], items: Sequence[Typed]) -> Relation:
        """Return rows with other columns; a bare column stays a time attribute or the bound of a window."""
        fields: list[Field] = []
        for name, it in zip(names, items, strict=True):
            made = Field(name, it.type if it.type.kind != "NULL" else INT, written=it.written)
            if isinstance(it, Column):
                its = relation.fields[it.index]
                made = replace(made, is_time=its.is_time, window=its.window)
            fields.append(made)
        return Calc(tuple(fields), self._names.give("calc"), relation, where, tuple(items))

    def _from(self, ref: tree.TableRef) -> Relation:
        if isinstance(ref, tree.Join):
            return self._join(ref)
        found = self._table(ref)
        name = ref.alias.text if ref.alias else _name_of(ref) if isinstance(ref, tree.NamedTable) else ""
        found = self.renamed(found, ref.columns, ref.span)
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
            case tree.Unnest() | tree.TableCall():
                nothing = Literals((), self._names.give("values"), ((),))
                return self._expanded(nothing, tree.Join("CROSS", ref, ref, span=ref.span), ref)
        raise self._fault("this is not supported in FROM", ref.span)

    def _named_table(self, ref: tree.NamedTable) -> Relation:
        if ref.as_of:
            raise self._fault("FOR SYSTEM_TIME AS OF is not supported; use join_table in Python", ref.span)
        given, name = self._environment, ref.name.text
        options = hints_of(ref.hints, "table", self._fault).get("OPTIONS")
        if options and (ref.is_path or given.optioned is None or name in given.views):
            raise self._fault("OPTIONS belong to a table with a URL", options.span)
        if ref.is_path:
            return self._at_path(ref)
        if options and given.optioned:
            return given.optioned(ref.name, options, self._names.below(ref.alias.text if ref.alias else name))
        found = given.views.get(name) or given.table(name)
        if found is None:
            hint = meant(name, [*given.views, *given.tables()], else_="CREATE TABLE makes one")
            raise self._fault(f"no table {name!r}{hint}", ref.name.span)
        return found

    def _at_path(self, ref: tree.NamedTable) -> Relation:
        """Return the rows of a path or URL in quotes."""
        path = self._environment.path
        if path is None:
            table = quoted_name(_name_of(ref))
            written = f"CREATE TABLE {table} (...) WITH ('url' = {ref.name.text!r}) and FROM {table}"
            cure = "malflow sql --ddl prints the columns"
            raise self._fault(f"a path is a table at the prompt only; write {written}; {cure}", ref.name.span)
        try:
            return path(ref.name.text)
        except SqlError as error:
            raise self._fault(error.faults[0].message, ref.name.span) from None
        except MalflowError as error:
            raise self._fault(str(error), ref.name.span) from None

    def window(self, ref: tree.WindowCall) -> Windowed:
        """Return the rows of a window function, with their windows."""
        if ref.name.text == "COUNTING":
            return self._counting(ref)
        table, time, numbers = window_of(ref, self._environment.source)
        relation = self._from(table.table)
        relation = self.closed(relation, table.span)
        at = next((at for at, it in enumerate(relation.fields) if it.name == time.text), None)
        if at is None:
            names = [it.name for it in relation.fields]
            raise self._fault(f"no column {time.text!r}{did_you_mean(time.text, names)}", time.span)
        field_ = relation.fields[at]
        if not field_.is_time:
            times = [it.name for it in relation.fields if it.is_time]
            cure = "WATERMARK FOR makes one, windows give `window_time`, and a table has that of the INSERTs above it"
            if isinstance(table.table, tree.Derived):
                cure = "select one; of a join, the later time of both is one, if the bounds tell which is later"
            if isinstance(table.table, tree.NamedTable) and table.table.is_path:
                cure = "take the CREATE TABLE that --ddl prints, and add WATERMARK FOR to it"
            cure = f"write DESCRIPTOR({times[0]})" if times else cure
            raise self._fault(f"{time.text!r} is not a time attribute; {cure}", time.span)
        unit = 10 ** (6 - field_.type.size)
        for number, span in numbers:
            if number % unit:
                raise self._fault(f"the span is finer than {field_.type.name}", span)
        sizes = [number // unit for number, _ in numbers]
        if table.partition and ref.name.text != "SESSION":
            raise self._fault(f"{ref.name} has no PARTITION BY; write GROUP BY", table.span)
        partition = tuple(map(self._binder(relation, "PARTITION BY").bind, table.partition))
        kind = field_.type.as_nullable(False)
        spec = WindowSpec(ref.name.text, *sizes)
        added = window_fields(kind, spec, is_time=False)
        fields = [replace(it, window=None) for it in relation.fields]
        return Windowed((*fields, *added), self._names.give("windows"), relation, at, spec, partition)

    def _counting(self, ref: tree.WindowCall) -> Windowed:
        """Return rows with windows of so many rows of a key, by their order of arrival.

        The bounds of a window are numbers of rows of the key: the first window has those from 0 up to, and without, its
        size. They are no instants, so the results have no time attribute.
        """
        table, count = counting_of(ref, self._environment.source)
        relation = self._from(table.table)
        relation = self.closed(relation, table.span)
        partition = tuple(map(self._binder(relation, "PARTITION BY").bind, table.partition))
        fields = (replace(it, window=None, is_time=False) for it in relation.fields)
        added = counting_fields()[:2]
        name = self._names.give("windows")
        return Windowed((*fields, *added), name, relation, 0, WindowSpec("COUNTING", count), partition)

    def _join(self, ref: tree.Join) -> Relation:
        left = self._from(ref.left)
        left = self.closed(left, ref.span)
        if isinstance(ref.right, tree.Unnest | tree.TableCall):
            return self._expanded(left, ref, ref.right)
        right = self._from(ref.right)
        right = self.closed(right, ref.span)
        if ref.using:
            raise self._fault("USING is not supported; write ON", ref.using[0].span)
        if ref.how == "CROSS" and ref.on is None:
            raise self._fault("a join needs a condition: ON, or an equality in WHERE", ref.span)
        both = Joined((*left.fields, *right.fields), "", left, right, 0, ref.how)
        condition = ref.on or Literal("TRUE", "", span=ref.span)
        return self._joined(both, self._binder(both, "ON").condition(condition), ref.span)

    def _joined(self, both: Joined, condition: Typed, span: Span) -> Relation:
        parts = join_parts(condition, both.left, both.right)
        how = "INNER" if both.how == "CROSS" else both.how
        is_window = parts.is_window
        if not parts.left and not is_window:
            raise self._fault("a join needs an equality of a column of each side", span)
        if not is_window and (parts.low is None or parts.high is None):
            bound = "add a bound on both sides, as in r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR"
            cure = f"{bound}, or join the rows of windows, or the results of two"
            raise self._fault(f"a join without a bound in time is not supported; {cure}", span)
        if not is_window and parts.low is not None and parts.high is not None and parts.low > parts.high:
            raise self._fault("no two rows can satisfy the bounds of this join", span)
        if parts.rest and how != "INNER" and not is_window:
            raise self._fault(f"a {how} join takes equalities and bounds in time only", parts.rest[0].span)
        name = self._names.give("join" if is_window else "interval_join")
        left, right = (
            self._keyed(both.left, parts.left, name, "left"),
            self._keyed(both.right, parts.right, name, "right"),
        )
        nullable = {"LEFT": (False, True), "RIGHT": (True, False), "FULL": (True, True)}.get(how, (False, False))
        later = (parts.high is not None and parts.high <= 0, parts.low is not None and parts.low >= 0)
        fields: list[Field] = []
        sides = (("left", both.left), ("right", both.right))
        for (which, side), may_lack, is_later in zip(sides, nullable, later, strict=True):
            for it in at_end(side.fields) if is_window else side.fields:
                is_time = it.is_time and not may_lack and (is_window or is_later)
                kept = it.window if is_window and not may_lack else None
                type_ = it.type.as_nullable(may_lack or it.type.nullable)
                text = Path(which, it.origin)
                fields.append(replace(it, type=type_, is_time=is_time, window=kept, written=text))
        made = Joined(tuple(fields), name, left, right, len(parts.left), how)
        if not is_window:
            made = replace(made, interval=(-(parts.low or 0), parts.high or 0))
        elif how == "INNER":
            made = replace(made, spec=parts.spec)
        else:
            return replace(made, spec=parts.spec, rest=together(parts.rest))
        if not parts.rest:
            return made
        items = [self._scope(made).column(at, span) for at in range(len(fields))]
        return Calc(tuple(fields), self._names.give("calc", name), made, together(parts.rest), tuple(items))

    def _keyed(self, relation: Relation, keys: Sequence[Typed], join: str, side: str) -> Relation:
        """Return the rows of a side of a join with keys before their columns."""
        columns = [self._scope(relation).column(at, Span(0, 0)) for at in range(len(relation.fields))]
        fields = (*named("key", keys), *relation.fields)
        return Calc(fields, self._names.give(side, join), relation, None, (*keys, *columns))

    def _expanded(self, left: Relation, ref: tree.Join, right: tree.Unnest | tree.TableCall) -> Relation:
        """Return rows with the elements of a collection, or the rows of a table function."""
        if ref.how not in {"CROSS", "INNER", "LEFT"}:
            raise self._fault(f"a {ref.how} join with the rows of an expression is not supported", ref.span)
        if isinstance(ref.on, Expression) and str(ref.on) != "TRUE":
            raise self._fault("write ON TRUE, and filter the rows in WHERE", ref.on.span)
        if isinstance(right, tree.TableCall):
            operand = self._binder(left, "LATERAL TABLE").rows(right.call)
        else:
            operand = self._binder(left, "UNNEST").bind(right.operand)
        if operand.type.kind not in {"ARRAY", "MAP"}:
            raise self._fault(f"UNNEST takes an array or a map, not {operand.type.name}", operand.span)
        item = operand.type.items[0]
        types, names = [*operand.type.items], ["f0", "f1"] if operand.type.kind == "MAP" else ["EXPR$0"]
        if item.kind == "ROW" and operand.type.kind == "ARRAY":
            types, names = [*item.items], [*item.names]
        ordinality = isinstance(right, tree.Unnest) and right.ordinality
        if ordinality:
            types, names = [*types, INT.as_nullable(False)], [*names, "ORDINALITY"]
        is_left = ref.how == "LEFT"
        text = f"UNNEST({operand.written})" if isinstance(right, tree.Unnest) else str(operand.written)
        added = [
            Field(name, it.as_nullable(is_left or it.nullable), written=Path(text, quoted_name(name)))
            for name, it in zip(names, types, strict=True)
        ]
        name = self._names.give("unnest" if isinstance(right, tree.Unnest) else "lateral")
        found: Relation = Expanded(tuple(added), name, left, operand, len(types), is_left, ordinality)
        found = self.renamed(found, right.columns, right.span)
        table = right.alias.text if right.alias else ""
        fields = (*left.fields, *(replace(it, table=table) for it in found.fields))
        return replace(found, fields=fields)


def _name_of(ref: tree.NamedTable) -> str:
    """Return the name of a table; of a path that of the file without its endings."""
    return path_name(ref.name.text) if ref.is_path else ref.name.text


def path_name(path: str) -> str:
    """Return the name of the table of a path or URL: that of the file or topic, without endings and options.

    >>> path_name("data/bids.jsonl.gz"), path_name("kafka://broker/bids?format=json"), path_name("-")
    ('bids', 'bids', 'input')
    """
    last = re.split("[?*]", path, maxsplit=1)[0].rstrip("/").rpartition("/")[2].partition(".")[0]
    return re.sub(r"\W", "_", last).strip("_") or "input"


def counting_fields() -> list[Field]:
    """Return the columns that begin the results of windows of so many rows; the last one has no meaning there."""
    return [Field(it, BIGINT.as_nullable(False)) for it in WINDOW_COLUMNS]


def window_fields(kind: SqlType, spec: WindowSpec, *, is_time: bool) -> list[Field]:
    """Return the columns that windows add to their rows, or that begin their results."""
    bound = replace(kind, kind="TIMESTAMP")  # also of instants with a zone, as in Flink
    start, end, time = WINDOW_COLUMNS
    return [
        Field(start, bound, window=("start", spec)),
        Field(end, bound, window=("end", spec)),
        Field(time, kind, is_time=is_time, window=("time", spec)),
    ]


def named(name: str, items: Iterable[Typed]) -> list[Field]:
    """Return the columns of what nobody has named."""
    return [Field(f"{name}{at}", it.type, written=it.written) for at, it in enumerate(items)]


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
