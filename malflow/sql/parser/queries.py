"""Reading queries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from malflow.sql.parser.expressions import QUERY, ExpressionReader
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Call, Expression, Name, Star
from malflow.sql.syntax.queries import Query, TableRef
from malflow.sql.text import Token

__all__ = ["WINDOW_FUNCTIONS", "QueryReader"]

WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION", "COUNTING")
"""The functions that cut rows into windows."""

_T = TypeVar("_T", bound=TableRef)

_AFTER_TABLES = {
    "EMIT": "there is no EMIT; a window's rows come when it closes, other rows as they change",
    "MATCH_RECOGNIZE": "MATCH_RECOGNIZE is not supported; use .match() of a keyed stream in Python",
    "PREWHERE": "there is no PREWHERE; write WHERE",
    "OUTPUT": "there is no OUTPUT; a window's rows come when it closes, other rows as they come",
    "RETURNING": "there is no RETURNING; a view is read by several INSERTs",
    "WITHIN": "there is no WITHIN; write ON l.id = r.id AND r.ts BETWEEN l.ts AND l.ts + INTERVAL '5' MINUTE",
    "TABLESAMPLE": "there is no TABLESAMPLE; use .sample() of a stream in Python",
}
"""Words of other dialects after FROM, with what to do instead."""

_NOT_ALIASES = frozenset({*_AFTER_TABLES, "WINDOW", "PIVOT", "UNPIVOT"})


class QueryReader(ExpressionReader):
    """Reads queries."""

    def query(self) -> Query:
        """Read a query."""
        with self.deeper():
            start = self.token
            views = self.listed(self._view) if self.take("WITH") else ()
            body = self._operations()
            order = self.listed(self.ordering) if self.take("ORDER", "BY") else ()
            limit, offset = self._limits()
            if not (views or order or limit is not None or offset is not None):
                return body
            return tree.With(body, views, order, limit, offset, span=self.since(start))

    def _view(self) -> tree.NamedQuery:
        start = self.token
        name = self.name()
        columns = self.bracketed(self.name) if self.peek("(") else ()
        self.need("AS", "(")
        query = self.query()
        self.need(")")
        return tree.NamedQuery(name, query, columns, span=self.since(start))

    def _operations(self) -> Query:
        start = self.token
        left, count = self._term(), 0
        while op := self.take_one("UNION", "EXCEPT", "INTERSECT"):
            self.chained(count := count + 1, "queries")
            op = f"{op} ALL" if self.take("ALL") else op
            left = tree.SetOperation(op, left, self._term(), span=self.since(start))
        return left

    def _limits(self) -> tuple[int | None, int | None]:
        limit = self.whole_number() if self.take("LIMIT") else None
        offset = None
        if self.take("OFFSET"):
            offset = self.whole_number()
            self.take_one("ROW", "ROWS")
        if self.take("FETCH"):
            self.take_one("FIRST", "NEXT")
            limit = self.whole_number()
            self.take_one("ROW", "ROWS")
            self.need("ONLY")
        return limit, offset

    def _term(self) -> Query:
        start = self.token
        if self.take("("):
            query = self.query()
            self.need(")")
            return query
        if self.take("VALUES"):
            return tree.Values(self.listed(self._row), span=self.since(start))
        if not self.peek("SELECT"):
            raise self.fault("expected SELECT, VALUES or WITH")
        return self._select()

    def _row(self) -> tuple[Expression, ...]:
        if self.peek("("):
            return self.bracketed(self.expression)
        return (self.expression(),)

    def _select(self) -> Query:
        start = self.skip()
        hints = self.hints()
        distinct = self.take("DISTINCT")
        self.take("ALL")
        items = self.listed(self._item)
        source = self._tables() if self.take("FROM") else None
        if self.token.upper in _AFTER_TABLES:
            raise self.fault(_AFTER_TABLES[self.token.upper], self.token.span)
        where = self.expression() if self.take("WHERE") else None
        group = self.listed(self._grouping) if self.take("GROUP", "BY") else None
        having = self.expression() if self.take("HAVING") else None
        windows = self.listed(self._window) if self.take("WINDOW") else ()
        qualify = self.expression() if self.take("QUALIFY") else None
        if self.token.upper in _AFTER_TABLES:
            raise self.fault(_AFTER_TABLES[self.token.upper], self.token.span)
        return tree.Select(
            items, source, where, group, having, windows, qualify, distinct, hints, span=self.since(start)
        )

    def _item(self) -> tree.Item:
        start = self.token
        if self.take("*"):
            return tree.Item(Star(span=start.span), span=start.span)
        expression = self.expression()
        alias = self.name("a name for the column") if self.take("AS") or self.is_name() else None
        return tree.Item(expression, alias, span=self.since(start))

    def _window(self) -> tuple[Name, tree.WindowSpec]:
        if self.peek("TUMBLING") or self.peek("HOPPING") or self.peek("SESSION"):
            instead = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...))"
            raise self.fault(f"there is no WINDOW {self.token.upper}; write {instead}", self.token.span)
        if self.peek("("):
            instead = "FROM TABLE(COUNTING(TABLE t, 5)), or TUMBLE, HOP or SESSION"
            raise self.fault(f"there is no WINDOW (...); write {instead}", self.token.span)
        name = self.name()
        self.need("AS")
        return name, self.window_spec()

    def _grouping(self) -> Expression | tree.GroupingSets:
        start = self.token
        kind = "GROUPING SETS" if self.peek("GROUPING", "SETS", "(") else start.upper
        if kind != "GROUPING SETS" and not (kind in {"ROLLUP", "CUBE"} and self.ahead().upper == "("):
            return self.expression()
        self._at += len(kind.split())
        return tree.GroupingSets(kind, self.bracketed(self._grouping_set), span=self.since(start))

    def _grouping_set(self) -> tuple[Expression, ...]:
        if self.take("(", ")"):
            return ()
        return self._row()

    def hints(self) -> tuple[tree.Hint, ...]:
        """Read hints."""
        found: list[tree.Hint] = []
        while self.take("/*+"):
            while not self.take("*/"):
                found.append(self._hint())
                self.take(",")
        return tuple(found)

    def _hint(self) -> tree.Hint:
        start = self.token
        name = self.name("a hint")
        arguments = self.bracketed(self._hint_argument) if self.peek("(") else ()
        return tree.Hint(name, arguments, span=self.since(start))

    def _hint_argument(self) -> tuple[str, str]:
        key = self._hint_word()
        return (key, self._hint_word()) if self.take("=") else ("", key)

    def _hint_word(self) -> str:
        return self.skip().text if self.token.kind == "text" else self.name("a text").text

    def _tables(self) -> TableRef:
        start = self.token
        left, count = self._joined(), 0
        while self.comma():
            self.chained(count := count + 1, "tables")
            left = tree.Join("CROSS", left, self._joined(), span=self.since(start))
        return left

    def _joined(self) -> TableRef:
        start = self.token
        left, count = self._table(), 0
        while how := self._how():
            self.chained(count := count + 1, "joins")
            right = self._table()
            on = self.expression() if how != "CROSS" and self.take("ON") else None
            using = self.bracketed(self.name) if how != "CROSS" and not on and self.take("USING") else ()
            if self.token.upper in _AFTER_TABLES:
                raise self.fault(_AFTER_TABLES[self.token.upper], self.token.span)
            if how != "CROSS" and not on and not using:
                raise self.fault("expected ON or USING after JOIN")
            left = tree.Join(how, left, right, on, using, span=self.since(start))
        return left

    def _how(self) -> str:
        """Read the words of a join; an empty text if there is none."""
        if self.peek("NATURAL"):
            raise self.fault(
                "NATURAL joins are not supported: a new column would change them; write USING", self.token.span
            )
        if self.take("CROSS", "JOIN"):
            return "CROSS"
        if self.take("JOIN") or self.take("INNER", "JOIN"):
            return "INNER"
        how = self.take_one("LEFT", "RIGHT", "FULL")
        if how:
            self.take("OUTER")
            self.need("JOIN")
        return how

    def _table(self) -> TableRef:
        start = self.token
        table = self._unnamed(start)
        if self.peek("MATCH_RECOGNIZE"):
            raise self.fault(_AFTER_TABLES["MATCH_RECOGNIZE"], self.token.span)
        if self.take("AS") or (self.is_name() and self.token.upper not in _NOT_ALIASES):
            alias = self.name("a name for the table")
            columns = self.bracketed(self.name) if self.peek("(") else ()
            table = replace(table, alias=alias, columns=columns)
        return replace(table, span=self.since(start))

    def _unnamed(self, start: Token) -> TableRef:
        """Read a table without its alias."""
        word, follows = start.upper, self.ahead().upper
        if word == "(":
            return self._in_brackets()
        if word in {"UNNEST", "LATERAL"}:
            return self._unnest() if word == "UNNEST" else self._lateral()
        if word in WINDOW_FUNCTIONS and follows == "(":
            return self._window_call()
        if self.take("TABLE", "("):
            is_window = self.token.upper in WINDOW_FUNCTIONS and self.ahead().upper == "("
            table = self._window_call() if is_window else self._table_call()
            self.need(")")
            return table
        return self.named_table()

    def named_table(self) -> tree.NamedTable:
        """Read the name of a table, or a path or URL in quotes, with hints."""
        token, is_path = self.token, self.token.kind == "text"
        name = Name(self.skip().text, span=token.span) if is_path else self.table_name()
        hints = self.hints()
        as_of = None
        if self.take("FOR"):
            self.need("SYSTEM_TIME", "AS", "OF")
            as_of = self.expression()
        return tree.NamedTable(name, hints, as_of, is_path, span=self.since(token))

    def _in_brackets(self) -> TableRef:
        self.need("(")
        with self.deeper():
            if self.token.upper in QUERY or self.peek("("):
                found: TableRef = tree.Derived(self.query())
            else:
                found = self._tables()
        self.need(")")
        return found

    def _unnest(self) -> TableRef:
        self.need("UNNEST", "(")
        operand = self.expression()
        self.need(")")
        return tree.Unnest(operand, self.take("WITH", "ORDINALITY"))

    def _lateral(self) -> TableRef:
        self.need("LATERAL")
        if self.take("TABLE"):
            self.need("(")
            found: TableRef = self._table_call()
        else:
            self.need("(")
            found = tree.Derived(self.query(), lateral=True)
        self.need(")")
        return found

    def _table_call(self) -> TableRef:
        start = self.token
        call = self.expression()
        if not isinstance(call, Call):
            raise self.fault("expected a call of a function", self.since(start))
        return tree.TableCall(call)

    def _window_call(self) -> TableRef:
        token = self.skip()
        name = Name(token.upper, span=token.span)
        return tree.WindowCall(name, self.bracketed(self._window_argument))

    def _window_argument(self) -> tuple[str, Any]:
        key = ""
        if self.ahead().upper == "=>":
            key = self.skip().upper
            self.need("=>")
        start = self.token
        if self.take("DESCRIPTOR"):
            return key, tree.Descriptor(self.bracketed(self.name), span=self.since(start))
        if self.take("TABLE"):
            return key, self._partitioned(self.named_table)
        if self.peek("(") and self.ahead().upper in QUERY:
            return key, self._partitioned(self._derived)
        return key, self.expression()

    def _derived(self) -> tree.Derived:
        start = self.token
        self.need("(")
        query = self.query()
        self.need(")")
        return tree.Derived(query, span=self.since(start))

    def _partitioned(self, one: Callable[[], tree.NamedTable | tree.Derived]) -> tree.TableArgument:
        start = self.token
        table = one()
        if not self.take("PARTITION", "BY"):
            return tree.TableArgument(table, span=self.since(start))
        partition = self.bracketed(self.expression) if self.peek("(") else (self.expression(),)
        return tree.TableArgument(table, partition, span=self.since(start))
