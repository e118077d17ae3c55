"""Rows that become columns, and rows that don't fit."""

from __future__ import annotations

import datetime as dt
import math
import pickle
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from malflow.connectors.parquet.columns import Columns, UnfitRow


class Town(NamedTuple):
    name: str
    people: int | None


@dataclass
class Place:
    name: str
    people: int


SCHEMA = pa.schema([pa.field("name", pa.string()), pa.field("people", pa.int64())])


def rows(values: list[Any], schema: pa.Schema | None = SCHEMA) -> list[Any]:
    made: list[Any] = Columns("out", schema).make(values).to_pylist()
    return made


def test_every_kind_of_row() -> None:
    ulm = {"name": "Ulm", "people": 3}
    values = [ulm, OrderedDict(people=3, name="Ulm"), Town("Ulm", 3), Place("Ulm", 3)]
    assert rows(values) == [ulm] * 4
    for value in values:
        assert rows([value]) == rows([value], None) == [ulm]
    assert rows([("Ulm", 3), Town("Ulm", None)]) == [ulm, {"name": "Ulm", "people": None}]
    assert rows([{"name": "Ulm"}, {}]) == [{"name": "Ulm", "people": None}, {"name": None, "people": None}]
    assert rows([{"n": 1}, {"n": 2}], None) == [{"n": 1}, {"n": 2}]


def test_hostile_values() -> None:
    value = {
        "nan": math.nan,
        "inf": -math.inf,
        "huge": 2**63 - 1,
        "money": Decimal("12345678901234567890.123456789"),
        "zone": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "naive": dt.datetime(1, 1, 1),
        "day": dt.date(9999, 12, 31),
        "nested": [{"a": None, "b": [1, None]}],
        "bytes": b"\x00",
        "text": "\x00é😀",
        "none": None,
    }
    [row] = rows([value], None)
    assert math.isnan(row.pop("nan"))
    assert row == {name: field for name, field in value.items() if name != "nan"}
    [nan] = rows([{"n": math.nan}], pa.schema([("n", pa.float64())]))
    assert math.isnan(nan["n"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"name": "Ulm", "peple": 3},
            r"cannot store \{'name': 'Ulm', 'peple': 3\} in column 'peple': there is no such",
        ),
        (
            {"name": "Ulm", "people": "many"},
            "in column 'people': it is not int64 .*'many'.*; the schema has 'name', 'p",
        ),
        ({"name": "Ulm", "people": 1.5}, "in column 'people': int64 would hold 1 instead"),
        ({"name": "Ulm", "people": 2**70}, "in column 'people': it is not int64"),
        ({"name": 3, "people": 3}, "in column 'name': it is not string"),
        ({"name": "\ud800", "people": 3}, "in column 'name': it is not string"),
        (("Ulm",), r"cannot store \('Ulm',\): "),
        ("Ulm", "cannot store 'Ulm': a row is a dict, a dataclass, a named tuple, or a tuple if schema= is passed"),
        (None, "cannot store None: a row is a dict"),
        (Place, "a row is a dict"),
    ],
)
def test_row_that_does_not_fit(value: Any, message: str) -> None:
    good = {"name": "Bonn", "people": 1}
    with pytest.raises(UnfitRow, match=message) as unfit:
        rows([good, value, good])
    assert str(pickle.loads(pickle.dumps(unfit.value))) == str(unfit.value)


def test_tuples_of_the_wrong_length() -> None:
    with pytest.raises(UnfitRow, match=r"cannot store \('Ulm',\): the schema has 2 columns: 'name', 'people'"):
        rows([("Bonn", 1), ("Ulm",)])
    with pytest.raises(UnfitRow, match=r"a tuple if schema= is passed"):
        rows([("Bonn", 1)], None)


@pytest.mark.parametrize("value", [Counter(people=3, nmae=1), defaultdict(int, people=3, nmae=1)])
def test_mappings_that_make_up_missing_columns(value: Any) -> None:
    with pytest.raises(UnfitRow, match=r"in column 'nmae': there is no such column"):
        rows([value])
    del value["nmae"]
    assert rows([value]) == [{"name": None, "people": 3}]


def test_types_that_do_not_follow_from_the_values() -> None:
    with pytest.raises(UnfitRow, match=r"cannot store \{'n': 'two'\} in column 'n': its type does not follow"):
        rows([{"n": 1}, {"n": 3.5}, {"n": "two"}, {"n": 4}], None)
    with pytest.raises(UnfitRow, match=r"it has no columns; pass schema="):
        rows([{}], None)
    with pytest.raises(UnfitRow, match=r"the name of a column is a text; got 1"):
        rows([{1: 2}], None)
    columns = Columns("out", None)
    columns.make([{"n": 1}])
    with pytest.raises(UnfitRow, match=r"the schema was inferred from the first rows; pass schema="):
        columns.make([{"n": 1, "m": 2}])


