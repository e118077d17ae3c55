"""Casts, and the conversions that happen by themselves where types meet."""

from __future__ import annotations

from malflow.sql.typed import Lenient, Strict, Typed, Value
from malflow.sql.types import INTEGERS, LONGEST, NUMBERS, TEXTS, TIMES, SqlType

__all__ = ["cast", "converted", "tried"]


def cast(node: Typed, wanted: SqlType) -> Typed | None:
    """Return an expression as another type; None if there is no cast between the two."""
    given = node.type
    result = wanted.as_nullable(given.nullable)
    if given.kind == "NULL":
        return Value(wanted.as_nullable(), node.span, None)
    if given.as_nullable() == wanted.as_nullable():
        return node
    template = _template(given, wanted)
    if template is None:
        return None
    if template == "{0}" and isinstance(node, Value):
        return Value(result, node.span, node.value)
    return Strict(result, node.span, template, (node,))


def converted(node: Typed, wanted: SqlType) -> Typed:
    """Return an expression as a type that holds all of its values: where two types meet in one."""
    if node.type.kind == "NULL":
        return Value(wanted.as_nullable(), node.span, None)
    if node.type.as_nullable() == wanted.as_nullable():
        return node
    return cast(node, wanted) or node


def tried(node: Typed, wanted: SqlType) -> Typed | None:
    """Return a cast that is NULL where the value does not fit."""
    found = cast(node, wanted)
    if found is node or not isinstance(found, Strict):
        return found
    source = found.template.replace("{0}", "value")
    return Lenient(found.type.as_nullable(), node.span, f"tried(lambda value: {source}, {{0}})", (node,))


def _template(given: SqlType, wanted: SqlType) -> str | None:
    """Return the source of a cast of a value that is not NULL."""
    kind = wanted.kind
    if kind in TEXTS:
        return _to_text(given, wanted)
    if kind in INTEGERS:
        return _to_integer(given, INTEGERS[kind])
    if kind == "DECIMAL":
        return _to_decimal(given, wanted)
    if kind in {"FLOAT", "DOUBLE"}:
        return _to_float(given, kind)
    if kind == "BOOLEAN":
        return "boolean_of_text({0})" if given.kind in TEXTS else "({0} != 0)" if given.kind in INTEGERS else None
    if kind in TIMES or kind in {"DATE", "TIME"}:
        return _to_time(given, wanted)
    if kind in {"BINARY", "VARBINARY"}:
        return _to_bytes(given, wanted)
    if kind == given.kind and kind in {"DAYS", "MONTHS"}:
        return "{0}"
    return None


_TEXTS = {
    **dict.fromkeys(TEXTS, "{0}"),
    **dict.fromkeys(INTEGERS, "str({0})"),
    **dict.fromkeys(TIMES, "instant_text({0}, SIZE)"),
    "FLOAT": "single_text({0})",
    "DOUBLE": "float_text({0})",
    **dict.fromkeys(("BINARY", "VARBINARY"), "{0}.decode()"),
    "DECIMAL": "decimal_text({0})",
    "BOOLEAN": "('TRUE' if {0} else 'FALSE')",
    "DATE": "date_text({0})",
    "TIME": "time_text({0}, SIZE)",
}
"""The source of the text of a value, with SIZE for the digits of its type."""


def _to_text(given: SqlType, wanted: SqlType) -> str | None:
    if given.kind not in _TEXTS:
        return None
    text = _TEXTS[given.kind].replace("SIZE", str(given.size))
    if wanted.kind == "CHAR":
        return f"{text}[:{wanted.size}].ljust({wanted.size})"
    is_cut = given.kind not in TEXTS or given.size > wanted.size
    return f"{text}[:{wanted.size}]" if is_cut and wanted.size < LONGEST else text


def _to_bytes(given: SqlType, wanted: SqlType) -> str | None:
    if given.kind not in {*TEXTS, "BINARY", "VARBINARY"}:
        return None
    found = "{0}.encode()" if given.kind in TEXTS else "{0}"
    if wanted.kind == "BINARY":
        return f"{found}[:{wanted.size}].ljust({wanted.size}, b'\\0')"
    is_cut = given.kind in TEXTS or given.size > wanted.size
    return f"{found}[:{wanted.size}]" if is_cut and wanted.size < LONGEST else found


def _to_integer(given: SqlType, bits: int) -> str | None:
    if given.kind in INTEGERS:
        return "{0}" if INTEGERS[given.kind] <= bits else f"within({{0}}, {bits})"
    if given.kind in NUMBERS:
        return f"integer_of({{0}}, {bits})"
    if given.kind in TEXTS:
        return f"integer_of_text({{0}}, {bits})"
    return "int({0})" if given.kind == "BOOLEAN" else None


def _to_decimal(given: SqlType, wanted: SqlType) -> str | None:
    if given.kind in NUMBERS:
        return f"decimal_of({{0}}, {wanted.size}, {wanted.scale})"
    if given.kind in TEXTS:
        return f"decimal_of_text({{0}}, {wanted.size}, {wanted.scale})"
    return f"decimal_of(int({{0}}), {wanted.size}, {wanted.scale})" if given.kind == "BOOLEAN" else None


def _to_float(given: SqlType, kind: str) -> str | None:
    if given.kind in NUMBERS or given.kind == "BOOLEAN":
        text = "{0}" if given.kind == "FLOAT" else "float({0})"
    elif given.kind in TEXTS:
        text = "float_of_text({0})"
    else:
        return None
    return f"single({text})" if kind == "FLOAT" and given.kind != "FLOAT" else text


def _to_time(given: SqlType, wanted: SqlType) -> str | None:
    size = wanted.size
    match given.kind, wanted.kind:
        case "CHAR" | "VARCHAR", "DATE":
            return "date_of_text({0})"
        case "CHAR" | "VARCHAR", "TIME":
            return f"time_of_text({{0}}, {size})"
        case "CHAR" | "VARCHAR", _:
            return f"instant_of_text({{0}}, {size})"
        case "TIMESTAMP" | "TIMESTAMP_LTZ", "DATE":
            return f"({{0}} // {86_400 * 10**given.size})"
        case "TIMESTAMP" | "TIMESTAMP_LTZ", "TIME":
            return f"time_of_day({{0}}, {given.size}, {size})"
        case "TIMESTAMP" | "TIMESTAMP_LTZ", "TIMESTAMP" | "TIMESTAMP_LTZ":
            return _rescaled(given.size, size)
        case "TIME", "TIME":
            return _rescaled(given.size, size)
        case "DATE", "TIMESTAMP" | "TIMESTAMP_LTZ":
            return f"({{0}} * {86_400 * 10**size})"
    return None


def _rescaled(given: int, wanted: int) -> str:
    if given == wanted:
        return "{0}"
    return f"({{0}} * {10 ** (wanted - given)})" if wanted > given else f"({{0}} // {10 ** (given - wanted)})"
