"""The running sum in PySpark's own ways, and the emptiest streaming query there can be.

Each gives the sum after each record, as malflow does. Those that get data frames come in two ways: they add up a whole
column at once, which is the fastest that can be and only goes with such simple functions, or call the function that
malflow calls for each record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any

import pandas as pd
from processor_time import cpu_seconds
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from workloads.measured import Measured
from workloads.spark_flow import FEWEST_TICKS, add, from_start_to_start, start_of
from workloads.spark_windows import SPARK_WINDOWS

__all__ = ["SPARK_PEERS", "make_session", "measure_empty", "measure_peer"]

_STEP = 7_919
_SUMS = "key long, total long"
_STATE = "total long"
_WARM_BATCHES = 2
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "6g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def make_session(cores: int = 2) -> SparkSession:
    """Make a session on so many cores of this machine; the same for all."""
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    return session


_Sums = Callable[[pd.DataFrame, int], Sequence[int]]


def _of_column(frame: pd.DataFrame, total: int) -> Sequence[int]:
    return frame["value"].cumsum().to_numpy() + total  # type: ignore[no-any-return]


def _by_function(frame: pd.DataFrame, total: int) -> Sequence[int]:
    sums = []
    for value in frame["value"].tolist():
        emitted, total = add(0, value, total)
        sums.append(emitted)
    return sums


class FrameSum(StatefulProcessor):
    """Add up data frames."""

    def __init__(self, sums_of: _Sums) -> None:
        self._sums_of = sums_of

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._total = handle.getValueState("total", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - theirs
        """Return the sum after each record."""
        del timerValues
        before = self._total.get()
        total = 0 if before is None else before[0]
        for frame in rows:
            sums = self._sums_of(frame, total)
            total = int(sums[-1])
            yield pd.DataFrame({"key": key[0], "total": sums})
        self._total.update((total,))

    def close(self) -> None:
        """Do nothing."""


class RowSum(StatefulProcessor):
    """Add up row by row."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._total = handle.getValueState("total", _STATE)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - theirs
        """Return the sum after each record."""
        del timerValues
        before = self._total.get()
        total = 0 if before is None else before[0]
        for row in rows:
            total += row.value
            yield Row(key=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        """Do nothing."""


def _frame_sum(sums_of: _Sums, key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for frame in frames:
        sums = sums_of(frame, total)
        total = int(sums[-1])
        yield pd.DataFrame({"key": key[0], "total": sums})
    state.update((total,))


def _in_pandas(sums_of: _Sums, numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("key").transformWithStateInPandas(FrameSum(sums_of), _SUMS, "Update", "None")


def _apply(sums_of: _Sums, numbers: DataFrame) -> DataFrame:
    def sums(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        return _frame_sum(sums_of, key, frames, state)

    return numbers.groupBy("key").applyInPandasWithState(sums, _SUMS, _STATE, "update", GroupStateTimeout.NoTimeout)


def _by_row(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("key").transformWithState(RowSum(), _SUMS, "Update", "None")


SPARK_PEERS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "transformWithStateInPandas": partial(_in_pandas, _of_column),
    "transformWithStateInPandas by record": partial(_in_pandas, _by_function),
    "applyInPandasWithState": partial(_apply, _of_column),
    "applyInPandasWithState by record": partial(_apply, _by_function),
    "transformWithState": _by_row,
}
"""PySpark's ways to keep a state of one's own."""


def measure_peer(peer: str, session: SparkSession, keys: int, batch: int, warm_up: float, seconds: float) -> Measured:
    """Run a running sum, or sums in windows, with so many records a batch, and measure a window of whole batches."""
    mode = "append" if peer in SPARK_WINDOWS else "update"
    ticks = session.readStream.format("rate-micro-batch").option("rowsPerBatch", batch).option("numPartitions", 2)
    numbers = ticks.load().selectExpr(f"value * {_STEP} % {keys} AS key", "value")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        writer = (SPARK_PEERS | SPARK_WINDOWS)[peer](numbers).writeStream.format("noop").outputMode(mode)
        query = writer.option("checkpointLocation", folder).start()
        _wait(query, 0, warm_up, max(_WARM_BATCHES, -(-keys // batch)))
        first, cpu = _batches(query), cpu_seconds()
        _wait(query, first, seconds, 1)
        last, cpu = _batches(query), cpu_seconds() - cpu
        window = query.recentProgress[first:last]
        query.stop()
    took = [progress["durationMs"]["triggerExecution"] / 1_000 for progress in window]
    records = sum(progress["numInputRows"] for progress in window)
    return Measured(
        records / (start_of(window[-1]) + took[-1] - start_of(window[0])), cpu, records, len(window), median(took)
    )


class Ticks(DataSource):
    """A source written in Python, the emptiest that gives as many partitions a batch as there are workers."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ticks"

    def schema(self) -> str:
        """Return the schema."""
        return "value long"

    def streamReader(self, schema: Any) -> TickReader:  # noqa: N802 - theirs
        """Return the reader."""
        del schema
        return TickReader(int(self.options["workers"]))


class TickReader(DataSourceStreamReader):
    """Returns another batch at each poll."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._at = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - theirs
        """Return the first offset."""
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - theirs
        """Return the next offset."""
        self._at += 1
        return {"at": self._at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return a partition for each worker."""
        del start, end
        return [InputPartition(worker) for worker in range(self._workers)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Yield two rows."""
        yield (partition.value,)
        yield (partition.value + 1,)


def measure_empty(
    session: SparkSession, workers: int, warm_up: float, seconds: float, *, in_python: bool
) -> list[float]:
    """Run a query of two stages that does nothing, and return the seconds from batch to batch."""
    session.dataSource.register(Ticks)
    ticks = session.readStream.format("ticks" if in_python else "rate-micro-batch").option("workers", workers)
    ticks = ticks.option("rowsPerBatch", 2 * workers).option("numPartitions", workers)
    rows = ticks.load().selectExpr("CAST(value % 2 AS int) AS worker", "value")
    schema = "worker int, value long"
    first = rows.mapInArrow(_same, schema)
    second = first.repartitionById(workers, "worker").mapInArrow(_same, schema)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        writer = second.writeStream.option("checkpointLocation", folder)
        query = writer.foreachBatch(lambda frame, _: frame.collect() and None).start()
        _wait(query, 0, warm_up, FEWEST_TICKS)
        first = _batches(query)
        _wait(query, first, seconds, FEWEST_TICKS)
        took = from_start_to_start(query.recentProgress[first:])
        query.stop()
    return took


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def _batches(query: Any) -> int:
    return len(query.recentProgress)


def _wait(query: Any, first: int, seconds: float, batches: int) -> None:
    """Wait for the end of a batch, so many seconds and batches after the first one; fail where the query fails."""
    deadline, done = time.monotonic() + seconds, _batches(query)
    while True:
        query.awaitTermination(0.02)
        before, done = done, _batches(query)
        if done > before and done >= first + batches and time.monotonic() >= deadline:
            return
