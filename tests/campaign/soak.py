"""A long run on a cluster of processes whose executors and drivers are killed: nothing is lost, and nothing grows."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import psycopg
from deltalake import DeltaTable

from malflow.snapshot import fsck
from tests.campaign.cases import Campaign, Difference
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import kept_states
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.server import Server
from tests.spark.clusters import Driver
from tests.spark.programs.soak import END, TABLE, TOPIC, backend_at, expected

S = TypeVar("S", bound=Server)

__all__ = ["soak", "started"]

MASTER = "local-cluster[3,1,2048]"
RATE = 400
"""Numbers of each part in a second."""

_MOST_COPIES = 1.5
_MOST_GROWTH = 1.1


def soak(campaign: Campaign) -> None:
    """Run as long as the campaign: executors, drivers, Kafka and Postgres are killed, and the run is rescaled."""
    campaign.attempt(campaign.seed, lambda: _soak(random.Random(campaign.seed), campaign.seconds))


def _soak(rng: random.Random, seconds: float) -> str:
    with TemporaryDirectory() as folder, ExitStack() as servers:
        broker, database = started(Kafka, folder, servers), started(Postgres, folder, servers)
        run = _Run(rng, Path(folder), seconds, broker, database)
        try:
            for part in range(3):
                run.go_on(seconds / 3, ends=part == 2)
            run.end()
        finally:
            run.close()
        run.check()
        return run.told()


def started(kind: type[S], folder: str, servers: ExitStack) -> S:
    server = kind(Path(folder, kind.name))
    server.folder.mkdir()
    server.start()
    servers.callback(server.stop)
    return server


class _Run:
    def __init__(self, rng: random.Random, folder: Path, seconds: float, broker: Kafka, database: Postgres) -> None:
        self._broker, self._database = broker, database
        Broker(broker.address).topic(name=TOPIC)
        with psycopg.connect(database.address, autocommit=True) as connection:
            connection.execute(TABLE)
        self._rng = rng
        self._folder = folder
        self._kill_every = min(60.0, seconds / 6)
        self._rescale_every = min(600.0, seconds / 4)
        self._crash_every = min(300.0, seconds / 5)
        self._driver: Driver | None = None
        self._drivers: list[Driver] = []
        self._samples: list[dict[str, float]] = []
        self.kills = self.rescales = self.crashes = 0

    def _started(self, **options: Any) -> Driver:
        driver = Driver(
            self._folder / f"driver-{len(self._drivers)}",
            MASTER,
            program="tests.spark.programs.soak",
            PYTHONWARNINGS="ignore",
            LOCALITY_WAIT="3s",
        )
        self._drivers.append(driver)
        driver.answer()
        workers = self._rng.randint(3, 6)
        places = {"folder": str(self._folder), "servers": self._broker.address, "dsn": self._database.address}
        driver.ask("start", **places, rate=RATE, parallelism=workers, **options)
        return driver

    def go_on(self, seconds: float, *, ends: bool) -> None:
        """Run for some seconds with a driver of its own; then kill it, or stop it in the end."""
        driver = self._driver = self._started()
        began = time.monotonic()
        next_kill, next_rescale, next_crash = self._kill_every, self._rescale_every, self._crash_every
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(min(5.0, seconds / 20))
            self._samples.append(_sample(driver))
            if passed >= next_kill:
                next_kill += self._kill_every
                if executors := driver.executors():
                    with suppress(ProcessLookupError):
                        os.kill(self._rng.choice(executors), signal.SIGKILL)
                        self.kills += 1
            if passed >= next_crash:
                next_crash += self._crash_every
                server = self._rng.choice([self._broker, self._database])
                server.kill()
                server.start()
                self.crashes += 1
            if passed >= next_rescale:
                next_rescale += self._rescale_every
                driver.ask("rescale", parallelism=self._rng.randint(2, 7))
                self.rescales += 1
        if not ends:
            driver.process.kill()
            driver.process.wait()
            driver.close()
            return
        driver.ask("stop")
        self._expect_good(driver.wait())
        driver.close()

    def end(self) -> None:
        """End the input, and run to its end."""
        positions = kept_states(backend_at(str(self._folder)), "numbers")
        self.size = max(positions.values()) + 1_000
        (self._folder / END).write_text(str(self.size))
        driver = self._driver = self._started(at_end="finish")
        self._expect_good(driver.wait())

    def _expect_good(self, end: dict[str, Any]) -> None:
        if end["error"] is not None:
            raise Difference(f"the run failed: {end['error']}, {end['warnings'][-3:]}")

    def check(self) -> None:
        """Check what was written, and what has grown.

        Raises:
            Difference: if something is wrong.
        """
        wanted = expected(self.size)
        for what, found in (*_written(self._folder), *_sent(self._broker.address, self._database.address)):
            if found != wanted[what]:
                raise Difference(f"{what} of {self.size} numbers differ")
        if problems := fsck(backend_at(str(self._folder))).problems:
            raise Difference(f"fsck: {problems}")
        left = [path for path in self._folder.rglob("staged/*") if path.is_file()]
        if left:
            raise Difference(f"staged files are left: {left[:3]}")
        copies = [it["copies"] for it in self._samples[len(self._samples) // 2 :]]
        if sorted(copies)[len(copies) // 2] > _MOST_COPIES:
            raise Difference(f"copies of a state: {copies}")

    def told(self) -> str:
        """Return the figures."""
        half = self._samples[len(self._samples) // 2 :]
        quarter = len(half) // 2 or 1
        growth = {
            name: max(it[name] for it in half[-quarter:]) / (max(it[name] for it in half[:quarter]) or 1.0)
            for name in ("driver", "java", "process")
        }
        grown = ", ".join(f"{name} x {value:.2f}" for name, value in growth.items())
        flat = "flat" if max(growth.values()) <= _MOST_GROWTH else "NOT FLAT"
        scratch = max(it["scratch"] for it in self._samples)
        return (
            f"{self.size} numbers of each part, {self.kills} executors killed, {self.rescales} rescales, 2 drivers and "
            f"{self.crashes} servers killed; memory in the last half: {grown} ({flat}); at most {scratch:.1f} MB in "
            "the scratch folder"
        )

    def close(self) -> None:
        """End all that was started."""
        for driver in self._drivers:
            with suppress(Exception):
                driver.close()


def _sample(driver: Driver) -> dict[str, float]:
    progress = driver.ask("progress")
    processes = [_memory(pid) for pid in driver.processes("pyspark.worker")]
    folder = Path(driver.local).parent.parent / "scratch"
    sizes = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            sizes.append(path.stat().st_size)
    return {
        "tick": progress["tick"],
        "copies": progress["copies"],
        "driver": _memory(driver.process.pid),
        "java": max([_memory(pid) for pid in driver.processes("SparkSubmit")], default=0.0),
        "process": max(processes, default=0.0),
        "scratch": sum(sizes) / 1e6,
    }


def _memory(pid: int) -> float:
    """Return the resident memory of a process in MB; 0 if it has ended."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def _sent(servers: str, dsn: str) -> Iterator[tuple[str, Any]]:
    """Yield the committed records of the topic, and the rows of the table."""
    rows = map(json.loads, Broker(servers).values(TOPIC))
    yield "sums", sorted((row["part"], row["number"], row["total"]) for row in rows)
    with psycopg.connect(dsn) as connection:
        yield "last", connection.execute("select part, key, number, total from last order by 1, 2").fetchall()
        staged = "select count(*) from pg_class where relpersistence = 'u'"
        if (found := connection.execute(staged).fetchone()) != (0,):
            raise Difference(f"staged tables are left: {found}")


def _written(folder: Path) -> Iterator[tuple[str, Any]]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only this needs it

    rows = [row for path in (folder / "sums").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    yield "sums", sorted((row["part"], row["number"], row["total"]) for row in rows)
    table = DeltaTable(folder / "windows").to_pyarrow_table().to_pylist()
    yield "windows", sorted((row["start"], row["count"], row["sum"]) for row in table)
    lines = [line for path in (folder / "matches").glob("*.jsonl") for line in path.read_text().splitlines()]
    yield "matches", len([json.loads(line) for line in lines])
