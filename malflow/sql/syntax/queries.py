"""The nodes of queries and of statements, as they are written; ``str()`` prints them."""

from __future__ import annotations

from dataclasses import dataclass

from malflow.sql.syntax.expressions import Call, Expression, Name, Node, listed, quoted_text
from malflow.sql.types import SqlType

__all__ = [
    "ColumnDef",
    "Command",
    "Computed",
    "CreateFunction",
    "CreateTable",
    "CreateView",
    "Derived",
    "Descriptor",
    "Explain",
    "GroupingSets",
    "Hint",
    "Insert",
    "Item",
    "Join",
    "NamedQuery",
    "NamedTable",
    "Ordering",
    "PrimaryKey",
    "Query",
    "Select",
    "SetOperation",
    "Statement",
    "StatementSet",
    "TableArgument",
    "TableCall",
    "TableRef",
    "Unnest",
    "Values",
    "Watermark",
    "WindowCall",
    "WindowSpec",
    "With",
]


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """A statement."""


@dataclass(frozen=True, slots=True)
class Query(Statement):
    """A statement with rows."""


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """A hint: its name, and its arguments with their keys; the key is empty where there is none."""

    name: Name
    arguments: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        written = (
            f"{quoted_text(key)} = {quoted_text(value)}" if key else quoted_text(value) for key, value in self.arguments
        )
        return f"{self.name}({', '.join(written)})" if self.arguments else str(self.name)


def _hints(hints: tuple[Hint, ...]) -> str:
    return f" /*+ {listed(hints)} */" if hints else ""


@dataclass(frozen=True, slots=True)
class Ordering(Node):
    """An expression that rows are ordered by."""

    expression: Expression
    descending: bool = False
    nulls_first: bool | None = None

    def __str__(self) -> str:
        nulls = {None: "", True: " NULLS FIRST", False: " NULLS LAST"}[self.nulls_first]
        return f"{self.expression}{' DESC' if self.descending else ''}{nulls}"


@dataclass(frozen=True, slots=True)
class WindowSpec(Node):
    """The rows around a row: its partition, their order, and how many or how long back; or the name of such."""

    partition: tuple[Expression, ...] = ()
    order: tuple[Ordering, ...] = ()
    unit: str = ""
    start: Expression | None = None
    name: Name | None = None

    def __str__(self) -> str:
        if self.name:
            return str(self.name)
        parts = [f"PARTITION BY {listed(self.partition)}"] if self.partition else []
        parts += [f"ORDER BY {listed(self.order)}"] if self.order else []
        if self.unit:
            start = f"{self.start} PRECEDING" if self.start else "UNBOUNDED PRECEDING"
            parts.append(f"{self.unit} BETWEEN {start} AND CURRENT ROW")
        return f"({' '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Item(Node):
    """A column of a SELECT."""

    expression: Expression
    alias: Name | None = None

    def __str__(self) -> str:
        return f"{self.expression} AS {self.alias}" if self.alias else str(self.expression)


@dataclass(frozen=True, slots=True)
class GroupingSets(Node):
    """GROUPING SETS, ROLLUP or CUBE."""

    kind: str
    sets: tuple[tuple[Expression, ...], ...]

    def __str__(self) -> str:
        return f"{self.kind} ({', '.join(f'({listed(it)})' for it in self.sets)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRef(Node):
    """Rows that are read in FROM, with the names that the query gives them."""

    alias: Name | None = None
    columns: tuple[Name, ...] = ()

    def named(self, text: str) -> str:
        """Return the text with its alias."""
        if not self.alias:
            return text
        return f"{text} AS {self.alias}{f' ({listed(self.columns)})' if self.columns else ''}"


@dataclass(frozen=True, slots=True)
class NamedTable(TableRef):
    """A table by its name, or by a path or URL in quotes; of a version at a time with FOR SYSTEM_TIME AS OF."""

    name: Name
    hints: tuple[Hint, ...] = ()
    as_of: Expression | None = None
    is_path: bool = False

    def __str__(self) -> str:
        as_of = f" FOR SYSTEM_TIME AS OF {self.as_of}" if self.as_of else ""
        name = quoted_text(self.name.text) if self.is_path else self.name
        return self.named(f"{name}{_hints(self.hints)}{as_of}")


@dataclass(frozen=True, slots=True)
class Derived(TableRef):
    """A query in FROM."""

    query: Query
    lateral: bool = False

    def __str__(self) -> str:
        return self.named(f"{'LATERAL ' if self.lateral else ''}({self.query})")


@dataclass(frozen=True, slots=True)
class Unnest(TableRef):
    """The elements of an array or map, a row each."""

    operand: Expression
    ordinality: bool = False

    def __str__(self) -> str:
        return self.named(f"UNNEST({self.operand}){' WITH ORDINALITY' if self.ordinality else ''}")


