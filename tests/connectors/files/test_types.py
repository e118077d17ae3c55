"""Types of the fields of CSV and JSON lines."""

from __future__ import annotations

import json
import pickle
from dataclasses import InitVar, dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, SingleThreadRuntime, agg
from malflow.connectors.files.typed import FieldError, RecordTypes
from malflow.sinks import VecSink
from malflow.sources import CsvSource, JsonLinesSource, StatefulSource


class Status(Enum):
    LATE = "late"
    ON_TIME = "on time"


@dataclass(frozen=True)
class Flight:
    carrier: str
    delay: int | None
    at: datetime
    price: Decimal = Decimal(1)
    status: Status = Status.ON_TIME
    cancelled: bool = False


CSV = """carrier,delay,at,price,status,cancelled,gate
UA,-3,2013-01-01T05:00+00:00,1.10,late,true,7
AA,,2013-01-02T05:00+00:00,2,on time,0,8
"""
FLIGHTS = [
    Flight("UA", -3, datetime(2013, 1, 1, 5, tzinfo=UTC), Decimal("1.10"), Status.LATE, True),
    Flight("AA", None, datetime(2013, 1, 2, 5, tzinfo=UTC), Decimal(2)),
]


def values(source: Any) -> list[Any]:
    out: VecSink[Any, Any, Any] = VecSink()
    SingleThreadRuntime(lambda p: p.new_stream().source("flights", StatefulSource(source)).sink("out", out)).execute()
    return list(out.values)


def written(folder: Path, text: str) -> Path:
    path = folder / "flights.txt"
    path.write_text(text)
    return path


def test_rows_become_instances_of_a_dataclass(tmp_path: Path) -> None:
    source = CsvSource(written(tmp_path, CSV), types=Flight)
    assert values(pickle.loads(pickle.dumps(source))) == FLIGHTS


def test_rows_are_dicts_with_the_types_of_some_fields(tmp_path: Path) -> None:
    rows = values(CsvSource(written(tmp_path, CSV), types={"gate": int, "carrier": str.lower, "delay": float | None}))
    assert [(row["gate"], row["carrier"], row["delay"], row["price"]) for row in rows] == [
        (7, "ua", -3.0, "1.10"),
        (8, "aa", None, "2"),
    ]


def test_fields_with_types_are_summed(tmp_path: Path) -> None:
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        rows = provider.new_stream().source("rows", StatefulSource(CsvSource(path, types={"gate": int})))
        rows.key_distribute("all", lambda msg: 0).aggregate("sum", agg.sum("gate")).sink("out", out)

    path = written(tmp_path, CSV)
    SingleThreadRuntime(build).execute()
    assert out.values[-1] == 15


def test_lines_of_json_become_instances_or_dicts(tmp_path: Path) -> None:
    lines = [
        {
            "carrier": "UA",
            "delay": -3,
            "at": "2013-01-01T05:00+00:00",
            "price": "1.10",
            "status": "late",
            "cancelled": True,
        },
        {"carrier": "AA", "delay": None, "at": "2013-01-02T05:00+00:00", "price": 2, "gate": 8},
    ]
    path = written(tmp_path, "\n\n".join(map(json.dumps, lines)))
    assert values(JsonLinesSource(path, types=Flight)) == FLIGHTS
    assert [row["at"] for row in values(JsonLinesSource(path, types={"at": datetime.fromisoformat}))] == [
        flight.at for flight in FLIGHTS
    ]


def test_decimals_of_json_have_the_digits_that_are_written(tmp_path: Path) -> None:
    text = (
        '{"price": 0.1}\n{"price": 12345678901234567890.123456789}\n{"price": 1e-30}\n{"price": null}\n{"price": 7}\n'
    )
    prices = [row["price"] for row in values(JsonLinesSource(written(tmp_path, text), types={"price": Decimal | None}))]
    assert prices == [Decimal("0.1"), Decimal("12345678901234567890.123456789"), Decimal("1e-30"), None, Decimal(7)]
    assert values(JsonLinesSource(written(tmp_path, '{"price": 0.5, "other": 0.1}'), types={"price": Decimal})) == [
        {"price": Decimal("0.5"), "other": 0.1}
    ]


class Level(Enum):
    LOW = 0
    HIGH = 1


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("blank", [1, 300])
def test_rows_that_are_all_blank_are_skipped(columns: int, blank: int, tmp_path: Path) -> None:
    names = ["gate", "x", "y"][:columns]
    text = ",".join(names) + "\n" + "\n" * blank + ",".join("7" * columns) + "\n" * blank
    source = CsvSource(written(tmp_path, text), types={"gate": int})
    (row,) = values(source)
    assert row["gate"] == 7
    reader = source.build_part(source.list_parts()[0], None)
    found: list[Any] = []
    while not reader.is_finished():
        found += (reader.poll_batch(1) or [[]])[0]
    assert found == [row]


