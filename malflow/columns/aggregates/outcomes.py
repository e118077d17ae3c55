"""Results of aggregators as columns, and the rows that are made of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.aggregators.composed import Into, Several
from malflow.aggregators.contract import Aggregator
from malflow.aggregators.extremes import First, Last, Max, Min
from malflow.aggregators.skipping import Skipping
from malflow.aggregators.slots import Slot, Slotted, slotted
from malflow.aggregators.sums import Count, Deviation, Mean, Sum, Variance
from malflow.columns.aggregates.kernels import Array
from malflow.columns.row_classes import MadeRows, fields_of, record_fields
from malflow.message import Timing
from malflow.windows import WindowResult

__all__ = ["Fields", "Outcomes", "ResultRows", "outcomes_of"]

Fields = Sequence[Sequence[Array]]
"""The states of accumulators: for each slot its arrays."""

_IN_FLOATS = 1 << 53
"""Floats represent all integers up to this one. Beyond it numpy rounds an integer before it divides, Python after."""


@dataclass(frozen=True)
class _Leaf:
    """A result that is one column."""


@dataclass(frozen=True)
class _Composed:
    """A result that is made of others: a tuple, or an object of a class."""

    parts: tuple[_Leaf | _Composed, ...]
    made: Callable[..., Any] | None = None
    names: tuple[str, ...] = ()


_Shape = _Leaf | _Composed


@dataclass(frozen=True)
class Outcomes(MadeRows):
    """The results of one or several aggregators.

    Attributes:
        names: the names of their columns: ``value``; ``value_0``, ``value_1``, ... of several aggregators; or the names
            that `agg.into` gives.
        shape: how values are made of the columns.
    """

    names: tuple[str, ...]
    shape: _Shape
    _columns: tuple[Callable[[Fields], pa.Array], ...] = dataclasses.field(compare=False, repr=False)

    @property
    def fields(self) -> frozenset[str]:
        """The columns that are fields of the values."""
        shape = self.shape
        is_flat = isinstance(shape, _Composed) and shape.made is not None and not _is_nested(shape)
        return frozenset(self.names if is_flat else ())

    @property
    def is_flat(self) -> bool:
        """Whether flat rows have the same columns."""
        shape = self.shape
        if isinstance(shape, _Leaf):
            return True
        return not _is_nested(shape) and (shape.made in (None, dict) or record_fields(shape.made) == list(self.names))

    @property
    def is_plain(self) -> bool:
        """Whether a value is an item of the only column."""
        return isinstance(self.shape, _Leaf)

    def columns(self, fields: Fields) -> list[pa.Array]:
        """Return the columns of the results of states."""
        with np.errstate(all="ignore"):
            return [column(fields) for column in self._columns]

    def rows(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Make the values."""
        return _made(self.shape, iter(columns))

    @property
    def row(self) -> Any:
        """The rows of a frame with these columns: one of the simple forms where there is one."""
        shape = self.shape
        if isinstance(shape, _Leaf):
            return self.names[0]
        if _is_nested(shape):
            return self
        if shape.made is None:
            return tuple
        return shape.made

    def __reduce__(self) -> tuple[Any, ...]:
        return Outcomes, (self.names, self.shape, ())


