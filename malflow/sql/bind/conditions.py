"""Binding conditions, and expressions that choose one of several values."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from malflow.sql.arithmetic import comparison
from malflow.sql.bind.scope import Scope
from malflow.sql.casts import converted
from malflow.sql.functions.patterns import like_test, similar_test
from malflow.sql.syntax import expressions as tree
from malflow.sql.syntax.expressions import Expression
from malflow.sql.text import Span
from malflow.sql.typed import (
    Column,
    Comparison,
    Connected,
    First,
    IsNull,
    IsTruth,
    Keeping,
    Kept,
    Lenient,
    Not,
    OneOf,
    Picked,
    Strict,
    Typed,
    Value,
)
from malflow.sql.types import BOOLEAN, NULL, STRING, TEXTS, TIMES, common_type

__all__ = ["ConditionBinder"]


class ConditionBinder:
    """Binds conditions and choices about the rows of a scope.

    Args:
        scope: the columns.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._fault = scope.fault

    @abstractmethod
    def bind(self, node: Expression) -> Typed:
        """Return an expression with its type."""

    def condition(self, node: Expression) -> Typed:
        """Return an expression that is true or false.

        Raises:
            SqlError: if it is of another type.
        """
        found = self.bind(node)
        if found.type.kind == "NULL":
            return converted(found, BOOLEAN)
        if found.type.kind != "BOOLEAN":
            raise self._fault(f"expected a condition, got {found.type.name}", node.span)
        return found

    def _connected(self, node: tree.Operation) -> Typed:
        operands = tuple(map(self.condition, node.operands))
        nullable = any(it.type.nullable for it in operands)
        return Connected(BOOLEAN.as_nullable(nullable), node.span, node.op, operands)

    def _not(self, node: tree.Operation) -> Typed:
        operand = self.condition(node.operands[0])
        return Not(operand.type, node.span, operand)

    def _compared(self, op: str, left: Typed, right: Typed, span: Span) -> Comparison:
        found = comparison(op, left, right, span)
        if found is None:
            raise self._fault(f"{left.type.name} and {right.type.name} can't be compared; CAST one of them", span)
        return found

    def _distinct(self, node: tree.Operation) -> Typed:
        left, right = map(self.bind, node.operands)
        compared = self._compared("=", left, right, node.span)
        text = f"({{0}} {'==' if node.negated else '!='} {{1}})"
        return Lenient(BOOLEAN.as_nullable(False), node.span, text, (compared.left, compared.right))

    def _is(self, node: tree.Operation) -> Typed:
        result, what = BOOLEAN.as_nullable(False), node.op.removeprefix("IS ")
        operand = (self.bind if what == "NULL" else self.condition)(node.operands[0])
        if what in {"NULL", "UNKNOWN"}:
            return IsNull(result, node.span, operand, node.negated)
        return IsTruth(result, node.span, operand, what == "TRUE", node.negated)

    def _between(self, node: tree.Operation) -> Typed:
        operand, low, high = map(self.bind, node.operands)
        if node.op == "BETWEEN SYMMETRIC":
            ends = [self._compared("<=", operand, it, it.span) for it in (low, high)]
            operands = (ends[0].left, ends[0].right, ends[1].right)
            nullable = BOOLEAN.as_nullable(any(it.type.nullable for it in operands))
            found: Typed = Strict(nullable, node.span, "lies_between({0}, {1}, {2})", operands)
        else:
            found = self._keeping(operand, lambda it: self._within(it, low, high, node))
        return Not(found.type, node.span, found) if node.negated else found

    def _within(self, operand: Typed, low: Typed, high: Typed, node: Expression) -> Typed:
        sides = (self._compared(">=", operand, low, low.span), self._compared("<=", operand, high, high.span))
        nullable = any(it.type.nullable for it in sides)
        return Connected(BOOLEAN.as_nullable(nullable), node.span, "AND", sides)

    def _in(self, node: tree.Operation) -> Typed:
        first, *rest = node.operands
        if isinstance(rest[0], tree.SubQuery):
            raise self._fault("IN of a query is not supported; join its rows", node.span)
        operand, values = self.bind(first), [*map(self.bind, rest)]
        compared = [self._compared("=", operand, it, it.span) for it in values]
        nullable = BOOLEAN.as_nullable(any(it.type.nullable for it in compared))
        known = tuple(it.right for it in compared if isinstance(it.right, Value) and it.right.value is not None)
        if all(isinstance(it.right, Value) and it.left == compared[0].left for it in compared):
            return OneOf(nullable, node.span, compared[0].left, known, len(known) < len(values), node.negated)
        found = self._keeping(operand, lambda it: self._any_of(it, values, node))
        return Not(nullable, node.span, found) if node.negated else found

    def _any_of(self, operand: Typed, values: Sequence[Typed], node: Expression) -> Typed:
        tests = tuple(self._compared("=", operand, it, it.span) for it in values)
        nullable = any(it.type.nullable for it in tests)
        return Connected(BOOLEAN.as_nullable(nullable), node.span, "OR", tests)

    @staticmethod
    def _keeping(operand: Typed, bind: Callable[[Typed], Typed]) -> Typed:
        """Return an expression that takes a value several times: computed once, unless it is a column or a literal."""
        is_moved = operand.type.kind in TIMES and isinstance(operand, Strict)
        if isinstance(operand, Column | Value) or is_moved:  # a time that is moved may be the bound of a join
            return bind(operand)
        key = next(_KEYS)
        body = bind(Kept(operand.type, operand.span, key))
        return Keeping(body.type, operand.span, key, operand, body)

    def _like(self, node: tree.Operation) -> Typed:
        operand, pattern, *escapes = map(self.bind, node.operands)
        if not {operand.type.kind, pattern.type.kind} <= {*TEXTS, "NULL"}:
            raise self._fault(f"{node.op} takes texts, not {operand.type.name} and {pattern.type.name}", node.span)
        escape = str(escapes[0].value) if escapes and isinstance(escapes[0], Value) else ""
        if escapes and len(escape) != 1:
            raise self._fault("ESCAPE takes one character", escapes[0].span)
        function = "like" if node.op == "LIKE" else "similar"
        operands = [converted(it, STRING) if it.type.kind == "NULL" else it for it in (operand, pattern)]
        text = f"{function}({{0}}, {{1}}, {{2}})"
        if isinstance(pattern, Value) and pattern.value is not None:
            try:
                text, made = (like_test if node.op == "LIKE" else similar_test)(pattern.value, escape)
            except ValueError as error:
                raise self._fault(str(error), pattern.span) from None
            operands[1] = replace(pattern, value=made)
        operands.append(Value(STRING.as_nullable(False), node.span, escape))
        nullable = any(it.type.nullable for it in operands)
        found: Typed = Strict(BOOLEAN.as_nullable(nullable), node.span, text, tuple(operands))
        return Not(found.type, node.span, found) if node.negated else found

    def _case(self, node: tree.Case) -> Typed:
        values = [self.bind(value) for _, value in node.ways]
        other = self.bind(node.other) if node.other else Value(NULL, node.span, None)
        if node.operand is None:
            return self._picked([self.condition(it) for it, _ in node.ways], values, other, node)
        tests = [self.bind(it) for it, _ in node.ways]

        def bound(operand: Typed) -> Typed:
            return self._picked([self._compared("=", operand, it, it.span) for it in tests], values, other, node)

        return self._keeping(self.bind(node.operand), bound)

    def _picked(self, tests: Sequence[Typed], values: Sequence[Typed], other: Typed, node: Expression) -> Typed:
        self._few(values, node)
        both = common_type([it.type for it in (*values, other)])
        if both is None:
            kinds = ", ".join(dict.fromkeys(it.type.name for it in (*values, other)))
            raise self._fault(f"the values are of different types: {kinds}; CAST them to one", node.span)
        values = [converted(it, both) for it in values]
        return Picked(both, node.span, tuple(zip(tests, values, strict=True)), converted(other, both))

    def _few(self, ways: Sequence[Typed], node: Expression) -> None:
        if len(ways) > _MOST_WAYS:
            raise self._fault(f"more than {_MOST_WAYS} values to choose from; join a table of them", node.span)

    def _coalesce(self, node: tree.Call) -> Typed:
        values = [self.bind(it) for it in node.arguments]
        self._few(values, node)
        both = common_type([it.type for it in values]) if values else None
        if both is None:
            kinds = ", ".join(it.type.name for it in values) or "nothing"
            raise self._fault(f"{node.name} takes values of one type, got {kinds}", node.span)
        nullable = all(it.type.nullable for it in values)
        return First(both.as_nullable(nullable), node.span, tuple(converted(it, both) for it in values))

    def _if(self, node: tree.Call) -> Typed:
        if len(node.arguments) != _OF_IF:
            raise self._fault("IF takes a condition and two values", node.span)
        test, value, other = node.arguments
        found = self._picked([condition := self.condition(test)], [self.bind(value)], self.bind(other), node)
        return replace(found, type=found.type.as_nullable(found.type.nullable or condition.type.nullable))

    def _nullif(self, node: tree.Call) -> Typed:
        if len(node.arguments) != _OF_NULLIF:
            raise self._fault("NULLIF takes two values", node.span)
        left, right = map(self.bind, node.arguments)

        def bound(value: Typed) -> Typed:
            equal = self._compared("=", value, right, node.span)
            return Picked(value.type.as_nullable(), node.span, ((equal, Value(NULL, node.span, None)),), value)

        return self._keeping(left, bound)

    CONDITIONS: ClassVar[dict[str, Callable[[Any, tree.Operation], Typed]]] = {
        **dict.fromkeys(("AND", "OR"), _connected),
        **dict.fromkeys(("BETWEEN", "BETWEEN SYMMETRIC"), _between),
        **dict.fromkeys(("LIKE", "SIMILAR TO"), _like),
        "NOT": _not,
        "IS DISTINCT FROM": _distinct,
        "IN": _in,
    }
    """Operators of conditions, with the method that binds each."""

    CHOICES: ClassVar[dict[str, Callable[[Any, tree.Call], Typed]]] = {
        "COALESCE": _coalesce,
        "IFNULL": _coalesce,
        "IF": _if,
        "NULLIF": _nullif,
    }
    """Functions that don't evaluate all of their arguments."""


_KEYS = itertools.count()
"""Numbers of values that are kept: an expression may be put into another one, so they are never the same."""

_MOST_WAYS = 500
"""Values that CASE or COALESCE choose from: Python reads a chain of a thousand."""

_OF_IF, _OF_NULLIF = 3, 2
"""The arguments that functions take."""
