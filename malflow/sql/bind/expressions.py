"""Binding expressions: what a text says of a row becomes a calculation of its columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from malflow.sql.arithmetic import calculation, comparison, negation
from malflow.sql.bind.literals import literal
from malflow.sql.bind.scope import Scope
from malflow.sql.bind.written import Written
from malflow.sql.casts import cast, converted, tried
from malflow.sql.functions.aggregates import AGGREGATES, aggregate_type
from malflow.sql.functions.patterns import like_test, similar_test
from malflow.sql.functions.scalar import INSTEAD, SCALAR
from malflow.sql.functions.table import Signature, bound_call, fitting, shown
from malflow.sql.syntax import expressions as tree
from malflow.sql.syntax.expressions import COMPARISONS, Expression, Name
from malflow.sql.syntax.queries import WindowSpec
from malflow.sql.text import Span
from malflow.sql.typed import (
    Aggregated,
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
    RowNumber,
    Strict,
    Typed,
    Value,
)
from malflow.sql.types import BIGINT, BOOLEAN, INTEGERS, NULL, STRING, TEXTS, TIMES, SqlType, common_type
from malflow.words import did_you_mean

__all__ = ["RESERVED", "ExpressionBinder"]


RESERVED = frozenset({*AGGREGATES, "COALESCE", "IF", "IFNULL", "NULLIF", "ROW_NUMBER"})
"""Functions that no function of Python replaces."""


class ExpressionBinder:
    """Binds expressions about the rows of a scope.

    Args:
        scope: the columns.
        parameters: the values of parameters, as literals.
        functions: functions and aggregators of Python, by their names in capitals.
        aggregates: whether aggregates are allowed here.
        clause: where the expressions are, for messages.
    """

    def __init__(
        self,
        scope: Scope,
        *,
        parameters: Mapping[str, Value] | None = None,
        functions: Mapping[str, Any] | None = None,
        aggregates: bool = False,
        clause: str = "",
    ) -> None:
        self._scope = scope
        self._fault = scope.fault
        self._parameters = parameters or {}
        self._functions = functions or {}
        self._aggregates = aggregates
        self._clause = clause

    def bind(self, node: Expression) -> Typed:
        """Return an expression with its type.

        Raises:
            SqlError: if a name is unknown or types don't fit.
        """
        found = self._bound(node)
        if found.written is not None:
            return found
        return replace(found, written=Written(node, self._scope, self._parameters, self._functions))

    def _bound(self, node: Expression) -> Typed:
        match node:
            case tree.Literal():
                return self._literal(node)
            case tree.Reference():
                return self._reference(node)
            case tree.Operation():
                return self._operation(node)
            case tree.Case():
                return self._case(node)
            case tree.Cast():
                return self._cast(node)
            case tree.Call():
                return self._call(node)
            case tree.Collection():
                return self._collection(node)
            case tree.SubQuery():
                raise self._fault("a query in the place of a value is not supported; join its rows", node.span)
        raise self._fault("* is the columns of a SELECT, or the argument of COUNT", node.span)

    def _operation(self, node: tree.Operation) -> Typed:
        if bound := self._OPERATIONS.get(node.op):
            return bound(self, node)
        if node.op.startswith("IS"):
            return self._is(node)
        operands = [*map(self.bind, node.operands)]
        if len(operands) > 1:
            return self._calculated(node.op, operands[0], operands[1], node.span)
        found = negation(operands[0], node.span)
        if found is None:
            raise self._fault(f"{node.op} takes a number or an interval, not {operands[0].type.name}", node.span)
        return found if node.op == "-" else operands[0]

    def _connected(self, node: tree.Operation) -> Typed:
        operands = tuple(map(self.condition, node.operands))
        nullable = any(it.type.nullable for it in operands)
        return Connected(BOOLEAN.as_nullable(nullable), node.span, node.op, operands)

    def _not(self, node: tree.Operation) -> Typed:
        operand = self.condition(node.operands[0])
        return Not(operand.type, node.span, operand)

    def _distinct(self, node: tree.Operation) -> Typed:
        left, right = map(self.bind, node.operands)
        compared = self._compared("=", left, right, node.span)
        text = f"({{0}} {'==' if node.negated else '!='} {{1}})"
        return Lenient(BOOLEAN.as_nullable(False), node.span, text, (compared.left, compared.right))

    def _exists(self, node: tree.Operation) -> Typed:
        raise self._fault("EXISTS is not supported; join the rows and filter them", node.span)

    def _field(self, node: tree.Operation) -> Typed:
        operand, name = node.operands
        return self._member(self.bind(operand), name.names[0])  # type: ignore[attr-defined]  # a reference

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

    def _literal(self, node: tree.Literal) -> Typed:
        if node.kind == "PARAMETER":
            if node.text not in self._parameters:
                hint = did_you_mean(node.text, self._parameters, else_=f"give {node.text}=...")
                raise self._fault(f"no value for the parameter :{node.text}{hint}", node.span)
            return replace(self._parameters[node.text], span=node.span)
        try:
            return literal(node)
        except ValueError as error:
            raise self._fault(str(error), node.span) from None

    def _reference(self, node: tree.Reference) -> Typed:
        name = node.names[0].text
        if len(node.names) == 1 and name.upper() in INSTEAD and all(it.name != name for it in self._scope.fields):
            raise self._fault(f"no function {name.upper()}; {INSTEAD[name.upper()]}", node.span)
        column, members = self._scope.find(node)
        found: Typed = column
        for member in members:
            found = self._member(found, member)
        return found

    def _member(self, operand: Typed, name: Name) -> Typed:
        kind = operand.type
        if kind.kind != "ROW":
            raise self._fault(f"{kind.name} has no fields", name.span)
        if name.text not in kind.names:
            raise self._fault(f"no field {name.text!r}{did_you_mean(name.text, kind.names)}", name.span)
        at = kind.names.index(name.text)
        return self._part(operand, f"{{0}}[{at}]", kind.items[at], name)

    @staticmethod
    def _part(operand: Typed, template: str, kind: SqlType, node: tree.Node) -> Typed:
        """Return a part of a value: NULL if the part or the whole is."""
        result = kind.as_nullable(kind.nullable or operand.type.nullable)
        return Strict(result, node.span, template, (operand,), kind.nullable)

    def _calculated(self, op: str, left: Typed, right: Typed, span: Span) -> Typed:
        if op in COMPARISONS:
            return self._compared(op, left, right, span)
        found = calculation(op, left, right, span)
        if found is None:
            raise self._fault(f"no {left.type.name} {op} {right.type.name}; {self._cure(op, left, right)}", span)
        return found

    def _compared(self, op: str, left: Typed, right: Typed, span: Span) -> Comparison:
        found = comparison(op, left, right, span)
        if found is None:
            raise self._fault(f"{left.type.name} and {right.type.name} can't be compared; CAST one of them", span)
        return found

    @staticmethod
    def _cure(op: str, left: Typed, right: Typed) -> str:
        kinds = {left.type.kind, right.type.kind}
        if op == "+" and kinds & {"CHAR", "VARCHAR"}:
            return "texts are joined by ||"
        if op == "-" and kinds & {"TIMESTAMP", "TIMESTAMP_LTZ", "DATE"}:
            return "TIMESTAMPDIFF(SECOND, a, b) is the time between two instants"
        return "CAST one of them"

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

    @staticmethod
    def _keeping(operand: Typed, bind: Callable[[Typed], Typed]) -> Typed:
        """Return an expression that takes a value several times: computed once, unless it is a column or a literal."""
        is_moved = operand.type.kind in TIMES and isinstance(operand, Strict)
        if isinstance(operand, Column | Value) or is_moved:  # a time that is moved may be the bound of a join
            return bind(operand)
        key = next(_KEYS)
        body = bind(Kept(operand.type, operand.span, key))
        return Keeping(body.type, operand.span, key, operand, body)

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

    def _few(self, ways: Sequence[Typed], node: Expression) -> None:
        if len(ways) > _MOST_WAYS:
            raise self._fault(f"more than {_MOST_WAYS} values to choose from; join a table of them", node.span)

    def _picked(self, tests: Sequence[Typed], values: Sequence[Typed], other: Typed, node: Expression) -> Typed:
        self._few(values, node)
        both = common_type([it.type for it in (*values, other)])
        if both is None:
            kinds = ", ".join(dict.fromkeys(it.type.name for it in (*values, other)))
            raise self._fault(f"the values are of different types: {kinds}; CAST them to one", node.span)
        values = [converted(it, both) for it in values]
        return Picked(both, node.span, tuple(zip(tests, values, strict=True)), converted(other, both))

    def _cast(self, node: tree.Cast) -> Typed:
        operand = self.bind(node.operand)
        found = (tried if node.is_tried else cast)(operand, node.type)
        if found is None:
            raise self._fault(f"no cast from {operand.type.name} to {node.type.name}", node.span)
        return found if found is operand else replace(found, span=node.span)

    def _element(self, node: tree.Operation) -> Typed:
        operand, index = map(self.bind, node.operands)
        kind = operand.type
        if kind.kind not in {"ARRAY", "MAP"}:
            raise self._fault(f"{kind.name} has no elements", node.span)
        if kind.kind == "ARRAY" and index.type.kind not in INTEGERS:
            raise self._fault(f"an array is indexed by whole numbers from 1, not by {index.type.name}", index.span)
        if kind.kind == "MAP" and common_type([kind.items[0], index.type]) is None:
            raise self._fault(f"the keys are {kind.items[0].name}, not {index.type.name}", index.span)
        if kind.kind == "ARRAY" and isinstance(index, Value) and (index.value is None or index.value < 1):
            raise self._fault("an array is indexed from 1", index.span)
        text = "element({0}, {1})" if kind.kind == "ARRAY" else "{0}.get({1})"
        return Strict(kind.items[-1].as_nullable(), node.span, text, (operand, index), may_be_null=True)

    def _collection(self, node: tree.Collection) -> Typed:
        values = [self.bind(it) for it in node.values]
        listed = ", ".join(f"{{{at}}}" for at in range(len(values)))
        if node.kind == "ROW":
            names = tuple(f"EXPR${at}" for at in range(len(values)))
            kind = SqlType("ROW", False, items=tuple(it.type for it in values), names=names)
            return Lenient(kind, node.span, f"({listed},)", tuple(values))
        groups = [values] if node.kind == "ARRAY" else [values[::2], values[1::2]]
        types = [common_type([it.type for it in group]) if group else NULL for group in groups]
        if None in types or len({len(group) for group in groups}) > 1:
            raise self._fault(f"the elements of {node.kind} have no common type", node.span)
        items = tuple(it for it in types if it is not None)
        values = [converted(it, items[at % len(items)]) for at, it in enumerate(values)]
        kind = SqlType(node.kind, False, items=items)
        text = f"({listed},)" if values else "()"
        if node.kind == "MAP":
            text = f"{{{{{', '.join(f'{{{at}}}: {{{at + 1}}}' for at in range(0, len(values), 2))}}}}}"
        return Lenient(kind, node.span, text.replace("{{", "{").replace("}}", "}"), tuple(values))

    def _call(self, node: tree.Call) -> Typed:
        name = node.name.text.upper()
        if node.over is not None:
            return self._over(name, node.over, node)
        function = self._functions.get(name)
        if name in AGGREGATES or getattr(function, "is_aggregate", False):
            return self._aggregate(name, node)
        if node.distinct or node.where:
            raise self._fault(f"{name} is not an aggregate: it takes neither DISTINCT nor FILTER", node.span)
        if special := self._SPECIAL.get(name):
            return special(self, node)
        arguments = [self.bind(it) for it in node.arguments]
        if function is None:
            return self._known(name, arguments, node)
        if function.gives_rows:
            raise self._fault(f"{node.name} is a table function; write LATERAL TABLE({node}) in FROM", node.span)
        found: Typed = function.bind(arguments, node.span, self._fault)
        return found

    def rows(self, node: tree.Call) -> Typed:
        """Return a call of a table function, an array of rows.

        Raises:
            SqlError: if it is another function.
        """
        function = self._functions.get(node.name.text.upper())
        if function is not None and function.gives_rows:
            rows: Typed = function.bind([self.bind(it) for it in node.arguments], node.span, self._fault)
            return rows
        found = self.bind(node)
        cure = f"write UNNEST({node})" if found.type.kind in {"ARRAY", "MAP"} else "one is a generator of Python"
        raise self._fault(f"{node.name} is not a table function; {cure}", node.span)

    def _known(self, name: str, arguments: Sequence[Typed], node: tree.Call) -> Typed:
        ways: tuple[Signature, ...] | None = SCALAR.get(name)
        if ways is None:
            names = [*SCALAR, *AGGREGATES, *self._SPECIAL, *self._functions]
            hint = did_you_mean(name, names, else_="CREATE FUNCTION makes one of Python", write=str)
            hint = f"; {INSTEAD[name]}" if name in INSTEAD else hint
            raise self._fault(f"no function {name}{hint}", node.name.span)
        for way in ways:
            try:
                fit = fitting(way, arguments)
                if fit is not None:
                    return bound_call(way, fit, node.span)
            except ValueError as error:
                raise self._fault(str(error), node.span) from None
        given = ", ".join(it.type.name for it in arguments)
        raise self._fault(f"no {name}({given}); there is {' or '.join(shown(name, it) for it in ways)}", node.span)

    def _over(self, name: str, over: WindowSpec, node: tree.Call) -> Typed:
        if name != "ROW_NUMBER" or over.name or over.unit or node.arguments:
            raise self._fault("OVER is supported by ROW_NUMBER() for the first rows of windows only", node.span)
        if not over.order:
            raise self._fault("ROW_NUMBER() needs ORDER BY", over.span)
        order = []
        for it in over.order:
            is_first = not it.descending if it.nulls_first is None else it.nulls_first
            order.append((self.bind(it.expression), it.descending, is_first))
        return RowNumber(BIGINT.as_nullable(False), node.span, tuple(map(self.bind, over.partition)), tuple(order))

    def _aggregate(self, name: str, node: tree.Call) -> Typed:
        if not self._aggregates:
            cure = "; filter groups in HAVING" if self._clause == "WHERE" else ""
            where = f" in {self._clause}" if self._clause else " here"
            raise self._fault(f"{name} is an aggregate, which is not possible{where}{cure}", node.span)
        is_star = len(node.arguments) == 1 and isinstance(node.arguments[0], tree.Star)
        if is_star and name != "COUNT":
            raise self._fault(f"{name} takes a column", node.span)
        inner = ExpressionBinder(
            self._scope, parameters=self._parameters, functions=self._functions, clause="an aggregate"
        )
        operands = () if is_star else tuple(inner.bind(it) for it in node.arguments)
        where_ = inner.condition(node.where) if node.where else None
        made = self._functions.get(name)
        if made is not None:
            if node.distinct:
                raise self._fault(f"{node.name} is an aggregator of Python, which has no DISTINCT", node.span)
            operands, taken = made.bind(operands, node.span, self._fault)
            return Aggregated(taken, node.span, name, operands, False, where_, made)
        if name == "LAST_VALUE" and node.distinct:
            raise self._fault("LAST_VALUE has no DISTINCT: write LAST_VALUE alone", node.span)
        kind = aggregate_type(name, [it.type for it in operands])
        if kind is None:
            given = ", ".join(it.type.name for it in operands)
            raise self._fault(f"no {name}({given}); it takes {AGGREGATES[name]}", node.span)
        return Aggregated(kind, node.span, name, operands, node.distinct, where_)

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

    _OPERATIONS: ClassVar[dict[str, Callable[[Any, tree.Operation], Typed]]] = {
        **dict.fromkeys(("AND", "OR"), _connected),
        **dict.fromkeys(("BETWEEN", "BETWEEN SYMMETRIC"), _between),
        **dict.fromkeys(("LIKE", "SIMILAR TO"), _like),
        "NOT": _not,
        "IS DISTINCT FROM": _distinct,
        "IN": _in,
        "EXISTS": _exists,
        "[]": _element,
        ".": _field,
    }
    """Operators that are not plain calculations, with the method that binds each."""

    _SPECIAL: ClassVar[dict[str, Callable[[Any, tree.Call], Typed]]] = {
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
