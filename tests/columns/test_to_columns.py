"""Objects to columns: flat rows of dicts, objects and results of windows, and back again."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, StreamProvider, agg
from malflow.columns import Column, Frame
from malflow.columns.flat_rows import FlatRows
from malflow.operators.batches import ToColumns
from malflow.operators.contract import OperatorContext
from malflow.records.batch import Batch
from malflow.records.columnar import rows_made
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from malflow.windows import tumbling


def rows_of(items: Any, build: Any = lambda stream: stream.to_columns("columns"), **options: Any) -> list[Any]:
    sink: VecSink[Any, Any, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        build(provider.new_stream().source("items", SingleIteratorSource(items))).sink("out", sink)

    SingleThreadRuntime(build_dataflow, **options).execute()
    return sink.values


class Town(NamedTuple):
    name: str
    people: int


@dataclass
class Place:
    name: str
    people: int


class Plain:
    def __init__(self, name: str, people: int) -> None:
        self.name, self.people = name, people


Tuple = namedtuple("Tuple", "name people")


@pytest.mark.parametrize("kind", [Town, Place, Plain, Tuple, lambda name, people: {"name": name, "people": people}])
@pytest.mark.parametrize("debug", [False, True])
def test_fields_become_columns(kind: Any, debug: bool) -> None:
    found = rows_of([kind("Ulm", 1), kind("Bonn", 2)], debug=debug)
    assert found == [{"name": "Ulm", "people": 1}, {"name": "Bonn", "people": 2}]


def test_values_without_fields() -> None:
    assert rows_of([1, 2]) == [{"value": 1}, {"value": 2}]
    assert rows_of([(1, "a")]) == [{"value_0": 1, "value_1": "a"}]


ITEMS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(),
    "text": st.text(max_size=3),
    "bytes": st.binary(max_size=3),
    "bool": st.booleans(),
    "date": st.dates(),
    "naive": st.datetimes().map(lambda it: it.replace(fold=0)),
    "utc": st.datetimes(timezones=st.just(UTC)).map(lambda it: it.replace(fold=0)),
    "span": st.timedeltas(timedelta(-999), timedelta(999)),
    "list": st.lists(st.integers(0, 9), max_size=2),
}


@given(st.data(), st.sets(st.sampled_from(sorted(ITEMS)), min_size=1, max_size=3), st.booleans())
def test_the_same_objects_come_back(data: Any, names: set[str], debug: bool) -> None:
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({name: ITEMS[name] | st.none() for name in names}).map(
                lambda it: dict(sorted(it.items()))
            ),
            max_size=6,
        )
    )
    found = rows_of(rows, debug=debug)
    assert repr([{**row} for row in found]).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") == repr(
        rows
    )


class Colour(Enum):
    RED = 1


UNFIT = [
    ([{"n": 1}, {"n": 2.5}], r"value \{'n': 2.5\}.*column 'n' has 2.5, of type float, after 1, of type int; .*schema="),
    ([{"n": 1}, {"n": "x"}], "column 'n' has 'x', of type str, after 1, of type int"),
    ([{"n": 1}, {"n": True}], "column 'n' has True, of type bool, after 1"),
    ([{"n": 1}, {"n": 2**63}], r"value \{'n': 9223372036854775808\}.*column 'n' can't have 9223372036854775808"),
    ([{"n": 1}, {"m": 1}], r"value \{'m': 1\}.*the value has no field 'n'; there is 'm'"),
    ([{"n": 1}, {"n": 1, "m": 2}], "the value has a field 'm', and earlier ones have only 'n'"),
    ([{1: 1}], "the value has an item 1; the names of columns are texts"),
    ([{"n": (1, 2)}], r"can't have \(1, 2\), of type tuple: it would become \[1, 2\], of type list"),
    ([{"n": Colour.RED}], r"column 'n' can't have <Colour.RED: 1>"),
    ([{"n": "\ud800"}], r"column 'n' can't have .*of type str"),
    ([{"n": Decimal("1.0")}, {"n": Decimal("1.25")}], r"can't have Decimal\('1.0'\), .*become Decimal\('1.00'\)"),
    ([{"n": datetime(1, 1, 1)}, {"n": datetime(1, 1, 1, tzinfo=UTC)}], "column 'n' has times in several zones"),
    ([{}], "its values have no fields, so there is no column"),
]
"""Rows, and the error where they come in one batch."""


@pytest.mark.parametrize(("items", "message"), UNFIT)
def test_objects_that_do_not_fit(items: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=rf"operator 'columns' failed at .*{message}"):
        rows_of(items, debug=True)  # the batches of a tick are one


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([{"n": 1}, {"n": 2.5}], r"value \{'n': 2.5\}.*column 'n' is double, and was int64 before; .*schema="),
        ([{"n": 1}, {"n": None}, {"n": "x"}], "value {'n': 'x'}.*column 'n' is string, and was int64 before"),
        ([{"n": Decimal("1.0")}, {"n": Decimal("11.25")}], r"is decimal128\(38, 2\), and was decimal128\(38, 1\)"),
        ([{"n": datetime(1, 1, 1)}, {"n": datetime(1, 1, 1, tzinfo=UTC)}], r"is timestamp\[us, tz=UTC\], and was"),
    ],
)
def test_objects_that_do_not_fit_to_earlier_ones(items: Any, message: str) -> None:
    """Each is in a batch of its own."""
    with pytest.raises(OperatorError, match=rf"operator 'columns' failed at .*{message}"):
        batches_of(items)


def test_types_may_be_learnt_late() -> None:
    items = [{"n": None, "m": []}, {"n": 1, "m": [1]}, {"n": None, "m": []}]
    assert batches_of(items) == items


def batches_of(items: Any) -> list[Any]:
    """Return the rows of columns made of batches of one item."""
    operator = ToColumns(OperatorContext("columns"))
    batches = [operator.process(Batch(None, [item], [at]))[0] for at, item in enumerate(items)]
    return [row for batch in batches for row in batch.values]


def test_a_schema_decides() -> None:
    schema = {"n": pa.float64(), "at": pa.timestamp("ns")}
    items = [{"n": 1, "at": datetime(2026, 1, 1), "more": object()}, {"n": 2.5, "at": None, "more": 1}]
    found = rows_of(items, lambda stream: stream.to_columns("columns", schema=schema))
    assert repr(found) == repr([{"n": 1.0, "at": datetime(2026, 1, 1)}, {"n": 2.5, "at": None}])
    with pytest.raises(OperatorError, match=r"value \{'m': 1\}.*the value has no field 'n'; there is 'm'"):
        rows_of([{"m": 1}], lambda stream: stream.to_columns("columns", schema={"n": pa.int64()}))
    with pytest.raises(
        OperatorError, match=r"column 'n' of type int8 can't have 2.5, of type float: it would become 2"
    ):
        rows_of([{"n": 2.5}], lambda stream: stream.to_columns("columns", schema={"n": pa.int8()}))
    with pytest.raises(OperatorError, match=r"column 'n' of type int8 can't have 300"):
        rows_of([{"n": 300}], lambda stream: stream.to_columns("columns", schema={"n": pa.int8()}))


def windows(stream: Any, *aggregators: Any) -> Any:
    timed = stream.event_time("time", "at", out_of_orderness=0)
    return timed.key_distribute("key", "k").window(tumbling(10)).aggregate("bars", *aggregators)


@dataclass
class Bar:
    n: int
    top: float


VALUES = [{"k": "a", "at": 1, "x": 1.5}, {"k": "b", "at": 2, "x": 2.5}, {"k": "a", "at": 3, "x": 0.5}]


@pytest.mark.parametrize(
    ("aggregators", "expected"),
    [
        ([agg.count()], {"value": 2}),
        ([agg.count(), agg.max("x")], {"value_0": 2, "value_1": 1.5}),
        ([agg.into(Bar, n=agg.count(), top=agg.max("x"))], {"n": 2, "top": 1.5}),
        ([agg.into(dict, n=agg.count(), top=agg.max("x"))], {"n": 2, "top": 1.5}),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_results_of_windows(aggregators: Any, expected: Any, debug: bool) -> None:
    def build(stream: Any) -> Any:
        return windows(stream, *aggregators).to_columns("columns", key="town", timestamp="at")

    found = rows_of(VALUES, build, debug=debug)
    (first,) = (row for row in found if row["town"] == "a")
    assert first == {"start": 0, "end": 10, **expected, "town": "a", "at": first["at"]}


def test_a_name_that_comes_twice() -> None:
    def build(stream: Any) -> Any:
        return windows(stream, agg.into(dict, start=agg.count())).to_columns("columns")

    with pytest.raises(OperatorError, match="two columns have the name 'start': of the window, and of its result"):
        rows_of(VALUES, build)
    with pytest.raises(OperatorError, match="two columns have the name 'k': the rows have 'k', 'at', 'x'"):
        rows_of(VALUES, lambda stream: stream.to_columns("columns", timestamp="k"))


def test_columns_stay_columns() -> None:
    def build(stream: Any) -> Any:
        columns = stream.to_columns("columns").to_columns("again", timestamp="time")
        return columns.to_columns("typed", schema={"n": pa.float32()}).map_batches("look", lambda batch: batch)

    before = rows_made()
    assert repr(rows_of([{"n": 1}], build)) == "[{'n': 1.0}]"
    assert rows_made() == before + 1  # by the sink


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=2))])
def test_zones(zone: Any) -> None:
    (row,) = rows_of([{"at": datetime(2026, 1, 1, tzinfo=zone), "day": date(2026, 1, 1)}])
    assert row["at"] == datetime(2026, 1, 1, tzinfo=zone)
    assert row["at"].utcoffset() == zone.utcoffset(None)


def test_keys_in_both_forms() -> None:
    """A dictionary holds the keys of one batch, and the keys of the next one stand for themselves."""
    rows = FlatRows(None, "key", None)
    keys = pa.array(["a", "b"])
    found = [
        rows.frame_of(Batch(Column(it), Frame(pa.record_batch({"n": [1, 2]})), range(2)))
        for it in (keys.dictionary_encode(), keys)
    ]
    assert [list(it) for it in found] == [[{"n": 1, "key": "a"}, {"n": 2, "key": "b"}]] * 2
