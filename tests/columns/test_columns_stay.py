"""Rows that are made are counted at the operator that makes them, on each runtime; nobody else makes any."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from malflow import MultiProcessRuntime, SingleThreadRuntime, SparkRuntime, StreamProvider, agg, limit_out_of_orderness
from malflow.connectors.parquet import ArrowSource, ParquetSource
from malflow.errors import OperatorError
from malflow.sinks import VecSink
from malflow.windows import counting, session, sliding, tumbling

ROWS = 4000

Run = Callable[[Any], Any]


def on_one_thread(build: Any) -> Any:
    return finished(SingleThreadRuntime(build))


def on_three_workers(build: Any) -> Any:
    return finished(SingleThreadRuntime(build, parallelism=3))


def in_two_processes(build: Any) -> Any:
    return finished(MultiProcessRuntime(build, processes=2))


def finished(runtime: Any) -> Any:
    """Run to the end, and return the progress."""
    runtime.execute()
    return runtime.progress


RUNTIMES = [on_one_thread, on_three_workers, in_two_processes]


def written(folder: Path) -> str:
    for part in range(3):
        numbers = list(range(part, ROWS, 3))
        table = pa.table(
            {
                "symbol": pa.array([f"s{number % 7}" for number in numbers]),
                "ts": numbers,
                "qty": pa.array([number % 11 for number in numbers]),
            }
        )
        pq.write_table(table, folder / f"part {part}.parquet")
    return f"{folder}/*.parquet"


def expected() -> dict[tuple[str, int], int]:
    sums: dict[tuple[str, int], int] = {}
    for number in range(ROWS):
        place = f"s{number % 7}", number // 100 * 100
        sums[place] = sums.get(place, 0) + number % 11
    return sums


@pytest.mark.parametrize("run", RUNTIMES)
def test_rows_made_before_a_function(run: Run, tmp_path: Path) -> None:
    sink = VecSink[Any, Any, Any]()
    path = written(tmp_path)

    def build(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", ParquetSource(path))
        timed = trades.event_time("times", "ts", out_of_orderness=50, every=10)
        bars = timed.key_distribute("symbol", "symbol").window(tumbling(100)).aggregate("bars", agg.sum("qty"))
        bars.map("total", lambda bar: (bar.start, bar.value)).sink("out", sink)

    progress = run(build)
    assert {(msg.key, msg.value[0]): msg.value[1] for msg in sink} == expected()
    assert sum(progress.rows_made.values()) <= len(expected())
    assert not progress.rows_made.keys() - {"total"}


@pytest.mark.spark
def test_rows_made_on_spark(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")

    def run(build: Any) -> Any:
        return finished(SparkRuntime(build, parallelism=2, spark=spark))

    test_rows_made_before_a_function(run, tmp_path)


LONG = 300_000


@pytest.mark.parametrize("run", RUNTIMES)
def test_rows_that_senders_add_up(run: Run, tmp_path: Path) -> None:
    """Nobody makes rows of accumulators, and these give what the records give."""
    numbers = np.arange(LONG)
    table = {"key": numbers % 7, "ts": numbers, "n": numbers % 1013, "x": (numbers % 997) / 8}
    for part in range(3):
        own = {name: column[part::3] for name, column in table.items()}
        pq.write_table(pa.table(own), tmp_path / f"{part}.parquet", row_group_size=20_000)
    sink = VecSink[Any, Any, Any]()

    def build(provider: StreamProvider) -> None:
        rows = provider.new_stream().source("rows", ParquetSource(f"{tmp_path}/*.parquet"))
        timed = rows.event_time("times", "ts", out_of_orderness=3000, every=100)
        keyed = timed.key_distribute("key", "key").window(sliding(10_000, 5_000))
        bars = keyed.aggregate("bars", agg.count(), agg.sum("n", of=int), agg.min("x"), agg.last("n"))
        bars.to_columns("columns", key="key").sink("out", sink)

    progress = run(build)
    assert not progress.rows_made
    found = {(row["key"], row["start"]): [row[f"value_{at}"] for at in range(4)] for row in sink.values}
    for (key, start), values in found.items():
        at = np.flatnonzero((numbers % 7 == key) & (numbers >= start) & (numbers < start + 10_000))
        n, x = table["n"][at], table["x"][at]
        assert values == [len(at), n.sum(), x.min(), n[-1]]
    assert len(found) == 7 * (LONG // 5_000 + 1)


@pytest.mark.spark
def test_rows_that_senders_add_up_on_spark(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")

    def run(build: Any) -> Any:
        return finished(SparkRuntime(build, parallelism=2, spark=spark))

    test_rows_that_senders_add_up(run, tmp_path)


@pytest.mark.parametrize("run", RUNTIMES)
def test_function_that_makes_rows_is_named(run: Run, tmp_path: Path) -> None:
    sink = VecSink[Any, Any, Any]()
    path = written(tmp_path)

    def build(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", ParquetSource(path))
        kept = trades.filter("some", lambda row: row["qty"] > 5)
        kept.key_distribute("symbol", "symbol").aggregate("sums", agg.sum("qty")).sink("out", sink)

    progress = run(build)
    assert progress.rows_made == {"some": ROWS}
    assert progress.operators["some"].rows_made == ROWS
    assert len(sink) == sum(number % 11 > 5 for number in range(ROWS))


def test_operator_that_makes_most_rows_is_told(caplog: pytest.LogCaptureFixture) -> None:
    table = pa.table({"n": list(range(300_000))})

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", ArrowSource(table))
        numbers.select_columns("same", "n").map("large", lambda row: row["n"]).sink("out", VecSink())

    with caplog.at_level("INFO", "malflow.runtime"):
        on_one_thread(build)
    told = [it.getMessage() for it in caplog.records if "as columns" in it.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("operator 'large' has made Python objects of ")


@pytest.mark.parametrize(
    "windows",
    [
        {"windows": session(3)},
        {"windows": counting(4)},
        {"windows": counting(4, 2)},
        {"windows": counting(2, 4)},
        {"windows": tumbling(10), "early": 5},
        {"windows": sliding(10, 5), "early": 5},
    ],
    ids=str,
)
def test_windows_without_arrays_read_columns(windows: dict[str, Any]) -> None:
    table = pa.table({"k": [f"k{at % 3}" for at in range(100)], "n": list(range(100))})
    sinks = [VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()]

    def build(provider: StreamProvider, by_records: bool = False) -> None:
        rows: Any = provider.new_stream().source("rows", ArrowSource(table))
        rows = rows.map("copied", dict) if by_records else rows
        timed = rows.generate_epochs("epochs", limit_out_of_orderness(3)).on_time
        keyed = timed.key_distribute("key", "k").window(**windows)
        keyed.aggregate("results", agg.collect("n"), agg.sum("n")).sink("out", sinks[by_records])

    assert on_one_thread(build).rows_made == {}
    on_one_thread(lambda provider: build(provider, by_records=True))
    assert list(sinks[0]) == list(sinks[1])
    assert len(sinks[0]) > 0


def test_readers_of_one_stream_do_not_cost_each_other_the_columns(tmp_path: Path) -> None:
    sinks = [VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()]
    path = written(tmp_path)

    def build(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", ParquetSource(path))
        for name, stream in zip("ab", trades.cloned("both", 2), strict=True):
            keyed = stream.key_distribute(f"symbol {name}", "symbol")
            if name == "a":
                keyed = keyed.map("times ten", lambda row: {"qty": 10 * row["qty"]})
            sums = keyed.aggregate(f"sums {name}", agg.sum("qty"))
            sums.sink(f"out {name}", sinks["ab".index(name)])

    progress = on_one_thread(build)
    assert progress.rows_made == {"times ten": ROWS}
    assert [10 * msg.value for msg in sinks[1]] == [msg.value for msg in sinks[0]]


def test_zoned_timestamps(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array(range(1000)).cast(pa.timestamp("s", "UTC")), "n": list(range(1000))})
    pq.write_table(table, tmp_path / "t.parquet")
    sink = VecSink[Any, Any, Any]()

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("t", ParquetSource(str(tmp_path / "t.parquet")))
        timed = stream.event_time("times", "at", out_of_orderness=timedelta(seconds=5), every=timedelta(seconds=1))
        timed.key_distribute("all", lambda _: "all").window(tumbling(timedelta(minutes=1))).aggregate(
            "sums", agg.sum("n")
        ).sink("out", sink)

    on_one_thread(build)
    assert [msg.value.value for msg in sink] == [sum(range(at, min(at + 60, 1000))) for at in range(0, 1000, 60)]


def sums_of(path: str, key: Any, field: str, runtime: Any = SingleThreadRuntime, **options: Any) -> tuple[Any, Any]:
    """Return the keys and sums of a field, and the columns that the reader of the last file decoded."""
    sink, asked = VecSink[Any, Any, Any](), []

    class Source(ParquetSource):
        def reading(self, fields: frozenset[str]) -> ParquetSource:
            asked.append(sorted(fields))
            return super().reading(fields)

    def build(provider: StreamProvider) -> None:
        trades = provider.new_stream().source("trades", Source(path))
        keyed = trades.key_distribute("symbol", key)
        keyed.aggregate("sums", agg.sum(field)).sink("out", sink)

    runtime(build, **options).execute()
    return [(msg.key, msg.value) for msg in sink], asked


def test_columns_that_nobody_reads_are_not_decoded(tmp_path: Path) -> None:
    path = written(tmp_path)
    found, asked = sums_of(path, "symbol", "qty")
    assert asked == [["qty", "symbol"]]
    whole, none = sums_of(path, lambda msg: msg.value["symbol"], "qty")
    assert (whole, none) == (found, [])
    in_debug, none = sums_of(path, "symbol", "qty", debug=True)
    assert (in_debug, none) == (found, [])


def test_missing_field_is_named_beside_all_others(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"no item 'symbl'; it has \['symbol', 'ts', 'qty'\]"):
        sums_of(written(tmp_path), "symbl", "qty")


def test_folder_with_a_value_of_its_own_kind(tmp_path: Path) -> None:
    folder = tmp_path / "level=3"
    folder.mkdir()
    written(folder)
    sink = VecSink[Any, Any, Any]()

    def build(provider: StreamProvider) -> None:
        source = ParquetSource(f"{tmp_path}/", partitions={"level": complex})
        stream = provider.new_stream().source("trades", source).key_distribute("level", "level")
        stream.aggregate("sums", agg.sum("qty")).sink("out", sink)

    on_one_thread(build)
    assert sink.values[-1] == sum(number % 11 for number in range(ROWS))
    assert {msg.key for msg in sink} == {3 + 0j}
