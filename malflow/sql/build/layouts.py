"""Layouts of states: what the state of a relation holds, in words that no edit elsewhere in the text changes.

A state is of its keys, its windows or bounds in time, and its types. What it holds are the aggregates of a window, or
the columns of rows, by their canonical texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from malflow.sql.bind.relations import Collected, Group, Joined, Top, Union
from malflow.sql.bind.scope import Field, WindowSpec
from malflow.sql.build.aggregates import parts_of
from malflow.sql.types import SqlType
from malflow.states.kinds import StateLayout
from malflow.words import plural

__all__ = ["LayoutMaker", "epochs_of"]

_NO_AGGREGATE = "a row"
"""The part of a window without aggregates: its rows are counted, so it has a state, and nobody reads the count."""


class LayoutMaker:
    """Makes the layouts of a catalogue.

    Args:
        is_numbered: whether a number tells the name of an operator from an equal one.
        from_now: whether states may begin without aggregates and columns that they lack.
    """

    def __init__(self, is_numbered: Callable[[str], bool], from_now: Callable[[], bool]) -> None:
        self._is_numbered = is_numbered
        self._from_now = from_now

    def of_group(self, relation: Group) -> StateLayout:
        """Return the layout of a window."""
        fields = relation.input.fields
        parts = parts_of(relation.aggregates, fields)
        new = {} if not self._from_now() else parts
        windows = _windows(relation.spec, relation.fields[0].type)
        names = [*parts] or [_NO_AGGREGATE]
        text = f"{windows}{_by(fields[: relation.keys])}"
        return self._layout(relation.name, text, [names], {_NO_AGGREGATE: int, **new})

    def of_top(self, relation: Top) -> StateLayout:
        """Return the layout of the first rows of windows."""
        fields, keys, count = relation.input.fields, relation.keys, relation.count
        ways = (
            f"{field.origin}{' DESC' if down else ''} NULLS {'FIRST' if first else 'LAST'}"
            for field, (down, first) in zip(fields[keys:], relation.order, strict=False)
        )
        first = "the last row" if relation.is_newest else f"the first {plural(count, 'row')}"
        windows = _windows(relation.spec, fields[0].type)
        text = f"{first} of {windows}{_by(fields[:keys])} in the order {', '.join(ways)}"
        return self._layout(relation.name, text, [_columns(fields)], self._nulls(fields), of_rows=True)

    def of_rows(self, relation: Collected) -> StateLayout:
        """Return the layout of the rows of windows."""
        fields = relation.input.fields
        text = f"the rows of {_windows(relation.spec, fields[0].type)}{_by(fields[: relation.keys])}"
        return self._layout(relation.name, text, [_columns(fields)], self._nulls(fields), of_rows=True)

    def of_join(self, relation: Joined) -> StateLayout:
        """Return the layout of a join."""
        sides, keys = (relation.left.fields, relation.right.fields), relation.keys
        pairs = (
            f"{one.origin} = {other.origin} {one.type.name}"
            for one, other in zip(*(it[:keys] for it in sides), strict=True)
        )
        time = next(it.type for it in sides[0] if it.is_time or it.window)
        if relation.spec is None:
            before, after = (_span(it, time) for it in relation.interval)
            what = f"{relation.how} JOIN of {time.name} from {before} before to {after} after"
        else:
            what = f"JOIN in {_windows(relation.spec, time)}"
        both = [_columns(it) for it in sides]
        text = f"{what} ON {' AND '.join(pairs) or 'TRUE'}"
        return self._layout(relation.name, text, both, self._nulls([*sides[0], *sides[1]]))

    def of_union(self, relation: Union) -> StateLayout | None:
        """Return the layout of the watermark of several streams; None without time."""
        layout = epochs_of(relation.fields)
        return layout and self._layout(relation.name, layout.text, [], {})

    def _nulls(self, fields: Sequence[Field]) -> dict[str, Any]:
        """Return the columns that may be NULL in the rows that a state lacks them in."""
        return {
            name: _null
            for it, name in zip(fields, _columns(fields), strict=True)
            if self._from_now() and it.type.nullable
        }

    def _layout(
        self, name: str, text: str, parts: Sequence[Sequence[str]], new: dict[str, Any], *, of_rows: bool = False
    ) -> StateLayout:
        without = "SET 'malflow.new-aggregates' = 'from-now' to begin without what it lacks"
        cure = "give its query an alias, or its SELECT a name: SELECT /*+ NAME('hot') */"
        remark = f"the name {name!r} has a number, which an edit before it may change; {cure}"
        return StateLayout(text, parts, new, of_rows, without, remark if self._is_numbered(name) else "")


def epochs_of(fields: Sequence[Field]) -> StateLayout | None:
    """Return the layout of the watermark of rows; None if they have no time."""
    time = next((it.type for it in fields if it.is_time), None)
    return None if time is None else StateLayout(f"epochs of {time.name}")


def _null() -> None:
    """Return the value of a column that a row lacks."""


def _columns(fields: Sequence[Field]) -> list[str]:
    return [f"{it.origin} {it.type}" for it in fields]


def _by(keys: Sequence[Field]) -> str:
    """Return the keys of a state."""
    return f" by {', '.join(f'{it.origin} {it.type.name}' for it in keys)}" if keys else ""


def _windows(spec: WindowSpec, time: SqlType) -> str:
    """Return windows in words."""
    if spec.kind == "COUNTING":
        return f"COUNTING {spec.size}"
    if spec == WindowSpec("TUMBLE", 1):
        return f"the windows of rows of {time.name}"
    step = f" every {_span(spec.step, time)}" if spec.step else ""
    offset = f" from {_span(spec.offset, time)}" if spec.offset else ""
    return f"{spec.kind} {_span(spec.size, time)}{step}{offset} of {time.name}"


def _span(units: int, time: SqlType) -> str:
    """Return a span of time in words that don't depend on the digits of the time."""
    return f"{'-' if units < 0 else ''}{timedelta(microseconds=abs(units) * 10 ** (6 - time.size))}"
