"""Changes of a table copied to another on Spark, in two runs of a job."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import SparkRuntime
from malflow.connectors.postgres import PostgresChanges, PostgresSink
from malflow.snapshot import FsspecBackend
from tests.connectors.postgres.kit import Database, slot_name


@pytest.mark.spark
@pytest.mark.nightly
def test_copy_on_spark(database: Database, spark: Any, tmp_path: Path) -> None:
    database.connection.execute(
        "create table orders (id int primary key, note text); create table copy (id int primary key, note text);"
        "insert into orders select i, 'n' || i from generate_series(1, 300) i"
    )
    slot, dsn = slot_name(), database.dsn

    def build(provider: Any) -> None:
        changes = provider.new_stream().source("orders", PostgresChanges(dsn, ["orders"], slot=slot, until="now"))
        changes.sink("copy", PostgresSink(dsn, "copy"))

    for statement in (
        "select 1",
        "update orders set id = id + 1000, note = 'moved' where id % 3 = 0; delete from orders where id % 5 = 0",
    ):
        database.connection.execute(statement)
        SparkRuntime(
            build, FsspecBackend(str(tmp_path)), timedelta(milliseconds=100), 2, spark=spark, max_records_per_tick=100
        ).execute()
        assert database.rows("select * from copy order by id") == database.rows("select * from orders order by id")
