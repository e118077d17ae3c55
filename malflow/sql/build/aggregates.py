"""The aggregates of SQL as aggregators of tuples: they skip NULL, and without a value they are NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from math import isqrt, sqrt
from operator import itemgetter
from typing import Any

from malflow import agg
from malflow.aggregators.collected import CountDistinct
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.extremes import Max, Min
from malflow.aggregators.numbers import added
from malflow.aggregators.slots import Slot, Slotted
from malflow.aggregators.sums import COUNTED, either, nothing, summed
from malflow.sql.bind.scope import Field
from malflow.sql.functions.numbers import DECIMALS, decimal_of, divide
from malflow.sql.typed import Aggregated, Column
from malflow.sql.types import INTEGERS, SqlType

__all__ = ["FirstRows", "aggregator_of", "parts_of"]


def aggregator_of(call: Aggregated, places: Sequence[int]) -> Aggregator[Any, Any, Any]:
    """Return the aggregator of a call.

    Args:
        call: the call; its operands are columns.
        places: the places of all columns in a tuple.
    """
    if call.made is not None:
        taken = [places[it.index] for it in call.operands if isinstance(it, Column)]
        found: Aggregator[Any, Any, Any] = call.made.over(taken, [it.type for it in call.operands])
        return found
    if not call.operands:
        return agg.count()
    return _Some(call.function, places[_place_of(call)], call.operands[0].type, call.distinct)


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
            found[f"{call.function}({text}) by {call.made.definition}"] = nothing
            continue
        if not call.operands:
            found["count(*)"] = int
            continue
        place = _place_of(call)
        text = f"({fields[place].origin}) {fields[place].type.name}"
        found |= {f"{kind}{text}": nothing for kind in _kinds(call.function, call.distinct)}
    return found


def _place_of(call: Aggregated) -> int:
    operand = call.operands[0]
    return operand.index if isinstance(operand, Column) else 0


_OF = {"COUNT": ("count",), "SUM": ("sum",), "MIN": ("min",), "MAX": ("max",), "AVG": ("count", "sum")}
_OF |= {"FIRST_VALUE": ("first",), "LAST_VALUE": ("last",)}
_DEVIATIONS = ("STDDEV_POP", "STDDEV_SAMP", "STDDEV", "VAR_POP", "VAR_SAMP", "VARIANCE")
_OF |= dict.fromkeys(_DEVIATIONS, ("count", "sum", "squares"))
"""The states that each aggregate consists of."""

_ALIKE = frozenset({"MIN", "MAX", "FIRST_VALUE"})
"""Aggregates that are the same with DISTINCT."""

_OUTCOMES = {"COUNT": "({0} or 0)", **dict.fromkeys(("SUM", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"), "{0}")}
"""The results of aggregates with one state, as expressions."""


def _square(x: Any) -> Any:
    return DECIMALS.multiply(x, x) if isinstance(x, Decimal) else x * x


def _squared(total: Any, x: Any) -> Any:
    return _square(x) if total is None else added(total, _square(x))


def _sums(one: Any, other: Any) -> Any:
    return either(added, one, other)


def _first(state: Any, x: Any) -> Any:
    return x if state is None else state


def _last(_state: Any, x: Any) -> Any:
    return x


_STATES = {
    "count": COUNTED,
    "sum": summed(None),
    "min": Min().slots[0],
    "max": Max().slots[0],
    "seen": CountDistinct().slots[0],
    "squares": Slot(nothing, _squared, _sums, takes="x"),
    "first": Slot(nothing, _first, _first, takes="x", first="{x}", step="pass", join="{a}"),
    "last": Slot(nothing, _last, _last, takes="x", first="{x}", step="{to} = {x}", join="{b}"),
}
"""The states, by arrival. NULL is skipped, and columns have the values of their types, so these need no check."""


def _kinds(function: str, distinct: bool) -> tuple[str, ...]:
    """Return the states that an aggregate consists of."""
    return ("seen",) if distinct and function not in _ALIKE else _OF[function]


@dataclass(frozen=True, repr=False)
class _Some(Slotted[Any, Any, Any]):
    """An aggregate of a column of tuples, without its NULLs."""

    function: str
    place: int
    type: SqlType
    distinct: bool

    @property
    def outcome(self) -> str:  # type: ignore[override]  # a constant of other classes
        """A template of `combine`."""
        return "" if self._is_distinct else _OUTCOMES.get(self.function, "")

    @property
    def _is_distinct(self) -> bool:
        return self.distinct and self.function not in _ALIKE

    def make_slots(self) -> tuple[Slot, ...]:
        """Return its states."""
        slots = (_STATES[it].skipping(self.place) for it in _kinds(self.function, self.distinct))
        return tuple(replace(it, needs_value=False, needs_number=False, needs_equality=False) for it in slots)

    def combine(self, *states: Any) -> Any:
        """Return the result."""
        if states[0] is None:
            return 0 if self.function == "COUNT" else None
        if self._is_distinct:
            states = self._of_distinct(states[0])
        if self.function == "AVG":
            return _mean(states[1], states[0], self.type)
        if len(states) == 1:
            return states[0]
        return _deviation(self.function, states[0], states[1], states[2], self.type)

    def _of_distinct(self, seen: set[Any]) -> tuple[Any, ...]:
        """Return the states of distinct values, added in their order: that of a set differs between processes."""
        if self.function == "COUNT":
            return (len(seen),)
        values = sorted(seen)
        found = {"count": len(values), "sum": reduce(added, values)}
        if "squares" in _OF[self.function]:
            found["squares"] = reduce(added, map(_square, values))
        return tuple(found[it] for it in _OF[self.function])

    def __repr__(self) -> str:
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{self.place} {self.type.name})"


def _mean(total: Any, count: int, kind: SqlType) -> Any:
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
