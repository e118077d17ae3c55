"""The net of values for what is written: each is as it was, for the text of a COPY, or refused, or as the page says."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import settings
from hypothesis import strategies as st

from malflow.connectors.postgres import PostgresSink
from malflow.testing import SinkValues, python_values
from tests.connectors.postgres.kit import Database
from tests.connectors.postgres.stored_values import cells, changed, equal

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs" / "postgres.md"

_EVERY = python_values()
_BYTES = st.lists(st.sampled_from(b"'\\\0\n\xff"), max_size=3).map(bytes) | st.binary()
_NUMBERS = st.decimals(-9999, 9999, places=2) | st.integers(-9999, 9999) | st.floats(-9999, 9999) | _EVERY
_TIMES = st.datetimes().map(lambda it: it.replace(microsecond=0)) | st.datetimes(timezones=st.timezones()) | _EVERY
_JSON = (
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
        max_leaves=5,
    )
    | _EVERY
)


def _lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values | st.none(), max_size=4) | st.lists(st.lists(values, max_size=2), max_size=2) | _EVERY


KINDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "numbers": {
        "smallint": st.integers(-40_000, 40_000) | _EVERY,
        "bigint": _EVERY,
        "oid": _EVERY,
        "numeric": _NUMBERS,
        "numeric(6, 2)": _NUMBERS,
        "numeric(4, -2)": _NUMBERS,
        "money": _NUMBERS,
        "real": st.floats(width=32) | _NUMBERS,
        "double precision": st.floats() | _NUMBERS,
        "boolean": st.booleans() | st.integers(0, 2) | _EVERY,
    },
    "texts": {
        "text": st.text() | _EVERY,
        "varchar(5)": st.text(max_size=6) | _EVERY,
        "char(5)": st.text(max_size=6) | _EVERY,
        "name": st.text(min_size=60, max_size=70) | _EVERY,
        '"char"': st.text(max_size=2) | _EVERY,
        "bit(3)": st.text("01", min_size=2, max_size=4) | _EVERY,
        "uuid": st.uuids() | _EVERY,
        "inet": st.ip_addresses() | _EVERY,
        "cidr": _EVERY,
    },
    "times": {
        "date": st.dates() | _TIMES,
        "time": st.times() | _TIMES,
        "time(2)": st.times().map(lambda it: it.replace(microsecond=it.microsecond // 10_000 * 10_000)) | _TIMES,
        "timetz": st.times() | _EVERY,
        "timestamp": _TIMES,
        "timestamp(3)": _TIMES,
        "timestamptz": _TIMES,
        "timestamptz(0)": _TIMES,
    },
    "spans": {
        "interval": st.timedeltas() | _EVERY,
        "interval(1)": st.timedeltas() | _EVERY,
        "interval day to minute": st.timedeltas() | _EVERY,
    },
    "bytes": {
        "bytea": _BYTES | _EVERY,
        "bytea[]": _lists(_BYTES),
        "text[]": _lists(st.text()),
    },
    "arrays": {
        "integer[]": _lists(st.integers(-9, 9)),
        "numeric(6, 2)[]": _lists(_NUMBERS),
        "timestamptz[]": _lists(st.datetimes(timezones=st.timezones())),
        "interval[]": _lists(st.timedeltas()),
    },
    "JSON": {
        "json": _JSON,
        "jsonb": _JSON,
        "jsonb[]": st.lists(_JSON, max_size=3) | _EVERY,
    },
}


_MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123_456)
_DIGITS = [Decimal("1.005"), 0.125, Decimal("-0.001"), Decimal("1.10")]
ALWAYS: dict[str, list[Any]] = {
    "bytea": [b"it's", b"'", bytes(range(256)), bytearray(b"'"), memoryview(b"\\'")],
    "bytea[]": [[b"'", None], [[b"''"], [b"\\"]]],
    "numeric(6, 2)": _DIGITS,
    "numeric(6, 2)[]": [_DIGITS[:1]],
    "numeric(4, -2)": [150, Decimal("100.5")],
    "money": _DIGITS,
    "real": [Decimal("0.1234567891"), 2**24 + 1],
    "date": [_MOMENT, pd.NaT],
    "time": [time(1, tzinfo=UTC), time(1, 2, 3, 4)],
    "time(2)": [time(0, 0, 0, 1000)],
    "timestamp": ["2024-02-29 12:00:00+05", pd.NaT, pd.Timestamp("2024-02-29 12:30:15.123456789")],
    "timestamp(3)": [_MOMENT],
    "timestamptz(0)": [_MOMENT.replace(tzinfo=UTC)],
    "interval": [timedelta(days=31), timedelta(hours=-1)],
    "interval(1)": [timedelta(microseconds=1)],
    "jsonb[]": ["{}", "{1}"],
    "integer[]": ["{}", "{1, 2}"],
}
"""Values that are tried each time: they were wrong once."""


def _names(value: Any, text: str) -> bool:
    """Whether an error names the value and its column, or shows the row that the server refuses."""
    return "can't be a key" in text or "column 'v'" in text or "v=" in text or "column v" in text or "NULL" in text


def _held(database: Database, kind: str, values: st.SearchStrategy[Any], table: str, **options: Any) -> None:
    SinkValues(
        kind,
        lambda: PostgresSink(database.dsn, table, **options),
        lambda: cells(database.connection, table, kind),
        values=values,
        same=equal(kind),
        changes=changed(kind, database.connection),
        docs=[PAGE],
        names=_names,
        examples=max(2, settings().max_examples // 12),
        always=ALWAYS.get(kind, ()),
    ).check()


@pytest.mark.parametrize("group", KINDS)
def test_values_of_columns(database: Database, group: str) -> None:
    for at, (kind, values) in enumerate(KINDS[group].items()):
        database.execute(f"create table t{at} (n int primary key, v {kind})")
        _held(database, kind, values, f"t{at}")


@pytest.mark.parametrize("kind", ["bytea", "numeric(6, 2)", "timestamp(3)"])
def test_values_of_keys_at_least_once(database: Database, kind: str) -> None:
    values = next(group[kind] for group in KINDS.values() if kind in group)
    database.execute(f"create table t (n int, v {kind}, primary key (n, v))")
    _held(database, kind, values, "t", delivery="at-least-once")


def test_values_of_appended_rows(database: Database) -> None:
    database.execute("create table t (n int, v bytea[])")
    _held(database, "bytea[]", KINDS["bytes"]["bytea[]"], "t", key=())
