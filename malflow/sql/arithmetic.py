"""Calculations and comparisons: which types they take, and which they give.

The types of results are Flink's: those of Calcite for whole numbers and floats, and for DECIMALs the rules of SQL
Server with a division that keeps at least six digits (Flink's LogicalTypeMerging).
"""

from __future__ import annotations

from malflow.sql.casts import converted
from malflow.sql.text import Span
from malflow.sql.typed import Comparison, Strict, Typed, Value
from malflow.sql.types import (
    BIGINT,
    DOUBLE,
    INT,
    INTEGERS,
    LONGEST,
    NUMBERS,
    TEXTS,
    TIMES,
    SqlType,
    as_decimal,
    common_type,
    decimal,
)

__all__ = ["calculation", "comparison", "is_finer", "negation"]

_EXACT = frozenset({*INTEGERS, "DECIMAL"})
_PYTHON = {"=": "==", "<>": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_INSTANTS = frozenset({*TIMES, "DATE"})
_LEAST_SCALE = 6
"""Digits after the point that a division has at least, as in Flink."""


def comparison(op: str, left: Typed, right: Typed, span: Span) -> Comparison | None:
    """Return a comparison; None if the two can't be compared."""
    kinds = {left.type.kind, right.type.kind}
    if kinds <= NUMBERS:
        if kinds & {"FLOAT", "DOUBLE"} and "DECIMAL" in kinds:
            left, right = converted(left, DOUBLE), converted(right, DOUBLE)
    elif "NULL" in kinds:
        left, right = _typed_null(left, right), _typed_null(right, left)
    else:
        both = common_type([left.type, right.type])
        both = both or _text_beside(left, right)
        if both is None or (op not in {"=", "<>"} and both.kind in {"MAP", "ROW", "ARRAY"}):
            return None
        left, right = converted(left, both), converted(right, both)
    nullable = left.type.nullable or right.type.nullable
    return Comparison(SqlType("BOOLEAN", nullable), span, _PYTHON[op], left, right)


def _text_beside(left: Typed, right: Typed) -> SqlType | None:
    """Return the type of an instant beside a literal text. The text is read as an instant."""
    for one, other in ((left, right), (right, left)):
        is_read = one.type.kind in {*_INSTANTS, "TIME"} or one.type.kind in NUMBERS
        if is_read and other.type.kind in TEXTS and isinstance(other, Value):
            return one.type
    return None


_LEAST: dict[object, SqlType] = {1 << 31: INT, 1 << 63: BIGINT}
"""Numbers that a type has with a minus sign only."""


def negation(operand: Typed, span: Span) -> Typed | None:
    """Return a number or interval with the other sign; None if it is neither."""
    if operand.type.kind not in NUMBERS and operand.type.kind not in {"DAYS", "MONTHS"}:
        return None
    if isinstance(operand, Value) and operand.value is not None:
        smaller = _LEAST.get(operand.value)
        if smaller is not None and operand.type.scale == 0:
            return Value(smaller.as_nullable(False), span, -int(operand.value))
        return Value(operand.type, span, -operand.value)
    return Strict(operand.type, span, "(-{0})", (operand,))


def calculation(op: str, left: Typed, right: Typed, span: Span) -> Typed | None:
    """Return a calculation; None if it does not take such operands."""
    nullable = left.type.nullable or right.type.nullable
    left, right = _typed_null(left, right), _typed_null(right, left)
    kinds = {left.type.kind, right.type.kind}
    if op == "||":
        return _joined(left, right, span, nullable)
    if kinds <= NUMBERS:
        return _of_numbers(op, left, right, span, nullable)
    return _of_times(op, left, right, span, nullable)


def _typed_null(node: Typed, other: Typed) -> Typed:
    """Return a NULL with the type of the other operand."""
    return converted(node, other.type) if node.type.kind == "NULL" else node


def _joined(left: Typed, right: Typed, span: Span, nullable: bool) -> Typed | None:
    kinds = {left.type.kind, right.type.kind}
    if not kinds <= TEXTS:
        return None
    size = min(LONGEST, left.type.size + right.type.size)
    result = SqlType("CHAR" if kinds == {"CHAR"} else "VARCHAR", nullable, size)
    return Strict(result, span, "({0} + {1})", (left, right))


def _of_numbers(op: str, left: Typed, right: Typed, span: Span, nullable: bool) -> Typed | None:
    kinds = {left.type.kind, right.type.kind}
    if kinds & {"FLOAT", "DOUBLE"}:
        if op == "%":
            return None
        # Flink takes the left one of FLOAT and DOUBLE.
        is_single = kinds <= {"FLOAT", *INTEGERS} or (left.type.kind, right.type.kind) == ("FLOAT", "DOUBLE")
        operands = tuple(converted(it, DOUBLE) if it.type.kind == "DECIMAL" else it for it in (left, right))
        text = "divide_floats({0}, {1})" if op == "/" else f"({{0}} {op} {{1}})"
        found = SqlType("FLOAT" if is_single else "DOUBLE", nullable)
        return Strict(found, span, f"single({text})" if is_single else text, operands)
    if "DECIMAL" not in kinds:
        wider = right.type if op == "%" else max(left.type, right.type, key=lambda it: INTEGERS[it.kind])
        text = {"/": "divide({0}, {1})", "%": "remainder({0}, {1})"}.get(op, f"({{0}} {op} {{1}})")
        return Strict(wider.as_nullable(nullable), span, text, (left, right))
    return _of_decimals(op, left, right, span, nullable)


def _of_decimals(op: str, left: Typed, right: Typed, span: Span, nullable: bool) -> Typed:
    one, other = as_decimal(left.type), as_decimal(right.type)
    scale = max(one.scale, other.scale)
    if op in "+-":
        exact = (max(one.size - one.scale, other.size - other.scale) + scale + 1, scale)
    elif op == "*":
        exact = (one.size + other.size + 1, one.scale + other.scale)
    elif op == "/":
        scale = max(_LEAST_SCALE, one.scale + other.size + 1)
        exact = (one.size - one.scale + other.scale + scale, scale)
    else:
        exact = (min(one.size - one.scale, other.size - other.scale) + scale, scale)
    result = decimal(*exact)
    digits = f"{result.size}, {result.scale}"
    text = {"/": f"divide_decimals({{0}}, {{1}}, {digits})", "%": "remainder({0}, {1})"}.get(op, f"({{0}} {op} {{1}})")
    if op != "/" and (result.size, result.scale) != exact:
        text = f"decimal_of({text}, {digits})"
    return Strict(result.as_nullable(nullable), span, text, (left, right))


def _of_times(op: str, left: Typed, right: Typed, span: Span, nullable: bool) -> Typed | None:
    """Return a sum of an instant and an interval, a multiple of an interval, and the like."""
    one, other = left.type, right.type
    if op == "+" and other.kind in _INSTANTS and one.kind in {"DAYS", "MONTHS"}:
        return _of_times(op, right, left, span, nullable)
    if op in "+-" and one.kind in _INSTANTS and other.kind in {"DAYS", "MONTHS"}:
        return None if is_finer(left, right) else moved(op, left, right, span)
    if op in "+-" and one.kind == "TIME" and other.kind == "DAYS":
        text = f"(({{0}} {op} {{1}} // {10 ** (6 - one.size)}) % {86_400 * 10**one.size})"
        return Strict(one.as_nullable(nullable), span, text, (left, right))
    if op in "+-" and one.kind == other.kind and one.kind in {"DAYS", "MONTHS"}:
        return Strict(one.as_nullable(nullable), span, f"({{0}} {op} {{1}})", (left, right))
    if op == "*" and {one.kind, other.kind} & {"DAYS", "MONTHS"} and {one.kind, other.kind} & set(INTEGERS):
        kind = one if one.kind in {"DAYS", "MONTHS"} else other
        return Strict(kind.as_nullable(nullable), span, "({0} * {1})", (left, right))
    return None


def is_finer(instant: Typed, interval: Typed) -> bool:
    """Whether an interval that is written out has digits that an instant has no place for: they would be lost."""
    if not isinstance(interval, Value) or interval.type.kind != "DAYS" or instant.type.kind not in TIMES:
        return False
    return interval.value is not None and interval.value % 10 ** (6 - instant.type.size) != 0


_MICROSECONDS_A_DAY = 86_400_000_000


def moved(op: str, left: Typed, right: Typed, span: Span) -> Typed:
    """Return an instant or date, later or earlier by an interval."""
    one, nullable = left.type, left.type.nullable or right.type.nullable
    result = one.as_nullable(nullable)
    is_date = one.kind == "DATE"
    if right.type.kind == "MONTHS":
        text = f"add_months_to_date({{0}}, {op}{{1}})" if is_date else f"add_months({{0}}, {op}{{1}}, {one.size})"
        return Strict(result, span, text, (left, right))
    unit = _MICROSECONDS_A_DAY if is_date else 10 ** (6 - one.size)
    if isinstance(right, Value) and right.value is not None:
        right = Value(right.type, right.span, right.value // unit)
        return Strict(result, span, f"({{0}} {op} {{1}})", (left, right))
    return Strict(result, span, f"({{0}} {op} {{1}} // {unit})", (left, right))
