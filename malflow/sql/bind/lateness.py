"""CURRENT_WATERMARK: whether a condition keeps the rows on time, or the late ones.

Whether a row is late was decided by the watermark of its table, so a condition is evaluated for a row of each kind.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from malflow.sql.syntax.expressions import COMPARISONS, Call, Expression, Operation, Reference
from malflow.sql.text import Span, SqlError

__all__ = ["kept_rows"]

_CURE = """write ts <= CURRENT_WATERMARK(ts) for the late rows, and CURRENT_WATERMARK(ts) IS NULL OR
ts > CURRENT_WATERMARK(ts) for those on time""".replace("\n", " ")

Row = tuple[int, int | None]
"""The time of a row, and the watermark."""

_LATE: tuple[Row, ...] = ((0, 1), (1, 1))
_ON_TIME: tuple[Row, ...] = ((1, None), (1, 0))
"""Rows of each kind: at the watermark and behind it; before the first watermark and after it."""


def kept_rows(
    where: Expression | None, is_time: Callable[[Reference], bool], fault: Callable[[str, Span], SqlError]
) -> tuple[Expression | None, bool, bool]:
    """Return a condition without its parts about CURRENT_WATERMARK, and whether these keep rows on time, and late ones.

    Args:
        where: the condition.
        is_time: whether a column is the time attribute.
        fault: returns the error of a fault.

    Raises:
        SqlError: if a part takes more than the kind of a row.
    """
    parts = where.operands if isinstance(where, Operation) and where.op == "AND" else (where,)
    rest: list[Expression] = []
    on_time = late = True
    for it in parts:
        calls = [*_calls(it)] if it is not None else []
        if it is None or not calls:
            rest += [it] if it is not None else []
            continue
        for call in calls:
            if len(call.arguments) != 1 or not _is_time(call.arguments[0], is_time):
                raise fault("CURRENT_WATERMARK takes the time attribute of the rows", call.span)
        try:
            kinds = [{_truth(it, row, is_time) is True for row in rows} for rows in (_ON_TIME, _LATE)]
        except ValueError:
            raise fault(f"CURRENT_WATERMARK is compared with its column alone; {_CURE}", it.span) from None
        if any(len(kind) > 1 for kind in kinds):
            raise fault(f"this differs among rows on time, or among late ones; {_CURE}", it.span)
        on_time, late = on_time and True in kinds[0], late and True in kinds[1]
    if len(rest) < 2:  # noqa: PLR2004 - one needs no AND
        return (rest[0] if rest else None), on_time, late
    return Operation("AND", tuple(rest), span=rest[0].span), on_time, late


def _calls(node: object) -> Iterator[Call]:
    """Yield the calls of CURRENT_WATERMARK in an expression."""
    if isinstance(node, Call) and node.name.text.upper() == "CURRENT_WATERMARK":
        yield node
    elif isinstance(node, Expression):
        for it in fields(node):
            yield from _calls(getattr(node, it.name))
    elif isinstance(node, tuple) and not isinstance(node, Span):
        for part in node:
            yield from _calls(part)


def _is_time(node: object, is_time: Callable[[Reference], bool]) -> bool:
    return isinstance(node, Reference) and is_time(node)


_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_COMPARED |= {"<=": operator.le, ">=": operator.ge}


def _truth(node: Expression, row: Row, is_time: Callable[[Reference], bool]) -> bool | None:
    """Return whether a condition is true for a row; None if that is unknown.

    Raises:
        ValueError: if it is about something else.
    """
    if isinstance(node, Operation):
        return _of_operation(node, row, is_time)
    raise ValueError(str(node))


def _of_operation(node: Operation, row: Row, is_time: Callable[[Reference], bool]) -> bool | None:
    if node.op in COMPARISONS or node.op == "IS NULL":
        moments = [_moment(it, row, is_time) for it in node.operands]
        if node.op == "IS NULL":
            return (moments[0] is None) is not node.negated
        return None if None in moments else bool(_COMPARED[COMPARISONS[node.op]](*moments))
    truths = [_truth(it, row, is_time) for it in node.operands]
    match node.op:
        case "AND" | "OR":
            decides = node.op == "OR"
            return decides if decides in truths else None if None in truths else not decides
        case "NOT":
            return None if truths[0] is None else not truths[0]
        case "IS TRUE" | "IS FALSE" | "IS UNKNOWN":
            wanted = {"IS TRUE": True, "IS FALSE": False}.get(node.op)
            return (truths[0] is wanted) is not node.negated
    raise ValueError(node.op)


def _moment(node: Expression, row: Row, is_time: Callable[[Reference], bool]) -> int | None:
    if isinstance(node, Call) and node.name.text.upper() == "CURRENT_WATERMARK":
        return row[1]
    if _is_time(node, is_time):
        return row[0]
    raise ValueError(str(node))