@dataclass(frozen=True, slots=True)
class TableCall(TableRef):
    """A call of a function that answers rows."""

    call: Call

    def __str__(self) -> str:
        return self.named(f"LATERAL TABLE({self.call})")


@dataclass(frozen=True, slots=True)
class TableArgument(Node):
    """The rows that a window function reads."""

    table: NamedTable | Derived
    partition: tuple[Expression, ...] = ()

    def __str__(self) -> str:
        table = f"TABLE {self.table}" if isinstance(self.table, NamedTable) else str(self.table)
        return f"{table} PARTITION BY ({listed(self.partition)})" if self.partition else table


@dataclass(frozen=True, slots=True)
class Descriptor(Node):
    """Columns as an argument of a window function."""

    columns: tuple[Name, ...]

    def __str__(self) -> str:
        return f"DESCRIPTOR({listed(self.columns)})"


@dataclass(frozen=True, slots=True)
class WindowCall(TableRef):
    """A window function: its rows, the column of their time, and sizes; each with its name if it is given."""

    name: Name
    arguments: tuple[tuple[str, TableArgument | Descriptor | Expression], ...]

    def __str__(self) -> str:
        given = ", ".join(f"{key} => {value}" if key else str(value) for key, value in self.arguments)
        return self.named(f"TABLE({self.name}({given}))")


@dataclass(frozen=True, slots=True)
class Join(TableRef):
    """Two tables side by side."""

    how: str
    left: TableRef
    right: TableRef
    on: Expression | None = None
    using: tuple[Name, ...] = ()

    def __str__(self) -> str:
        condition = f" ON {self.on}" if self.on else f" USING ({listed(self.using)})" if self.using else ""
        right = f"({self.right})" if isinstance(self.right, Join) else str(self.right)
        return f"{self.left} {self.how} JOIN {right}{condition}"


@dataclass(frozen=True, slots=True)
class Select(Query):
    """SELECT."""

    items: tuple[Item, ...]
    source: TableRef | None = None
    where: Expression | None = None
    group: tuple[Expression | GroupingSets, ...] | None = None
    having: Expression | None = None
    windows: tuple[tuple[Name, WindowSpec], ...] = ()
    qualify: Expression | None = None
    distinct: bool = False
    hints: tuple[Hint, ...] = ()

    def __str__(self) -> str:
        parts = [f"SELECT{_hints(self.hints)}{' DISTINCT' if self.distinct else ''} {listed(self.items)}"]
        parts += [f"FROM {self.source}"] if self.source else []
        parts += [f"WHERE {self.where}"] if self.where else []
        parts += [f"GROUP BY {listed(self.group)}"] if self.group is not None else []
        parts += [f"HAVING {self.having}"] if self.having else []
        parts += [f"WINDOW {', '.join(f'{name} AS {it}' for name, it in self.windows)}"] if self.windows else []
        return " ".join([*parts, *([f"QUALIFY {self.qualify}"] if self.qualify else [])])


@dataclass(frozen=True, slots=True)
class Values(Query):
    """Rows that are written out."""

    rows: tuple[tuple[Expression, ...], ...]

    def __str__(self) -> str:
        return f"VALUES {', '.join(f'({listed(row)})' for row in self.rows)}"


@dataclass(frozen=True, slots=True)
class SetOperation(Query):
    """UNION ALL, or another operation of two queries."""

    op: str
    left: Query
    right: Query

    def __str__(self) -> str:
        right = f"({self.right})" if isinstance(self.right, SetOperation | With) else str(self.right)
        left = f"({self.left})" if isinstance(self.left, With) else str(self.left)
        return f"{left} {self.op} {right}"


@dataclass(frozen=True, slots=True)
class NamedQuery(Node):
    """A query that WITH names."""

    name: Name
    query: Query
    columns: tuple[Name, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}{f' ({listed(self.columns)})' if self.columns else ''} AS ({self.query})"


@dataclass(frozen=True, slots=True)
class With(Query):
    """A query with named queries before it, or with an order or a limit after it."""

    body: Query
    views: tuple[NamedQuery, ...] = ()
    order: tuple[Ordering, ...] = ()
    limit: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        parts = [f"WITH {listed(self.views)}"] if self.views else []
        parts.append(f"({self.body})" if isinstance(self.body, With) else str(self.body))
        parts += [f"ORDER BY {listed(self.order)}"] if self.order else []
        parts += [f"LIMIT {self.limit}"] if self.limit is not None else []
        parts += [f"OFFSET {self.offset}"] if self.offset is not None else []
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class ColumnDef(Node):
    """A column of a table that its rows bring, or that its connector adds (`metadata`)."""

    name: Name
    type: SqlType
    metadata: str | None = None
    virtual: bool = False

    def __str__(self) -> str:
        metadata = f" METADATA FROM {quoted_text(self.metadata)}" if self.metadata is not None else ""
        return f"{self.name} {self.type}{metadata}{' VIRTUAL' if self.virtual else ''}"


