"""Binding expressions: what a text says of a row becomes a calculation of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from malflow.sql.arithmetic import calculation, is_finer, negation
from malflow.sql.bind.conditions import ConditionBinder
from malflow.sql.bind.literals import literal
from malflow.sql.bind.scope import Scope
from malflow.sql.bind.written import Written
from malflow.sql.casts import cast, converted, tried
from malflow.sql.functions.aggregates import AGGREGATES, aggregate_type
from malflow.sql.functions.scalar import INSTEAD, SCALAR
from malflow.sql.functions.table import Signature, bound_call, fitting, shown
from malflow.sql.syntax import expressions as tree
from malflow.sql.syntax.expressions import COMPARISONS, Expression, Name
from malflow.sql.syntax.queries import WindowSpec
from malflow.sql.text import Span
from malflow.sql.typed import (
    Aggregated,
    Lenient,
    RowNumber,
    Strict,
    Typed,
    Value,
)
from malflow.sql.types import BIGINT, INTEGERS, NULL, SqlType, common_type
from malflow.words import did_you_mean

__all__ = ["RESERVED", "ExpressionBinder"]


RESERVED = frozenset({*AGGREGATES, *ConditionBinder.CHOICES, "ROW_NUMBER"})
"""Functions that no function of Python replaces."""


class ExpressionBinder(ConditionBinder):
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
        super().__init__(scope)
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

    def _exists(self, node: tree.Operation) -> Typed:
        raise self._fault("EXISTS is not supported; join the rows and filter them", node.span)

    def _field(self, node: tree.Operation) -> Typed:
        operand, name = node.operands
        return self._member(self.bind(operand), name.names[0])  # type: ignore[attr-defined]  # a reference

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

    @staticmethod
    def _cure(op: str, left: Typed, right: Typed) -> str:
        kinds = {left.type.kind, right.type.kind}
        if op == "+" and kinds & {"CHAR", "VARCHAR"}:
            return "texts are joined by ||"
        if is_finer(left, right) or is_finer(right, left):
            return "the interval is finer than the instant: CAST the instant AS TIMESTAMP(6)"
        if op == "-" and kinds & {"TIMESTAMP", "TIMESTAMP_LTZ", "DATE"}:
            return "TIMESTAMPDIFF(SECOND, a, b) is the time between two instants"
        return "CAST one of them"

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
        if special := self.CHOICES.get(name):
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
            names = [*SCALAR, *AGGREGATES, *self.CHOICES, *self._functions]
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

    _OPERATIONS: ClassVar[dict[str, Callable[[Any, tree.Operation], Typed]]] = {
        **ConditionBinder.CONDITIONS,
        "EXISTS": _exists,
        "[]": _element,
        ".": _field,
    }
    """Operators that are not plain calculations, with the method that binds each."""
