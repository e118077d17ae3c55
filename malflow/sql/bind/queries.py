"""Binding queries: a text about tables becomes relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from malflow.sql.bind.groups import GroupBinder
from malflow.sql.bind.hints import POLICIES, hints_of, one_text
from malflow.sql.bind.joins import conjuncts, together
from malflow.sql.bind.lateness import kept_rows
from malflow.sql.bind.lost import dropping, late_hint, lost_rows, side_of, with_rows
from malflow.sql.bind.relations import Calc, Group, Literals, Numbered, Parted, Relation, Top, Windowed, within
from malflow.sql.bind.scope import Field, WindowSpec, at_end
from malflow.sql.bind.sources import collected, named
from malflow.sql.bind.windows import renewed, without_old_windows
from malflow.sql.bind.written import in_order
from malflow.sql.casts import converted
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Call, Expression, Literal, Name, Operation, Reference, Star
from malflow.sql.text import Span
from malflow.sql.typed import Aggregated, Column, Comparison, RowNumber, Typed, Value, all_within, replaced
from malflow.sql.types import INT, NULL, common_type
from malflow.words import did_you_mean

__all__ = ["QueryBinder"]


class QueryBinder(GroupBinder):
    """Binds queries.

    Args:
        environment: what they may refer to.
        names: names for their operators.
    """

    def whole(self, query: tree.Query) -> Relation:
        """Return the rows of a query that is not part of another one.

        Raises:
            SqlError: with all faults that were found.
        """
        return self.closed(self.bind(query), query.span)

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
        raise TypeError(f"{type(query).__name__} is not a query")

    def _with(self, query: tree.With) -> Relation:
        for part, what in ((query.order, "ORDER BY"), (query.limit, "LIMIT"), (query.offset, "OFFSET")):
            if part or part == 0:
                span = query.order[0].span if query.order else query.span
                if self._environment.ends is not None:
                    raise self._fault(f"{what} belongs at the end of the statement, not within it", span)
                cure = "the first rows of each window are ROW_NUMBER() OVER (...) <= n"
                raise self._fault(f"{what} needs an input that ends; {cure}", span)
        views = dict(self._environment.views)
        for it in query.views:
            binder = QueryBinder(replace(self._environment, views=views), self._names.below(it.name.text))
            view = self.renamed(binder.bind(it.query), it.columns, it.span)
            views[it.name.text] = within(view, self._environment.on_error)
        return QueryBinder(replace(self._environment, views=views), self._names).bind(query.body)

    def _union(self, query: tree.SetOperation) -> Relation:
        if query.op != "UNION ALL":
            raise self._fault(f"{query.op} is not supported; write UNION ALL, and group its rows", query.right.span)
        parts: list[tree.Query] = [query.right]
        left = query.left
        while isinstance(left, tree.SetOperation) and left.op == "UNION ALL":
            parts.append(left.right)
            left = left.left
        inputs = collected(self.whole, [left, *reversed(parts)])
        return self._united(inputs, query.span)

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
        if query.windows:
            raise self._fault("WINDOW is not supported", query.windows[0][0].span)
        if query.hints:
            return self._hinted(replace(query, hints=()), hints_of(query.hints, "query", self._fault))
        query = without_old_windows(_joined_by_where(query))
        return self._qualified(query, query.qualify) if query.qualify else self._selected(query)

    def _selected(self, query: tree.Select) -> Relation:
        """Return the rows of a SELECT without QUALIFY."""
        relation = self._from(query.source) if query.source else Literals((), self._names.give("values"), ((),))
        query, relation = self._filtered(*self._parted(query, relation))
        columns = [it for item in query.items for it in self._columns(item, relation)]
        binder = self._binder(relation, "SELECT", aggregates=True)
        condition = self._binder(relation, "WHERE").condition
        of_groups = self._binder(relation, "HAVING", aggregates=True).condition
        clauses = [(condition, query.where), (of_groups, query.having), *((binder.bind, it) for _, it in columns)]
        where, having, *bound = collected(lambda it: it[0](it[1]) if it[1] else None, clauses)
        if isinstance(relation, Numbered):
            relation, where = self._top(relation, where, query.span), None
        names = self._named([name for name, _ in columns])
        has_aggregates = any(isinstance(it, Aggregated) for node in (*bound, having) if node for it in all_within(node))
        is_grouped = query.group is not None or has_aggregates or having
        number = next((it for node in bound for it in all_within(node) if isinstance(it, RowNumber)), None)
        if number:
            if is_grouped:
                cure = "put GROUP BY into a query in FROM"
                raise self._fault(f"ROW_NUMBER() numbers the rows of FROM, before GROUP BY; {cure}", number.span)
            return self._numbered(relation, where, names, bound)
        if query.distinct:
            if is_grouped:
                cure = "put GROUP BY into a query in FROM"
                raise self._fault(f"SELECT DISTINCT of groups is not supported; {cure}", self._grouping(query))
            query = replace(query, group=tuple(it for _, it in columns))
        if is_grouped or query.distinct:
            return self._grouped(query, relation, where, (names, bound, having))
        relation, where = self._filtered_before(relation, where)
        relation = self.closed(relation, query.span)
        return self._calc(relation, where, names, bound)

    def _hinted(self, query: tree.Select, hints: Mapping[str, tree.Hint]) -> Relation:
        """Return the rows of a SELECT with hints.

        NAME pins the names of its operators. ON_ERROR is the policy for rows that fail, also in its subqueries. LATE
        has the tables for late rows that are dropped.
        """
        environment, names = self._environment, self._names
        if named := hints.get("NAME"):
            name = one_text(named, self._fault)
            if "/" in name:
                raise self._fault("the hint NAME has one name in it, without a /: NAME('hot')", named.span)
            cure = "write another name, and give the queries in this SELECT aliases"
            names = names.pinned(name, self._fault(cure, named.span).faults[0])
        if guarded := hints.get("ON_ERROR"):
            environment = replace(environment, on_error=one_text(guarded, self._fault, POLICIES))
        found = QueryBinder(environment, names).bind(query)
        if late := hints.get("LATE"):
            found = self._losing(found, late)
        return within(found, environment.on_error) if guarded else found

    def _losing(self, found: Relation, hint: tree.Hint) -> Relation:
        """Return the rows of a SELECT. The late rows that its operator drops are written to the tables of LATE."""
        drops = dropping(found)
        if len(drops) != 1:
            what = "several operators drop" if drops else "no operator of this SELECT drops"
            cure = "write LATE in the SELECT with the windows, the first rows or the join"
            raise self._fault(f"{what} late rows; {cure}", hint.span)
        it = drops[0]
        if isinstance(it, Group):
            found, it = with_rows(found, it)
        for alias, table in hint.arguments or (("", ""),):
            side = side_of(it, alias)
            if side is None or not table:
                raise self._fault(f"LATE has a table for the late rows of each input; {late_hint(it)}", hint.span)
            if self._environment.lost:
                self._environment.lost(lost_rows(it, self._names, side), Name(table, span=hint.span))
        return found

    def _parted(self, query: tree.Select, relation: Relation) -> tuple[tree.Select, Relation]:
        """Return a query without its conditions about CURRENT_WATERMARK, and the rows that these keep."""
        scope, is_numbered = self._scope(relation), isinstance(relation, Numbered)

        def is_time(reference: Reference) -> bool:
            column, members = scope.find(reference)
            return column.is_time and not members and not is_numbered

        where, on_time, late = kept_rows(query.where, is_time, self._fault)
        if on_time and late:
            return query, relation
        if not on_time and not late:
            where = Literal("FALSE", "", span=query.where.span if query.where else query.span)
        elif isinstance(relation, Windowed):
            relation = replace(relation, input=self._of_kind(relation.input, is_late=late))
        else:
            relation = self._of_kind(relation, is_late=late)
        return replace(query, where=where), relation

    def _of_kind(self, relation: Relation, *, is_late: bool) -> Relation:
        return Parted(relation.fields, self._names.give("late" if is_late else "on_time"), relation, is_late)

    # The first rows of a window. The number is given in a query, and compared in the query around it.

    def _qualified(self, query: tree.Select, condition: Expression) -> Relation:
        """Return the first rows of each window. The condition names a column of their number, or has its expression."""
        known = {it.expression: it.alias for it in query.items}
        added: dict[Call, Name] = {}

        def named(call: Call) -> Expression | None:
            if not call.over:
                return None
            name = known.get(call) or added.setdefault(call, Name(str(call), span=call.span))
            return Reference((name,), span=call.span)

        condition = renewed(condition, named)
        items = (*query.items, *(tree.Item(call, name, span=call.span) for call, name in added.items()))
        rows = self._selected(replace(query, items=items))
        if not isinstance(rows, Numbered):
            cure = "write QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY ...) <= 3"
            raise self._fault(f"QUALIFY compares the number of a row; {cure}", condition.span)
        top = self._top(rows, self._binder(rows, "QUALIFY").condition(condition), condition.span)
        if not added:
            return top
        scope, width = self._scope(top), len(top.fields) - len(added)
        columns = tuple(scope.column(at, condition.span) for at in range(width))
        return Calc(top.fields[:width], self._names.give("calc", top.name), top, None, columns)

    def _numbered(
        self, relation: Relation, where: Typed | None, names: Sequence[str], items: Sequence[Typed]
    ) -> Numbered:
        """Return rows with their number."""
        numbers = [it for node in items for it in all_within(node) if isinstance(it, RowNumber)]
        number, places = numbers[0], [at for at, it in enumerate(items) if isinstance(it, RowNumber)]
        if not len(places) == len(numbers) == 1:
            raise self._fault("ROW_NUMBER() must be one column of its SELECT, and by itself", numbers[-1].span)
        relation, where = self._filtered_before(relation, where)
        relation = self.closed(relation, number.span)
        made = [Value(INT, it.span, 1, written="number") if it is number else it for it in items]
        base = self._calc(relation, where, names, made)
        fields = [replace(it, type=number.type) if at == places[0] else it for at, it in enumerate(base.fields)]
        marked = {mark[0]: it for it in number.partition if (mark := self._mark(it, relation))}
        if not {"start", "end"} <= {*marked}:
            cure = "PARTITION BY window_start, window_end"
            raise self._fault(f"ROW_NUMBER() is supported for the first rows of windows only; {cure}", number.span)
        mark = self._mark(marked["start"], relation)
        spec = mark[1] if mark else WindowSpec("TUMBLE", 1)
        partition = [*dict.fromkeys((marked["start"], marked["end"], *in_order(number.partition)))]
        inner = [*partition, *(it for it, _, _ in number.order)]
        added = (Field(getattr(it, "name", f"order{at}"), it.type, written=it.written) for at, it in enumerate(inner))
        wide = Calc((*fields, *added), base.name, relation, where, (*made, *inner))
        columns = [self._scope(wide).column(len(fields) + at, it.span) for at, it in enumerate(inner)]
        order = [
            (it, down, first) for it, (_, down, first) in zip(columns[len(partition) :], number.order, strict=True)
        ]
        parts = tuple(columns[: len(partition)])
        by, down, _ = number.order[0]
        is_newest = isinstance(by, Column) and by.is_time and down and len(number.order) == 1
        return Numbered(tuple(fields), wide.name, wide, parts, tuple(order), places[0], spec, is_newest)

    def _top(self, relation: Numbered, where: Typed | None, span: Span) -> Relation:
        """Return the rows with a number up to a limit."""
        count, rest = None, []
        for it in conjuncts(where):
            limit = _limit_of(it, relation.number)
            if limit is not None:
                count = limit if count is None else min(count, limit)
            if limit is None or (isinstance(it, Comparison) and it.op == "==" and limit > 1):
                rest.append(it)
        if count is None:
            cure = f"write WHERE {relation.fields[relation.number].name} <= 3"
            raise self._fault(f"the number of a row is compared with a limit; {cure}", span)
        keys = len(relation.partition)
        wide = relation.input
        scope = self._scope(wide)
        width = len(relation.fields)
        own = [scope.column(at, span) for at in range(width)]
        items = (*relation.partition, *(it for it, _, _ in relation.order), *own)
        fields = (*named("key", items[: len(items) - width]), *relation.fields)
        name = self._names.give("top")
        calc = Calc(fields, self._names.give("input", name), wide, None, items)
        ways = tuple((down, first) for _, down, first in relation.order)
        ended = at_end(relation.fields)
        made = (*ended, Field("number", ended[relation.number].type))
        is_newest = relation.is_newest and count == 1
        top = Top(made, name, calc, keys, ways, count, relation.spec, is_newest, relation.number)
        scope = self._scope(top)
        columns = [scope.column(width if at == relation.number else at, span) for at in range(width)]

        def change(node: Typed) -> Typed | None:
            return columns[node.index] if isinstance(node, Column) else None

        where = together([replaced(it, change) for it in rest])
        return Calc(ended, self._names.give("calc", name), top, where, tuple(columns))

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
        """Return names of columns: EXPR$1 and so on where there is none, and a number after names that are taken."""
        found: list[str] = []
        for at, given in enumerate(names):
            name, number = given or f"EXPR${at}", 0
            while name in found:
                name, number = f"{given or f'EXPR${at}'}{number}", number + 1
            found.append(name)
        return found


def _joined_by_where(query: tree.Select) -> tree.Select:
    """Return a query with the WHERE of an inner join, or of tables listed with commas, as a part of its condition."""
    source = query.source
    if not isinstance(source, tree.Join) or source.how not in {"CROSS", "INNER"} or query.where is None:
        return query
    if isinstance(source.right, tree.Unnest | tree.TableCall) or (source.how == "INNER" and source.on is None):
        return query
    both = query.where if source.on is None else Operation("AND", (source.on, query.where), span=query.where.span)
    return replace(query, source=replace(source, how="INNER", on=both), where=None)


def _limit_of(node: Typed, number: int) -> int | None:
    """Return the limit that a condition sets to the number of a row; None if it is another condition."""
    if not isinstance(node, Comparison):
        return None
    left, right, op = node.left, node.right, node.op
    if isinstance(left, Value):
        left, right, op = right, left, {"<": ">", ">": "<", "<=": ">=", ">=": "<="}.get(op, op)
    if not isinstance(left, Column) or left.index != number:
        return None
    if not isinstance(right, Value) or not isinstance(right.value, int):
        return None
    return {"==": right.value, "<=": right.value, "<": right.value - 1}.get(op)
