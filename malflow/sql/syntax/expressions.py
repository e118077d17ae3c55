"""The nodes of expressions, as they are written; ``str()`` prints them.

Each node has its place in the text. Places don't count when nodes are compared, so a tree equals the tree of its print.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from malflow.sql.text import NOWHERE, Span
from malflow.sql.types import SqlType

if TYPE_CHECKING:
    from malflow.sql.syntax.queries import Query, WindowSpec

__all__ = [
    "COMPARISONS",
    "RESERVED",
    "TESTS",
    "Call",
    "Case",
    "Cast",
    "Collection",
    "Expression",
    "Literal",
    "Name",
    "Node",
    "Operation",
    "Reference",
    "Star",
    "SubQuery",
    "listed",
    "quoted_name",
    "quoted_text",
]

_WORDS = """
    ALL AND AS BETWEEN BY CASE CAST CREATE CROSS DISTINCT ELSE END EXCEPT EXISTS FALSE FETCH FOR FROM FULL GROUP HAVING
    IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT MATCH_RECOGNIZE NATURAL NOT NULL OFFSET ON
    OR ORDER OUTER OVER PARTITION PRIMARY QUALIFY RIGHT SELECT SET TABLE THEN TRUE UNION UNNEST USING VALUES WATERMARK
    WHEN WHERE WINDOW WITH
"""

RESERVED = frozenset(_WORDS.split())
"""Words that are names only in backticks: they would make a text ambiguous. Flink reserves many more."""

COMPARISONS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
"""Signs of comparisons, and the sign that each is read as."""

TESTS = frozenset({"IN", "BETWEEN", "LIKE", "SIMILAR TO"})
"""Tests that NOT may stand before."""

_PLAIN = re.compile(r"[^\W\d]\w*")


def quoted_name(name: str) -> str:
    """Return a name as it is written: in backticks where it must be."""
    plain = _PLAIN.fullmatch(name) and name.upper() not in RESERVED
    return name if plain else f"`{name.replace('`', '``')}`"


def quoted_text(value: str) -> str:
    """Return a text as it is written."""
    return "'" + value.replace("'", "''") + "'"


def listed(nodes: tuple[object, ...]) -> str:
    """Print nodes with commas between them."""
    return ", ".join(map(str, nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A part of a text, with its place."""

    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name(Node):
    """A name of something."""

    text: str

    def __str__(self) -> str:
        return quoted_name(self.text)


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """A part of a text with a value."""


