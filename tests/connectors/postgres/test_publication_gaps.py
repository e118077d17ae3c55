"""A publication that leaves out changes, or grows: a warning says what never arrives."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from malflow.connectors.postgres import PostgresChanges
from tests.connectors.postgres.kit import Database, poll_until, read_all, slot_name
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "malflow")

    def texts() -> list[str]:
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    return texts


@pytest.fixture
def tables(database: Database) -> Database:
    for name in ("a", "b"):
        database.execute(f"create table {name} (id int primary key); alter table {name} replica identity full")
    database.execute("insert into a values (1); insert into b values (10)")
    return database


def source(database: Database, **options: Any) -> PostgresChanges:
    return PostgresChanges(database.dsn, slot=slot_name(), publication="p", until="now", **options)


def read(database: Database, changes: PostgresChanges, position: Any = None) -> tuple[list[Any], Any]:
    (slot,) = changes.list_parts()
    query = f"select from pg_replication_slots where active and slot_name = '{slot}'"
    wait_until(lambda: not database.rows(query))
    reader = changes.build_part(slot, position)
    try:
        rows = [(change.kind, (change.new or change.old or {}).get("id")) for change in read_all(reader)]
        return rows, pickle.loads(pickle.dumps(reader.snapshot()))
    finally:
        reader.suspend()


def test_kinds_of_changes_that_are_not_published(tables: Database, said: Any) -> None:
    tables.execute("create publication p for table a with (publish = 'insert, update')")
    assert read(tables, source(tables))[0] == [("insert", 1)]
    (text,) = said()
    assert "publication 'p' leaves out each delete and truncate" in text
    assert "set (publish = 'insert, update, delete, truncate')" in text


@pytest.mark.parametrize("named", [False, True])
def test_table_that_is_published_after_the_first_copy(tables: Database, said: Any, named: bool) -> None:
    tables.execute("create publication p for table a")
    changes = source(tables)
    _, position = read(tables, changes)
    tables.execute("alter publication p add table b; insert into b values (11)")
    if named:
        changes = PostgresChanges(tables.dsn, ["a", "b"], slot=changes.list_parts()[0], publication="p", until="now")
    for _ in range(2):  # in each run, since the rows are missing for ever
        rows, position = read(tables, changes, position)
        assert [text for text in said() if "b was added to publication 'p' after the first copy" in text]
    assert rows == []


def test_table_that_is_published_while_a_reader_streams(tables: Database, said: Any) -> None:
    tables.execute("create publication p for table a")
    changes = PostgresChanges(tables.dsn, slot=slot_name(), publication="p")
    (slot,) = changes.list_parts()
    reader = changes.build_part(slot, None)
    try:
        poll_until(reader, lambda rows: len(rows) == 1 and reader.snapshot()[0] == "stream")
        tables.execute("alter publication p add table b")
        tables.execute("insert into b values (11)")
        tables.execute("insert into b values (12)")
        poll_until(reader, lambda rows: len(rows) == 2)
    finally:
        reader.suspend()
    (text,) = said()
    assert "public.b was added" in text


def test_publication_of_everything_says_nothing(tables: Database, said: Any) -> None:
    tables.execute("create publication p for table a, b")
    changes = source(tables)
    _, position = read(tables, changes)
    assert len(position) == 8
    read(tables, changes, position[:7])  # as an older version wrote it
    read(tables, source(tables, copy=False))
    assert said() == []
