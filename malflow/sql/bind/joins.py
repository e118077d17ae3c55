"""Binding joins: which conditions are keys, which bound the time between two rows, and which are left.

A join must know when a row can no longer find a partner. So it is one of two kinds: the time between the rows is
bounded on both sides, or both rows are of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from malflow.sql.bind.relations import Relation
from malflow.sql.bind.scope import Field, WindowSpec
from malflow.sql.casts import converted
from malflow.sql.typed import Column, Comparison, Connected, Strict, Typed, Value, all_within, replaced
from malflow.sql.types import common_type

__all__ = ["JoinParts", "conjuncts", "join_parts", "shifted"]

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "=="}


@dataclass
class JoinParts:
    """The parts of a condition of a join.

    Attributes:
        left: the keys of the left row.
        right: the keys of the right row, in the same order.
        low: the least time from the left row to the right one, in units; None if there is no bound.
        high: the greatest one.
        times: the conditions that set these bounds.
        marks: the columns of windows that are equal, of the left row and of the right one.
        spec: the windows.
        rest: the conditions that are left, about both rows.
    """

    left: list[Typed] = field(default_factory=list)
    right: list[Typed] = field(default_factory=list)
    low: int | None = None
    high: int | None = None
    times: list[Comparison] = field(default_factory=list)
    marks: dict[str, tuple[Column, Column]] = field(default_factory=dict)
    spec: WindowSpec | None = None
    rest: list[Typed] = field(default_factory=list)

    @property
    def is_window(self) -> bool:
        """Whether both rows must be of one window."""
        return {"start", "end"} <= {*self.marks}

    def settle(self) -> None:
        """Make keys and conditions of all that the kind of the join does not check by itself.

        Only the time of a row of TUMBLE says which window it is of. A result has the time of the end of its window, but
        windows of several starts may end together.
        """
        wanted: tuple[str, ...] = ("start", "end")
        if not self.is_window:
            wanted = tuple(it for it, (one, _) in self.marks.items() if not one.is_time)
        elif self.spec is not None and self.spec.kind == "TUMBLE" and self.spec.size > 1:
            wanted = ()
        self.left[:0] = [self.marks[it][0] for it in wanted]
        self.right[:0] = [self.marks[it][1] for it in wanted]
        if self.is_window:
            self.rest += self.times


def conjuncts(condition: Typed | None) -> list[Typed]:
    """Return the conditions that must all be true."""
    if condition is None:
        return []
    if isinstance(condition, Connected) and condition.op == "AND":
        return [part for it in condition.operands for part in conjuncts(it)]
    return [condition]


def shifted(node: Typed, by: int) -> Typed:
    """Return an expression with its columns moved by some places."""

    def change(it: Typed) -> Typed | None:
        return replace(it, index=it.index + by) if isinstance(it, Column) else None

    return replaced(node, change)


def join_parts(condition: Typed, left: Relation, right: Relation) -> JoinParts:
    """Return the parts of a condition over the columns of the left rows, then of the right rows."""
    parts = JoinParts()
    width = len(left.fields)
    for it in conjuncts(condition):
        if not isinstance(it, Comparison) or not _taken(it, parts, left, right, width):
            parts.rest.append(it)
    parts.settle()
    pairs = sorted(zip(parts.left, parts.right, strict=True), key=lambda it: [str(side.written) for side in it])
    parts.left, parts.right = [left for left, _ in pairs], [right for _, right in pairs]
    return parts


def _side(node: Typed, width: int) -> str:
    """Return whether an expression is about the left rows, the right rows, both, or none."""
    places = {it.index for it in all_within(node) if isinstance(it, Column)}
    is_left, is_right = any(it < width for it in places), any(it >= width for it in places)
    return "both" if is_left and is_right else "left" if is_left else "right" if is_right else "none"


def _taken(test: Comparison, parts: JoinParts, left: Relation, right: Relation, width: int) -> bool:
    """Add a comparison to the keys, the windows or the bounds, if it is one of these."""
    one, other, op = test.left, test.right, test.op
    sides = _side(one, width), _side(other, width)
    if sides == ("right", "left"):
        one, other, op = other, one, _FLIPPED.get(op, op)
    elif sides != ("left", "right"):
        return False
    fields = (*left.fields, *right.fields)
    moments = _moment(one, fields), _moment(other, fields)
    if op == "==":
        other = shifted(other, -width)
        is_mark = _is_window(one, other, parts, left, right)
        if None in moments:
            return is_mark or _is_key(one, other, parts)
        parts.times += [] if is_mark else [test]
        return all(_is_bound(it, *moments, parts) for it in ("<=", ">="))
    if op == "!=" or not _is_bound(op, *moments, parts):
        return False
    parts.times.append(test)
    return True


def _is_key(left: Typed, right: Typed, parts: JoinParts) -> bool:
    both = common_type([left.type, right.type])
    if both is None:
        return False
    parts.left.append(replace(converted(left, both), written=left.written))
    parts.right.append(replace(converted(right, both), written=right.written))
    return True


def _is_window(one: Typed, other: Typed, parts: JoinParts, left: Relation, right: Relation) -> bool:
    """Whether both are the same column of equal windows."""
    if not isinstance(one, Column) or not isinstance(other, Column):
        return False
    mark, its = left.fields[one.index].window, right.fields[other.index].window
    if mark is None or mark != its:
        return False
    parts.marks[mark[0]] = (one, other)
    parts.spec = mark[1]
    return True


def _moment(node: Typed, fields: Sequence[Field]) -> int | None:
    """Return how far an expression is after the time of its row; None if it is not at a constant distance."""
    if isinstance(node, Column):
        if node.is_time:
            return 0
        return 1 if fields[node.index].window == _END else None
    if isinstance(node, Strict) and node.template in {"({0} + {1})", "({0} - {1})"}:
        base, span = node.operands
        start = _moment(base, fields) if isinstance(base, Column) else None
        if start is not None and isinstance(span, Value):
            return start + int(span.value if "+" in node.template else -span.value)
    return None


_END = ("end", WindowSpec("TUMBLE", 1))
"""The end of windows of one unit: one after the time of their rows. Results of GROUP BY are in such windows."""


def _is_bound(op: str, left: int | None, right: int | None, parts: JoinParts) -> bool:
    """Add a bound of the time from the left row to the right: `left + x <= right + y` is `x - y <= right - left`."""
    if left is None or right is None:
        return False
    distance = left - right
    if op in {"<", "<="}:
        low = distance + (op == "<")
        parts.low = low if parts.low is None else max(parts.low, low)
    else:
        high = distance - (op == ">")
        parts.high = high if parts.high is None else min(parts.high, high)
    return True


def together(conditions: Sequence[Typed]) -> Typed | None:
    """Return conditions as one; None for none."""
    if len(conditions) < 2:  # noqa: PLR2004 - one needs no AND
        return conditions[0] if conditions else None
    nullable = any(it.type.nullable for it in conditions)
    return Connected(conditions[0].type.as_nullable(nullable), conditions[0].span, "AND", tuple(conditions))
