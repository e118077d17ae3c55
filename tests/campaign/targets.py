"""Runs on clusters that call out, keep letters, are asked and write into every system, while their processes die."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import redis
from deltalake import DeltaTable

from malflow.snapshot import dead_letters, fsck
from tests.campaign.attack import Attack, Beside
from tests.campaign.cases import Campaign, Difference
from tests.campaign.soak import started
from tests.campaign.standalone import Standalone
from tests.connectors.kafka.kit import Broker
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.servers.redis_server import RedisServer
from tests.spark.clusters import Driver
from tests.spark.programs.targets import PARTS, TABLES, backend_at, expected, refused, unanswered

__all__ = ["targets"]

MASTER = "local-cluster[2,1,1024]"

_BESIDE = 0.3
"""The share of cases in which another run, which writes files alone, is in the same session."""

_DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "2s",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
}
_DECOMMISSION = {
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
}
SESSIONS: dict[str, tuple[str, dict[str, str]]] = {
    "fixed": (MASTER, {}),
    "stays": (MASTER, {"spark.locality.wait": "3s"}),
    "dynamic": ("local-cluster[3,1,1024]", _DYNAMIC),
    "leaving": ("local-cluster[3,1,1024]", {**_DYNAMIC, **_DECOMMISSION}),
    "standalone": ("", {}),
}
"""The clusters: executors that stay, or leave while they are idle, with their blocks or after they gave them away; and
a master with workers, which are killed too."""


def targets(campaign: Campaign) -> None:
    """Run cases until the time is up, each on a cluster of its own with servers that they share."""
    with TemporaryDirectory() as folder, ExitStack() as servers:
        names = {
            "servers": started(Kafka, folder, servers).address,
            "dsn": started(Postgres, folder, servers).address,
            "redis": started(RedisServer, folder, servers).address,
        }
        for seed in campaign.seeds():
            campaign.attempt(seed, partial(_case, seed, names, campaign.size or 150))


def _case(seed: int, servers: dict[str, str], size: int) -> str:
    rng = random.Random(seed)
    with TemporaryDirectory() as folder:
        case = _Case(rng, Path(folder), {**servers, "folder": folder, "name": f"t{seed}", "size": size})
        try:
            case.prepare()
            said = [case.broken_off() for _ in range(rng.choice([0, 0, 1]))]
            said.append(case.to_the_end())
            case.check()
        finally:
            case.close()
        return f"{case.what}: {', '.join(said)}; {case.asked} questions, {case.shown} answers to commands"


class _Case:
    def __init__(self, rng: random.Random, folder: Path, options: dict[str, Any]) -> None:
        self._rng, self._folder, self._options = rng, folder, options
        self.kind = rng.choice([*SESSIONS])
        self._drivers: list[Driver] = []
        self._stack = ExitStack()
        self._standalone: Standalone | None = None
        self._beside = rng.random() < _BESIDE
        self.asked = self.shown = 0

    @property
    def what(self) -> str:
        """The cluster, and whether there are two runs."""
        return f"{self.kind}, two runs" if self._beside else self.kind

    def prepare(self) -> None:
        """Make the topic and the tables."""
        name = self._options["name"]
        Broker(self._options["servers"]).topic(name=name)
        with psycopg.connect(self._options["dsn"], autocommit=True) as connection:
            for table in TABLES:
                connection.execute(table.format(name=name))
        if self.kind == "standalone":
            self._standalone = self._stack.enter_context(Standalone(self._folder / "cluster", 2))

    def close(self) -> None:
        """End all that was started."""
        for driver in self._drivers:
            with suppress(Exception):
                driver.close()
        self._stack.close()

    def _started(self) -> Driver:
        master, settings = SESSIONS[self.kind]
        master = self._standalone.address if self._standalone else master
        driver = Driver(
            self._folder / f"driver-{len(self._drivers)}",
            master,
            program="tests.spark.programs.targets",
            PYTHONWARNINGS="ignore",
            SETTINGS_OF_SPARK=json.dumps(settings),
        )
        self._drivers.append(driver)
        driver.answer()
        rng = self._rng
        how = {"parallelism": rng.randint(1, 5), "most": rng.choice([5, 20]), "every": rng.choice([0.05, 0.5, 2])}
        driver.ask("start", **self._options, **how)
        if self._beside:
            driver.ask(
                "start_beside", folder=f"{self._folder}/beside", name="beside", size=self._options["size"], **how
            )
        return driver

    def _attack(self, driver: Driver) -> Attack:
        def victims() -> list[int]:
            kinds: list[Callable[[], list[int]]] = [driver.executors, lambda: driver.processes("pyspark.worker")]
            if self._standalone is not None:
                self._standalone.go_on()
                kinds = [self._standalone.executors, self._standalone.processes, self._standalone.workers]
            return self._rng.choice(kinds)()

        return Attack(self._rng, victims, every=self._rng.choice([0.7, 2]), kills=3)

    def broken_off(self) -> str:
        """Attack a run, and kill its driver."""
        driver = self._started()
        with self._attack(driver) as attack:
            time.sleep(self._rng.uniform(1, 10))
            driver.process.kill()
            driver.process.wait()
        driver.close()
        return f"driver killed after {dict(attack.done)}"

    def to_the_end(self) -> str:
        """Attack a run until it ends; ask it by a command meanwhile, and rescale it."""
        driver = self._started()
        done: Counter[str] = Counter()
        with self._attack(driver) as attack, _Commands(driver, self._options["name"]) as commands:
            for deed in self._rng.sample(["rescale", "decommission", "rescale"], 2):
                time.sleep(self._rng.uniform(0.5, 4))
                how = {"parallelism": self._rng.randint(1, 5)} if deed == "rescale" else {}
                answer = driver.ask(deed, **how)
                done[f"{deed} refused" if "raised" in answer else deed] += 1
                if deed == "rescale" and "raised" in answer and "has ended" not in str(answer):
                    raise Difference(f"{self.what}: {answer}")
            end = driver.wait()
            beside = driver.ask("wait_beside") if self._beside else {"error": None}
        questions = driver.ask("questions")
        self.asked, self.shown = questions["asked"], commands.answers
        if end["error"] or beside["error"] or questions["wrong"] or commands.wrong:
            raise Difference(
                f"{self.what}: {end['error']}, {beside['error']}, {end['warnings'][-3:]}, {questions['wrong']}, "
                f"{commands.wrong[:3]}, after {dict(attack.done)}, {dict(done)}"
            )
        driver.close()
        return f"{end['tick']} ticks, {end['restarts']} restarts, {dict(attack.done)}, {dict(done)}"

    def check(self) -> None:
        """Read what was written, by readers of others.

        Raises:
            Difference: if something is wrong.
        """
        size, folder = self._options["size"], self._folder
        wanted = expected(size)
        besides = _files(folder / "beside") if self._beside else ()
        for what, rows in (*_files(folder), *besides, *_sent(self._options)):
            if sorted(rows) != wanted:
                raise Difference(f"{what}: {_told(rows, wanted)}")
        newest = {row[:2]: row for row in sorted(wanted, key=lambda row: row[2])}
        for what, rows in _newest(self._options):
            if sorted(rows) != sorted(newest.values()):
                raise Difference(f"{what}: {_told(rows, [*newest.values()])}")
        lines = {tuple(line.split()) for line in (folder / "plain").read_text().splitlines()}
        if lines != {(part, str(number)) for part, _, number, _ in wanted}:
            raise Difference(f"plain: {len(lines)} rows of {len(wanted)}")
        self._check_letters(size)
        self._check_leftovers()

    def _check_letters(self, size: int) -> None:
        backend = backend_at(str(self._folder), self._options["name"])
        kept = sorted(letter.value for letter in dead_letters(backend))
        wanted = sorted((part, number) for part in PARTS for number in range(size) if unanswered(number))
        if kept != wanted:
            raise Difference(f"letters: {_told(kept, wanted)}")
        files = sorted((self._folder / "letters").glob("*.jsonl"))
        rows = [tuple(json.loads(line)) for file in files for line in file.read_text().splitlines()]
        wanted = [("check", part, number, "ValueError") for part in PARTS for number in range(size) if refused(number)]
        if sorted(rows) != sorted(wanted):
            raise Difference(f"letters that were taken: {_told(rows, wanted)}")

    def _check_leftovers(self) -> None:
        if problems := fsck(backend_at(str(self._folder), self._options["name"])).problems:
            raise Difference(f"fsck: {problems}")
        scratch = [path for path in (self._folder / "scratch").rglob("*") if path.is_file()]
        if len(self._drivers) == 1 and scratch:
            raise Difference(f"files are left in the scratch folder: {scratch[:3]}")
        with psycopg.connect(self._options["dsn"]) as connection:
            staged = "select relname from pg_class where relpersistence = 'u' and relname like %s"
            if found := connection.execute(staged, [f"%{self._options['name']}%"]).fetchall():
                raise Difference(f"staged tables are left: {found}")


class _Commands(Beside):
    """Asks a run by the command line, one command after the other, until the block ends."""

    def __init__(self, driver: Driver, job: str) -> None:
        super().__init__()
        self._environment = {**os.environ, "TMPDIR": str(driver.local.parent / "tmp"), "XDG_RUNTIME_DIR": ""}
        self._job = job
        self.answers = 0
        self.wrong: list[str] = []

    def _work(self) -> None:
        while not self._over.is_set():
            for words in (["keys", "sum", "--values", "--limit", "50"], ["get", "sum", "('a', 0)"], ["ls"]):
                self._ask(words)

    def _ask(self, words: list[str]) -> None:
        command = [sys.executable, "-m", "malflow", "state", *words, "--live", self._job, "--json"]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            self.answers += 1
        elif not any(it in done.stderr for it in ("no state for key", "ended", "no run", "does not answer")):
            self.wrong.append(f"{words}: {done.returncode}, {done.stderr[-300:]}")


def _files(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - only this needs it

    rows = [row for path in (folder / "parquet").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    yield "parquet", [*map(_row, rows)]
    yield "delta", [*map(_row, DeltaTable(folder / "delta").to_pyarrow_table().to_pylist())]
    lines = [line for path in (folder / "json").glob("*.jsonl") for line in path.read_text().splitlines()]
    yield "json", [_row(json.loads(line)) for line in lines]
    rows = []
    for path in (folder / "csv").glob("*.csv"):
        with path.open(newline="") as file:
            rows += [*csv.DictReader(file)]
    yield "csv", [*map(_row, rows)]


def _sent(options: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    yield "topic", [_row(json.loads(value)) for value in Broker(options["servers"]).values(options["name"])]
    with psycopg.connect(options["dsn"]) as connection:
        yield "table", connection.execute(f"table {options['name']}_sums").fetchall()


def _newest(options: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    with psycopg.connect(options["dsn"]) as connection:
        yield "last", connection.execute(f"table {options['name']}_last").fetchall()
    with redis.Redis.from_url(options["redis"]) as client:
        yield "hash", [_row(json.loads(value)) for value in client.hgetall(options["name"]).values()]


def _row(it: dict[str, Any]) -> tuple[str, int, int, int]:
    return it["part"], int(it["key"]), int(it["number"]), int(it["total"])


def _told(found: list[Any], wanted: list[Any]) -> str:
    lost, doubled = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    return f"{lost.total()} are lost, {doubled.total()} too many: {[*lost][:3]}, {[*doubled][:3]}"
