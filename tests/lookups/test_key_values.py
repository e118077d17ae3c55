"""The law of values for keys: each finds the row whose key equals it in Python and no other, or is refused by name."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import numpy as np
import pymysql
import pytest
import redis
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from malflow import MalflowError
from malflow.connectors.postgres import PostgresLookup
from malflow.connectors.redis import RedisLookup
from malflow.connectors.sql import SqlLookup
from malflow.testing import python_values
from malflow.words import short_repr
from tests.connectors.postgres.kit import Database
from tests.connectors.sql.kit import made

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("VALUES", "1"))
OFTEN = ("int", "numeric", "float4", "text", "decimal(30, 10)", "datetime(6)", "time(6)", "integer", "time", "texts")
"""The types that are tried without VALUES, which is a number of lists of keys for each type."""

EAST = timezone(timedelta(hours=2))
_SHOWN = 12


class Kind(NamedTuple):
    """A type of a column, and keys that it stores.

    Attributes:
        name: the type.
        keys: the keys, as Python reads them.
        also: what a key finds besides the row whose key equals it: whether a key and the key of a row are alike.
    """

    name: str
    keys: Sequence[Any]
    also: Callable[[Any, Any], bool] = lambda asked, stored: False


def some_of(kinds: Sequence[Kind]) -> Sequence[Any]:
    chosen = kinds if "VALUES" in os.environ else [kind for kind in kinds if kind.name in OFTEN]
    return [pytest.param(kind, id=kind.name) for kind in chosen]


def is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):
        return False
    return True


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.datetime64) else value


def is_named(key: Any, text: str) -> bool:
    has_more = getattr(key, "nanosecond", 0) or getattr(key, "nanoseconds", 0)
    names = () if has_more else ("to_pydatetime", "to_pytimedelta")
    as_python = [getattr(key, name)() for name in names if hasattr(key, name)]
    alike = [key, plain(key), *as_python, *([int(key)] if isinstance(key, bool | np.bool_) else [])]
    return any(it[:_SHOWN] in text for one in alike for it in (repr(one), str(one), short_repr(one)))


def distinct(keys: Iterable[Any]) -> list[Any]:
    """Return keys that differ, without those that can't be compared with an earlier one."""
    found: dict[Any, None] = {}
    for key in keys:
        with suppress(Exception):
            found.setdefault(key)
    return list(found)


def like(key: Any) -> Iterator[Any]:
    """Yield keys that equal a key, and others that are near."""
    yield key
    yield str(key)
    with suppress(Exception):
        yield np.array(key)[()]
    if isinstance(key, int | float | Decimal):
        for kind in (int, float, Decimal, Fraction, bool, np.int64, np.float32, np.float64, complex, str):
            with suppress(Exception):
                yield kind(key)
        yield from (key + 1, -key)
        with suppress(Exception):
            yield key + type(key)("1e-9") if isinstance(key, Decimal) else key + 1e-9
    if isinstance(key, str):
        yield from (key.upper(), f"{key} ", f" {key}", f"{key}\0", key.encode(), np.str_(key), key.swapcase(), key[:-1])
    if isinstance(key, bytes):
        yield from (key + b"\0", key[:-1], key.decode("latin-1"), np.bytes_(key), memoryview(key), b"'" + key)
    if isinstance(key, datetime):
        yield from (key.date(), key.replace(fold=1), key.replace(microsecond=1))
        with suppress(OverflowError):
            yield from (key.replace(tzinfo=UTC), key.replace(tzinfo=EAST), key.replace(tzinfo=None))
            yield key.astimezone(EAST) if key.tzinfo else key + timedelta(hours=2)
    elif isinstance(key, date):
        yield from (datetime(key.year, key.month, key.day), datetime(key.year, key.month, key.day, tzinfo=UTC))
    if isinstance(key, timedelta):
        with suppress(OverflowError):
            yield (datetime(1, 1, 1) + key).time()
            yield from (key + timedelta(days=1), -key)
    if isinstance(key, time):
        yield timedelta(hours=key.hour, minutes=key.minute, seconds=key.second, microseconds=key.microsecond)
        yield key.replace(tzinfo=UTC)
    if isinstance(key, UUID):
        yield from (str(key).upper(), key.hex, key.bytes, key.int)


def are_equal(asked: Any, stored: Any) -> bool:
    try:
        return bool(plain(asked) == stored) and hash(asked) == hash(stored)
    except Exception:  # noqa: BLE001 - such as a signaling NaN
        return False


