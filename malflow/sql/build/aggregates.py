"""The aggregates of SQL as aggregators of tuples: they skip NULL, and without a value they are NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import isqrt, sqrt
from operator import itemgetter
from typing import Any

from malflow import agg
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.slots import Slot, Slotted
from malflow.sql.bind.scope import Field
from malflow.sql.functions.numbers import DECIMALS, decimal_of, divide
from malflow.sql.typed import Aggregated, Column
from malflow.sql.types import INTEGERS, SqlType

__all__ = ["FirstRows", "aggregator_of", "parts_of"]


def aggregator_of(call: Aggregated) -> Aggregator[Any, Any, Any]:
    """Return the aggregator of a call. Its operands are columns of a tuple."""
    if call.made is not None:
        places = [it.index for it in call.operands if isinstance(it, Column)]
        found: Aggregator[Any, Any, Any] = call.made.over(places, [it.type for it in call.operands])
        return found
    if not call.operands:
        return agg.count()
    return _Some(call.function, _place_of(call), call.operands[0].type, call.distinct)


def parts_of(calls: Sequence[Aggregated], fields: Sequence[Field]) -> dict[str, Callable[[], Any]]:
    """Return the parts of the state of aggregates, in their order: the name of each, and the function that creates it.

    Args:
        calls: the aggregates; their operands are columns of the fields.
        fields: the columns that they aggregate.
    """
    found: dict[str, Callable[[], Any]] = {}
    for call in calls:
        if call.made is not None:
            columns = (fields[it.index] for it in call.operands if isinstance(it, Column))
            text = ", ".join(f"{it.origin} {it.type.name}" for it in columns)
            found[f"{call.function}({text}) by {call.made.definition}"] = _nothing
            continue
        if not call.operands:
            found["count(*)"] = _zero
            continue
        place = _place_of(call)
        text = f"({fields[place].origin}) {fields[place].type.name}"
        found |= {f"{kind}{text}": _STATES[kind][0] for kind in _kinds(call.function, call.distinct)}
    return found


def _place_of(call: Aggregated) -> int:
    operand = call.operands[0]
    return operand.index if isinstance(operand, Column) else 0


def _nothing() -> None:
    """Return the state of an aggregate without a value."""


def _zero() -> int:
    return 0


def _either(join: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Join two states, of which None has no value."""
    if one is None or other is None:
        return other if one is None else one
    return join(one, other)


def _counted(count: int, x: Any, _time: Any) -> int:
    return count if x is None else count + 1


def _added(one: int, other: int) -> int:
    return one + other


def _total(total: Any, x: Any, _time: Any) -> Any:
    return _either(_plus, total, x)


def _plus(one: Any, other: Any) -> Any:
    return DECIMALS.add(one, other) if isinstance(one, Decimal) else one + other


def _merge_totals(one: Any, other: Any) -> Any:
    return _either(_plus, one, other)


def _squared(total: Any, x: Any, _time: Any) -> Any:
    if x is None:
        return total
    return _either(_plus, total, DECIMALS.multiply(x, x) if isinstance(x, Decimal) else x * x)


def _least(state: Any, x: Any, _time: Any = None) -> Any:
    return _either(min, state, x)


def _greatest(state: Any, x: Any, _time: Any = None) -> Any:
    return _either(max, state, x)


def _first(state: Any, x: Any, _time: Any = None) -> Any:
    return x if state is None else state


def _last(state: Any, x: Any, _time: Any = None) -> Any:
    return state if x is None else x


def _seen(state: set[Any], x: Any, _time: Any) -> set[Any]:
    if x is not None:
        state.add(x)
    return state


_SUM = "({b} if {a} is None else {a} if {b} is None else {a} + {b})"
_STATES: dict[str, tuple[Any, Any, Any, str, str, str]] = {
    "count": (_zero, _counted, _added, "(0 if {x} is None else 1)", "if {x} is not None: {to} = {a} + 1", "{a} + {b}"),
    "sum": (
        _nothing,
        _total,
        _merge_totals,
        "{x}",
        "if {x} is not None: {to} = {x} if {a} is None else {a} + {x}",
        _SUM,
    ),
    "squares": (_nothing, _squared, _merge_totals, "", "", ""),
    "min": (_nothing, _least, _least, "{x}", "if {x} is not None and ({a} is None or {x} < {a}): {to} = {x}", ""),
    "max": (_nothing, _greatest, _greatest, "{x}", "if {x} is not None and ({a} is None or {x} > {a}): {to} = {x}", ""),
    "first": (_nothing, _first, _first, "{x}", "if {a} is None: {to} = {x}", ""),
    "last": (_nothing, _last, _last, "{x}", "if {x} is not None: {to} = {x}", ""),
    "seen": (set, _seen, set.union, "", "", ""),
}
"""The states that aggregates consist of: how each is created, gets a value and is merged, and the same as templates."""

