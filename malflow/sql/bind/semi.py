"""Binding IN and EXISTS of the rows of windows: rows with a partner in their window, or without one."""

from __future__ import annotations

from dataclasses import replace

from malflow.sql.arithmetic import comparison
from malflow.sql.bind.expressions import ExpressionBinder
from malflow.sql.bind.joins import conjuncts, join_parts, shifted, together
from malflow.sql.bind.relations import Joined, Relation
from malflow.sql.bind.scope import Scope, at_end
from malflow.sql.bind.sources import SourceBinder
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Expression, Operation, SubQuery
from malflow.sql.typed import IsTruth, Typed
from malflow.sql.types import BOOLEAN

__all__ = ["SemiJoinBinder"]


class SemiJoinBinder(SourceBinder):
    """Binds IN and EXISTS of queries in WHERE."""

    def _filtered(self, query: tree.Select, relation: Relation) -> tuple[tree.Select, Relation]:
        """Return a query without its conditions about queries, and the rows that these keep."""
        where = query.where
        parts = where.operands if isinstance(where, Operation) and where.op == "AND" else (where,)
        rest: list[Expression] = []
        for it in parts:
            found = None if it is None else self._of_query(it)
            if found is not None:
                relation = self._semi_joined(relation, *found)
            elif it is not None:
                rest.append(it)
        if len(rest) == len(parts) or where is None:
            return query, relation
        both = Operation("AND", tuple(rest), span=where.span) if len(rest) > 1 else rest[0] if rest else None
        return replace(query, where=both), relation

    @staticmethod
    def _of_query(node: Expression) -> tuple[Operation, tree.Select, bool] | None:
        """Return a test of a query, the query, and whether rows without a partner are wanted; None for other tests."""
        is_anti = isinstance(node, Operation) and node.op == "NOT"
        test = node.operands[0] if isinstance(node, Operation) and is_anti else node
        if not isinstance(test, Operation) or test.op not in {"IN", "EXISTS"}:
            return None
        inner = test.operands[-1]
        query = inner.query if isinstance(inner, SubQuery) else None
        if not isinstance(query, tree.Select) or query.source is None:
            return None
        more = (query.group, query.having, query.windows, query.qualify, query.distinct, query.hints)
        return None if any(more) else (test, query, is_anti is not test.negated)

    def _semi_joined(self, left: Relation, test: Operation, query: tree.Select, is_anti: bool) -> Relation:
        """Return the rows with a partner in their window, or without one.

        A name in the query is of its own rows first. NOT IN is true if the value differs from all; so it is not if one
        of them is NULL.
        """
        if query.source is None:
            raise TypeError("the query has rows")
        left, width = self.closed(left, test.span), len(left.fields)
        right = self.closed(self._from(query.source), query.span)
        given = self._environment
        scope = Scope((*left.fields, *right.fields), given.source, inner=width)
        binder = ExpressionBinder(scope, parameters=given.parameters, functions=given.functions, clause="WHERE")
        conditions = [] if query.where is None else conjuncts(binder.condition(query.where))
        if test.op == "IN":
            conditions.append(self._equal(test, query, left, right, is_anti=is_anti))
        both = together(conditions)
        parts = None if both is None else join_parts(both, left, right)
        if parts is None or not parts.is_window:
            cure = "compare window_start and window_end of both, or join the rows"
            raise self._fault(f"{test.op} of a query is supported for rows of one window; {cure}", test.span)
        name = self._names.give("join")
        sides = self._keyed(left, parts.left, name, "left"), self._keyed(right, parts.right, name, "right")
        how = "ANTI" if is_anti else "SEMI"
        made = Joined(at_end(left.fields), name, *sides, len(parts.left), how)
        return replace(made, spec=parts.spec, rest=together(parts.rest))

    def _equal(self, test: Operation, query: tree.Select, left: Relation, right: Relation, *, is_anti: bool) -> Typed:
        """Return the comparison of IN; for NOT IN whether it is not false."""
        if len(query.items) != 1:
            raise self._fault("IN takes a query of one column", query.items[0].span)
        one = self._binder(left, "WHERE").bind(test.operands[0])
        item = self._binder(right, "SELECT").bind(query.items[0].expression)
        found = comparison("=", one, shifted(item, len(left.fields)), test.span)
        if found is None:
            raise self._fault(f"{one.type.name} and {item.type.name} can't be compared; CAST one of them", test.span)
        if not is_anti or not found.type.nullable:
            return found
        return IsTruth(BOOLEAN.as_nullable(False), test.span, found, value=False, negated=True)
