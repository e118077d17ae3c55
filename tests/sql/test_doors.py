"""Values at the door of a table: as its types hold them, or refused with the table, the column and the reason."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any, NamedTuple

import pytest

from malflow import OperatorError, SingleThreadRuntime
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource

np, pd = pytest.importorskip("numpy"), pytest.importorskip("pandas")


class Colour(IntEnum):
    RED = 1


def through(kind: str, value: Any) -> Any:
    """Return what a column makes of a value."""
    found = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([{"c": value}])), f"c {kind}")
        sql.query("q", "SELECT c FROM t").rows(tuple).sink("out", found)

    SingleThreadRuntime(build).execute()
    return found.values[0][0]


NOON = datetime(2026, 1, 1, 12)

TAKEN = [
    ("BIGINT", np.int64(5), 5),
    ("BIGINT", Colour.RED, 1),
    ("DOUBLE", np.float32(1.5), 1.5),
    ("DOUBLE", Decimal("1.5"), 1.5),
    ("BOOLEAN", np.True_, True),
    ("STRING", np.str_("y"), "y"),
    ("DECIMAL(5, 2)", 0.1, Decimal("0.10")),
    ("DECIMAL(5, 2)", "1e2", Decimal("100.00")),
    ("TIMESTAMP(3)", pd.Timestamp(NOON), NOON),
    ("TIMESTAMP(3)", "2026-01-01T12:00:00", NOON),
    ("TIMESTAMP(3)", 1_767_268_800_000, NOON),
    ("TIMESTAMP_LTZ(3)", NOON.replace(tzinfo=timezone(timedelta(hours=2))), datetime(2026, 1, 1, 10, tzinfo=UTC)),
    ("TIMESTAMP_LTZ(3)", "2026-01-01T12:00:00.5+02:00", datetime(2026, 1, 1, 10, 0, 0, 500_000, tzinfo=UTC)),
    ("TIMESTAMP_LTZ(3)", "2026-01-01 12:00:00Z", NOON.replace(tzinfo=UTC)),
    ("TIMESTAMP_LTZ(3)", "2026-01-01 12:00:00 -0130", datetime(2026, 1, 1, 13, 30, tzinfo=UTC)),
    ("DATE", "2026-1-1", date(2026, 1, 1)),
    ("TIME(0)", time(1, 2, 3), time(1, 2, 3)),
    ("ARRAY<INT>", (1, None), [1, None]),
    ("ROW<a INT, b STRING>", [1, "x"], {"a": 1, "b": "x"}),
    ("ROW<a INT, b STRING>", (1, "x"), {"a": 1, "b": "x"}),
    ("ROW<a INT, b STRING>", {"b": "x", "a": 1, "c": 2}, {"a": 1, "b": "x"}),
    ("ROW<a ROW<b DATE>, c INT>", {"a": {"b": "2026-01-01"}, "c": None}, {"a": {"b": date(2026, 1, 1)}, "c": None}),
]

REFUSED = [
    ("BIGINT", True, "True is not of type BIGINT"),
    ("BIGINT", np.float64(5), "is not of type BIGINT"),
    ("BIGINT", 1 << 63, "does not fit into BIGINT"),
    ("FLOAT", 1e39, "does not fit into FLOAT"),
    ("DECIMAL(5, 2)", Decimal("NaN"), "is not a DECIMAL"),
    ("DECIMAL(5, 2)", 1.005, "more digits after the point"),
    ("STRING", b"x", "is not of type STRING"),
    ("VARCHAR(3)", "abc ", "is longer than VARCHAR"),
    ("TIMESTAMP(3)", pd.NaT, "NaT is not of type TIMESTAMP"),
    ("TIMESTAMP(3)", NOON.replace(tzinfo=UTC), "has a zone, other than TIMESTAMP.3.; use TIMESTAMP_LTZ"),
    ("TIMESTAMP(3)", "2026-01-01 12:00:00Z", "has a zone, other than TIMESTAMP.3.; use TIMESTAMP_LTZ"),
    ("TIMESTAMP_LTZ(3)", NOON, "has no zone"),
    ("TIMESTAMP(3)", NOON.replace(microsecond=1), "is finer than TIMESTAMP"),
    ("TIMESTAMP(3)", "2026-01-01 12:00:00.0001", "is finer than TIMESTAMP"),
    ("TIMESTAMP(3)", date(2026, 1, 1), "is not of type TIMESTAMP"),
    ("TIMESTAMP(3)", 10**18, "is not in the years 1 to 9999"),
    ("DATE", NOON, "is not of type DATE"),
    ("DATE", "20260101", "is not a DATE, such as"),
    ("DATE", "2026-02-30", "is not a DATE: day"),
    ("TIME(0)", time(1, 2, 3, 500), "is finer than TIME"),
    ("ARRAY<INT NOT NULL>", [1, None], "NULL in a column of INT NOT NULL"),
    ("MAP<STRING, INT>", {1: 1}, "1 is not of type STRING"),
    ("ROW<a INT, b STRING>", {"a": 1}, "column 'b' is missing"),
    ("ROW<a INT, b STRING>", {"a": 1 << 31, "b": "x"}, "does not fit into INT"),
    ("ROW<a INT, b STRING>", (1, 2), "2 is not of type STRING"),
    ("ROW<a INT, b STRING>", (1, "x", 2), "a row has the columns a, b"),
    ("ROW<a INT NOT NULL, b STRING>", {"a": None, "b": "x"}, "NULL in a column of INT NOT NULL"),
    ("ROW<a ROW<b DATE>, c INT>", {"a": {"b": "x"}, "c": 1}, "'x' is not a DATE"),
    ("ROW<a INT> NOT NULL", None, "NULL in a column of ROW"),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_a_value_is_what_its_type_holds(kind: str, value: Any, expected: Any) -> None:
    found = through(kind, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("kind", "value", "words"), REFUSED)
def test_a_value_that_does_not_fit_is_refused_with_its_column(kind: str, value: Any, words: str) -> None:
    with pytest.raises(OperatorError, match=f"column 'c'.*{words}"):
        through(kind, value)


class Out(NamedTuple):
    a: int
    r: dict[str, int]


def test_rows_of_a_class_right_after_the_door() -> None:
    found = VecSink[Any, Any, Any]()

    def build(provider: Any) -> None:
        sql = provider.sql("s")
        values = provider.new_stream().source("values", SingleIteratorSource([{"a": 1, "r": {"x": 2}}]))
        sql.table("t", values, "a INT, r ROW<x INT>")
        sql.query("q", "SELECT a, r FROM t").rows(Out).sink("out", found)

    SingleThreadRuntime(build).execute()
    assert found.values == [Out(1, {"x": 2})]


def test_a_number_that_leaves_too_large_is_named_with_its_place() -> None:
    def build(provider: Any) -> None:
        sql = provider.sql("s")
        sql.table("t", provider.new_stream().source("values", SingleIteratorSource([{"a": 2}])), "a INT")
        sql.query("q", "SELECT a, 2147483646 + a AS b FROM t").rows().sink("out", VecSink())

    with pytest.raises(OperatorError, match=r"2147483648 does not fit into INT.* in '2147483646 \+ a' \(q:1:11\)"):
        SingleThreadRuntime(build).execute()
