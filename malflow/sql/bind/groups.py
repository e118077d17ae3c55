"""Binding groups: their rows, keys and windows, and the columns that are computed of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from malflow.sql.bind.joins import conjuncts, together
from malflow.sql.bind.relations import Calc, Group, Relation, Union, Windowed
from malflow.sql.bind.scope import Field, Scope, WindowSpec
from malflow.sql.bind.semi import SemiJoinBinder
from malflow.sql.bind.sources import collected, counting_fields, named, window_fields
from malflow.sql.bind.written import in_order
from malflow.sql.casts import converted
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Expression, Literal, Node
from malflow.sql.text import Span
from malflow.sql.typed import Aggregated, Column, Picked, Typed, Value, all_within, replaced
from malflow.sql.types import INT, common_type, timestamp

__all__ = ["GroupBinder"]


class GroupBinder(SemiJoinBinder):
    """Binds GROUP BY, aggregates and SELECT DISTINCT, and unites rows."""

    def _grouped(self, query: tree.Select, relation: Relation, where: Typed | None, parts: Any) -> Relation:
        bind = self._binder(relation, "GROUP BY").bind
        sets: list[list[Typed]] = [[]]
        for it in query.group or ():
            if isinstance(it, Literal):
                raise self._fault("GROUP BY takes columns, not their places", it.span)
            more = _sets_of(it, bind) if isinstance(it, tree.GroupingSets) else [[bind(it)]]
            sets = [[*known, *new] for known in sets for new in more]
        known = dict.fromkeys(key for keys in sets for key in keys)
        groups = []
        for keys in sets:
            binder = self if len(sets) == 1 else self._below(_set_name(keys, relation))
            groups.append(binder.group_by(query, relation, where, keys, {*known}.difference(keys), parts))
        return groups[0] if len(groups) == 1 else self._united(groups, query.span)

    def group_by(
        self,
        query: tree.Select,
        relation: Relation,
        where: Typed | None,
        keys: Sequence[Typed],
        absent: set[Typed],
        parts: Any,
    ) -> Relation:
        """Return the groups by some keys. The keys in `absent` belong to other grouping sets and are NULL here."""
        if isinstance(relation, Windowed):
            base = len(relation.input.fields)
            marks = {it.index: it.index - base for it in keys if isinstance(it, Column) and it.index >= base}
        else:
            ends = {"start": 0, "end": 1, "time": 2}
            marks = {
                it.index: ends[mark[0]] for it in keys if isinstance(it, Column) and (mark := self._mark(it, relation))
            }
        if not marks:
            what = "SELECT DISTINCT" if query.distinct else "GROUP BY"
            self._check_end(relation, f"{what} without a window", self._grouping(query))
            relation = self.closed(relation, query.span)
        elif not {0, 1} <= {*marks.values()}:
            what = "SELECT DISTINCT" if query.distinct else "GROUP BY"
            raise self._fault(f"{what} of a window needs window_start and window_end", self._grouping(query))
        return self._windows(relation, where, keys, marks, (*parts, absent))

    @staticmethod
    def _grouping(query: tree.Select) -> Span:
        """Return the place of GROUP BY; that of the columns where there is none."""
        parts: Sequence[Node] = query.group or query.items
        return Span(parts[0].span.start, parts[-1].span.end)

    def _check_end(self, relation: Relation, what: str, span: Span) -> None:
        """Check that the rows of a relation end, and that this is known.

        Raises:
            SqlError: if they don't.
        """
        ends = self._environment.ends
        if ends is None:
            cure = "group the rows of a window: FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...))"
            raise self._fault(f"{what} is not supported; {cure}", span)
        if not ends(relation):
            cure = "add ?stop=latest to a topic, or use the rows of a window"
            raise self._fault(f"{what} needs an input that ends; {cure}", span)

    def _windows(
        self, relation: Relation, where: Typed | None, keys: Sequence[Typed], marks: dict[int, int], parts: Any
    ) -> Relation:
        """Return the aggregates of each window and group, and what is computed from them.

        `marks` are the places of the columns of the window, with which of them each is.
        """
        names, items, having, absent = parts
        own = [it for it in dict.fromkeys(keys) if not (isinstance(it, Column) and it.index in marks)]
        aggregates = in_order(dict.fromkeys(it for node in (*items, having) if node for it in _aggregates(node)))
        if isinstance(relation, Windowed) and marks:
            used = _windows_in(relation, [where, *own, *aggregates])
            if relation.spec.kind == "COUNTING":
                self._check_counting(relation, own, where, used)
            is_other = relation.is_open and {*own} != {*relation.partition}
            marks_of_rows = marks if used or is_other else {}
            if relation.is_open and marks_of_rows:
                filtered, where = self._filtered_before(relation, where)
                relation = self.closed(filtered, Span(0, 0))
        else:
            marks_of_rows = marks
        own = in_order(own)
        group = self._group(relation, where, own, aggregates, marks_of_rows, at_end=not marks)
        place = {**{it: 3 + at for at, it in enumerate(own)}}
        place |= {it: 3 + len(own) + at for at, it in enumerate(aggregates)}
        scope = Scope(group.fields, self._environment.source)

        def change(node: Typed) -> Typed | None:
            if node in place:
                return scope.column(place[node], node.span)
            if isinstance(node, Aggregated):
                bits = "".join(str(int(it in absent)) for it in node.operands)
                return Value(node.type, node.span, int(bits, 2))
            if node in absent:
                return Value(node.type.as_nullable(), node.span, None)
            if isinstance(node, Column):
                if node.index in marks:
                    return scope.column(marks[node.index], node.span)
                cure = f"add it to GROUP BY, or write MAX({node.name})"
                raise self._fault(f"column {node.name!r} is neither grouped nor aggregated; {cure}", node.span)
            return None

        after = collected(lambda it: replaced(it, change), items)
        return self._calc(group, having and replaced(having, change), names, after)

    def _check_counting(self, relation: Windowed, keys: list[Typed], where: Typed | None, used: Column | None) -> None:
        """Check that windows of so many rows are grouped as they are: no time tells when all of their rows have come.

        Raises:
            SqlError: if they aren't.
        """
        if used:
            raise self._fault(f"the {used.name} of COUNTING is known when a window closes; use HAVING", used.span)
        if where:
            cure = "filter before, COUNTING((SELECT ... WHERE ...) PARTITION BY ..., 100), or aggregates by FILTER"
            raise self._fault(f"WHERE would leave windows of fewer rows; {cure}", where.span)
        if {*keys} != {*relation.partition}:
            cure = "write PARTITION BY with the other columns of GROUP BY in COUNTING"
            span = keys[0].span if keys else relation.partition[0].span
            raise self._fault(f"the windows of COUNTING have a partition of their own; {cure}", span)

    def _filtered_before(self, relation: Relation, where: Typed | None) -> tuple[Relation, Typed | None]:
        """Return the rows of sessions after the conditions about these rows, as in Flink, and the other conditions."""
        if not isinstance(relation, Windowed) or relation.spec.kind != "SESSION" or where is None:
            return relation, where
        parts = conjuncts(where)
        rest = [it for it in parts if _windows_in(relation, [it])]
        rows = relation.input
        columns = tuple(self._scope(rows).column(at, Span(0, 0)) for at in range(len(rows.fields)))
        before = together([it for it in parts if it not in rest])
        filtered = Calc(rows.fields, self._names.give("calc", relation.name), rows, before, columns)
        return replace(relation, input=filtered), together(rest)

    def _group(
        self,
        relation: Relation,
        where: Typed | None,
        keys: Sequence[Typed],
        aggregates: Sequence[Aggregated],
        marks: dict[int, int],
        *,
        at_end: bool,
    ) -> Group:
        """Return the aggregates of each window and group.

        `marks` are the places of the columns of the window, if the rows have them already. There are no windows if the
        rows are grouped at the end of the input.
        """
        operands: list[Typed] = []
        placed: list[Aggregated] = []
        for it in aggregates:
            taken = [_where(it, operand) for operand in it.operands or (Value(INT.as_nullable(False), it.span, 1),)]
            if it.where is None and not it.operands:
                taken = []
            for operand in taken:
                if operand not in operands:
                    operands.append(operand)
            columns = (Column(one.type, it.span, operands.index(one), "") for one in taken)
            placed.append(replace(it, operands=tuple(columns), where=None))
        bounds: list[Column] = []
        if at_end:
            source, spec, kind = relation, WindowSpec("END", 1), timestamp(3)
        elif isinstance(relation, Windowed) and not marks:
            source, spec = relation.input, relation.spec
            kind = relation.fields[relation.time].type
        else:
            scope = self._scope(relation)
            places = {which: at for at, which in marks.items()}
            bounds = [scope.column(places[which], Span(0, 0)) for which in (0, 1)]
            source, mark = relation, self._mark(bounds[0], relation)
            kind = next((it.type for it in relation.fields if it.is_time), bounds[0].type)
            spec = mark[1] if mark else WindowSpec("TUMBLE", 1)
        items = (*bounds, *keys, *operands)
        fields = tuple(named("f", items))
        shift = len(items) - len(operands)
        placed = [replace(it, operands=tuple(_moved(one, shift) for one in it.operands)) for it in placed]
        made = window_fields(kind.as_nullable(False), WindowSpec("TUMBLE", 1), is_time=True)
        made = counting_fields() if spec.kind == "COUNTING" else made
        made += [*named("key", keys), *named("result", placed)]
        name = self._names.give("group" if at_end else "window")
        calc = Calc(fields, self._names.give("input", name), source, where, items)
        return Group(tuple(made), name, calc, shift, tuple(placed), spec, bool(bounds))

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
            is_time = all(it.is_time_as(both) for it in place)
            texts = dict.fromkeys(sorted(str(it.origin) for it in place))
            fields.append(Field(place[0].name, both, is_time=is_time, written=" | ".join(texts)))
        name = self._names.give("union")
        same = [self._as(it, fields, span, self._names.give(str(at), name)) for at, it in enumerate(inputs, 1)]
        return Union(tuple(fields), name, tuple(same))

    def _as(self, relation: Relation, fields: Sequence[Field], span: Span, name: str) -> Relation:
        """Return rows with columns of other types."""
        scope = Scope(relation.fields, self._environment.source)
        columns = [scope.column(at, span) for at in range(len(fields))]
        items = [converted(it, wanted.type) for it, wanted in zip(columns, fields, strict=True)]
        if items == columns:
            return relation
        return Calc(tuple(fields), name, relation, None, tuple(items))

    @staticmethod
    def _mark(node: Typed, relation: Relation) -> tuple[str, WindowSpec] | None:
        return relation.fields[node.index].window if isinstance(node, Column) else None


def _aggregates(node: Typed) -> list[Aggregated]:
    return [it for it in all_within(node) if isinstance(it, Aggregated) and not it.function.startswith("GROUPING")]


def _windows_in(relation: Windowed, nodes: Sequence[Typed | None]) -> Column | None:
    """Return a column that windows add and an expression reads; None if there is none."""
    base = len(relation.input.fields)
    parts = (it for node in nodes if node is not None for it in all_within(node))
    return next((it for it in parts if isinstance(it, Column) and it.index >= base), None)


def _sets_of(node: tree.GroupingSets, bind: Callable[[Expression], Typed]) -> list[list[Typed]]:
    """Return the keys of each set: ROLLUP has its beginnings, CUBE all choices."""
    sets = [[*map(bind, it)] for it in node.sets]
    if node.kind == "GROUPING SETS":
        return sets
    counts = range(len(sets), -1, -1)
    chosen = (
        [[*it] for count in counts for it in combinations(sets, count)]
        if node.kind == "CUBE"
        else [sets[:count] for count in counts]
    )
    return [[key for keys in parts for key in keys] for parts in chosen]


def _set_name(keys: Sequence[Typed], relation: Relation) -> str:
    """Return the name of a grouping set: its keys without the window, so no other set counts."""
    own = [it for it in keys if not (isinstance(it, Column) and relation.fields[it.index].window)]
    texts = (re.sub(r"\W+", "_", str(it.written)) for it in in_order(own))
    return "_".join(["by", *(texts if own else ["nothing"])])


def _moved(node: Typed, by: int) -> Typed:
    return replace(node, index=node.index + by) if isinstance(node, Column) else node


def _where(aggregate: Aggregated, operand: Typed) -> Typed:
    """Return an operand that is NULL, and so skipped, in rows that the aggregate does not take."""
    if aggregate.where is None:
        return operand
    null = Value(operand.type.as_nullable(), operand.span, None)
    text = f"{operand.written or '*'} FILTER (WHERE {aggregate.where.written})"
    return Picked(operand.type.as_nullable(), operand.span, ((aggregate.where, operand),), null, written=text)
