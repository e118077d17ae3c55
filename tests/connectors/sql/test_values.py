"""The law of values for tables of MariaDB and SQLite, read by drivers without SQLAlchemy."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pymysql
import pytest
import sqlalchemy as sa
from hypothesis import strategies as st

from malflow.connectors.sql import SqlSink
from malflow.testing import SinkValues, python_values, same_value
from malflow.words import short_repr
from tests.connectors.sql.kit import Database

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "databases.md"
EXAMPLES = int(os.environ.get("VALUES", "4"))


def plain(value: Any) -> Any:
    """Return the value of Python that a value stands for, as the driver gets it."""
    if isinstance(value, np.ndarray) and value.shape == ():
        return value.item()
    if isinstance(value, np.number | np.bool_) and not isinstance(value, np.timedelta64):
        return value.item()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    for kind in (bool, int, str):
        if isinstance(value, kind):
            return kind.__str__(value) if kind is str else kind(value)
    return in_utc(value)


def is_named(value: Any, text: str) -> bool:
    try:
        it = plain(value)
    except OverflowError:
        it = value
    has_more = getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)
    names = () if has_more else ("to_pydatetime", "to_pytimedelta")
    as_python = [getattr(value, name)() for name in names if hasattr(value, name)]
    return any(repr(each)[:12] in text or short_repr(each)[:12] in text for each in (it, value, *as_python))


def exact(value: Any) -> Any:
    """Return the number that a float, or a scalar of numpy, has in its shortest digits."""
    value = plain(value)
    return Decimal(repr(float(value))) if isinstance(value, float) and np.isfinite(value) else value


def same_digits(wrote: Any, read: Any) -> bool:
    if same_value(wrote, read):
        return True
    if isinstance(wrote, bool | str | np.bool_):
        return False
    one, other = exact(wrote), exact(read)
    numbers = isinstance(one, int | Decimal) and isinstance(other, int | Decimal)
    return numbers and bool(one == other) and bool(one)


def span(text: str) -> timedelta:
    hours, minutes, seconds = text.removeprefix("-").split(":")
    found = timedelta(hours=int(hours), minutes=int(minutes), microseconds=round(Decimal(seconds) * 10**6))
    return -found if text.startswith("-") else found


def truth(value: Any) -> Any:
    return int(value) if isinstance(value, bool | np.bool_) else value


def zero(value: Any) -> Any:
    return 0.0 if isinstance(value, float | np.floating) and value == 0 else value


def in_utc(value: Any) -> Any:
    is_zoned = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC).replace(tzinfo=None) if is_zoned else value


def day(value: Any) -> Any:
    return in_utc(value).date() if isinstance(value, datetime) and in_utc(value).time() == time(0) else value


def since_midnight(value: Any) -> Any:
    if not isinstance(value, time):
        return value
    return timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)


def single(value: Any) -> Any:
    is_within = isinstance(value, float | np.floating) and abs(float(value)) < float(2**128)
    return float(np.float32(value)) if is_within else value


def number_of(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return int.from_bytes(bytes(value))
    return value


def unpadded(value: Any) -> Any:
    return str(value).rstrip(" ") if isinstance(value, str) else value


def member(value: Any) -> Any:
    return str.__str__(value).strip().lower() if isinstance(value, str) else value


def members(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    given = {it.rstrip().lower() for it in str.__str__(value).split(",")}
    return ",".join(it for it in ("a", "b") if it in given)


def as_uuid(value: Any) -> Any:
    return str(value).lower() if isinstance(value, UUID | str) else value


TRUTH = {"A truth is written as 1 or 0": truth}
ZERO = {"A negative zero is written as zero": zero}
DIGITS: dict[str, Any] = {"same": same_digits, "changes": {**TRUTH, **ZERO}}
MOMENT = {"changes": {"A `datetime` with a time zone is written in UTC to columns without one": in_utc}}
DAY = {"changes": {"a midnight is its `date`": day}}
SPAN = {"changes": {"a `time` is the time since midnight": since_midnight}}

Read = Callable[[str], Any]


def of_hex(text: str) -> str:
    return bytes.fromhex(text).decode()


@dataclass
class Column:
    """A type of a column: how its values are read, and which of them become others."""

    kind: str
    shown: str = "v"
    read: Read = str
    options: Mapping[str, Any] = field(default_factory=dict)
    values: st.SearchStrategy[Any] = field(default_factory=st.nothing)


TEXT = "hex(convert(v using utf8mb4))"
OF_MARIADB = [
    Column("tinyint", read=int, options={"changes": TRUTH}),
    Column("bigint", read=int, options={"changes": TRUTH}),
    Column("int unsigned", read=int, options={"changes": TRUTH}),
    Column("decimal(6, 2)", read=Decimal, options=DIGITS, values=st.decimals(-20_000, 20_000, places=3)),
    Column("decimal(38, 0)", read=Decimal, options=DIGITS),
    Column("double", read=float, options=DIGITS),
    Column(
        "float",
        "cast(v as double)",
        float,
        {
            "same": lambda wrote, read: (
                same_digits(wrote, read) or (isinstance(wrote, int | Decimal) and np.float32(wrote) == read)
            ),
            "changes": {**TRUTH, **ZERO, "keeps the nearest of its numbers to a float": lambda it: zero(single(it))},
        },
        st.floats(width=32) | st.integers(2**24 - 2, 2**24 + 2),
    ),
    Column("float(7, 2)", "cast(v as char)", float, {"same": same_digits, "changes": {**TRUTH, **ZERO}}),
    Column("text character set utf8mb4", TEXT, of_hex),
    Column("text character set utf8mb3", TEXT, of_hex),
    Column("varchar(3) character set latin1", TEXT, of_hex, values=st.text("a é\u0142", max_size=5)),
    Column(
        "char(3) character set utf8mb4",
        TEXT,
        of_hex,
        {"changes": {"drop trailing spaces": unpadded}},
        st.text("a é\u0142", max_size=5),
    ),
    Column("blob", "hex(v)", bytes.fromhex),
    Column("binary(2)", "hex(v)", bytes.fromhex, values=st.binary(max_size=3)),
    Column("date", read=date.fromisoformat, options=DAY),
    Column("datetime(6)", read=datetime.fromisoformat, options=MOMENT),
    Column("datetime(3)", read=datetime.fromisoformat, options=MOMENT, values=st.datetimes()),
    Column("timestamp(6) null", read=datetime.fromisoformat, options=MOMENT, values=st.datetimes()),
    Column("time(6)", read=span, options=SPAN),
    Column("time", read=span, options=SPAN, values=st.timedeltas(timedelta(-50), timedelta(50))),
    Column(
        "year",
        read=int,
        options={
            "changes": {**TRUTH, "A text of four digits is a `year`": lambda it: int(it) if isinstance(it, str) else it}
        },
        values=st.integers(-1, 2200) | st.integers(-1, 2200).map(str),
    ),
    Column(
        "bit(8)",
        "v + 0",
        int,
        {"changes": {**TRUTH, "Bytes are the bits": number_of}},
        st.integers(-1, 300) | st.binary(max_size=2),
    ),
    Column(
        "uuid", read=str, options={"changes": {"A UUID is read in lower case": as_uuid}}, values=st.uuids().map(str)
    ),
    Column("json", TEXT, of_hex, values=st.sampled_from(["{}", '{"a":1}', "[", "nul", "null", "NaN", '"\\u0000"'])),
    Column(
        "enum('a', 'b') character set utf8mb4",
        TEXT,
        of_hex,
        {"changes": {"the spelling and order of their members": member}},
        st.text("aAb ", max_size=2),
    ),
    Column(
        "set('a', 'b') character set utf8mb4",
        TEXT,
        of_hex,
        {"changes": {"the spelling and order of their members": members}},
        st.text("aAb, ", max_size=4),
    ),
]


INSTANT = datetime(2024, 2, 29, 12, 30, 15, 123_456)
DIGITS_BEYOND = [Decimal("1.005"), 1.005, Decimal("-0.001")]
ALWAYS: dict[str, list[Any]] = {
    "decimal(6, 2)": DIGITS_BEYOND,
    "decimal(38, 0)": [Decimal("0.5"), 0.5],
    "float(7, 2)": DIGITS_BEYOND,
    "float": [Decimal("0.1234567891"), 2**24 + 1],
    "double": [2**53 + 1, Decimal("0.12345678901234567890")],
    "real": [2**53 + 1],
    "numeric": [Decimal("0.12345678901234567890")],
    "date": [INSTANT, pd.NaT],
    "datetime(6)": [pd.NaT, pd.Timestamp("2024-02-29 12:30:15.123456789"), INSTANT.replace(tzinfo=UTC)],
    "datetime(3)": [INSTANT],
    "timestamp(6) null": [datetime(2039, 1, 1), datetime(1969, 12, 31)],
    "time(6)": [time(1, tzinfo=UTC), pd.Timedelta(1, "ns")],
    "time": [timedelta(microseconds=1), time(1, tzinfo=UTC)],
    "year": [1800, 70],
    "bit(8)": [256, "1"],
    "uuid": ["x"],
    "json": ["{"],
    "text character set utf8mb4": [np.str_("a\0")],
    "blob": [np.bytes_(b"a\0"), np.bytes_(b"")],
    "": [np.bytes_(b"\0"), np.str_("a\0")],
    "text character set utf8mb3": ["\U0001f600"],
    "varchar(3) character set latin1": ["\u0142", "abcd"],
}
"""Values that are tried each time: they were wrong once."""


@pytest.fixture
def client(mariadb: Database) -> Iterator[pymysql.connections.Connection[Any]]:
    url = mariadb.url
    with closing(
        pymysql.connect(
            host=url.host, port=url.port or 0, user=url.username, password=url.password or "", database=url.database,
            conv={}, autocommit=True, charset="utf8mb4",
        )
    ) as connection:  # fmt: skip
        yield connection


@pytest.mark.parametrize(
    "column",
    [pytest.param(it, marks=[pytest.mark.nightly] if at % 2 else []) for at, it in enumerate(OF_MARIADB)],
    ids=[column.kind for column in OF_MARIADB],
)
def test_values_of_mariadb(column: Column, mariadb: Database, client: pymysql.connections.Connection[Any]) -> None:
    shown = f"create view seen as select n, {column.shown} as shown from t"  # noqa: S608 - of this file
    mariadb.execute(f"create table t (n int primary key, v {column.kind})", shown)

    def read() -> Mapping[int, Any]:
        with client.cursor() as cursor:
            cursor.execute("select n, shown from seen")
            return {int(n): None if cell is None else column.read(cell) for n, cell in cursor.fetchall()}

    check(column, mariadb.url, read)


def check(column: Column, url: sa.URL, read: Callable[[], Mapping[int, Any]]) -> None:
    values = python_values() | column.values
    law = SinkValues(
        column.kind,
        lambda: SqlSink(url, "t"),
        read,
        values,
        docs=[PAGE],
        names=is_named,
        examples=EXAMPLES,
        always=ALWAYS.get(column.kind, ()),
        **column.options,
    )
    law.check()


OF_SQLITE = [
    Column("integer", options={"changes": TRUTH}),
    Column("real", options=DIGITS),
    Column("numeric", options=DIGITS),
    Column("decimal(6, 2)", options=DIGITS),
    Column("text"),
    Column("varchar(3)"),
    Column("blob"),
    Column("", options={"changes": {**TRUTH, **ZERO}}),
    Column("date", read=date.fromisoformat, options=DAY),
    Column("datetime", read=datetime.fromisoformat, options=MOMENT),
    Column("time", read=time.fromisoformat),
    Column("boolean", options={"changes": TRUTH}),
]


@pytest.mark.parametrize("column", OF_SQLITE, ids=[column.kind or "none" for column in OF_SQLITE])
def test_values_of_sqlite(column: Column, sqlite: Database) -> None:
    sqlite.execute(f"create table t (n int primary key, v {column.kind})")

    def read() -> Mapping[int, Any]:
        with closing(sqlite3.connect(str(sqlite.url.database))) as client:
            rows = client.execute("select n, v from t").fetchall()
            return {n: cell if cell is None or column.read is str else column.read(cell) for n, cell in rows}

    check(column, sqlite.url, read)