_OF = {"COUNT": ("count",), "SUM": ("sum",), "MIN": ("min",), "MAX": ("max",), "AVG": ("count", "sum")}
_OF |= {"FIRST_VALUE": ("first",), "LAST_VALUE": ("last",)}
_DEVIATIONS = ("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE")
_OF |= dict.fromkeys(_DEVIATIONS, ("count", "sum", "squares"))


_item = cache(itemgetter)
"""Returns the function that reads a column: one for each place, so aggregates share their states."""


def _kinds(function: str, distinct: bool) -> tuple[str, ...]:
    """Return the states that an aggregate consists of."""
    return ("seen",) if distinct and function not in {"MIN", "MAX"} else _OF[function]


@dataclass(frozen=True, repr=False)
class _Some(Slotted[Any, Any, Any]):
    """An aggregate of a column of tuples, without its NULLs."""

    function: str
    place: int
    type: SqlType
    distinct: bool

    def make_slots(self) -> tuple[Slot, ...]:
        """Return its states."""
        return tuple(self._slot(kind) for kind in _kinds(self.function, self.distinct))

    def _slot(self, kind: str) -> Slot:
        create, add, merge, first, step, join = _STATES[kind]
        if self.type.kind == "DECIMAL" and kind == "sum":
            first, step, join = "", "", ""  # the generated loop adds in Python's own context, of 28 digits
        return Slot(create, add, merge, _item(self.place), first=first, step=step, join=join)

    def combine(self, *states: Any) -> Any:
        """Return the result."""
        if self.distinct and self.function not in {"MIN", "MAX"}:
            return self._of_distinct(states[0])
        if self.function == "AVG":
            return _mean(states[1], states[0], self.type)
        if len(states) > 1:
            return _deviation(self.function, states[0], states[1], states[2], self.type)
        return states[0]

    def _of_distinct(self, values: set[Any]) -> Any:
        if self.function == "COUNT":
            return len(values)
        if not values:
            return None
        ordered = sorted(values)
        total = ordered[0]
        for it in ordered[1:]:
            total = _plus(total, it)
        return total if self.function == "SUM" else _mean(total, len(values), self.type)

    def __repr__(self) -> str:
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{self.place} {self.type.name})"


def _mean(total: Any, count: int, kind: SqlType) -> Any:
    if not count:
        return None
    if kind.kind in INTEGERS:
        return divide(total, count)
    if kind.kind == "DECIMAL":
        return decimal_of(DECIMALS.divide(total, count), 38, max(6, kind.scale))
    return total / count


def _deviation(function: str, count: int, total: Any, squares: Any, kind: SqlType) -> Any:
    """Return a variance or deviation by the sums of values and of squares, as Flink does; of integers an integer."""
    rows = count if function.endswith("_POP") else count - 1
    if rows < 1:
        return None
    is_root = function.startswith("STDDEV")
    if kind.kind in INTEGERS:
        variance = divide(squares - divide(total * total, count), rows)
        return isqrt(variance) if is_root else variance
    if kind.kind == "DECIMAL":
        total, squares = float(total), float(squares)
    variance = max(0.0, (squares - total * total / count) / rows)
    found = sqrt(variance) if is_root else variance
    return decimal_of(found, 38, max(6, kind.scale)) if kind.kind == "DECIMAL" else found


class FirstRows(Aggregator[Any, list[Any], list[Any]]):
    """The first rows by an order; of equal ones, those that came first.

    Args:
        count: how many.
        first: the place of the first column of the order.
        order: of each column whether it is descending, and whether NULL comes first.
        newest: whether of equal rows the one that came last counts: the last row by time, as in Flink.
    """

    def __init__(self, count: int, first: int, order: tuple[tuple[bool, bool], ...], *, newest: bool = False) -> None:
        self._newest = newest
        self._count = count
        self._first = first
        self._order = order

    def create(self) -> list[Any]:
        """Return no rows."""
        return []

    def add(self, acc: list[Any], value: Any, timestamp: Any) -> list[Any]:
        """Add a row, and drop the last ones where many have gathered."""
        acc.append(value)
        return self._cut(acc) if len(acc) > 2 * self._count + _SPARE else acc

    def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
        """Return the first rows of both."""
        return self._cut([*one, *other])

    def result(self, acc: list[Any]) -> list[Any]:
        """Return the first rows, in their order."""
        return self._cut([*acc])

    def _cut(self, rows: list[Any]) -> list[Any]:
        """Sort by each column, the last one first: sorting is stable."""
        rows = rows[::-1] if self._newest else rows
        for at in range(len(self._order) - 1, -1, -1):
            down, nulls_first = self._order[at]
            place = self._first + at
            nulls = [it for it in rows if it[place] is None]
            others = sorted((it for it in rows if it[place] is not None), key=itemgetter(place), reverse=down)
            rows = [*nulls, *others] if nulls_first else [*others, *nulls]
        return rows[: self._count]

    def __repr__(self) -> str:
        return f"the first {self._count} by {self._order}"


_SPARE = 64
"""Rows beside twice the wanted ones before the last are dropped: sorting each time would cost more."""