def test_null_where_the_schema_has_none() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    with pytest.raises(UnfitRow, match=r"\{'n': None\} in column 'n': it is null, but the column is not nullable"):
        rows([{"n": 1}, {"n": None}], schema)
    with pytest.raises(UnfitRow, match=r"it is null"):
        rows([{"n": 1}, {}], schema)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_with_and_without_zone(zone: str | None) -> None:
    schema = pa.schema([("at", pa.timestamp("us", zone))])
    naive, aware = dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    good, bad = (naive, aware) if zone is None else (aware, naive)
    assert rows([{"at": good}, {"at": None}], schema) == [{"at": good}, {"at": None}]
    with pytest.raises(UnfitRow, match=r"would hold 'a time with(out)? time zone' instead"):
        rows([{"at": good}, {"at": bad}], schema)


STRUCT = pa.struct([("a", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (pa.int64(), [1, None, 2.0], 2.5),
        (pa.int64(), [1], Decimal("1.5")),
        (pa.date32(), [dt.date(2026, 1, 1), None], dt.datetime(2026, 1, 1, 5)),
        (pa.timestamp("s"), [dt.datetime(2026, 1, 1)], dt.datetime(2026, 1, 1, 0, 0, 0, 7)),
        (pa.time32("s"), [dt.time(1, 2, 3)], dt.time(1, 2, 3, 4)),
        (pa.duration("s"), [dt.timedelta(1)], dt.timedelta(0, 0, 5)),
        (STRUCT, [{"a": 1, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}, {}, None], {"a": 1, "b": 2}),
        (STRUCT, [{"a": 1}], {"a": 1.5}),
        (STRUCT, [{"a": 1}], {"at": dt.datetime(2026, 1, 1)}),
        (pa.list_(pa.int64()), [[1], (2, None), None, []], [1.5]),
        (pa.list_(STRUCT), [[{"a": 1}]], [{"b": 1}]),
        (pa.map_(pa.string(), pa.int64()), [{"k": 1}, [("k", None)], None], [("k", 1.5)]),
        (pa.map_(pa.string(), pa.date32()), [{}], {"k": dt.datetime(2026, 1, 1, 5)}),
        (pa.map_(pa.int64(), pa.int64()), [{1: 2}], {1.5: 2}),
        (pa.float32(), [1.1, math.inf, math.nan, None], 1e300),
        (pa.float16(), [1.1, 2048], 2049),
    ],
)
def test_values_that_arrow_would_change_silently(kind: pa.DataType, good: list[Any], bad: Any) -> None:
    schema = pa.schema([("v", kind)])
    assert len(rows([{"v": value} for value in good], schema)) == len(good)
    with pytest.raises(UnfitRow, match=r"in column 'v': .* would hold .* instead"):
        rows([{"v": value} for value in [*good, bad]], schema)


@pytest.mark.parametrize(
    ("values", "given"),
    [
        (["a", b"b"], None),
        ([b"a", "b"], None),
        ([["a"], [b"b"]], None),
        ([b"b"], pa.string()),
        ([[b"b"]], pa.list_(pa.string())),
    ],
)
def test_bytes_and_texts_do_not_become_each_other(values: list[Any], given: pa.DataType | None) -> None:
    schema = None if given is None else pa.schema([("v", given)])
    with pytest.raises(UnfitRow, match="in column 'v'"):
        rows([{"v": value} for value in values], schema)


def test_values_that_are_stored_in_another_form() -> None:
    schema = pa.schema([("f", pa.float32()), ("m", pa.map_(pa.string(), pa.int64())), ("b", pa.binary())])
    [row] = rows([{"f": 1.1, "m": {"k": 1}, "b": "text"}], schema)
    assert (row["m"], row["b"]) == ([("k", 1)], b"text")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.int8(), np.False_),
        (pa.date32(), UUID(int=0)),
        (pa.date32(), -719_163),
        (pa.string(), bytearray(b"")),
        (pa.dictionary(pa.int32(), pa.string()), b"a"),
        (pa.list_(pa.int64()), b"ab"),
        (pa.map_(pa.string(), pa.int64()), ""),
        (pa.struct([("a", pa.date32())]), b""),
        (pa.struct([("a", pa.date32())]), (None,)),
    ],
    ids=str,
)
def test_values_that_arrow_takes_for_others_are_refused(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(UnfitRow, match="in column 'v'"):
        Columns("out", pa.schema([("v", kind)])).make([{"v": value}])