@dataclass(frozen=True, slots=True)
class Reference(Expression):
    """A column, perhaps with its table before it, or with fields after it."""

    names: tuple[Name, ...]

    def __str__(self) -> str:
        return ".".join(map(str, self.names))


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """All columns, or the columns of one table."""

    table: Name | None = None

    def __str__(self) -> str:
        return f"{self.table}.*" if self.table else "*"


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A value that is written out.

    Attributes:
        kind: NUMBER, TEXT, BYTES, TRUE, FALSE, NULL, DATE, TIME, TIMESTAMP, INTERVAL, PARAMETER, or WORD (a word among
            arguments, such as HOUR).
        text: the text of the value: of bytes in hexadecimal digits, of a parameter its name.
        units: of an interval its largest and its smallest unit.
    """

    kind: str
    text: str
    units: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        match self.kind:
            case "NUMBER" | "WORD":
                return self.text
            case "TEXT":
                return quoted_text(self.text)
            case "BYTES":
                return f"x'{self.text}'"
            case "PARAMETER":
                return f":{self.text}"
            case "INTERVAL":
                return f"INTERVAL {quoted_text(self.text)} {' TO '.join(dict.fromkeys(self.units))}"
            case "DATE" | "TIME" | "TIMESTAMP":
                return f"{self.kind} {quoted_text(self.text)}"
        return self.kind


_LEVELS = {"OR": 1, "AND": 2, "NOT": 3, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "||": 6}
_TEST, _SUM, _SIGN, _ATOM = 4, 5, 7, 9
"""How strongly tests, sums, signs and what has its own end bind."""


@dataclass(frozen=True, slots=True)
class Operation(Expression):
    """An operator with its operands.

    Attributes:
        op: AND and OR of two and more (flat, since generated texts have hundreds); NOT; the signs of comparisons and
            calculations; IS NULL, IS TRUE, IS FALSE, IS UNKNOWN, IS DISTINCT FROM; BETWEEN, BETWEEN SYMMETRIC, IN,
            LIKE, SIMILAR TO; EXISTS; `[]` for an element, `.` for a field.
        operands: its operands; of LIKE a third one is the ESCAPE.
        negated: whether a test has NOT in it.
    """

    op: str
    operands: tuple[Expression, ...]
    negated: bool = False

    @property
    def level(self) -> int:
        """How strongly it binds."""
        if self.op in "[].":
            return _ATOM
        return _SIGN if len(self.operands) == 1 and self.op in "+-" else _LEVELS.get(self.op, _TEST)

    def __str__(self) -> str:
        first, *rest = self.operands
        no = "NOT " if self.negated else ""
        match self.op:
            case "AND" | "OR":
                return f" {self.op} ".join(_within(it, self.level + 1) for it in self.operands)
            case "NOT" | "EXISTS":
                return f"{self.op} {_within(first, self.level)}"
            case "[]":
                return f"{_within(first, _ATOM)}[{rest[0]}]"
            case ".":
                return f"({first}).{rest[0]}"
            case "IN":
                values = str(rest[0]) if isinstance(rest[0], SubQuery) else f"({listed((*rest,))})"
                return f"{_within(first, _TEST)} {no}IN {values}"
            case "BETWEEN" | "BETWEEN SYMMETRIC":
                low, high = (_within(it, _SUM) for it in rest)
                return f"{_within(first, _TEST)} {no}{self.op} {low} AND {high}"
            case "LIKE" | "SIMILAR TO":
                escape = f" ESCAPE {rest[1]}" if len(rest) > 1 else ""
                return f"{_within(first, _TEST)} {no}{self.op} {_within(rest[0], _SUM)}{escape}"
        if self.op.startswith("IS"):
            words = self.op.replace("IS ", f"IS {no}")
            return f"{_within(first, _TEST)} {words}{''.join(f' {_within(it, _SUM)}' for it in rest)}"
        if not rest:
            return f"{self.op}{_within(first, _ATOM)}"
        return f"{_within(first, self.level)} {self.op} {_within(rest[0], self.level + 1)}"


def _within(node: Expression, level: int) -> str:
    """Print an operand, in brackets where it binds less strongly than what is around it."""
    return f"({node})" if isinstance(node, Operation) and node.level < level else str(node)


@dataclass(frozen=True, slots=True)
class Case(Expression):
    """CASE: the value of the first way that fits."""

    operand: Expression | None
    ways: tuple[tuple[Expression, Expression], ...]
    other: Expression | None = None

    def __str__(self) -> str:
        ways = "".join(f" WHEN {test} THEN {value}" for test, value in self.ways)
        return (
            f"CASE{f' {self.operand}' if self.operand else ''}{ways}{f' ELSE {self.other}' if self.other else ''} END"
        )


@dataclass(frozen=True, slots=True)
class Cast(Expression):
    """CAST, or TRY_CAST: NULL where the value does not fit."""

    operand: Expression
    type: SqlType
    is_tried: bool = False

    def __str__(self) -> str:
        return f"{'TRY_CAST' if self.is_tried else 'CAST'}({self.operand} AS {self.type.name})"


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A call of a function.

    Attributes:
        name: as it is written.
        arguments: its arguments; what SQL writes with words, such as `EXTRACT(HOUR FROM ts)`, are arguments too.
        distinct: whether an aggregate takes each value once.
        where: the rows that an aggregate takes.
        over: the rows around each row, of a call with OVER.
    """

    name: Name
    arguments: tuple[Expression, ...]
    distinct: bool = False
    where: Expression | None = None
    over: WindowSpec | None = None

    def __str__(self) -> str:
        head = f"{self.name}({'DISTINCT ' if self.distinct else ''}{self._arguments()})"
        where = f" FILTER (WHERE {self.where})" if self.where else ""
        return f"{head}{where}{f' OVER {self.over}' if self.over else ''}"

    def _arguments(self) -> str:
        """Print the arguments, with the words that some functions have between them."""
        texts = [*map(str, self.arguments)]
        words = [isinstance(it, Literal) and it.kind == "WORD" for it in self.arguments]
        match self.name.text.upper(), words:
            case "EXTRACT", [True, False]:
                return " FROM ".join(texts)
            case (("FLOOR" | "CEIL" | "CEILING"), [False, True]):
                return " TO ".join(texts)
            case "POSITION", [_, _]:
                return f"{_within(self.arguments[0], _SUM)} IN {texts[1]}"
            case "TRIM", [True, _, _]:
                return f"{texts[0]} {texts[1]} FROM {texts[2]}"
            case "OVERLAY", [_, _, _, *_]:
                return f"{texts[0]} PLACING {texts[1]} FROM {' FOR '.join(texts[2:])}"
        return ", ".join(texts)


@dataclass(frozen=True, slots=True)
class Collection(Expression):
    """ARRAY[...], MAP[key, value, ...] or ROW(...)."""

    kind: str
    values: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"ROW({listed(self.values)})" if self.kind == "ROW" else f"{self.kind}[{listed(self.values)}]"


@dataclass(frozen=True, slots=True)
class SubQuery(Expression):
    """A query in an expression."""

    query: Query

    def __str__(self) -> str:
        return f"({self.query})"
