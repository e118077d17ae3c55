"""Rows of a job on Spark in a table of SQLite, in two runs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import SparkRuntime, StreamProvider
from malflow.connectors.sql import SqlSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.testing import END, ScriptedSource


@pytest.mark.spark
@pytest.mark.nightly
def test_rows_on_spark(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "totals.db"

    def query(text: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(text).fetchall()

    query("create table totals (town int primary key, count int not null)")

    def build(provider: StreamProvider) -> None:
        script: Any = {part: [*range(30), END, *range(30, 50)] for part in "ab"}
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
        keyed = numbers.key_distribute("town", lambda msg: msg.value % 5)
        counts = keyed.stateful_map("count", lambda town, _, n: ({"town": town, "count": n + 1}, n + 1), int)
        counts.sink("totals", SqlSink(f"sqlite:///{path}", "totals"))

    for total in (60, 100):
        state, often = FsspecBackend(str(tmp_path / "state")), timedelta(milliseconds=1)
        SparkRuntime(build, state, often, 2, spark=spark, max_records_per_tick=15).execute()
        assert query("select town, count from totals order by town") == [(town, total // 5) for town in range(5)]
    assert query("select count(*), max(epoch) > 1 from malflow_ledger") == [(1, 1)]