@dataclass(frozen=True, slots=True)
class Computed(Node):
    """A column that is computed from the others."""

    name: Name
    expression: Expression

    def __str__(self) -> str:
        return f"{self.name} AS {self.expression}"


@dataclass(frozen=True, slots=True)
class Watermark(Node):
    """The column of a table's time, and the instant up to which no more rows are expected."""

    column: Name
    rule: Expression

    def __str__(self) -> str:
        return f"WATERMARK FOR {self.column} AS {self.rule}"


@dataclass(frozen=True, slots=True)
class PrimaryKey(Node):
    """The columns that tell a table's rows apart."""

    columns: tuple[Name, ...]

    def __str__(self) -> str:
        return f"PRIMARY KEY ({listed(self.columns)}) NOT ENFORCED"


@dataclass(frozen=True, slots=True)
class CreateTable(Statement):
    """CREATE TABLE."""

    name: Name
    elements: tuple[ColumnDef | Computed | Watermark | PrimaryKey, ...] = ()
    options: tuple[tuple[str, str, Node], ...] = ()
    like: Name | None = None
    like_rules: tuple[str, ...] = ()
    query: Query | None = None
    if_not_exists: bool = False
    temporary: bool = False

    def __str__(self) -> str:
        parts = [f"CREATE {_temporary(self)}TABLE {_if_not(self)}{self.name}"]
        parts += [f"({listed(self.elements)})"] if self.elements else []
        options = ", ".join(f"{quoted_text(key)} = {quoted_text(value)}" for key, value, _ in self.options)
        parts += [f"WITH ({options})"] if options else []
        rules = f" ({' '.join(self.like_rules)})" if self.like_rules else ""
        parts += [f"LIKE {self.like}{rules}"] if self.like else []
        return " ".join([*parts, *([f"AS {self.query}"] if self.query else [])])


@dataclass(frozen=True, slots=True)
class CreateView(Statement):
    """CREATE VIEW."""

    name: Name
    query: Query
    columns: tuple[Name, ...] = ()
    if_not_exists: bool = False
    temporary: bool = False

    def __str__(self) -> str:
        columns = f" ({listed(self.columns)})" if self.columns else ""
        return f"CREATE {_temporary(self)}VIEW {_if_not(self)}{self.name}{columns} AS {self.query}"


@dataclass(frozen=True, slots=True)
class CreateFunction(Statement):
    """CREATE FUNCTION of a function in Python."""

    name: Name
    target: str
    if_not_exists: bool = False
    temporary: bool = False

    def __str__(self) -> str:
        head = f"CREATE {_temporary(self)}FUNCTION {_if_not(self)}{self.name}"
        return f"{head} AS {quoted_text(self.target)} LANGUAGE PYTHON"


def _temporary(statement: CreateTable | CreateView | CreateFunction) -> str:
    return "TEMPORARY " if statement.temporary else ""


def _if_not(statement: CreateTable | CreateView | CreateFunction) -> str:
    return "IF NOT EXISTS " if statement.if_not_exists else ""


@dataclass(frozen=True, slots=True)
class Insert(Statement):
    """INSERT INTO."""

    table: Name
    query: Query
    columns: tuple[Name, ...] = ()

    def __str__(self) -> str:
        return f"INSERT INTO {self.table}{f' ({listed(self.columns)})' if self.columns else ''} {self.query}"


@dataclass(frozen=True, slots=True)
class StatementSet(Statement):
    """EXECUTE STATEMENT SET: several INSERTs, as one."""

    inserts: tuple[Insert, ...]

    def __str__(self) -> str:
        return f"EXECUTE STATEMENT SET BEGIN {' '.join(f'{it};' for it in self.inserts)} END"


@dataclass(frozen=True, slots=True)
class Explain(Statement):
    """EXPLAIN of a statement."""

    statement: Statement

    def __str__(self) -> str:
        return f"EXPLAIN {self.statement}"


@dataclass(frozen=True, slots=True)
class Command(Statement):
    """A short statement: SET, DESCRIBE, SHOW TABLES, SHOW VIEWS, SHOW FUNCTIONS, SHOW CREATE, or DROP of something.

    Attributes:
        words: its words.
        name: the table, view or function; None where it names none.
        setting: the key and value of SET.
        if_exists: whether DROP has IF EXISTS.
    """

    words: str
    name: Name | None = None
    setting: tuple[str, str] | None = None
    if_exists: bool = False

    def __str__(self) -> str:
        if self.setting:
            return f"SET {' = '.join(map(quoted_text, self.setting))}"
        return f"{self.words}{' IF EXISTS' if self.if_exists else ''}{f' {self.name}' if self.name else ''}"
