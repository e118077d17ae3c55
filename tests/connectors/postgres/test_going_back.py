"""A server restored from an older copy, or a promoted standby, that has since written past the position."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from malflow.connectors.postgres import PositionLost, PostgresChanges
from tests.connectors.postgres.kit import poll_until, read_all
from tests.kit.going_back import keep_copy, promote_copy
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.slow


@pytest.fixture
def server(own_postgres: Callable[[], Postgres]) -> Postgres:
    server = own_postgres()
    execute(server, "create table t (id int primary key)", "insert into t values (1)")
    return server


def execute(server: Postgres, *statements: str) -> None:
    with psycopg.connect(server.address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def source(server: Postgres, **options: Any) -> PostgresChanges:
    return PostgresChanges(server.address, ["t"], slot="s", retry_for=timedelta(seconds=30), **options)


def read_to_now(server: Postgres, position: Any) -> tuple[list[int], Any]:
    """Return the ids that are new since a position, and the position after them."""
    reader = source(server, until="now").build_part("s", position)
    try:
        ids = [change.new["id"] for change in read_all(reader)]
        reader.committed(reader.snapshot())
        return ids, reader.snapshot()
    finally:
        reader.suspend()


def write_past(server: Postgres) -> None:
    """Write rows behind any position of before: the log is longer than it was."""
    execute(
        server, "insert into t select generate_series(101, 110)", "select pg_switch_wal()", "insert into t values (111)"
    )


LOST = r"of timeline 1: the server is on timeline 2, which left timeline 1 at"


def test_server_that_was_restored_between_two_runs(server: Postgres) -> None:
    ids, position = read_to_now(server, None)
    assert ids == [1]
    keep_copy(server)
    execute(server, "insert into t select generate_series(2, 60)")
    ids, position = read_to_now(server, position)
    assert ids == list(range(2, 61))
    promote_copy(server)
    write_past(server)
    with pytest.raises(PositionLost, match=LOST):
        read_to_now(server, position)


@pytest.mark.nightly
def test_server_that_was_restored_while_it_is_read(server: Postgres) -> None:
    keep_copy(server)
    reader = source(server, copy=False).build_part("s", None)
    poll_until(reader, lambda _: reader.snapshot()[0] == "stream")
    reader.committed(reader.snapshot())
    reader.suspend()
    position = reader.snapshot()
    keep_copy(server)  # with the slot
    reader = source(server).build_part("s", position)
    execute(server, "insert into t select generate_series(2, 60)")
    assert len(poll_until(reader, lambda got: len(got) == 59)) == 59
    promote_copy(server)
    write_past(server)
    with pytest.raises(PositionLost, match=LOST):
        poll_until(reader, lambda _: False)
    reader.suspend()


@pytest.mark.nightly
def test_copy_that_is_promoted_with_all_that_was_read(server: Postgres) -> None:
    ids, position = read_to_now(server, None)
    execute(server, "insert into t select generate_series(2, 60)")
    ids, position = read_to_now(server, position)
    assert position[-2] == 1
    keep_copy(server)
    promote_copy(server)
    write_past(server)
    ids, position = read_to_now(server, position)
    assert ids == list(range(101, 112))
    assert position[-2] == 2


def test_position_of_an_older_version(server: Postgres) -> None:
    _, position = read_to_now(server, None)
    execute(server, "insert into t values (2)")
    assert read_to_now(server, position[:-2])[0] == [2]
