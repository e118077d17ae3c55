"""EXPLAIN: the tree of a statement, with the name of each operator, what bounds its state, and where late rows go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from malflow.durations import span_text
from malflow.sql.bind.joins import conjuncts
from malflow.sql.bind.relations import (
    Calc,
    Collected,
    Expanded,
    Group,
    Joined,
    Literals,
    Parted,
    Relation,
    Scan,
    Top,
    Union,
    Windowed,
    Within,
    may_be_late,
)
from malflow.sql.bind.scope import WindowSpec
from malflow.sql.tables import Table
from malflow.sql.text import Source
from malflow.sql.typed import Column, Typed
from malflow.words import plural

__all__ = ["Root", "aligned", "explained"]

Root = tuple[tuple[str, str, str] | None, Relation]
"""a relation, and the line of the INSERT around it: its statement, the name of its sink, and its address."""

Row = tuple[str, str, str, str]
"""A line of the tree: its step, its mode, the name of its operator, and its state."""

_MODE = "append"
"""The mode of all rows here: they are added, and never changed."""

_STATELESS = "state: none"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of texts as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{it:{width}}" for it, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def explained(roots: Sequence[Root], text: Source, table: Callable[[str], Table]) -> str:
    """Return the trees of relations.

    Args:
        roots: the relations.
        text: their text.
        table: returns a table by its name.
    """
    tree = _Tree(table)
    rows: list[Row] = []
    for head, relation in roots:
        if head is not None:
            what, name, notes = head
            late = "late rows: written too" if may_be_late(relation) and notes else ""
            rows.append((what, _MODE, name, "; ".join(filter(None, (notes, late)))))
        rows += tree.rows(relation, text, int(head is not None))
    return aligned(rows)


class _Tree:
    """Writes the lines of relations."""

    def __init__(self, table: Callable[[str], Table]) -> None:
        self._table = table

    def rows(self, relation: Relation, text: Source, depth: int, on_error: str = "fail") -> Iterator[Row]:
        """Yield the line of a relation and the lines of its inputs."""
        if isinstance(relation, Within):
            yield from self.rows(relation.input, relation.source or text, depth, relation.on_error)
            return
        what, notes, inputs = self._told(relation, text)
        mode, name = _MODE, relation.name
        if isinstance(relation, Scan):
            table = self._table(relation.table)
            mode, name = f"{_MODE}, time {table.time}" if table.time else _MODE, table.step
        if isinstance(relation, Calc | Expanded) and on_error != "fail":
            notes = f"{notes}; rows that fail: {on_error}"
        yield "  " * depth + what, mode, name, notes
        for it in inputs:
            yield from self.rows(it, text, depth + 1, on_error)

    def _told(self, relation: Relation, text: Source) -> tuple[str, str, tuple[Relation, ...]]:
        """Return the words for a relation, for its state, and its inputs."""
        match relation:
            case Scan():
                table = self._table(relation.table)
                late = f"; late rows: {table.late}" if table.late else ""
                return relation.table, f"{table.place}{late}", ()
            case Literals():
                return f"VALUES of {plural(len(relation.rows), 'row')}", _STATELESS, ()
            case Calc():
                where = " AND ".join(_written(it, text) for it in conjuncts(relation.where))
                return f"calc WHERE {where}" if where else "calc", _STATELESS, (relation.input,)
            case Union():
                late = "; late rows: split off again, by the least watermark" if may_be_late(relation) else ""
                return "UNION ALL", f"{_STATELESS}{late}", relation.inputs
            case Parted() | Windowed():
                return f"rows {_which(relation)}", _STATELESS, (relation.input,)
            case Expanded():
                return f"each element of {_written(relation.operand, text)}", _STATELESS, (relation.input,)
            case Group():
                return self._grouped(relation, text)
            case Top() | Collected():
                return self._of_rows(relation, text)
            case Joined():
                return self._joined(relation, text)
        raise TypeError(f"{type(relation).__name__} is not a relation that can be explained")

    def _grouped(self, relation: Group, text: Source) -> tuple[str, str, tuple[Relation, ...]]:
        keys = relation.input.items[2 * relation.is_carried : relation.keys] if isinstance(relation.input, Calc) else ()
        if relation.spec.kind == "END":
            return f"groups{_by(keys, text)}", "state: a row a group, until the input ends", (relation.input,)
        what = f"{_window(relation.spec, relation.fields[0].type.size)}{_by(keys, text)}"
        if relation.spec.kind == "COUNTING":
            return what, "state: the aggregates and number of a window of each key, forever", (relation.input,)
        return what, self._of_windows(relation.input, "aggregates"), (relation.input,)

    def _of_rows(self, relation: Top | Collected, text: Source) -> tuple[str, str, tuple[Relation, ...]]:
        bounds = 2 if isinstance(relation, Top) else 0
        keys = relation.input.items[bounds : relation.keys] if isinstance(relation.input, Calc) else ()
        count = plural(relation.count, "row") if isinstance(relation, Top) else "rows"
        kind = f"first {count} of each window" if isinstance(relation, Top) else f"rows of {relation.spec.kind}"
        return f"{kind}{_by(keys, text)}", self._of_windows(relation.input, count), (relation.input,)

    def _of_windows(self, relation: Relation, kept: str) -> str:
        late = "; late rows: taken while their window is open" if may_be_late(relation) else ""
        return f"state: {kept} of each open window and key, until it closes{late}"

    def _joined(self, relation: Joined, text: Source) -> tuple[str, str, tuple[Relation, ...]]:
        keys = relation.left.items[: relation.keys] if isinstance(relation.left, Calc) else ()
        by, inputs = _by(keys, text), (relation.left, relation.right)
        digits = next((it.type.size for it in relation.left.fields if it.is_time), 0)
        if relation.spec is not None:
            late = "; late rows: taken while their window is open" if any(map(may_be_late, inputs)) else ""
            state = f"state: the rows of open windows, until they close{late}"
            return f"{relation.how} JOIN in each window{by}", state, inputs
        before, after = (_span(it, digits) for it in relation.interval)
        what = f"{relation.how} JOIN{by}, the right row up to {before} before and {after} after the left"
        kept = f"left rows until the right side is {after} later, right rows until the left side is {before} later"
        state = f"state: {kept}; late rows: dropped"
        return what, state, inputs


def _which(relation: Parted | Windowed) -> str:
    """Return which rows they are, or what is added to them."""
    if isinstance(relation, Parted):
        return "that are late" if relation.is_late else "on time"
    return f"with their {_window(relation.spec, relation.input.fields[relation.time].type.size)}"


def _written(node: Typed, text: Source) -> str:
    return node.name if isinstance(node, Column) and node.name else text.quoted(node.span)


def _by(keys: Sequence[Typed], text: Source) -> str:
    return f", by {', '.join(_written(it, text) for it in keys)}" if keys else ""


def _window(spec: WindowSpec, digits: int) -> str:
    if spec.kind == "COUNTING":
        return f"COUNTING {plural(spec.size, 'row')}"
    sizes = [spec.size, *([spec.step] if spec.step else [])]
    return f"{spec.kind} {' every '.join(_span(it, digits) for it in sizes)}"


def _span(units: int, digits: int) -> str:
    """Return a span of units of an attribute with so many digits of its second."""
    return f"{'-' * (units < 0)}{span_text(timedelta(microseconds=abs(units) * 10 ** (6 - digits)))}"