BAD = [
    (CsvSource, "gate\n7\n8x\n", {"gate": int}, r"flights.txt line 3: field 'gate' is not int: '8x'; got '8x'"),
    (CsvSource, "gate\n7\n\n\n", {"gate": date}, r"line 2: field 'gate' is not date: '7'"),
    (CsvSource, "gate,b\n,1\n", {"gate": int}, r"field 'gate' is not int: ''; write int \| None if it may be empty"),
    (CsvSource, "gate;b\n1;2\n", {"gate": int}, r"the fields are gate;b; pass delimiter=';'; got"),
    (CsvSource, 'gate,b\n1,"2;3"\n', {"gat": int}, r"the fields are gate, b; got"),
    (CsvSource, "gate\nmaybe\n", {"gate": bool}, r"line 2: field 'gate' is not bool: 'maybe'"),
    (CsvSource, "gate\n7\n1_000\n", {"gate": int}, r"line 3: field 'gate' is not int: '1_000'"),
    (CsvSource, "gate\n1_0\n", {"gate": float}, r"field 'gate' is not float: '1_0'"),
    (CsvSource, "gate\n1_0\n", {"gate": Decimal}, r"field 'gate' is not Decimal: '1_0'"),
    (CsvSource, "gate\n\uff17\n", {"gate": int | None}, r"field 'gate' is not int \| None: '\uff17'"),
    (CsvSource, "gate\n1\n-1e400\n", {"gate": float}, r"line 3: field 'gate' is not float: '-1e400'"),
    (
        CsvSource,
        "gate\n2024-01-01T00:00:00.1234567Z\n",
        {"gate": datetime},
        r"is not datetime: '2024-01-01T00:00:00.12345",
    ),
    (
        JsonLinesSource,
        '{"gate": "00:00:00.1234567"}',
        {"gate": time},
        r"line 1: field 'gate' is not time: '00:00:00.12345",
    ),
    (CsvSource, "gate\n7\n", {"delay": int}, r"line 1: no field 'delay', which is in types; the fields are gate"),
    (CsvSource, "gate\n7\n", Flight, r"line 1: no field 'carrier'"),
    (JsonLinesSource, '{"gate": 1}\n{"gate": "2"}', {"gate": int}, r"line 2: field 'gate' is not int: '2'"),
    (JsonLinesSource, '{"gate": true}', {"gate": int}, r"line 1: field 'gate' is not int: True"),
    (JsonLinesSource, '{"gate": true}', {"gate": Decimal}, r"line 1: field 'gate' is not Decimal: True"),
    (JsonLinesSource, '{"gate": [0, [1], 0]}', {"gate": Decimal}, r"line 1: field 'gate' is not Decimal"),
    (JsonLinesSource, '{"gate": true}', {"gate": Level}, r"line 1: field 'gate' is not Level: True"),
    (JsonLinesSource, '{"gate": 1}', {"delay": int}, r"line 1: no field 'delay'"),
    (JsonLinesSource, "[1]", {"delay": int}, r"line 1: list instead of the object that types needs"),
]


@pytest.mark.parametrize(("kind", "text", "types", "told"), BAD)
def test_a_value_of_another_type_is_a_bad_record(kind: Any, text: str, types: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=told):
        values(kind(written(tmp_path, text), types=types))


def test_numbers_and_times_as_others_write_them(tmp_path: Path) -> None:
    text = "a,b,c\n-inf,2024-01-01T00:00:00.123456000Z,+7\n1E+2,,007\n"
    types = {"a": float, "b": datetime | None, "c": int}
    at = datetime(2024, 1, 1, 0, 0, 0, 123456, UTC)
    rows = [{"a": float("-inf"), "b": at, "c": 7}, {"a": 100.0, "b": None, "c": 7}]
    assert values(CsvSource(written(tmp_path, text), types=types)) == rows


def test_bad_values_can_be_skipped(tmp_path: Path) -> None:
    source = CsvSource(written(tmp_path, "gate\n7\nx\n8\n"), types={"gate": int}, on_error="skip")
    assert values(source) == [{"gate": 7}, {"gate": 8}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"types": 7}, "needs a dataclass, or a dict of types by field"),
        ({"types": {"gate": "int"}}, "cannot read field 'gate' as 'int'; pass int"),
        ({"types": {"gate": list[int]}}, r"cannot read field 'gate' as list"),
        ({"types": {"gate": int | float}}, r"cannot read field 'gate' as int \| float"),
        ({"types": {"gate": int}, "header": False}, "there is no field name"),
        ({"types": {"gate": int}, "fields": ["a"]}, "there is no field 'gate'"),
    ],
)
def test_types_are_checked_when_the_source_is_made(options: Any, told: str) -> None:
    with pytest.raises(GraphError, match=told):
        CsvSource("flights.csv", **options)