def check(kind: Kind, table: Any, error: type[Exception]) -> None:
    """Check the law for a table whose keys are those of a kind; the row of a key has its place."""
    near = [it for key in kind.keys for it in like(key) if is_hashable(it)]
    some = python_values(nested=False).filter(is_hashable)
    asked_keys = st.lists(st.sampled_from(near) | some, max_size=6) if EXAMPLES > 50 else st.lists(some, max_size=3)

    def alone(key: Any) -> Any:
        try:
            found = table.get_many([key])
        except error as refusal:
            text = str(refusal)
            is_another = "another spelling of" in text  # then the row is named
            assert any(is_named(it, text) for it in ((key, *kind.keys) if is_another else (key,))), f"{key!r}: {text}"
            return refusal
        expected = [at for at, stored in enumerate(kind.keys) if are_equal(key, stored)]
        allowed = expected or [at for at, stored in enumerate(kind.keys) if kind.also(key, stored)]
        got = [found[key]["at"]] if key in found else []
        if got != expected:
            assert not expected, f"{key!r} finds {got or 'nothing'}, though {kind.keys[expected[0]]!r} is there"
            assert set(got) <= set(allowed), f"{key!r} finds the row of {kind.keys[got[0]]!r}"
        return got

    def together(keys: Iterable[Any]) -> None:
        singles = {key: found for key in keys if not isinstance(found := alone(key), Exception)}
        try:
            found = table.get_many(list(singles)) if singles else {}
        except error:
            return
        assert {key: [found[key]["at"]] if key in found else [] for key in singles} == singles

    for at in range(0, len(near), 7):
        together(distinct(near[at : at + 7]))

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(asked_keys)
    def each(keys: list[Any]) -> None:
        together(distinct(keys))

    each()


DAY, NOON = date(2024, 5, 1), datetime(2024, 5, 1, 12, 30, 0, 500000)
UID = UUID("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")
TEXTS = ("", "de", "a'b\\", "é", "ß", "1", "1.5", "True", "2024-05-01", "😀")
BINARIES = (b"", b"'", b"\\x27", b"\0a", bytes(range(200, 256)))


def as_digits(asked: Any, stored: Any) -> bool:
    """Whether a float has the digits of a number, or a text is read as the type."""
    return isinstance(asked, str) or (isinstance(asked, float) and Decimal(repr(float(asked))) == stored)


def as_moment(asked: Any, stored: Any) -> bool:
    """Whether a time without a zone is that one in UTC, a midnight its date, or a text is read as the type."""
    if isinstance(asked, datetime) and isinstance(stored, datetime):
        one, other = (it if it.tzinfo else it.replace(tzinfo=UTC) for it in (asked, stored))
        return one == other
    return isinstance(asked, str) or (isinstance(asked, date) and asked.timetuple()[:3] == stored.timetuple()[:3])


def as_text(asked: Any, stored: Any) -> bool:
    return isinstance(asked, str)


def number_as_text(asked: Any, stored: Any) -> bool:
    return isinstance(asked, int | float | Decimal | Fraction | np.number | np.bool_) and isinstance(stored, str)


OF_POSTGRES = [
    Kind("smallint", [0, 1, -32768], as_text),
    Kind("int", [0, 1, -5, 2**31 - 1], as_text),
    Kind("bigint", [0, 1, 2**53, 2**53 + 1, -(2**63)], as_text),
    Kind(
        "numeric",
        [Decimal("0.1"), Decimal(1), Decimal("2.50"), Decimal("1E+30"), Decimal("1.12345678901234567890")],
        as_digits,
    ),
    Kind("numeric(8, 2)", [Decimal("0.10"), Decimal("2.50"), Decimal(-1)], as_digits),
    Kind("float8", [0.0, 0.1, 1.0, 2.0**53, 1e300, float("inf")], as_text),
    Kind("float4", [0.0, 1.0, 0.5, 0.1, float("inf")], as_text),
    Kind("bool", [True, False], as_text),
    Kind("text", TEXTS, number_as_text),
    Kind("varchar(60)", TEXTS, number_as_text),
    Kind("bytea", BINARIES, as_text),
    Kind("date", [DAY, date(1, 1, 1), date(9999, 12, 31)], as_moment),
    Kind("timestamp", [NOON, datetime.min, datetime.max], as_moment),  # noqa: DTZ901 - as a column without a zone
    Kind("timestamptz", [NOON.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=EAST)], as_moment),
    Kind("time", [time(0), time(12, 30), time.max], as_text),
    Kind("interval", [timedelta(0), timedelta(hours=25), timedelta(-1, 1)], as_text),
    Kind("uuid", [UID, UUID(int=0)], as_text),
]


