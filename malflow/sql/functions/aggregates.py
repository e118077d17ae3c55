"""The aggregates: their operands, and the types of their results."""

from __future__ import annotations

from collections.abc import Sequence

from malflow.sql.types import NUMBERS, SqlType

__all__ = ["AGGREGATES", "aggregate_type"]

_OF_NUMBERS = ("SUM", "AVG", "STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE")

AGGREGATES: dict[str, str] = {
    "COUNT": "* or one value",
    **dict.fromkeys(_OF_NUMBERS, "a number"),
    **dict.fromkeys(("MIN", "MAX"), "one value that has an order"),
    **dict.fromkeys(("FIRST_VALUE", "LAST_VALUE"), "one value"),
    **dict.fromkeys(("GROUPING", "GROUPING_ID"), "columns of GROUP BY"),
}
"""Functions of many rows, with the operands of each, for errors."""


def aggregate_type(name: str, operands: Sequence[SqlType]) -> SqlType | None:
    """Return the type of an aggregate, as in Flink; None if it does not take such operands."""
    if name in {"GROUPING", "GROUPING_ID"}:
        return SqlType("BIGINT", False)
    if len(operands) > 1 or (not operands and name != "COUNT"):
        return None
    if name == "COUNT":
        return SqlType("BIGINT", False)
    kind = operands[0].as_nullable()
    if name in _OF_NUMBERS:
        if kind.kind == "DECIMAL":
            return SqlType("DECIMAL", True, 38, kind.scale if name == "SUM" else max(6, kind.scale))
        return kind if kind.kind in NUMBERS else None
    has_order = kind.kind not in {"ARRAY", "MAP", "ROW"}
    return kind if has_order or name in {"FIRST_VALUE", "LAST_VALUE"} else None
