"""Dataflows from and to columnar files: files that appear during the run, and Spark."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import SingleThreadRuntime
from malflow.connectors.delta import DeltaSink
from malflow.connectors.parquet import ParquetSink, ParquetSource
from malflow.errors import GraphError
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from tests.kit.waiting import wait_until


def test_files_that_appear_while_the_run_goes_on(tmp_path: Path) -> None:
    found: VecSink[Any, Any, Any] = VecSink()
    source = ParquetSource(tmp_path / "out" / "*.parquet", row="n", discover_every=timedelta(milliseconds=20))
    (tmp_path / "out").mkdir()
    handle = SingleThreadRuntime(
        lambda provider: provider.new_stream().source("rows", source).sink("out", found)
    ).start()
    for numbers in ([1, 2], [3]):
        rows = [{"n": number} for number in numbers]
        sink: ParquetSink[Any, Any, Any] = ParquetSink(tmp_path / "out", delivery="at-least-once")
        sink.sink_batch([0] * len(rows), rows, [0] * len(rows))
        sink.close()
        wait_until(lambda: found.values[-1:] == numbers[-1:])  # noqa: B023 - it is called in this round
    handle.stop()
    handle.await_termination()
    assert found.values == [1, 2, 3]
    with pytest.raises(GraphError, match=r"discover_every must be a time above zero, .*, or None; got '5x'"):
        ParquetSource("x", discover_every="5x")


@pytest.mark.spark
@pytest.mark.nightly
def test_parquet_to_delta_on_spark(tmp_path: Path, spark: Any) -> None:
    for name in range(3):
        table = pa.table({"n": range(name * 500, name * 500 + 500)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=70)

    def build(provider: Any) -> None:
        rows = provider.new_stream().source(
            "rows", ParquetSource(tmp_path / "*.parquet", row="n", filter=[("n", "!=", 7)])
        )
        keyed = rows.key_distribute("tens", lambda msg: msg.value % 10)
        counted = keyed.stateful_map("count", lambda key, n, count: ({"n": n, "count": count + 1}, count + 1), int)
        counted.sink("table", DeltaSink(tmp_path / "table"))

    jobs = FsspecBackend(str(tmp_path / "job"))
    for _ in range(2):  # the second run has nothing to add
        SparkRuntime(build, jobs, timedelta(seconds=1), 2, spark=spark, max_records_per_tick=300).execute()
    result: Any = deltalake.DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(result["n"].to_pylist()) == [n for n in range(1500) if n != 7]
    assert max(result["count"].to_pylist()) == 150