@dataclass
class Trade:
    price: float
    size: int | None
    name: str
    is_late: bool = False
    at: datetime | None = None


@dataclass(kw_only=True)
class Named:
    size: int
    name: str


@dataclass
class Strict:
    size: int
    extra: InitVar[int] = 0
    name: str = ""

    def __post_init__(self, extra: int) -> None:
        if self.size < 0 and not extra:
            raise ValueError("it is below zero")


VALUE = st.sampled_from([0, 1, -1, 2**70, 1.0, 1.5, True, None, "", "x", [1], "2024-05-01T12:00:00", "2024-05-01"])
FITTING = st.fixed_dictionaries(
    {
        "price": st.integers() | st.floats(allow_nan=False),
        "size": st.integers() | st.none(),
        "name": st.text(max_size=2),
    },
    optional={"is_late": st.booleans(), "at": st.none() | st.just("2024-05-01T12:00:00"), "more": VALUE},
)
ANY = st.dictionaries(st.sampled_from(["price", "size", "name", "is_late", "at", "more"]), VALUE) | st.just([1])


@given(
    st.lists(FITTING, max_size=5) | st.lists(FITTING | ANY, max_size=3),
    st.sampled_from([Trade, Named, Strict, {"size": int}, {"price": float, "at": datetime | None}, {"name": len}]),
)
@example([{"size": True}], {"size": int})
@example([{"size": 1, "name": "x"}], Strict)
def test_records_of_a_batch_are_as_one_by_one(values: list[Any], types: Any) -> None:
    made = RecordTypes("test", types, of_text=False)
    try:
        expected: Any = [described(made.record(it)) for it in values]
    except FieldError:
        expected = None
    found = made.records(json.loads(json.dumps(values)))
    assert found is None or [described(it) for it in found] == expected


def described(record: Any) -> Any:
    facts = record if isinstance(record, dict) else vars(record)
    return type(record), [(name, type(it), repr(it)) for name, it in facts.items()]


def test_records_that_fit_are_made_together() -> None:
    values = [{"price": 1.0, "size": 1, "name": "a", "is_late": False, "at": None}] * 2
    assert RecordTypes("test", Trade, of_text=False).records(values) == [Trade(1.0, 1, "a")] * 2
    assert RecordTypes("test", {"at": datetime}, of_text=False).records(values) is None


class Order(msgspec.Struct, rename={"who": "name"}):
    price: Decimal
    who: str
    at: datetime | None = None
    tags: list[str] = []


def test_lines_become_structs_of_msgspec(tmp_path: Path) -> None:
    lines = [
        '{"price": 1.10, "name": "a"}',
        '{"name": "b", "price": 2, "at": "2024-05-01T12:00:00Z", "tags": ["x"], "z": 1}',
    ]
    source = JsonLinesSource(written(tmp_path, "\n".join(lines)), types=Order)
    expected = [Order(Decimal("1.10"), "a"), Order(Decimal(2), "b", datetime(2024, 5, 1, 12, tzinfo=UTC), ["x"])]
    assert values(pickle.loads(pickle.dumps(source))) == expected


class Reading(msgspec.Struct):
    level: float


def test_values_that_only_json_takes_are_read(tmp_path: Path) -> None:
    source = JsonLinesSource(written(tmp_path, '{"level": 1e400}\n{"level": NaN}\n{"level": 2}\n'), types=Reading)
    first, second, third = [it.level for it in values(source)]
    assert (first, second != second, third) == (float("inf"), True, 2.0)  # noqa: PLR0124 - NaN


def test_a_line_that_is_no_struct_is_bad(tmp_path: Path) -> None:
    path = written(tmp_path, '{"level": 1}\n{"level": "high"}\n{"level": 3}\n')
    with pytest.raises(OperatorError, match=r"line 2.*Reading rejects it: .*Expected `float`, got `str`.*level"):
        values(JsonLinesSource(path, types=Reading))
    assert [it.level for it in values(JsonLinesSource(path, types=Reading, on_error="skip"))] == [1.0, 3.0]


def test_a_struct_has_no_columns_of_folders(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="use a dataclass as types"):
        JsonLinesSource(tmp_path / "day=1" / "a.jsonl", types=Reading, partitions=True)