@pytest.mark.parametrize("kind", some_of(OF_POSTGRES))
def test_keys_in_postgres(kind: Kind, database: Database) -> None:
    database.execute(f"create table t (k {kind.name} primary key, at int)")
    for at, key in enumerate(kind.keys):
        database.execute("insert into t values (%s, %s)", key, at)
    with closing(PostgresLookup(database.dsn, "t", columns=["at"])) as table:
        check(kind, table, MalflowError)


OF_MARIADB = [
    Kind("tinyint", [0, 1, -128]),
    Kind("bigint", [0, 1, 2**53, 2**53 + 1, -(2**63)]),
    Kind("bigint unsigned", [0, 1, 2**64 - 1]),
    Kind("decimal(30, 10)", [Decimal("0.1"), Decimal(1), Decimal("2.50"), Decimal("12345678901234567890.1234567890")]),
    Kind("double", [0.0, 0.1, 1.0, 2.0**53, 1e300]),
    Kind("bit(8)", [0, 1, 97]),
    Kind("varchar(60) character set utf8mb4 collate utf8mb4_bin", TEXTS),
    Kind("varchar(60) character set utf8mb4", TEXTS),
    Kind("char(20) character set utf8mb4", TEXTS),
    Kind("varbinary(100)", BINARIES),
    Kind("binary(2)", [b"ab", b"a\0", b"\0\0"]),
    Kind("date", [DAY, date(1000, 1, 1), date(9999, 12, 31)]),
    Kind("datetime(6)", [NOON, datetime(1000, 1, 1), datetime.max]),  # noqa: DTZ901
    Kind("datetime", [NOON.replace(microsecond=0)]),
    Kind("timestamp(6)", [NOON, datetime(1971, 1, 1)]),
    Kind("time(6)", [time(0), time(12, 0, 0, 1), timedelta(hours=-30)]),
    Kind("year", [1901, 2024]),
    Kind("uuid", [str(UID)]),
    Kind("enum('a', 'B', '1')", ["a", "B", "1"]),
]


@pytest.mark.parametrize("kind", some_of(OF_MARIADB))
def test_keys_in_mariadb(kind: Kind, mariadb_url: str) -> None:
    with made(sa.make_url(mariadb_url), f"t_{uuid4().hex}") as database:
        database.execute(f"create table t (k {kind.name} primary key, at int)")
        url = database.url
        with closing(
            pymysql.connect(
                host=url.host, port=url.port or 0, user=url.username, password=url.password or "",
                database=url.database, autocommit=True, charset="utf8mb4",
            )
        ) as client, client.cursor() as cursor:  # fmt: skip
            cursor.executemany("insert into t values (%s, %s)", [(key, at) for at, key in enumerate(kind.keys)])
        with closing(SqlLookup(url, "t", columns=["at"])) as table:
            check(kind, table, MalflowError)


OF_SQLITE = [
    Kind("integer", [0, 1, 2**53, 2**53 + 1, -(2**63)]),
    Kind("real", [0.0, 0.1, 1.0, 2.0**53, 1e300]),
    Kind("numeric", [Decimal(0), Decimal("0.1"), Decimal(1), Decimal("1.00000000001"), Decimal(10**15)]),
    Kind("decimal(6, 2)", [Decimal(0), Decimal("0.1"), Decimal(1), Decimal("2.5")]),
    Kind("text", TEXTS),
    Kind("varchar(60)", TEXTS),
    Kind("blob", BINARIES),
    Kind("boolean", [0, 1]),
]


