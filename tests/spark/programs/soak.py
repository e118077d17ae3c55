"""A driver of a long run: running sums into Parquet, Kafka and Postgres, windows into Delta, matches into JSON lines.

``python -m tests.spark.programs.soak FOLDER MASTER``; `tests.campaign.soak` is the other side.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import RestartPolicy, SparkRuntime, StreamProvider, agg
from malflow.connectors.delta import DeltaSink
from malflow.connectors.kafka import KafkaSink
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.postgres import PostgresSink
from malflow.patterns import step
from malflow.sinks import JsonLinesSink
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.windows import tumbling
from tests.spark.programs import cluster

__all__ = ["KEYS", "PARTS", "TABLE", "TOPIC", "WIDTH", "backend_at", "expected"]

PARTS = ("a", "b", "c")
KEYS = 97
WIDTH = 1_000
PERIOD = 5
"""A key's numbers are counted in periods; the second one of a period follows the first one: a match."""

TOPIC = "sums"
TABLE = "create table last (part text, key int, number int, total bigint, primary key (part, key))"
"""The table of each key's last sum."""

END = "end"
"""The file that says how many numbers each part has; until it exists they go on."""


class Numbers(StatefulSourceImpl[str, tuple[str, int], int, int]):
    """Numbers of each part, so many a second.

    Args:
        folder: the folder of the run.
        rate: the numbers of a part in a second.
    """

    def __init__(self, folder: str, rate: int) -> None:
        self._end = Path(folder, END)
        self._rate = rate

    def list_parts(self) -> Sequence[str]:
        """Return the parts."""
        return PARTS

    def build_part(self, part: str, state: int | None) -> StatefulSourcePartition[tuple[str, int], int, int]:
        """Return a reader."""
        return _Reader(part, state or 0, self._rate, int(self._end.read_text()) if self._end.exists() else None)


class _Reader(StatefulSourcePartition[tuple[str, int], int, int]):
    def __init__(self, part: str, at: int, rate: int, end: int | None) -> None:
        self._part, self._at, self._rate, self._end = part, at, rate, end
        self._first, self._began = at, time.monotonic()

    def poll(self) -> tuple[tuple[str, int], int] | None:
        """Return a number, if it is time for it."""
        values, timestamps = self.poll_batch(1)
        return (values[0], timestamps[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[list[tuple[str, int]], list[int]]:
        """Return the numbers for which it is time."""
        due = self._end
        if due is None:
            due = self._first + int(self._rate * (time.monotonic() - self._began))
        numbers = range(self._at, max(self._at, min(self._at + limit, due)))
        self._at += len(numbers)
        return [(self._part, number) for number in numbers], [*numbers]

    def is_finished(self) -> bool:
        """Whether all numbers have been read."""
        return self._end is not None and self._at >= self._end

    def snapshot(self) -> int:
        """Return the position."""
        return self._at


def backend_at(folder: str) -> FsspecBackend:
    """Return the backend of the run."""
    return FsspecBackend(f"{folder}/state", retain=3)


def _flow(folder: str, rate: int, servers: str, dsn: str) -> Any:
    first = step("first", lambda value: value[1] // KEYS % PERIOD == 0)
    second = step("second", lambda value: value[1] // KEYS % PERIOD == 1)

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(folder, rate)))
        timed = numbers.event_time("times", lambda msg: msg.value[1], out_of_orderness=1, every=WIDTH // 10)
        keyed = timed.key_distribute("key", lambda msg: (msg.value[0], msg.value[1] % KEYS))
        sums = keyed.stateful_map("sum", _added, default=int)
        sums.sink("sums", ParquetSink(f"{folder}/sums"))
        sums.sink("topic", _topic(servers))
        sums.map("last", lambda row: {**row, "key": row["number"] % KEYS}).sink("table", PostgresSink(dsn, "last"))
        keyed.window(tumbling(WIDTH)).aggregate("windows", agg.count(), agg.sum(_number, of=int)).map(
            "row", lambda it: {"start": it.start, "count": it.value[0], "sum": it.value[1]}
        ).sink("delta", DeltaSink(f"{folder}/windows"))
        keyed.match("pairs", first.next(second).within(2 * KEYS)).matches.map("start", lambda match: match.start).sink(
            "matches", JsonLinesSink(f"{folder}/matches/")
        )

    return build


def _topic(servers: str) -> KafkaSink[Any, Any, Any]:
    return KafkaSink(TOPIC, servers=servers, delivery="exactly-once", encode="json", key="part")


def _added(key: tuple[str, int], value: tuple[str, int], total: int) -> tuple[dict[str, Any], int]:
    total += value[1]
    return {"part": key[0], "number": value[1], "total": total}, total


def _number(value: tuple[str, int]) -> int:
    return value[1]


def expected(size: int) -> dict[str, Any]:
    """Return what a run over so many numbers of each part must have written, without order.

    Returns:
        The rows of the sums; the last row of each key; the rows of the windows, by how often they occur; the number of
        matches.
    """
    sums, windows = [], []
    of_windows: dict[tuple[int, int], list[int]] = defaultdict(list)
    totals: dict[int, int] = defaultdict(int)
    for number in range(size):
        totals[number % KEYS] += number
        sums.append((number, totals[number % KEYS]))
        of_windows[number // WIDTH, number % KEYS].append(number)
    for (window, _), them in of_windows.items():
        windows.append((window * WIDTH, len(them), sum(them)))
    pairs = sum(number // KEYS % PERIOD == 0 and number + KEYS < size for number in range(size))
    last = {number % KEYS: (number % KEYS, number, total) for number, total in sums}
    return {
        "sums": sorted((part, *row) for part in PARTS for row in sums),
        "last": sorted((part, *row) for part in PARTS for row in last.values()),
        "windows": sorted(windows * len(PARTS)),
        "matches": pairs * len(PARTS),
    }


class Soak(cluster.Program):
    """The driver, and the run that it drives."""

    def start(self, **options: Any) -> dict[str, Any]:
        """Start a run."""
        folder = options["folder"]
        runtime = SparkRuntime(
            _flow(folder, options["rate"], options["servers"], options["dsn"]),
            backend_at(folder),
            timedelta(seconds=5),
            options["parallelism"],
            spark=self.session,
            scratch=f"{folder}/scratch",
            restart=RestartPolicy(100, timedelta(seconds=1)),
            at_end=options.get("at_end"),
        )
        self.handle = runtime.start()
        return self.progress()

    def rescale(self, parallelism: int) -> dict[str, Any]:
        """Rescale the run."""
        self.handle.rescale(parallelism).result(300)
        return self.progress()


if __name__ == "__main__":
    cluster.main(Soak)