@dataclass(frozen=True)
class ResultRows(MadeRows):
    """Results of windows: the columns ``start``, ``end``, and the columns of the value.

    Attributes:
        values: the values.
        timing: their timing.
        is_zoned: whether the windows' bounds are datetimes in UTC.
    """

    values: Outcomes
    timing: Timing
    is_zoned: bool = False

    @property
    def fields(self) -> frozenset[str]:
        """The columns that are fields of the results."""
        return frozenset(("start", "end", "value") if self.values.is_plain else ("start", "end"))

    @property
    def is_flat(self) -> bool:
        """Whether flat rows have the same columns."""
        return self.values.is_flat

    def rows(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Make the results."""
        starts, ends, *others = columns
        if self.is_zoned:
            starts, ends = _in_utc(starts), _in_utc(ends)
        timings = [self.timing] * len(starts)
        return list(map(_NEW_RESULT, zip(starts, ends, self.values.rows(others), timings, strict=True)))


_NEW_RESULT = partial(tuple.__new__, WindowResult)
"""Makes a result of a tuple of its fields, in half of the time of a call of the class."""


def _in_utc(moments: list[datetime]) -> list[datetime]:
    """Return datetimes in UTC with the zone that windows give them. Most of them are equal."""
    shown = {moment: moment.replace(tzinfo=UTC) for moment in set(moments)}
    return list(map(shown.__getitem__, moments))


def _is_nested(shape: _Composed) -> bool:
    return any(isinstance(part, _Composed) for part in shape.parts)


def _made(shape: _Shape, columns: Iterator[list[Any]]) -> list[Any]:
    if isinstance(shape, _Leaf):
        return next(columns)
    rows = zip(*[_made(part, columns) for part in shape.parts], strict=True)
    if shape.made is None:
        return list(rows)
    made, names = shape.made, shape.names
    return [made(**dict(zip(names, row, strict=True))) for row in rows]


def outcomes_of(aggregators: Sequence[Aggregator[Any, Any, Any]], slots: Sequence[Slot]) -> Outcomes | None:
    """Return the results of aggregators as columns; None if they have none, or a class of results has code of its own.

    Args:
        aggregators: the aggregators.
        slots: the slots of their common accumulator.
    """
    places = {slot.identity: at for at, slot in enumerate(slots)}
    parts = [_outcome(slotted(it), places) for it in aggregators]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    shape, names, columns = found[0] if len(found) == 1 else _several(found)
    if len({"start", "end", *names}) < len(names) + 2:
        return None
    return Outcomes(tuple(names), shape, tuple(columns))


_Found = tuple[_Shape, list[str], list[Callable[[Fields], pa.Array]]]


def _outcome(it: Slotted[Any, Any, Any], places: dict[object, int]) -> _Found | None:
    at = [places[slot.identity] for slot in it.slots]
    if isinstance(it, Several):
        parts = [_outcome(slotted(part), places) for part in it.parts]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        if not isinstance(it, Into):
            return _several(found)
        names = _in_order(it.made, it.names)
        return None if names is None else _several([found[it.names.index(name)] for name in names], it.made, names)
    it = it.whole if isinstance(it, Skipping) else it  # arrays hold no state without a value
    column: Callable[[Fields], pa.Array]
    if isinstance(it, (Count, Sum, Min, Max)):
        column = partial(_field, at[0], 0)
    elif isinstance(it, Mean):
        column = partial(_mean, at[0], at[1])
    elif isinstance(it, Variance):
        column = partial(_variance, at[0], it.ddof, is_root=isinstance(it, Deviation))
    elif isinstance(it, (First, Last)):
        column = partial(_field, at[0], 1)
    else:
        return None
    return _Leaf(), ["value"], [column]


def _several(found: Sequence[_Found], made: Callable[..., Any] | None = None, given: Sequence[str] = ()) -> _Found:
    prefixes = given or [f"value_{at}" for at in range(len(found))]
    names = []
    for prefix, (shape, own, _) in zip(prefixes, found, strict=True):
        names += [prefix] if isinstance(shape, _Leaf) else [f"{prefix}_{name}" for name in own]
    shape = _Composed(tuple(it[0] for it in found), made, tuple(given))
    return shape, names, [column for it in found for column in it[2]]


def _in_order(made: Callable[..., Any], names: Sequence[str]) -> Sequence[str] | None:
    """Return names of fields in the order in which a class is called with them.

    None if objects of the class do more than hold their fields, and so can't be made at any time.
    """
    if made is dict:
        return names
    try:
        declared = [field.name for field in dataclasses.fields(made)]  # type: ignore[arg-type] # the error says no
    except TypeError:
        declared = list(getattr(made, "_fields", ()))
    return fields_of(made, [name for name in declared if name in names]) if set(names) <= set(declared) else None


def _field(slot: int, field: int, fields: Fields) -> pa.Array:
    return pa.array(fields[slot][field])


def _mean(counted: int, summed: int, fields: Fields) -> pa.Array:
    count, total = fields[counted][0], fields[summed][0]
    if total.dtype.kind == "i" and len(total) and max(int(total.max()), -int(total.min())) > _IN_FLOATS:
        return pa.array([one / other for one, other in zip(total.tolist(), count.tolist(), strict=True)], pa.float64())
    return pa.array(total / count)


def _variance(slot: int, ddof: int, fields: Fields, *, is_root: bool) -> pa.Array:
    count, _, squares = fields[slot]
    is_known = count > ddof
    variance = squares / np.where(is_known, count - ddof, 1)
    if is_root:
        variance = np.sqrt(variance)
    return pa.array(variance, mask=~is_known)
