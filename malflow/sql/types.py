"""The types of SQL: how they are written, what holds their values, and how two become one.

A value in a row is a plain Python object. Times are whole numbers in units of their precision: of `TIMESTAMP(3)` the
milliseconds since 1970, of `DATE` the days. An interval of days to seconds is a number of microseconds, an interval of
years and months a number of months.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = [
    "BIGINT",
    "BOOLEAN",
    "BYTES",
    "DATE",
    "DAYS",
    "DOUBLE",
    "INT",
    "INTEGERS",
    "LONGEST",
    "MONTHS",
    "MOST_DIGITS",
    "NULL",
    "NUMBERS",
    "STRING",
    "TEXTS",
    "TIMES",
    "SqlType",
    "as_decimal",
    "common_type",
    "decimal",
    "fits",
    "timestamp",
]

MOST_DIGITS = 38
"""The most digits of a DECIMAL, as in Flink."""

LONGEST = 2_147_483_647
"""The length of STRING, as Flink prints it."""

INTEGERS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
"""The types of whole numbers, with their bits."""

NUMBERS = frozenset({*INTEGERS, "FLOAT", "DOUBLE", "DECIMAL"})
TEXTS = frozenset({"CHAR", "VARCHAR"})
TIMES = frozenset({"TIMESTAMP", "TIMESTAMP_LTZ"})

_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
"""The digits of a DECIMAL that holds all whole numbers of a type, as in Calcite."""


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type of SQL.

    Attributes:
        kind: its name, such as `DECIMAL`; `DAYS` and `MONTHS` for the two kinds of intervals, `NULL` for what has none.
        nullable: whether NULL is among its values.
        size: the length of a text, the digits of a DECIMAL, or the digits of a second.
        scale: the digits of a DECIMAL after its point.
        items: the types of elements (ARRAY), of key and value (MAP), or of fields (ROW).
        names: the names of the fields of a ROW.
    """

    kind: str
    nullable: bool = True
    size: int = 0
    scale: int = 0
    items: tuple[SqlType, ...] = ()
    names: tuple[str, ...] = ()

    def as_nullable(self, nullable: bool = True) -> SqlType:
        """Return the type with NULL among its values, or without it."""
        return self if self.nullable is nullable else replace(self, nullable=nullable)

    @property
    def name(self) -> str:
        """The type as Flink prints it, without a word about NULL."""
        if self.size == LONGEST and self.kind in _UNBOUND:
            return _UNBOUND[self.kind]
        match self.kind:
            case "CHAR" | "VARCHAR" | "BINARY" | "VARBINARY" | "TIME" | "TIMESTAMP":
                return f"{self.kind}({self.size})"
            case "TIMESTAMP_LTZ":
                return f"TIMESTAMP({self.size}) WITH LOCAL TIME ZONE"
            case "DECIMAL":
                return f"DECIMAL({self.size}, {self.scale})"
            case "DAYS":
                return "INTERVAL DAY TO SECOND"
            case "MONTHS":
                return "INTERVAL YEAR TO MONTH"
            case "ARRAY" | "MAP":
                return f"{self.kind}<{', '.join(map(str, self.items))}>"
            case "ROW":
                names = (f"`{it.replace('`', '``')}`" for it in self.names)
                return f"ROW<{', '.join(f'{name} {it}' for name, it in zip(names, self.items, strict=True))}>"
        return self.kind

    def __str__(self) -> str:
        return self.name if self.nullable else f"{self.name} NOT NULL"


_UNBOUND = {"VARCHAR": "STRING", "VARBINARY": "BYTES"}
"""The names of types without a bound to their size."""

