"""A driver of runs that call out, keep letters, are asked, and write into many systems at once.

``python -m tests.spark.programs.targets FOLDER MASTER``; `tests.campaign.targets` is the other side.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from malflow import DeadLetter, QueryError, RestartPolicy, SparkRuntime, StateView, StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.kafka import KafkaSink
from malflow.connectors.parquet import ParquetSink
from malflow.connectors.postgres import PostgresSink
from malflow.connectors.redis import RedisSink
from malflow.monitor import Monitor
from malflow.sinks import CsvSink, JsonLinesSink, StatelessSink, StatelessSinkImpl
from malflow.snapshot import FsspecBackend
from malflow.sources import StatefulSource
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from tests.spark.programs import cluster

__all__ = ["KEYS", "PARTS", "TABLES", "Options", "backend_at", "expected", "refused", "unanswered"]

PARTS = ("a", "b", "c")
KEYS = 7
TABLES = (
    "create table {name}_sums (part text, key int, number int, total bigint)",
    "create table {name}_last (part text, key int, number int, total bigint, primary key (part, key))",
)
"""The tables of a case: one that is appended to, one of each key's last sum."""


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Attributes:
        folder: where it keeps its files.
        name: what its job, its topic and its tables are called.
        size: how many numbers each part has.
        servers: of Kafka; empty to write no topic.
        dsn: of Postgres; empty to write no tables.
        redis: of Redis; empty to write no hash.
        parallelism: the number of workers.
        every: the seconds between two snapshots.
        most: how many records a worker polls in a tick.
        wait: how long a call takes, in seconds.
        attempts: how often it is started again.
        ballast: the bytes that each number adds to a state beside the sums.
    """

    folder: str
    name: str
    size: int = 300
    servers: str = ""
    dsn: str = ""
    redis: str = ""
    parallelism: int = 3
    every: float = 0.5
    most: int = 20
    wait: float = 0.002
    attempts: int = 20
    ballast: int = 0


def unanswered(number: int) -> bool:
    """Whether the call of a number fails, so that it is a letter."""
    return number % 11 == 3


def refused(number: int) -> bool:
    """Whether a number is refused after its call, so that its letter is written to a file."""
    return number % 13 == 5 and not unanswered(number)


class Numbers(StatefulSourceImpl[str, tuple[str, int], int, int]):
    """Numbers from zero on in each part.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def list_parts(self) -> Sequence[str]:
        """Return the parts."""
        return PARTS

    def build_part(self, part: str, state: int | None) -> StatefulSourcePartition[tuple[str, int], int, int]:
        """Return a reader."""
        return _Reader(part, state or 0, self._size)


class _Reader(StatefulSourcePartition[tuple[str, int], int, int]):
    def __init__(self, part: str, at: int, size: int) -> None:
        self._part, self._at, self._size = part, at, size

    def poll(self) -> tuple[tuple[str, int], int] | None:
        """Return the next number."""
        if self.is_finished():
            return None
        self._at += 1
        return (self._part, self._at - 1), self._at - 1

    def is_finished(self) -> bool:
        """Whether all numbers have been read."""
        return self._at >= self._size

    def snapshot(self) -> int:
        """Return the position."""
        return self._at


class _Call:
    """A client of a service, which fails for some numbers."""

    def __init__(self, wait: float) -> None:
        self._wait = wait

    async def open(self) -> None:
        """Open the client in each process."""
        self._slots = asyncio.Semaphore(8)

    async def __call__(self, value: tuple[str, int]) -> tuple[str, int]:
        """Answer after a while."""
        async with self._slots:
            await asyncio.sleep(self._wait * (1 + value[1] % 3))
        if unanswered(value[1]):
            raise TimeoutError(f"no answer to {value}")
        return value

    async def close(self) -> None:
        """Close the client."""
        del self._slots


class _Plain(StatelessSinkImpl[Any, Any, Any]):
    """Appends to a file, as a sink of a user does: at least once."""

    def __init__(self, path: str) -> None:
        self._path = path

    def sink(self, msg: Any) -> None:
        """Write a line."""
        with Path(self._path).open("a", encoding="utf-8") as file:
            file.write(f"{msg.value['part']} {msg.value['number']}\n")


def _checked(value: tuple[str, int]) -> tuple[str, int]:
    if refused(value[1]):
        raise ValueError(f"{value} is refused")
    return value


def _added(key: tuple[str, int], value: tuple[str, int], total: int) -> tuple[dict[str, Any], int]:
    total += value[1]
    return {"part": key[0], "key": key[1], "number": value[1], "total": total}, total


def _piled(size: int) -> Any:
    """Return a function that keeps so many bytes for each number."""

    def piled(_key: Any, value: dict[str, Any], pile: dict[int, bytes]) -> tuple[dict[str, Any], dict[int, bytes]]:
        pile[value["number"]] = bytes(size)
        return value, pile

    return piled


def backend_at(folder: str, job: str) -> FsspecBackend:
    """Return the backend of a run."""
    return FsspecBackend(f"{folder}/state", job=job, retain=3)


