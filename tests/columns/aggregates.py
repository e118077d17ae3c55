"""Drawn aggregators of fields, and drawn records with these fields, as columns and as dicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import inf, nan
from typing import Any, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st

from malflow import agg
from malflow.columns import Column, Frame
from malflow.columns.column import Constant
from malflow.errors import OperatorError
from malflow.operators.contract import Operator, StateKeeper
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.states.paned import PanedState

__all__ = ["Drawn", "Pair", "Twins", "aggregators", "as_rows", "bits", "frames", "records", "run"]

_FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 0.1, 0.2, 1e300, -1e300, 3.0]) | st.floats(-10, 10)
_ANY_FLOATS = _FLOATS | st.sampled_from([nan, inf, -inf])
_INTS = st.integers(-9, 9) | st.integers(-(2**40), 2**40)

_WHOLE: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "ints": (pa.int64(), _INTS),
    "small": (pa.int8(), st.integers(-128, 127)),
    "shared": (pa.dictionary(pa.int32(), pa.int64()), st.sampled_from([3, -1])),
}
_FLOATING: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "floats": (pa.float64(), _FLOATS),
    "odd floats": (pa.float64(), _ANY_FLOATS),
    "singles": (pa.float32(), st.floats(width=32, allow_nan=False)),
}
"""Columns that arrays hold, with their items."""

_MISFITS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flags": (pa.bool_(), st.booleans()),
    "huge": (pa.int64(), st.sampled_from([2**62, 2**63 - 1, -(2**63), 2**53 + 1, 1])),
    "unsigned": (pa.uint64(), st.sampled_from([2**63, 2**64 - 1, 1])),
    "exact": (pa.decimal128(8, 2), st.integers(-999, 999).map(lambda it: Decimal(it) / 100)),
    "nulls": (pa.int64(), st.none() | _INTS),
    "texts": (pa.string(), st.sampled_from(["a", "b"])),
    "hidden nulls": (pa.dictionary(pa.int32(), pa.int64()), st.sampled_from([3, None])),
}
"""Columns that they do not hold, or not always."""

_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", "c"]),
    "encoded": (pa.dictionary(pa.int32(), pa.string()), ["a", "b", "", "c"]),
    "int": (pa.int64(), [1, 0, -1, 7]),
    "float": (pa.float64(), [0.0, -0.0, 1.0, 2.5]),
    "bool": (pa.bool_(), [True, False]),
    "null": (pa.string(), ["a", "b", None]),
}


class Pair(NamedTuple):
    """A result."""

    low: Any
    high: Any


@dataclass(frozen=True)
class Checked:
    """A result of a class with code of its own."""

    low: Any

    def __post_init__(self) -> None:
        """Do something."""


_ONE: Sequence[Callable[[str], Any]] = (
    lambda _: agg.count(),
    agg.count,
    agg.sum,
    lambda _: agg.sum("x", of=int),
    agg.min,
    agg.max,
    agg.mean,
    agg.variance,
    lambda field: agg.stddev(field, ddof=0),
    agg.first,
    agg.last,
)

_SKIPPING: Sequence[Callable[..., Any]] = (
    *(agg.count, agg.sum, agg.min, agg.max, agg.mean, agg.variance, agg.stddev, agg.first, agg.last),
    lambda field, **options: agg.sum(field, of=int, **options),
)

_OTHERS: Sequence[Callable[[str], Any]] = (
    lambda field: agg.partial(agg.mean(field)),
    agg.fsum,
    agg.collect,
    lambda field: agg.into(Checked, low=agg.min(field)),
)
"""Aggregators without a kernel, or with results that are no columns."""


@st.composite
def aggregators(draw: Any, fields: Sequence[str] = ("x", "y"), *, merging: bool = False) -> list[Any]:
    """Draw one or several aggregators of some fields."""
    field = st.sampled_from(fields)
    simple = st.builds(lambda make, name: make(name), st.sampled_from(_ONE), field) | st.builds(
        lambda make, name: make(name, skip_none=True), st.sampled_from(_SKIPPING), field
    )
    composed = st.one_of(
        st.builds(lambda low, high: agg.into(Pair, high=high, low=low), simple, simple),
        st.builds(lambda low, high: agg.into(dict, low=low, high=high), simple, simple),
        st.builds(agg.tuple_, simple, simple),
        st.builds(lambda one, other: agg.tuple_(agg.into(Pair, low=one, high=other), one), simple, simple),
    )
    if draw(st.integers(0, 9)) == 0 and not merging:
        return [draw(st.builds(lambda make, name: make(name), st.sampled_from(_OTHERS), field)), draw(simple)]
    several: list[Any] = draw(st.lists(simple | composed, min_size=1, max_size=3))
    return several


class Drawn(NamedTuple):
    """Records as one table, with the names of its key and timestamp columns."""

    table: pa.RecordBatch
    timestamps: Any
    constant: Any = None


@st.composite
def records(draw: Any, *, most: int = 40, misfits: bool = False, ascending: bool = False) -> Drawn:
    """Draw records with the fields x and y, a key and a timestamp."""
    count = draw(st.integers(1, most))
    misfits = misfits and draw(st.integers(0, 3)) == 0
    columns = []
    for usual in (_WHOLE, _FLOATING):
        kinds = {**_WHOLE, **_FLOATING, **_MISFITS} if misfits else usual
        kind, items = kinds[draw(st.sampled_from(sorted(kinds)))]
        columns.append(pa.array(draw(st.lists(items, min_size=count, max_size=count)), kind))
    keys = sorted(_KEYS) if misfits else ["encoded", "text", "int", "bool"]
    kind, some = _KEYS[draw(st.sampled_from(keys))]
    keyed = draw(st.lists(st.sampled_from(range(len(some))), min_size=count, max_size=count))
    if pa.types.is_dictionary(kind):  # in the order of a writer, not of the records
        columns.append(pa.DictionaryArray.from_arrays(pa.array(keyed, pa.int32()), pa.array(some)))
    else:
        columns.append(pa.array([some[at] for at in keyed], kind))
    stamps = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    stamps = sorted(stamps) if ascending else stamps
    return Drawn(pa.record_batch(columns, names=["x", "y", "key"]), _stamps(draw, stamps), draw(_CONSTANTS))


_CONSTANTS = st.sampled_from([None, None, "a", 7])

_START = datetime(2026, 3, 1)


def _stamps(draw: Any, stamps: list[int]) -> Any:
    form = draw(st.sampled_from(["int", "int", "int", "datetime", "datetime", "utc", "list", "floats"]))
    if form == "list":
        return stamps
    if form == "int":
        return Column(pa.array(stamps, pa.int64()))
    if form == "floats":
        return Column(pa.array([float(it) for it in stamps]))
    moments = [_START + timedelta(seconds=it) for it in stamps]
    return Column(pa.array(moments, pa.timestamp("us", "UTC" if form == "utc" else None)))


def frames(drawn: Drawn, cuts: Sequence[int]) -> list[Batch]:
    """Return the records as batches of columns, cut at some places."""
    batches = []
    for start, stop in cut(len(drawn.table), cuts):
        piece = drawn.table.slice(start, stop - start)
        keys: Any = Column(piece.column("key"))
        if drawn.constant is not None:
            keys = Constant(drawn.constant, stop - start)
        batches.append(Batch(keys, Frame(piece), drawn.timestamps[start:stop]))
    return batches


def cut(length: int, places: Sequence[int]) -> list[tuple[int, int]]:
    """Return the parts of a length."""
    bounds = [0, *sorted(at % (length + 1) for at in places), length]
    return list(pairwise(bounds))


def as_rows(batch: Batch) -> Batch:
    """Return the same records as lists, of which nothing is a column."""
    copy = Batch(batch.keys, batch.values[:], batch.timestamps, batch.epochs)
    return copy.listed()


def bits(value: Any) -> Any:
    """Return a value with its type and bits, for comparison."""
    if isinstance(value, tuple):
        return type(value).__name__, [bits(item) for item in value]
    if isinstance(value, list):
        return [bits(item) for item in value]
    if isinstance(value, dict):
        return [(bits(key), bits(item)) for key, item in value.items()]
    return type(value).__name__, repr(value)


def delta_bits(delta: Delta) -> Any:
    """Return what a delta says, for comparison: its own order only where there is one."""
    items = list(delta.changed.items())
    at = 0 if delta.whole else len(items) - delta.appended
    in_place = sorted((repr(key), repr(bits(key)), repr(bits(state))) for key, state in items[:at])
    appended = [(bits(key), bits(state)) for key, state in items[at:]]
    return in_place, appended, sorted(map(repr, delta.deleted)), delta.appended, delta.whole


def state_bits(operator: Operator) -> Any:
    """Return the state of an operator, in its order, and those that are hidden."""
    keepers = [operator, *operator.hidden.values()]
    found = []
    for keeper in keepers:
        keeper.sync_state()
        assert keeper.state is not None
        found.append([(bits(key), bits(state)) for key, state in keeper.state.items()])
    return found


def run(operator: Operator, batch: Batch) -> Any:
    """Return the outputs of an operator for a batch, with types and bits; or the text of its error."""
    try:
        outputs = operator.process(batch)
    except OperatorError as error:
        return re.split("; a field is (?:text|None)", str(error))[0]  # a hint for any text or None in the record
    return [
        (
            bits(list(output.keys or ())),
            bits(list(output.values)),
            bits(list(output.timestamps)),
            [(at, repr(epoch)) for at, epoch in output.epochs],
        )
        for output in outputs
    ]


class Twins:
    """Two operators with the same input, one as columns and one record by record; and two that follow by their deltas.

    Args:
        make: makes an operator.
    """

    def __init__(self, make: Callable[[], Operator]) -> None:
        self._make = make
        self._both = [make(), make()]
        self._followers = [make(), make()]

    @property
    def by_columns(self) -> Any:
        """The operator whose input is columns."""
        return self._both[0]

    @property
    def name(self) -> str:
        """The name of both."""
        return self._both[0].context.operator_name

    def take(self, batch: Batch) -> bool:
        """Process a batch; return whether it went well, for both or none."""
        outcomes = [run(it, form) for it, form in zip(self._both, (batch, as_rows(batch)), strict=True)]
        assert outcomes[0] == outcomes[1]
        return not isinstance(outcomes[0], str)

    def act(self, act: str) -> None:
        """Take a delta, look at the states, or start again, each with the state of the other."""
        if act == "delta":
            self._follow()
        elif act == "ask":
            self._ask()
        elif act == "look":
            assert state_bits(self._both[0]) == state_bits(self._both[1])
        elif act == "restore":
            for it in _keepers(self._both):
                it.forget()
            whole = [[keeper.delta() for keeper in _keepers([it])] for it in self._both]
            self._both, self._followers = ([self._make(), self._make()] for _ in range(2))
            for it, deltas in zip((*self._both, *self._followers), (*whole[::-1], *whole), strict=True):
                for keeper, delta in zip(_keepers([it]), deltas, strict=True):
                    keeper.apply(delta)

    def _ask(self) -> None:
        by_columns, by_records = self._both
        assert by_records.state is not None
        slots = list(by_records.state)
        keys = [slot[1] if isinstance(by_records.state, PanedState) else slot for slot in slots[1::2]]
        for asked in ([], ["no such key"], [*keys, *keys[:1]]):
            found = by_columns.look(asked, 0)
            assert found is not None
            wanted = {slot for slot in slots if (slot[1] if isinstance(found, PanedState) else slot) in asked}
            shown = [(bits(slot), bits(state)) for slot, state in found.items() if slot in wanted or slot not in slots]
            assert shown == [(bits(slot), bits(by_records.state[slot])) for slot in by_records.state if slot in wanted]
        first = by_columns.look(None, 3)
        assert first is not None
        assert list(first.items())[:3] == list(by_records.state.items())[:3] or "nan" in repr(first)

    def compare(self) -> None:
        """Compare the states of all."""
        self._follow()
        first, *others = [state_bits(it) for it in (*self._both, *self._followers)]
        assert all(it == first for it in others)

    def _follow(self) -> None:
        each = [_keepers([it]) for it in (*self._both, *self._followers)]
        for by_columns, by_records, *followers in zip(*each, strict=True):
            deltas = by_columns.delta(), by_records.delta()
            assert delta_bits(deltas[0]) == delta_bits(deltas[1])
            for follower, delta in zip(followers, deltas, strict=True):
                follower.apply(delta)


def _keepers(operators: Sequence[Operator]) -> list[StateKeeper]:
    return [keeper for it in operators for keeper in (it, *it.hidden.values())]
