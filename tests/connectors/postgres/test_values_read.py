"""The net of values for what is read: each would be written again as the same text, or is refused with the cure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from malflow.connectors.postgres import PostgresChanges, PostgresLookup, PostgresSource
from malflow.connectors.postgres.column_kinds import column_kinds
from malflow.connectors.postgres.copy_text import Column, copy_text
from malflow.sources import StatefulSourceImpl, StatefulSourcePartition
from malflow.testing import SourceValues
from tests.connectors.postgres.kit import Database, slot_name
from tests.kit.nights import at_night
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

_SMALL = st.integers(-2, 2) | st.integers(-500, 500)
_INTERVALS = st.builds(
    "{} mons {} days {} microseconds".format, st.just(0) | _SMALL, _SMALL, _SMALL | st.integers(-(10**12), 10**12)
)
_DAYS = st.dates().map(str) | st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "10000-01-01"])
_CLOCKS = st.times().map(str) | st.just("24:00:00")
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
_NUMBERS = st.decimals(-1000, 1000, places=2) | st.decimals(-(10**20), 10**20, places=20) | st.just("NaN")
_SPACED = st.sampled_from(["1.10", "-0", "12345678901234567890.123456789", "1e400", "1E2", "0.1", "1e-400", "100"])
_JSON = st.recursive(
    _SPACED | st.sampled_from(["null", "true", '"null"', '"1.10"']) | _TEXTS.map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda it: f"[{','.join(it)}]")
        | st.lists(st.tuples(st.sampled_from("aab"), inner), max_size=3).map(
            lambda it: "{" + ",".join(f'"{name}": {value}' for name, value in it) + "}"
        )
    ),
    max_leaves=4,
)


def _array(element: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """Return texts of arrays: of one or two dimensions, some of which do not begin at 1."""
    quoted = element.map(lambda it: '"' + str(it).replace("\\", "\\\\").replace('"', '\\"') + '"') | st.just("NULL")
    flat = st.lists(quoted, max_size=3).map(lambda it: "{" + ",".join(it) + "}")
    nested = st.lists(quoted, min_size=2, max_size=2).map(lambda it: "{{" + it[0] + "},{" + it[1] + "}}")
    moved = st.tuples(st.integers(-1, 2), quoted).map(lambda it: f"[{it[0]}:{it[0]}]={{{it[1]}}}")
    return flat | nested | moved


KINDS: dict[str, st.SearchStrategy[Any]] = {
    "interval": _INTERVALS,
    "interval[]": _array(_INTERVALS),
    "jsonb": _JSON,
    "json": _JSON,
    "jsonb[]": _array(_JSON),
    "integer[]": _array(st.integers(-9, 9)),
    "text[]": _array(_TEXTS),
    "bytea[]": _array(st.binary(max_size=9).map(lambda it: "\\x" + it.hex())),
    "date": _DAYS,
    "time": _CLOCKS,
    "timetz": st.tuples(_CLOCKS, st.sampled_from(["+00", "+05:30", "-01:02:03"])).map("".join),
    "timestamp": st.datetimes().map(str) | _DAYS,
    "timestamptz": st.tuples(st.datetimes().map(str), st.sampled_from(["+00", "+10"])).map("".join) | _DAYS,
    "numeric": _NUMBERS.map(str),
    "money": st.decimals(-(10**9), 10**9, places=2).map(str),
    "real": st.floats(width=32).map(repr),
    "double precision": st.floats().map(repr),
    "bytea": st.binary().map(lambda it: "\\x" + it.hex()),
    "text": _TEXTS,
    "char(5)": st.text("ab ", max_size=5),
    '"char"': st.sampled_from(["", "a", "\\377"]),
    "boolean": st.sampled_from("tf"),
    "inet": st.ip_addresses().map(str) | st.sampled_from(["10.0.0.1/8", "::1/64"]),
    "cidr": st.sampled_from(["10.0.0.0/8", "::/0"]),
    "int4range": st.sampled_from(["empty", "[1,3)", "(,)", "[5,)"]),
    "numrange": st.sampled_from(["[1.10,2]", "(,5)", "empty"]),
    "daterange": _DAYS.map(lambda it: f"[{it},)"),
    "tstzmultirange": st.sampled_from(["{}", "{[2024-01-01,2024-01-02),[2025-01-01,)}", "{[infinity,)}"]),
    "mood[]": _array(st.sampled_from(["sad", "it's"])),
    "pair": st.sampled_from(['(1,"a b")', "(,)"]),
}
ALWAYS = {
    "interval": ["1 mon", "1 year 2 mons", "24:00:00", "2 days"],
    "interval[]": ["{1 mon}"],
    "jsonb": ['{"n": 12345678901234567890.123456789}', "null", '{"n": 1.5}', "[1e400]"],
    "json": ["null", '{"a": 1, "a": 2}', "0.1234567890123456789"],
    "jsonb[]": ['{"null"}', "{{1},{2}}"],
    "integer[]": ["[2:3]={1,2}", "{{1},{2}}"],
    "date": ["infinity", "0044-03-15 BC"],
    "time": ["24:00:00"],
}
"""Texts that are tried each time: two of them became one value once."""

_HARD = ("interval", "jsonb", "integer[]", "date")
_BY_DAY = (*_HARD, "interval[]", "json", "time", "timestamptz", "numeric", "text", "bytea", "pair")
"""Kinds of which each is read in a way of its own."""


class Texts:
    """What a value is as a text of the server, before and after it has been read."""

    def __init__(self, database: Database, kind: str) -> None:
        self._database, self._kind = database, kind
        ((oid,),) = database.rows("select 't'::regclass::oid::bigint")
        self._column = Column("v", column_kinds(database.connection, oid)[1])
        database.execute(f"create temp table again (v {kind})")

    def same(self, wrote: str | None, read: Any) -> bool:
        if wrote is None or read is None:
            return wrote is read
        again = self._again(read)
        if self._kind in ("json", "jsonb"):
            kept = wrote if self._kind == "json" else self._server("%s", wrote)
            return None not in (kept, again) and _parsed(str(kept)) == _parsed(str(again))
        if self._kind == "jsonb[]":
            return self._elements("%s::jsonb[]", wrote) == self._elements("%s::jsonb[]", again)
        return self._server("%s", wrote) == again

    def _server(self, cell: str, text: str | None) -> str | None:
        (found,) = self._database.execute(f"select ({cell}::text::{self._kind})::text", text).fetchone()
        return found if found is None else str(found)

    def _elements(self, cell: str, text: str | None) -> Any:
        dims, elements = self._database.execute(
            f"select array_dims({cell}), (select coalesce(json_agg(e::text), '[]') from unnest({cell}) e)::text",
            text,
            text,
        ).fetchone()
        return dims, [it if it is None else _parsed(it) for it in json.loads(elements)]

    def _again(self, read: Any) -> str | None:
        """Write a value as the sink does, and return its text."""
        self._database.execute("truncate again")
        with self._database.connection.cursor() as cursor, cursor.copy("copy again from stdin") as copy:
            copy.write(copy_text([self._column], [(read,)], "again"))
        ((text,),) = self._database.rows("select v::text from again")
        return None if text is None else str(text)


def _parsed(text: str) -> Any:
    """Return what a text of JSON says: numbers exactly, and names as often as they come."""
    return json.loads(text, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> Any:
    return "object", sorted(pairs, key=repr)


def _table(database: Database, kind: str) -> None:
    database.execute("create type mood as enum ('sad', 'it''s'); create type pair as (n int, s text)")
    database.execute(f"create table t (n int primary key, v {kind})")


def _replace(database: Database, values: Sequence[str | None]) -> None:
    """Replace the rows; the texts go to the server as JSON, so that no type is guessed."""
    ((kind,),) = database.rows(
        "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 't'::regclass and attname = 'v'"
    )
    database.execute("delete from t")
    query = f"insert into t select x.n, x.v::{kind} from json_to_recordset(%s) as x(n int, v text)"
    database.execute(query, json.dumps([{"n": at, "v": value} for at, value in enumerate(values)]))


def _names_cure(value: Any, text: str) -> bool:
    del value
    return "table" in text and "column 'v'" in text and "text=['v']" in text


def _check(
    database: Database,
    kind: str,
    make_source: Callable[[], Any],
    write: Callable[[Sequence[str | None]], None],
    row_of: Callable[[Any], Any] = lambda record: record,
) -> None:
    SourceValues(
        kind,
        make_source,
        write,
        values=KINDS[kind] | st.none(),
        cell=lambda record: (row_of(record)["n"], row_of(record)["v"]),
        same=Texts(database, kind).same,
        names=_names_cure,
        examples=max(2, settings().max_examples // 12),
        always=ALWAYS.get(kind, ()),
    ).check()


@pytest.mark.parametrize("kind", at_night(KINDS, but=_BY_DAY))
def test_values_of_a_table(database: Database, kind: str) -> None:
    _table(database, kind)
    _check(database, kind, lambda: PostgresSource(database.dsn, "t"), lambda values: _replace(database, values))


@pytest.mark.parametrize("kind", at_night(_HARD, but=["interval"]))
def test_values_of_a_first_copy(database: Database, kind: str) -> None:
    _table(database, kind)
    slot = slot_name()

    def source() -> PostgresChanges:
        return PostgresChanges(database.dsn, ["t"], slot=slot, replace_slot=True, until="now", require_old=False)

    _check(database, kind, source, lambda values: _replace(database, values), lambda change: change.new)


@pytest.mark.parametrize("kind", at_night(_HARD, but=["date"]))
def test_values_of_a_stream(database: Database, kind: str) -> None:
    _table(database, kind)
    slot = slot_name()
    database.execute("create publication p for table t")
    database.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", slot)

    def write(values: Sequence[str | None]) -> None:
        wait_until(lambda: not database.rows(f"select from pg_replication_slots where active and slot_name = '{slot}'"))
        database.execute("delete from t")
        database.execute("select pg_replication_slot_advance(%s, pg_current_wal_lsn())", slot)
        _replace(database, values)

    def source() -> PostgresChanges:
        options: dict[str, Any] = {"copy": False, "until": "now", "require_old": False}
        return PostgresChanges(database.dsn, ["t"], slot=slot, publication="p", **options)

    _check(database, kind, source, write, lambda change: change.new)


class _LookedUp(StatefulSourceImpl[str, Any, Any, None]):
    """The rows that a look-up finds for the keys from 0."""

    keyed = False

    def __init__(self, table: PostgresLookup) -> None:
        self._table = table

    def list_parts(self) -> list[str]:
        return ["rows"]

    def build_part(self, part: str, state: None) -> _Found:
        del part, state
        return _Found(self._table)


class _Found(StatefulSourcePartition[Any, Any, None]):
    def __init__(self, table: PostgresLookup) -> None:
        self._table, self._done = table, False

    def poll(self) -> tuple[Any, Any] | None:
        raise NotImplementedError

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        self._done = True
        rows = list(self._table.get_many(range(limit)).values())
        return rows, range(len(rows))

    def is_finished(self) -> bool:
        return self._done

    def snapshot(self) -> None:
        return None

    def suspend(self) -> None:
        self._table.close()


@pytest.mark.parametrize("kind", at_night(_HARD, but=["jsonb"]))
def test_values_of_a_look_up(database: Database, kind: str) -> None:
    _table(database, kind)
    _check(database, kind, lambda: _LookedUp(PostgresLookup(database.dsn, "t")), lambda it: _replace(database, it))
