"""The rows of INSERT, as the columns of their table hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from malflow.sql.bind.names import Names
from malflow.sql.bind.relations import Calc, Relation, Within
from malflow.sql.bind.scope import Field
from malflow.sql.build.fitting import fitted
from malflow.sql.casts import cast
from malflow.sql.syntax import queries as tree
from malflow.sql.text import NOWHERE, Fault, Source, Span, SqlError
from malflow.sql.typed import Called, Column, Typed, Value
from malflow.sql.types import TEXTS, SqlType, fits
from malflow.words import did_you_mean, plural

__all__ = ["inserted"]


def inserted(
    relation: Relation,
    statement: tree.Insert,
    fields: Sequence[Field],
    text: Source,
    names: Names,
) -> Relation:
    """Return the rows of an INSERT with the columns of its table: what does not fit is an error when it comes.

    Columns that the statement does not name are NULL.

    Raises:
        SqlError: if the columns don't fit.
    """
    if isinstance(relation, Within):  # the columns fit, or the row fails, within the policy of the query
        rows = inserted(relation.input, statement, fields, text, names)
        return replace(relation, fields=rows.fields, input=rows)
    items: list[Typed] = []
    made: list[Field] = []
    faults: list[Fault] = []
    for wanted, place in zip(fields, _places(relation, statement, fields, text), strict=True):
        given = Field("", wanted.type) if place is None else relation.fields[place]
        made.append(replace(wanted, is_time=given.is_time_as(wanted.type)))
        if place is None:
            items.append(Value(wanted.type, statement.span, None))
            continue
        items.append(_as(Column(given.type, NOWHERE, place, given.name, given.is_time), wanted))
        if not fits(given.type, wanted.type):
            names_both = f"column {wanted.name!r} of {statement.table.text!r} is {wanted.type.name}"
            faults.append(Fault(f"{names_both}, not {given.type.name}; CAST it", _span(statement, place), text))
    if faults:
        raise SqlError(faults)
    same = [Column(it.type, NOWHERE, at, it.name, it.is_time) for at, it in enumerate(relation.fields)]
    if items == same:
        return replace(relation, fields=tuple(made))
    return Calc(tuple(made), names.give("fitted", relation.name), relation, None, tuple(items))


def _places(relation: Relation, statement: tree.Insert, fields: Sequence[Field], text: Source) -> Sequence[int | None]:
    """Return the place of each column of the table among the columns of the query; None for one that is not given."""
    known, count = [it.name for it in fields], len(relation.fields)
    if not statement.columns:
        if count == len(fields):
            return range(count)
        wrong = f"{plural(count, 'column')} for {plural(len(fields), 'column')} of {statement.table.text!r}"
        raise SqlError([Fault(f"{wrong}; there are {', '.join(known)}", statement.query.span, text)])
    places: dict[str, int] = {}
    faults: list[Fault] = []
    for at, it in enumerate(statement.columns):
        if it.text not in known or it.text in places:
            wrong = f"column {it.text!r} comes twice" if it.text in places else f"no column {it.text!r}"
            faults.append(Fault(f"{wrong}{did_you_mean(it.text, known)}", it.span, text))
        places[it.text] = at
    missing = [it.name for it in fields if it.name not in places and not it.type.nullable]
    if len(statement.columns) != count:
        wrong = f"{plural(len(statement.columns), 'column')} for {plural(count, 'column')} of the query"
        faults.append(Fault(wrong, statement.query.span, text))
    elif missing:
        faults.append(Fault(f"column {missing[0]!r} is NOT NULL: name it", statement.table.span, text))
    if faults:
        raise SqlError(faults)
    return [places.get(it) for it in known]


def _span(statement: tree.Insert, place: int) -> Span:
    """Return the place of a column of the query in the text."""
    items = statement.query.items if isinstance(statement.query, tree.Select) else ()
    return items[place].span if place < len(items) and "*" not in map(str, items) else statement.query.span


def _as(node: Typed, wanted: Field) -> Typed:
    kind = wanted.type
    both = {kind.kind, node.type.kind}
    is_shorter = (both <= TEXTS or both <= {"BINARY", "VARBINARY"}) and node.type.size > kind.size
    found = node if is_shorter else cast(node, kind) or node
    if is_shorter or (node.type.nullable and not kind.nullable):
        return Called(kind, NOWHERE, Fit(kind, wanted.name), (found,))
    return found


class Fit:
    """Checks a value that is stored in a column."""

    def __init__(self, kind: SqlType, name: str) -> None:
        self._kind = kind
        self._name = name

    def __call__(self, value: Any) -> Any:
        """Return the value.

        Raises:
            ValueError: if it is NULL, or longer than the column.
        """
        if value is not None and self._kind.kind not in {*TEXTS, "BINARY", "VARBINARY"}:
            return value
        return fitted(value, self._kind, f"column {self._name!r}")
