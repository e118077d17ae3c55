"""Reading statements, and texts of several."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar

from malflow.sql.parser.expressions import QUERY
from malflow.sql.parser.queries import QueryReader
from malflow.sql.syntax import queries as tree
from malflow.sql.syntax.expressions import Name, Node
from malflow.sql.syntax.queries import Statement
from malflow.sql.text import Fault, Source, SqlError, Token
from malflow.words import did_you_mean

__all__ = ["parse", "parse_columns", "read_script", "read_statements"]

_BEGINNINGS = ("SELECT", "INSERT INTO", "CREATE", "EXECUTE STATEMENT SET", "EXPLAIN", "SET", "DESCRIBE", "SHOW", "DROP")

_INSTEAD = {
    "UPDATE": "a table with PRIMARY KEY has the last row of each key",
    "DELETE": "filter the rows before they reach the table",
    "MERGE": "a table with PRIMARY KEY has the last row of each key",
    "UPSERT": "write INSERT INTO a table with PRIMARY KEY",
    "ALTER": "change the CREATE statement",
    "USE": "there are no catalogs and databases",
    "DEFINE": "write CREATE TABLE for DEFINE STREAM",
    "FROM": "write SELECT ... FROM ..., not FROM ... SELECT",
    "PARTITION": "write PARTITION BY in the query",
    "LOAD": "there are no modules to load",
    "BEGIN": "write EXECUTE STATEMENT SET BEGIN",
    "RESET": "remove the SET",
    "ANALYZE": "there are no statistics",
    "ADD": "install the package of Python, and name its function in CREATE FUNCTION",
    "CALL": "there are no procedures; call a function in a query",
    "COMPILE": "a text has one plan; malflow plan shows what a new text keeps",
    "TRUNCATE": "tables keep what streams bring",
}
"""Statements of Flink and other dialects that are not here, with what to do instead."""

_AT_ENDS = {
    "ILIKE": "there is no ILIKE; write LOWER(a) LIKE 'x%'",
    "INTO": "write INSERT INTO t SELECT ...",
    "ON": "there is no ON CONFLICT; rows are added, none is replaced",
}
"""Words of other dialects after what is a statement here, with what to do instead."""

_CREATE_INSTEAD = {
    "STREAM": "write CREATE TABLE",
    "SOURCE": "write CREATE TABLE ... WITH ('url' = ...)",
    "SINK": "write CREATE TABLE ... WITH ('url' = ...), and INSERT INTO it",
    "MATERIALIZED": "write CREATE TABLE ... AS SELECT, or CREATE VIEW",
    "CATALOG": "there are no catalogs",
    "DATABASE": "there are no databases",
    "TRIGGER": "triggers are sources in Python",
    "INDEX": "a table is found by its PRIMARY KEY",
    "MODEL": "call a function in Python",
}


def parse(source: Source) -> list[Statement]:
    """Return the statements of a text.

    Raises:
        SqlError: with the faults of all statements that could not be read.
    """
    statements, faults = read_statements(source)
    if faults:
        raise SqlError(faults)
    return statements


def read_statements(source: Source) -> tuple[list[Statement], list[Fault]]:
    """Return the statements of a text that could be read, and the faults of the others.

    Raises:
        SqlError: if it has characters that SQL does not have.
    """
    return read_script(source)[:2]


def read_script(source: Source) -> tuple[list[Statement], list[Fault], set[str]]:
    """Return the statements of a text that could be read, the faults of the others, and the tables that these change.

    Raises:
        SqlError: if it has characters that SQL does not have.
    """
    return _StatementReader(source).script()


_MOST_FAULTS = 1_000
"""Faults after which a text is read no further: each looks for its line in the text."""

_BEFORE_NAMES = frozenset({"CREATE", "TEMPORARY", "SYSTEM", "TABLE", "VIEW", "FUNCTION", "IF", "NOT", "EXISTS"})
"""Words of CREATE before the name."""

Elements = tuple[tree.ColumnDef | tree.Computed | tree.Watermark | tree.PrimaryKey, ...]


def parse_columns(source: Source) -> Elements:
    """Return the columns of a text such as `id BIGINT, city STRING`.

    Raises:
        SqlError: if it has a fault.
    """
    return _StatementReader(source).columns()


class _StatementReader(QueryReader):
    """Reads statements."""

    def script(self) -> tuple[list[Statement], list[Fault], set[str]]:
        """Read all statements; after one with a fault continue at the next semicolon."""
        found: list[Statement] = []
        faults: list[Fault] = []
        failed: set[str] = set()
        is_set = False
        while self.token.kind != "end" and len(faults) < _MOST_FAULTS:
            if self.take(";") or (is_set and self.take("END")):
                continue
            start = self._at
            try:
                statement = self._statement()
                if self.token.kind != "end" and not self.peek(";"):
                    word = self.token.upper
                    if word in _AT_ENDS:
                        raise self.fault(_AT_ENDS[word], self.token.span)
                    raise self.fault("expected ; or the end")
                found.append(statement)
            except SqlError as error:
                faults += error.faults
                self._depth = 0
                self.skip_statement()
                failed |= self._changed(start)
                is_set = is_set or self._tokens[start].upper in {"EXECUTE", "EXPLAIN"}
        return found, faults, failed

    def _changed(self, start: int) -> set[str]:
        """Return the tables, views and functions that a statement with a fault would have changed."""
        words = self._tokens[start : self._at]
        found = {it.text for before, it in pairwise(words) if before.upper == "INTO"}
        created = next((it.text for it in words if it.upper not in _BEFORE_NAMES), "")
        return {*found, created} if words and words[0].upper == "CREATE" else found

    def columns(self) -> Elements:
        """Read columns up to the end of the text."""
        found = self.listed(self._element)
        if self.token.kind != "end":
            raise self.fault("expected , or the end")
        return found

    def _statement(self) -> Statement:
        start = self.token
        if start.upper in QUERY or start.upper == "(":
            return self.query()
        if read := self._STATEMENTS.get(start.upper):
            return read(self)
        if start.upper in _INSTEAD:
            raise self.fault(f"there is no {start.upper}; {_INSTEAD[start.upper]}", start.span)
        near = did_you_mean(start.upper, [it.split()[0] for it in _BEGINNINGS], else_="", write=str)
        raise self.fault(f"expected a statement: {', '.join(_BEGINNINGS)}{near}")

    def _insert(self) -> tree.Insert:
        start = self.skip()
        if self.peek("OVERWRITE"):
            raise self.fault("there is no INSERT OVERWRITE; write INSERT INTO", self.token.span)
        self.need("INTO")
        table = self.table_name()
        is_query = self.ahead().upper in {"SELECT", "WITH", "VALUES", "("}
        columns = self.bracketed(self.name) if self.peek("(") and not is_query else ()
        return tree.Insert(table, self.query(), columns, span=self.since(start))

    def _statement_set(self) -> Statement:
        return self._inserts(self.skip())

    def _inserts(self, start: Token) -> Statement:
        self.need("STATEMENT", "SET", "BEGIN")
        inserts: list[tree.Insert] = []
        while not self.take("END"):
            if not self.peek("INSERT"):
                raise self.fault("expected INSERT INTO or END")
            inserts.append(self._insert())
            if not self.peek("END"):
                self.need(";")
        return tree.StatementSet(tuple(inserts), span=self.since(start))

    def _explain(self) -> Statement:
        start = self.skip()
        if self.token.upper in {"PLAN_ADVICE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN"}:
            raise self.fault(f"there is no {self.token.upper}, as there is one plan; write EXPLAIN", self.token.span)
        if not self.take("CHANGELOG_MODE"):
            self.take("PLAN", "FOR")
        with self.deeper():
            statement = self._inserts(self.token) if self.peek("STATEMENT", "SET") else self._statement()
        return tree.Explain(statement, span=self.since(start))

    def _set(self) -> Statement:
        start = self.skip()
        key = self.text("a key in quotes, as in SET 'malflow.on-error' = 'skip'")
        self.need("=")
        return tree.Command("SET", None, (key, self.text("a value in quotes")), span=self.since(start))

    def _describe(self) -> Statement:
        start = self.skip()
        return tree.Command("DESCRIBE", self.table_name(), span=self.since(start))

    def _show(self) -> Statement:
        start = self.skip()
        if self.take("CREATE"):
            what = self.need_one("TABLE", "VIEW")
            return tree.Command(f"SHOW CREATE {what}", self.table_name(), span=self.since(start))
        if self.take("USER", "FUNCTIONS"):
            return tree.Command("SHOW USER FUNCTIONS", span=self.since(start))
        what = self.need_one("TABLES", "VIEWS", "FUNCTIONS")
        return tree.Command(f"SHOW {what}", span=self.since(start))

    def _drop(self) -> Statement:
        start = self.skip()
        self.take("TEMPORARY")
        self.take("SYSTEM")
        what = self.need_one("TABLE", "VIEW", "FUNCTION")
        exists = self.take("IF", "EXISTS")
        return tree.Command(f"DROP {what}", self.table_name(), None, exists, span=self.since(start))

    def _create(self) -> Statement:
        start = self.skip()
        temporary = self.take("TEMPORARY")
        self.take("SYSTEM")
        word = self.token.upper
        if word in _CREATE_INSTEAD:
            raise self.fault(f"there is no CREATE {word}; {_CREATE_INSTEAD[word]}", self.token.span)
        what = self.need_one("TABLE", "VIEW", "FUNCTION")
        if_not_exists = self.take("IF", "NOT", "EXISTS")
        name = self.table_name(f"a name for the {what.lower()}")
        options = {"if_not_exists": if_not_exists, "temporary": temporary}
        build = {"TABLE": self._create_table, "VIEW": self._create_view, "FUNCTION": self._create_function}[what]
        kind, arguments = build()
        return kind(name, **arguments, **options, span=self.since(start))  # type: ignore[no-any-return]  # of three

    def _create_view(self) -> tuple[Any, dict[str, Any]]:
        columns = self.bracketed(self.name) if self.peek("(") else ()
        self.need("AS")
        return tree.CreateView, {"query": self.query(), "columns": columns}

    def _create_function(self) -> tuple[Any, dict[str, Any]]:
        self.need("AS")
        target = self.text("a function, as in 'shop.prices:dear'")
        if self.take("LANGUAGE") and not self.take("PYTHON"):
            raise self.fault("functions are written in Python; write LANGUAGE PYTHON")
        return tree.CreateFunction, {"target": target}

    def _create_table(self) -> tuple[Any, dict[str, Any]]:
        found: dict[str, Any] = {"elements": self.bracketed(self._element) if self.peek("(") else ()}
        if self.take("COMMENT"):
            self.text()
        if self.peek("PARTITIONED") or self.peek("DISTRIBUTED"):
            cure = "remove it, or write a sink in Python"
            raise self.fault(
                f"{self.token.upper} BY: no sink has a folder for each value of a column; {cure}", self.token.span
            )
        found["options"] = self.bracketed(self._option) if self.take("WITH") else ()
        if self.take("LIKE"):
            found["like"] = self.table_name()
            found["like_rules"] = self._like_rules()
        found["query"] = self.query() if self.take("AS") else None
        return tree.CreateTable, found

    def _like_rules(self) -> tuple[str, ...]:
        rules: list[str] = []
        if self.take("("):
            while not self.take(")"):
                rule = self.take_one("INCLUDING", "EXCLUDING", "OVERWRITING")
                what = self.take_one("ALL", "CONSTRAINTS", "GENERATED", "METADATA", "OPTIONS", "WATERMARKS")
                if not rule or not what:
                    raise self.fault("expected rules, as in LIKE t (EXCLUDING OPTIONS)")
                rules.append(f"{rule} {what}")
        return tuple(rules)

    def _option(self) -> tuple[str, str, Node]:
        start = self.token
        key = self.text("an option in quotes, as in 'url' = 'kafka://broker/bids'")
        self.need("=")
        return key, self.text("a value in quotes"), Node(span=self.since(start))

    def _element(self) -> Any:
        start = self.token
        if self.take("WATERMARK"):
            self.need("FOR")
            column = self.name("a column")
            self.need("AS")
            return tree.Watermark(column, self.expression(), span=self.since(start))
        if self.take("CONSTRAINT"):
            self.name()
        if self.take("PRIMARY"):
            self.need("KEY")
            columns = self.bracketed(self.name)
            self.need("NOT", "ENFORCED")
            return tree.PrimaryKey(columns, span=self.since(start))
        name = self.name("a column, WATERMARK FOR or PRIMARY KEY")
        if self.take("AS"):
            found: Any = tree.Computed(name, self.expression(), span=self.since(start))
        else:
            found = self._column(name)
        if self.take("COMMENT"):
            self.text()
        return found

    def _column(self, name: Name) -> tree.ColumnDef:
        found = self.type()
        metadata, virtual = None, False
        if self.take("METADATA"):
            metadata = self.text() if self.take("FROM") else name.text
            virtual = self.take("VIRTUAL")
        if self.peek("PRIMARY"):
            raise self.fault(f"write PRIMARY KEY ({name}) NOT ENFORCED after the columns", self.token.span)
        return tree.ColumnDef(name, found, metadata, virtual, span=name.span)

    _STATEMENTS: ClassVar[dict[str, Callable[[Any], Statement]]] = {
        "INSERT": _insert,
        "CREATE": _create,
        "EXECUTE": _statement_set,
        "EXPLAIN": _explain,
        "SET": _set,
        "DESCRIBE": _describe,
        "DESC": _describe,
        "SHOW": _show,
        "DROP": _drop,
    }
    """What reads each statement, by its first word."""