BOOLEAN, INT, BIGINT, DOUBLE, DATE = map(SqlType, ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DATE"))
NULL, DAYS, MONTHS = SqlType("NULL"), SqlType("DAYS"), SqlType("MONTHS")
STRING, BYTES = SqlType("VARCHAR", size=LONGEST), SqlType("VARBINARY", size=LONGEST)


def timestamp(digits: int, kind: str = "TIMESTAMP") -> SqlType:
    """Return the type of instants with so many digits of a second."""
    return SqlType(kind, size=digits)


def decimal(digits: int, scale: int) -> SqlType:
    """Return a DECIMAL; one of more than 38 digits loses digits after its point, but keeps six, as in Flink.

    Source: Flink's LogicalTypeMerging.adjustPrecisionScale, which has it from Hive and SQL Server.
    """
    if digits <= MOST_DIGITS:
        return SqlType("DECIMAL", size=digits, scale=scale)
    whole = digits - scale
    return SqlType("DECIMAL", size=MOST_DIGITS, scale=max(MOST_DIGITS - whole, min(scale, _KEPT)))


_KEPT = 6
"""Digits after the point that a DECIMAL keeps although its digits are too many, as in Flink."""


def as_decimal(it: SqlType) -> SqlType:
    """Return the DECIMAL that holds all values of an exact number."""
    return it if it.kind == "DECIMAL" else SqlType("DECIMAL", it.nullable, _DIGITS[it.kind])


def common_type(types: list[SqlType]) -> SqlType | None:
    """Return the type that holds values of all types; None if there is none."""
    found: SqlType | None = types[0]
    for it in types[1:]:
        found = found and _common(found, it)
    return found


def _common(left: SqlType, right: SqlType) -> SqlType | None:
    nullable = left.nullable or right.nullable
    if "NULL" in {left.kind, right.kind}:
        return (right if left.kind == "NULL" else left).as_nullable()
    if left.as_nullable() == right.as_nullable():
        return left.as_nullable(nullable)
    found = _of_numbers(left, right) or _of_others(left, right)
    return found and found.as_nullable(nullable)


def _of_numbers(left: SqlType, right: SqlType) -> SqlType | None:
    if not {left.kind, right.kind} <= NUMBERS:
        return None
    if left.kind in INTEGERS and right.kind in INTEGERS:
        return max(left, right, key=lambda it: INTEGERS[it.kind])
    if {"DOUBLE", "FLOAT"} & {left.kind, right.kind}:
        return left if left.kind == right.kind else DOUBLE
    one, other = as_decimal(left), as_decimal(right)
    scale = max(one.scale, other.scale)
    return decimal(max(one.size - one.scale, other.size - other.scale) + scale, scale)


def _of_others(left: SqlType, right: SqlType) -> SqlType | None:
    kinds = {left.kind, right.kind}
    if kinds <= TEXTS or kinds <= {"BINARY", "VARBINARY"}:
        kind = left.kind if len(kinds) == 1 else "VARCHAR" if kinds <= TEXTS else "VARBINARY"
        varying = "VARCHAR" if kinds <= TEXTS else "VARBINARY"
        return SqlType(kind if left.size == right.size else varying, size=max(left.size, right.size))
    if kinds <= TIMES or kinds == {"TIME"}:
        return SqlType("TIMESTAMP_LTZ" if "TIMESTAMP_LTZ" in kinds else left.kind, size=max(left.size, right.size))
    if kinds <= {"DATE", "TIMESTAMP"}:
        return left if left.kind == "TIMESTAMP" else right
    if len(kinds) == 1 and len(left.items) == len(right.items) and left.items:
        items = [_common(one, other) for one, other in zip(left.items, right.items, strict=True)]
        if None not in items:
            return replace(left, items=tuple(it for it in items if it is not None))
    return None


def fits(given: SqlType, wanted: SqlType) -> bool:
    """Whether values of one type may be stored as another without a cast: both of a family, as in Flink."""
    kinds = {given.kind, wanted.kind}
    if given.kind in ("NULL", wanted.kind):
        return len(given.items) == len(wanted.items) and all(map(fits, given.items, wanted.items))
    return any(kinds <= family for family in (NUMBERS, TEXTS, TIMES, {"BINARY", "VARBINARY"}, {"DATE", "TIMESTAMP"}))