def _build(options: Options, provider: StreamProvider) -> None:
    folder, name = options.folder, options.name
    numbers = provider.new_stream().source("numbers", StatefulSource(Numbers(options.size)))
    answered = numbers.map_async("call", _Call(options.wait), capacity=8, on_error="dead_letter")
    checked = answered.map("check", _checked, on_error="dead_letter")
    keyed = checked.key_distribute("key", lambda msg: (msg.value[0], msg.value[1] % KEYS))
    sums = keyed.stateful_map("sum", _added, default=int)
    if options.ballast:
        sums = sums.stateful_map("pile", _piled(options.ballast), default=dict)
    sums.sink("parquet", ParquetSink(f"{folder}/parquet"))
    sums.sink("delta", DeltaSink(f"{folder}/delta"))
    sums.sink("json", JsonLinesSink(f"{folder}/json/"))
    sums.sink("csv", CsvSink(f"{folder}/csv/"))
    sums.sink("plain", StatelessSink(_Plain(f"{folder}/plain")))
    if options.servers:
        topic: Any = KafkaSink(name, servers=options.servers, delivery="exactly-once", encode="json", key="part")
        sums.sink("topic", topic)
    if options.dsn:
        sums.sink("table", PostgresSink(options.dsn, f"{name}_sums", key=()))
        sums.sink("last", PostgresSink(options.dsn, f"{name}_last"))
    if options.redis:
        sums.sink("hash", RedisSink(options.redis, table=name, encode="json", encode_key=_field))
    provider.on_dead_letters(
        lambda letters: letters.map("row", _row_of_letter).sink("letters", JsonLinesSink(f"{folder}/letters/")),
        operators=["check"],
    )


def _field(key: tuple[str, int]) -> bytes:
    return f"{key[0]} {key[1]}".encode()


def _row_of_letter(letter: DeadLetter) -> list[Any]:
    return [letter.operator, *letter.value, letter.error]


def expected(size: int) -> list[tuple[str, int, int, int]]:
    """Return the rows of all running sums, sorted: part, key, number, total."""
    rows = []
    for part in PARTS:
        totals = dict.fromkeys(range(KEYS), 0)
        for number in range(size):
            if not unanswered(number) and not refused(number):
                totals[number % KEYS] += number
                rows.append((part, number % KEYS, number, totals[number % KEYS]))
    return sorted(rows)


class Targets(cluster.Program):
    """The driver, and the run that it drives."""

    def start(self, **options: Any) -> dict[str, Any]:
        """Start a run, and a thread that asks for its sums."""
        chosen = Options(**options)
        self.warnings.texts.clear()
        self._size = chosen.size
        self.wrong: list[str] = []
        self.asked = 0
        self.handle = self._runtime(chosen).start()
        self.answers = []
        self.asking = threading.Thread(target=self._ask, daemon=True)
        self.asking.start()
        return self.progress()

    def start_beside(self, **options: Any) -> dict[str, Any]:
        """Start another run in the same session."""
        self.beside = self._runtime(Options(**options)).start()
        return {}

    def wait_beside(self) -> dict[str, Any]:
        """Wait for the other run, and tell its error."""
        try:
            ended = self.beside.await_termination(280)
        except Exception as error:  # noqa: BLE001 - it is told
            return {"error": repr(error)}
        return {"error": None if ended else "it has not ended"}

    def _runtime(self, options: Options) -> SparkRuntime:
        return SparkRuntime(
            lambda provider: _build(options, provider),
            backend_at(options.folder, options.name),
            timedelta(seconds=options.every),
            options.parallelism,
            spark=self.session,
            max_records_per_tick=options.most,
            scratch=f"{options.folder}/scratch",
            restart=RestartPolicy(options.attempts, timedelta(milliseconds=100)),
            listeners=[Monitor()],
        )

    def rescale(self, parallelism: int) -> dict[str, Any]:
        """Rescale the run."""
        self.handle.rescale(parallelism).result(300)
        return self.progress()

    def questions(self) -> dict[str, Any]:
        """Return how many questions were answered, and what was wrong."""
        return {"asked": self.asked, "wrong": self.wrong[:5]}

    def _ask(self) -> None:
        """Ask until the run ends: all answers are of one tick, so those of a part are sums of its first numbers."""
        sums: StateView[tuple[str, int], int] = self.handle.state("sum")
        possible = self._possible()
        keys = [(part, key) for part in PARTS for key in range(KEYS)]
        try:
            while True:
                found = sums.get_many(keys).result(240)
                self.asked += 1
                for part in PARTS:
                    of_part = tuple(found.get((part, key)) for key in range(KEYS))
                    if of_part not in possible:
                        self.wrong.append(f"{part}: {of_part}")
                time.sleep(0.05)
        except QueryError as error:
            if not self.handle.has_ended and "ended" not in str(error):
                self.wrong.append(repr(error))
        except Exception as error:  # noqa: BLE001 - it is told
            self.wrong.append(repr(error))

    def _possible(self) -> set[tuple[int | None, ...]]:
        """Return the sums after each number of a part."""
        totals: list[int | None] = [None] * KEYS
        found = {tuple(totals)}
        for number in range(self._size):
            if not unanswered(number) and not refused(number):
                totals[number % KEYS] = (totals[number % KEYS] or 0) + number
                found.add(tuple(totals))
        return found


if __name__ == "__main__":
    cluster.main(Targets)