@pytest.mark.parametrize("kind", some_of(OF_SQLITE))
def test_keys_in_sqlite(kind: Kind, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as client:
        client.execute(f"create table t (k {kind.name} primary key, at int)")
        client.executemany(
            "insert into t values (?, ?)",
            [(float(it) if isinstance(it, Decimal) else it, at) for at, it in enumerate(kind.keys)],
        )
        client.commit()
    with closing(SqlLookup(f"sqlite:///{tmp_path}/t.db", "t", columns=["at"])) as table:
        check(kind, table, MalflowError)


TIMES = [
    Kind("date", [DAY, date.min, date.max]),
    Kind("datetime", [NOON, datetime.min, datetime.max]),  # noqa: DTZ901
    Kind("time", [time(0), time(12, 30), time.max]),
]


@pytest.mark.parametrize("kind", some_of(TIMES))
def test_times_as_keys_in_sqlite(kind: Kind, tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/t.db")
    with engine.begin() as client:
        client.exec_driver_sql(f"create table t (k {kind.name} primary key, at int)")
        table = sa.Table("t", sa.MetaData(), autoload_with=client)
        client.execute(table.insert(), [{"k": key, "at": at} for at, key in enumerate(kind.keys)])
    engine.dispose()
    with closing(SqlLookup(f"sqlite:///{tmp_path}/t.db", "t", columns=["at"])) as lookup:
        check(kind, lookup, MalflowError)


OF_REDIS = [
    Kind("texts", [*TEXTS, "a\0b", "x" * 300], lambda asked, stored: not isinstance(asked, str)),
    Kind("numbers", [0, 1, -5, 0.1, 2.5, 2**70, 1e300], lambda asked, stored: isinstance(asked, str | bytes)),
    Kind("binaries", BINARIES, lambda asked, stored: isinstance(asked, str)),
]


@pytest.mark.parametrize("where", ["table", "prefix"])
@pytest.mark.parametrize("kind", some_of(OF_REDIS))
def test_keys_in_redis(kind: Kind, where: str, redis_url: str) -> None:
    name = uuid4().hex
    spelled = [key if isinstance(key, str | bytes) else f"{int(key) if key == int(key) else key}" for key in kind.keys]
    with closing(redis.Redis.from_url(redis_url)) as client:
        for at, key in enumerate(spelled):
            if where == "table":
                client.hset(name, key, f'{{"at": {at}}}')
            else:
                client.set(name.encode() + (key.encode() if isinstance(key, str) else key), f'{{"at": {at}}}')
    options: Mapping[str, Any] = {where: name}
    with closing(RedisLookup(redis_url, decode="json", **options)) as table:
        check(kind, table, MalflowError)


def test_cells_of_mariadb_are_read_whole(mariadb_url: str) -> None:
    with made(sa.make_url(mariadb_url), f"t_{uuid4().hex}") as database:
        database.execute(
            "create table t (k decimal(9, 2) primary key, span time(1), n float, f float(7, 2), born datetime)",
            "insert into t values (1, '-30:00:00.5', 16777216, 0.25, '2024-05-01'), (2, '08:30', 0.1, 1, null)",
        )
        with closing(SqlLookup(database.url, "t", columns=["span", "n", "f"], row=tuple)) as table:
            found = table.get_many([np.int64(1), Decimal(2)])
            assert found == {1: (timedelta(hours=-30, seconds=-0.5), 16777216.0, 0.25), 2: (time(8, 30), 0.1, 1)}
            with pytest.raises(MalflowError, match=r"the key np.timedelta64\(1,'M'\) can't be looked up"):
                table.get_many([np.timedelta64(1, "M")])
        with closing(SqlLookup(database.url, "t", key=["born"])) as table:
            with pytest.raises(MalflowError, match="column 'born' has times without a zone; got the key datetime"):
                table.get_many([datetime(2024, 5, 1, tzinfo=UTC)])
            assert list(table.get_many([datetime(2024, 5, 1)])) == [datetime(2024, 5, 1)]
        told = "column 'n' can't be a key of look-ups: it has numbers of single precision"
        with closing(SqlLookup(database.url, "t", key=["n"])) as table, pytest.raises(MalflowError, match=told):
            table.get_many([0.1])


def test_digits_of_sqlite_are_read_whole(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as client:
        client.execute("create table t (k int primary key, n numeric)")
        client.execute("insert into t values (1, 1.00000000001)")
        client.commit()
    with closing(SqlLookup(f"sqlite:///{tmp_path}/t.db", "t", columns=["n"], row=tuple)) as table:
        assert table.get_many([1, 7, Decimal("1E+999999")]) == {1: (Decimal("1.00000000001"),)}


def test_a_key_that_a_server_refuses_is_named(database: Database) -> None:
    database.execute("create table t (k int primary key); insert into t values (1)")
    with closing(PostgresLookup(database.dsn, "t")) as table:
        with pytest.raises(MalflowError, match="the key 'one' can't be looked up: invalid input syntax for type int"):
            table.get_many([1, 2, 3, "4", "one", 5])
        assert list(table.get_many([1, Decimal("1E+999999"), Decimal("1E-999999")])) == [1]
