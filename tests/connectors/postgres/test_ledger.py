"""The ledger's table: its default name, the name in older versions, and a table shared with SQL sinks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.postgres import PostgresError, PostgresSink
from malflow.connectors.sql import SqlSink
from malflow.errors import FencedError
from malflow.sinks import SinkOwner
from malflow.snapshot import FsspecBackend
from malflow.sources import TextFileSource
from tests.connectors.postgres.kit import Database

Make: TypeAlias = Callable[..., Any]

FORMER = """
create table malflow_commits (
  job text not null, sink text not null, epoch bigint not null, claim bigint not null,
  committed_at timestamptz not null default now(), primary key (job, sink))
"""
"""As versions before this default name made it."""


def owner(claim: int, transaction: int = 0, job: str = "job") -> SinkOwner:
    return SinkOwner(job, "totals", claim, transaction=transaction)


def added(sink: Any, value: int, transaction: int) -> Any:
    sink.sink_batch([None], [(value,)], [0])
    return sink.prepare(transaction)


@pytest.fixture
def table(database: Database) -> Database:
    database.execute("create table t (n int)")
    return database


@pytest.fixture
def sinks(table: Database, request: pytest.FixtureRequest) -> Make:
    def make(kind: str = "postgres", **options: Any) -> Any:
        sink: Any = _sql_sink(table.dsn) if kind == "sql" else PostgresSink(table.dsn, "t", key=(), **options)
        request.addfinalizer(sink.close)
        return sink

    return make


def _sql_sink(dsn: str) -> SqlSink:
    parts: dict[str, Any] = conninfo_to_dict(dsn)
    host, port = parts.get("host"), int(parts["port"])
    url = sa.URL.create("postgresql+psycopg", parts["user"], parts.get("password"), host, port, parts["dbname"])
    return SqlSink(url, "t", key=())


def with_former_ledger(table: Database, epoch: int, claim: int) -> None:
    table.execute(FORMER)
    table.execute(
        "insert into malflow_commits (job, sink, epoch, claim) values ('job', 'totals', %s, %s)", epoch, claim
    )


def test_ledger_of_an_older_version_is_carried_on(table: Database, sinks: Make) -> None:
    with_former_ledger(table, epoch=3, claim=5)
    sink = sinks()
    assert sink.fence(owner(6, transaction=3)) == 3
    written, new = added(sink, 3, 3), added(sink, 4, 4)
    sink.commit([written, new])
    assert table.rows("select n from t") == [(4,)], "transaction 3 is not written twice"
    assert table.rows("select sink, epoch, claim from malflow_commits") == [("totals", 4, 6)]
    assert table.rows("select to_regclass('malflow_ledger')") == [(None,)]
    assert sinks().fence(owner(7, transaction=4)) == 4


def test_runs_of_either_version_fence_each_other(table: Database, sinks: Make) -> None:
    with_former_ledger(table, epoch=3, claim=5)
    with pytest.raises(FencedError, match="taken over by run 5; this is run 4"):
        sinks().fence(owner(4))
    older = sinks(ledger="malflow_commits")
    older.fence(owner(6))
    late = added(older, 4, 4)
    sinks().fence(owner(7))
    with pytest.raises(FencedError, match="taken over by run 7; this is run 6"):
        older.commit([late])
    assert table.rows("select n from t") == []


def test_ledger_that_was_put_back_is_named(table: Database, sinks: Make) -> None:
    with_former_ledger(table, epoch=3, claim=5)
    with pytest.raises(PostgresError, match=r"the ledger malflow_commits has sink .* at transaction 3"):
        sinks().fence(owner(6, transaction=4))


def test_sink_that_is_new_has_its_row_under_the_new_name(table: Database, sinks: Make) -> None:
    with_former_ledger(table, epoch=3, claim=5)
    sinks().fence(owner(1, job="another"))
    assert table.rows("select job, epoch, claim from malflow_ledger") == [("another", 0, 1)]
    assert table.rows("select job, epoch, claim from malflow_commits") == [("job", 3, 5)]


def test_later_owner_counts_where_both_ledgers_have_the_sink(table: Database, sinks: Make) -> None:
    sink = sinks()
    sink.fence(owner(5))
    sink.commit([added(sink, 1, 1)])
    with_former_ledger(table, epoch=0, claim=4)
    assert sinks().fence(owner(6, transaction=1)) == 1
    table.execute("update malflow_commits set epoch = 2, claim = 7")
    assert sinks().fence(owner(8, transaction=2)) == 2


def test_table_of_another_program_under_the_former_name(table: Database, sinks: Make) -> None:
    table.execute("create table malflow_commits (job text, n int)")
    assert sinks().fence(owner(1)) == 0
    assert table.rows("select job from malflow_ledger") == [("job",)]


def test_ledger_with_a_name_of_its_own_is_the_only_one(table: Database, sinks: Make) -> None:
    with_former_ledger(table, epoch=3, claim=5)
    assert sinks(ledger="public.mine").fence(owner(1)) == 0
    assert table.rows("select claim from mine") == [(1,)]


@pytest.mark.parametrize("first", ["postgres", "sql"])
def test_both_kinds_of_sinks_in_one_ledger(table: Database, sinks: Make, first: str) -> None:
    second = "sql" if first == "postgres" else "postgres"
    one, two = sinks(first), sinks(second)
    one.fence(owner(1))
    two.fence(owner(1, job="another"))
    one.commit([added(one, 1, 1)])
    two.commit([added(two, 2, 2)])
    assert table.rows("select job, epoch from malflow_ledger order by 1") == [("another", 2), ("job", 1)]
    heir = sinks(second)
    assert heir.fence(owner(2, transaction=1)) == 1, "the other kind of sink carries it on"
    with pytest.raises(FencedError):
        one.commit([added(one, 3, 3)])


def test_job_that_resumes_after_an_upgrade_writes_nothing_twice(table: Database, tmp_path: Path) -> None:
    table.execute(FORMER)

    def run(count: int, **options: Any) -> None:
        (tmp_path / "in.txt").write_text("".join(f"{n}\n" for n in range(count)))

        def build(provider: StreamProvider) -> None:
            lines = provider.new_stream().source("lines", TextFileSource(tmp_path / "in.txt"))
            rows = lines.map("row", lambda line: (int(line),))
            rows.sink("totals", PostgresSink(table.dsn, "t", key=(), **options))

        SingleThreadRuntime(build, FsspecBackend(str(tmp_path / "snapshots"))).execute()

    run(3, ledger="malflow_commits")
    [(before,)] = table.rows("select claim from malflow_commits")
    run(5)
    assert table.rows("select n from t order by 1") == [(n,) for n in range(5)]
    [(after,)] = table.rows("select claim from malflow_commits")
    assert after > before, "the later run owns the ledger in which the first one has its row"
