"""Reading expressions, by precedence climbing.

An expression begins with what needs no operand before it: a literal, a name, a call, a bracket, or a sign. Operators
follow as long as they bind at least as strongly as asked for; the right operand of one is read with what binds more
strongly. See Pratt, "Top down operator precedence" (1973).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from malflow.sql.parser.type_names import TypeReader
from malflow.sql.syntax import expressions as tree
from malflow.sql.syntax.expressions import COMPARISONS, Expression
from malflow.sql.syntax.queries import Ordering, Query, WindowSpec

__all__ = ["QUERY", "UNITS", "ExpressionReader"]

QUERY = frozenset({"SELECT", "WITH", "VALUES"})
"""Words that queries begin with."""

UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
"""Units of time, from the largest."""

_UNITS = {word: unit for unit in UNITS for word in (unit, f"{unit}S")}

_TESTS = frozenset({"IS", "IN", "BETWEEN", "LIKE", "SIMILAR"})

_LEVELS = {"OR": 1, "AND": 2, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "||": 6, "[": 8, ".": 8}
_LEVELS |= dict.fromkeys((*COMPARISONS, *_TESTS, "NOT"), 4)
"""How strongly operators bind, as in Calcite."""

_NOT, _SUM, _SIGN = 3, 5, 7
"""What an operand of NOT, of a test, and of a sign is read with."""

_PARTS = frozenset({*UNITS, "DOW", "DOY", "ISODOW", "ISOYEAR", "EPOCH", "DECADE", "CENTURY", "MILLENNIUM"})
"""What EXTRACT takes out of an instant."""


class ExpressionReader(TypeReader):
    """Reads expressions."""

    @abstractmethod
    def query(self) -> Query:
        """Read a query."""

    def expression(self, least: int = 1) -> Expression:
        """Read an expression of operators of a level and above."""
        with self.deeper():
            start = self.token
            left, count = self._prefix(), 0
            while self._binds(least):
                self.chained(count, "operators")
                op, count = self.skip().upper, count + 1
                left = replace(self._infix(left, op, _LEVELS[op]), span=self.since(start))
            return self._refused_sign(left)

    def _binds(self, least: int) -> bool:
        """Whether the next operator binds at the level `least` or more strongly."""
        op = self.token.upper
        is_one = op != "NOT" or self.ahead().upper in _TESTS - {"IS"}
        return is_one and _LEVELS.get(op, 0) >= least

    def _refused_sign(self, left: Expression) -> Expression:
        """Return the expression, unless a sign of other dialects follows."""
        if self.peek("::"):
            raise self.fault(f"there is no ::; write CAST({self.source.quoted(left.span)} AS ...)", self.token.span)
        return left

    def _infix(self, left: Expression, op: str, level: int) -> Expression:
        """Read what follows an operator."""
        if op in {"AND", "OR"}:
            operands = [left, self.expression(level + 1)]
            while self.take(op):
                operands.append(self.expression(level + 1))
            return tree.Operation(op, tuple(operands))
        if op == "IS":
            return self._is(left)
        if op == "NOT":
            return self._test(left, self.skip().upper, negated=True)
        if op in _TESTS:
            return self._test(left, op, negated=False)
        if op == "[":
            index = self.expression()
            self.need("]")
            return tree.Operation("[]", (left, index))
        if op == ".":
            name = self.name("a field")
            return tree.Operation(".", (left, tree.Reference((name,), span=name.span)))
        if op == "=" and self.peek("="):
            raise self.fault("there is no ==; write =", self.token.span)
        return tree.Operation(COMPARISONS.get(op, op), (left, self.expression(level + 1)))

    def _is(self, left: Expression) -> Expression:
        negated = self.take("NOT")
        if self.take("DISTINCT", "FROM"):
            return tree.Operation("IS DISTINCT FROM", (left, self.expression(_SUM)), negated)
        what = self.need_one("NULL", "TRUE", "FALSE", "UNKNOWN")
        return tree.Operation(f"IS {what}", (left,), negated)

    def _test(self, left: Expression, op: str, *, negated: bool) -> Expression:
        if op == "IN":
            self.need("(")
            values = (self._sub_query(),) if self.token.upper in QUERY else self.listed(self.expression)
            self.need(")")
            return tree.Operation(op, (left, *values), negated)
        if op == "BETWEEN":
            op = "BETWEEN SYMMETRIC" if self.take("SYMMETRIC") else op
            self.take("ASYMMETRIC")
            low = self.expression(_SUM)
            self.need("AND")
            return tree.Operation(op, (left, low, self.expression(_SUM)), negated)
        if op == "SIMILAR":
            self.need("TO")
            op = "SIMILAR TO"
        pattern = self.expression(_SUM)
        escape = (self._literal("TEXT", self.text()),) if self.take("ESCAPE") else ()
        return tree.Operation(op, (left, pattern, *escape), negated)

    def _sub_query(self) -> Expression:
        start = self.token
        return tree.SubQuery(self.query(), span=self.since(start))

    def _literal(self, kind: str, text: str) -> tree.Literal:
        """Return a literal of the token that was read last."""
        return tree.Literal(kind, text, span=self._tokens[self._at - 1].span)

    def _prefix(self) -> Expression:
        match self.token.kind:
            case "number" | "text":
                kind = self.token.kind.upper()
                return self._literal(kind, self.skip().text)
            case "bytes":
                return self._bytes()
            case "parameter":
                return self._literal("PARAMETER", self.skip().text[1:])
            case "sign":
                return self._signed()
            case "word":
                return self._worded()
            case "quoted":
                return self._named()
        raise self.fault("expected an expression")

    def _bytes(self) -> Expression:
        digits = self.skip().text[2:-1].lower()
        found = self._literal("BYTES", digits)
        if len(digits) % 2:
            raise self.fault("bytes have two digits each", found.span)
        return found

    def _signed(self) -> Expression:
        start = self.token
        if op := self.take_one("-", "+"):
            return tree.Operation(op, (self.expression(_SIGN),), span=self.since(start))
        if not self.take("("):
            raise self.fault("expected an expression")
        values = (self._sub_query(),) if self.token.upper in QUERY else self.listed(self.expression)
        self.need(")")
        return values[0] if len(values) == 1 else tree.Collection("ROW", values, span=self.since(start))

    def _worded(self) -> Expression:
        start = self.token
        word, follows = start.upper, self.ahead()
        match word:
            case "NOT":
                self.skip()
                return tree.Operation("NOT", (self.expression(_NOT),), span=self.since(start))
            case "TRUE" | "FALSE" | "NULL":
                self.skip()
                return self._literal(word, "")
            case "CASE":
                return self._case()
            case "INTERVAL":
                return self._interval()
            case "EXISTS" if follows.upper == "(":
                self.skip()
                return tree.Operation("EXISTS", (self._signed(),), span=self.since(start))
            case "DATE" | "TIME" | "TIMESTAMP" if follows.kind == "text":
                self.skip()
                return tree.Literal(word, self.text(), span=self.since(start))
            case "ARRAY" | "MAP" if follows.upper == "[":
                return self._collection(word)
            case "CAST" | "TRY_CAST" if follows.upper == "(":
                return self._cast(word)
        if follows.upper == "(" and (self.is_name() or word in {"LEFT", "RIGHT"}):
            return self._call()
        return self._named()

    def _named(self) -> Expression:
        start = self.token
        if self.ahead().upper == "(" and self.is_name():
            return self._call()
        names = [self.name("an expression")]
        while self.peek(".") and self.ahead().kind in {"word", "quoted"}:
            self.skip()
            names.append(self.name("a column or field"))
        if len(names) == 1 and self.take(".", "*"):
            return tree.Star(names[0], span=self.since(start))
        return tree.Reference(tuple(names), span=self.since(start))

    def _case(self) -> Expression:
        start = self.skip()
        operand = None if self.peek("WHEN") else self.expression()
        ways: list[tuple[Expression, Expression]] = []
        while self.take("WHEN"):
            test = self.expression()
            self.need("THEN")
            ways.append((test, self.expression()))
        if not ways:
            raise self.fault("expected WHEN")
        other = self.expression() if self.take("ELSE") else None
        self.need("END")
        return tree.Case(operand, tuple(ways), other, span=self.since(start))

    def _interval(self) -> Expression:
        start = self.skip()
        sign = "-" if self.take("-") else ""
        text = self.text("a text, as in INTERVAL '5' SECOND")
        first = last = self._unit("a unit, as in INTERVAL '5' SECOND")
        if self.take("TO"):
            last = self._unit("a unit")
        return tree.Literal("INTERVAL", f"{sign}{text}", (first, last), span=self.since(start))

    def _unit(self, what: str) -> str:
        """Read a unit of time; digits in brackets after it change no value."""
        unit = _UNITS.get(self.token.upper)
        if unit is None:
            raise self.fault(f"expected {what}")
        self.skip()
        if self.peek("("):
            self.bracketed(self.whole_number)
        return unit

    def _collection(self, word: str) -> Expression:
        start = self.skip()
        self.need("[")
        values = () if self.peek("]") else self.listed(self.expression)
        self.need("]")
        return tree.Collection(word, values, span=self.since(start))

    def _cast(self, word: str) -> Expression:
        start = self.skip()
        self.need("(")
        operand = self.expression()
        self.need("AS")
        found = self.type()
        self.need(")")
        return tree.Cast(operand, found, word == "TRY_CAST", span=self.since(start))

    def _call(self) -> Expression:
        token = self.skip()
        name = tree.Name(token.text, span=token.span)
        self.need("(")
        distinct = self.take("DISTINCT")
        arguments = self._arguments(token.upper)
        self.need(")")
        if token.upper == "ROW":
            return tree.Collection("ROW", arguments, span=self.since(token))
        where = None
        if self.take("FILTER"):
            self.need("(", "WHERE")
            where = self.expression()
            self.need(")")
        over = self._over() if self.take("OVER") else None
        return tree.Call(name, arguments, distinct, where, over, span=self.since(token))

    def _arguments(self, function: str) -> tuple[Expression, ...]:
        """Read the arguments of a function, up to the bracket; some have words between them."""
        start = self.token
        if self.peek(")"):
            return ()
        if self.take("*"):
            return (tree.Star(span=start.span),)
        match function:
            case "EXTRACT":
                part = self._word_of(_PARTS, "a unit, as in EXTRACT(HOUR FROM ts)")
                self.need("FROM")
                return part, self.expression()
            case "TIMESTAMPDIFF" | "TIMESTAMPADD":
                unit = tree.Literal("WORD", self._unit("a unit, such as HOUR"), span=start.span)
                self.need(",")
                return unit, *self.listed(self.expression)
            case "POSITION":
                part = self.expression(_SUM)
                self.need("IN")
                return part, self.expression()
            case "TRIM":
                return self._trim()
        first = self.expression()
        if function in {"FLOOR", "CEIL", "CEILING"} and self.take("TO"):
            return first, self._word_of(frozenset(UNITS), "a unit, such as HOUR")
        if function == "SUBSTRING" and self.take("FROM"):
            return first, self.expression(), *([self.expression()] if self.take("FOR") else [])
        if function == "OVERLAY" and self.take("PLACING"):
            part = self.expression()
            self.need("FROM")
            return first, part, self.expression(), *([self.expression()] if self.take("FOR") else [])
        return first, *(self.listed(self.expression) if self.comma() else ())

    def _word_of(self, words: frozenset[str], what: str) -> Expression:
        token = self.token
        word = _UNITS.get(token.upper, token.upper)
        if word not in words:
            raise self.fault(f"expected {what}")
        self.skip()
        return self._literal("WORD", word)

    def _trim(self) -> tuple[Expression, ...]:
        start = self.token
        side = tree.Literal("WORD", self.take_one("LEADING", "TRAILING", "BOTH") or "BOTH", span=start.span)
        space = tree.Literal("TEXT", " ", span=start.span)
        if self.take("FROM"):
            return side, space, self.expression()
        first = self.expression()
        return (side, first, self.expression()) if self.take("FROM") else (side, space, first)

    def _over(self) -> WindowSpec:
        if not self.peek("("):
            name = self.name("a window or (")
            return WindowSpec(name=name, span=name.span)
        return self.window_spec()

    def window_spec(self) -> WindowSpec:
        """Read the rows around a row, in brackets."""
        start = self.token
        self.need("(")
        partition = self.listed(self.expression) if self.take("PARTITION", "BY") else ()
        order = self.listed(self.ordering) if self.take("ORDER", "BY") else ()
        unit = self.take_one("ROWS", "RANGE")
        first = self._preceding() if unit else None
        self.need(")")
        return WindowSpec(partition, order, unit, first, span=self.since(start))

    def _preceding(self) -> Expression | None:
        """Read how many rows, or how long, before the current one; None for all."""
        is_between = self.take("BETWEEN")
        first = None if self.take("UNBOUNDED") else self.expression(_SUM)
        self.need("PRECEDING")
        if is_between:
            self.need("AND", "CURRENT", "ROW")
        return first

    def ordering(self) -> Ordering:
        """Read an expression that rows are ordered by."""
        start = self.token
        expression = self.expression()
        descending = self.take_one("ASC", "DESC") == "DESC"
        nulls = self.need_one("FIRST", "LAST") if self.take("NULLS") else None
        first = None if nulls is None else nulls == "FIRST"
        return Ordering(expression, descending, first, span=self.since(start))
