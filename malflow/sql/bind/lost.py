"""The rows that the operators of a query drop because they are late, as rows of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Calc, Collected, Group, Joined, Lost, Relation, Top, Within, inputs, may_be_late
from malflow.sql.bind.scope import Field
from malflow.sql.text import NOWHERE
from malflow.sql.typed import Column

__all__ = ["dropping", "late_hint", "lost_rows", "side_of", "with_rows"]

Dropping = Group | Top | Joined | Collected
"""The relations that may drop late rows."""


def dropping(relation: Relation) -> list[Dropping]:
    """Return the operators of a query that may drop late rows; those of its views are not."""
    return [*{it.name: it for it in _dropping(relation)}.values()]


def _dropping(relation: Relation) -> Iterator[Dropping]:
    if isinstance(relation, Within):
        return
    if (
        isinstance(relation, Group | Top | Joined | Collected)
        and any(map(may_be_late, inputs(relation)))
        and not (relation.spec and relation.spec.kind in {"END", "COUNTING"})
    ):
        yield relation
    for it in inputs(relation):
        yield from _dropping(it)


def side_of(it: Dropping, alias: str) -> int | None:
    """Return which input of an operator a hint means by an alias; an empty one means the only one with late rows."""
    sides = [*inputs(it)]
    if alias:
        found = [at for at, one in enumerate(sides) if isinstance(it, Joined) and alias in _tables(one)]
    else:
        found = [at for at, one in enumerate(sides) if may_be_late(one)]
    return found[0] if len(found) == 1 else None


def late_hint(it: Dropping) -> str:
    """Return how the hint of an operator is written."""
    tables = [sorted(_tables(one)) for one in inputs(it)] if isinstance(it, Joined) else []
    sides = ", ".join(f"'{names[0]}' = 'lost_{names[0]}'" for names in tables if names)
    return f"write LATE({sides or repr('lost')})"


def _tables(relation: Relation) -> set[str]:
    return {it.table for it in relation.fields if it.table}


def with_rows(relation: Relation, group: Group) -> tuple[Relation, Group]:
    """Return a query, and its windows, with the columns of the rows after what the windows need of them."""
    calc = group.input
    if not isinstance(calc, Calc):
        raise TypeError("windows are over a calculation")
    rows = calc.input.fields
    wide = replace(calc, fields=(*calc.fields, *rows), items=(*calc.items, *_columns(rows, 0)))
    made = replace(group, input=wide)
    return _replaced(relation, group, made), made


def lost_rows(it: Dropping, names: Names, side: int = 0) -> Relation:
    """Return the rows that an operator drops, with the columns of its input."""
    given = (it.left, it.right)[side] if isinstance(it, Joined) else it.input
    first, skipped = it.keys, -1
    if isinstance(it, Group) and isinstance(it.input, Calc):
        first = len(given.fields) - len(it.input.input.fields)
    if isinstance(it, Top):
        first += len(it.order)
        skipped = first + it.number
    kept = [*zip(given.fields[first:], _columns(given.fields[first:], first), strict=True)]
    kept = [(field, column) for field, column in kept if column.index != skipped]
    lost = Lost(given.fields, names.give("lost", it.name), it, side)
    made = tuple(replace(field, is_time=False, window=None) for field, _ in kept)
    return Calc(made, names.give("row", lost.name), lost, None, tuple(column for _, column in kept))


def _columns(rows: tuple[Field, ...], first: int) -> tuple[Column, ...]:
    return tuple(Column(it.type, NOWHERE, at, it.name) for at, it in enumerate(rows, first))


def _replaced(relation: Any, old: Relation, new: Relation) -> Any:
    """Return a relation with another one in place of one within it."""
    if relation is old:
        return new
    if isinstance(relation, Relation):
        return replace(
            relation, **{it.name: _replaced(getattr(relation, it.name), old, new) for it in fields(relation)}
        )
    if isinstance(relation, tuple) and any(isinstance(it, Relation) for it in relation):
        return tuple(_replaced(it, old, new) for it in relation)
    return relation
