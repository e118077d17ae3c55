"""Positions confirmed to Kafka and Postgres are never ahead of the durable snapshot, whenever the program ends."""

from __future__ import annotations

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import TopicPartition

from malflow.errors import SnapshotError
from tests.connectors.confirming_program import backend
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import kept_states
from tests.kit.killing import kill_child, parked, run_child, wake
from tests.kit.nights import NIGHTLY, at_night
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.slow]  # pytest does not see which server a test asks for
PROGRAM = "tests.connectors.confirming_program"
POINTS = ["before-manifest", "manifest-written", "before-confirm", "after-confirm"]
SHORT = ["before-confirm"]
EACH = 40


class Source(ABC):
    """A source whose positions are confirmed.

    Attributes:
        kind: which source the program has.
        address: its address.
        name: its name, also that of what is confirmed.
        added: how many records it has.
    """

    kind: str
    address: str
    name: str
    added = 0

    @abstractmethod
    def add(self) -> None:
        """Add records."""

    @abstractmethod
    def confirmed(self) -> Mapping[Any, int]:
        """Return what is confirmed, by part."""

    @abstractmethod
    def place(self, position: Any) -> int | None:
        """Return what is confirmed of a position; None if nothing is."""

    @abstractmethod
    def close(self) -> None:
        """Delete what is left at the server."""


class Topic(Source):
    """A topic of two partitions, and a group."""

    kind = "kafka"

    def __init__(self, servers: str) -> None:
        self._broker = Broker(servers)
        self.address, self.name = servers, self._broker.topic(2)
        self._consumer = self._broker.consumer(**{"group.id": self.name})

    def add(self) -> None:
        for part in range(2):
            self._broker.write(self.name, [b"%d" % it for it in range(EACH)], part)
        self.added += 2 * EACH

    def confirmed(self) -> Mapping[Any, int]:
        found = self._consumer.committed([TopicPartition(self.name, it) for it in range(2)], 30)
        return {(it.topic, it.partition): it.offset for it in found if it.offset >= 0}

    def place(self, position: Any) -> int | None:
        return int(position[1])

    def close(self) -> None:
        self._consumer.close()


class Table(Source):
    """A table, and a slot for its changes; each row is a transaction."""

    kind = "changes"

    def __init__(self, dsn: str) -> None:
        self.address, self.name = dsn, f"t_{uuid4().hex}"
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._ask(f"create table {self.name} (n serial primary key)")

    def add(self) -> None:
        for _ in range(EACH):
            self._ask(f"insert into {self.name} default values")
        self.added += EACH

    def confirmed(self) -> Mapping[Any, int]:
        lsn = "select slot_name, confirmed_flush_lsn - '0/0'::pg_lsn from pg_replication_slots where slot_name = %s"
        return {slot: int(lsn) for slot, lsn in self._ask(lsn, self.name) if lsn is not None}

    def place(self, position: Any) -> int | None:
        return int(position[2]) if position[0] == "stream" else None

    def close(self) -> None:
        active = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = %s and active"
        wait_until(lambda: not self._ask(active, self.name).fetchall(), 30)
        self._ask(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", self.name
        )
        self._ask(f"drop table {self.name}")
        self._connection.close()

    def _ask(self, query: str, *arguments: str) -> Any:
        return self._connection.execute(query.encode(), arguments or None)


@pytest.fixture(params=at_night(["kafka", "changes"], but=["changes"]))
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    makers: dict[str, Callable[[], Source]] = {
        "kafka": lambda: Topic(request.getfixturevalue("kafka_servers")),
        "changes": lambda: Table(request.getfixturevalue("postgres_dsn")),
    }
    made = makers[request.param]()
    yield made
    made.close()


class Job:
    """A job that reads a source, and whose confirmations are watched."""

    def __init__(self, source: Source, folder: Path) -> None:
        self.source, self.folder = source, folder
        self.arguments = (source.kind, folder, source.address, source.name)
        self.ahead: list[Any] = []
        self.checks = 0

    def durable(self) -> dict[Any, int]:
        """Return what the newest snapshot allows to confirm, by part."""
        deadline = time.monotonic() + 30
        while True:
            try:
                positions = kept_states(backend(self.folder), "numbers")
            except (SnapshotError, AssertionError, IndexError):  # there is none, or it has just been replaced
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
                continue
            places = {part: self.source.place(position) for part, position in positions.items()}
            return {part: place for part, place in places.items() if place is not None}

    def check(self) -> None:
        """Check that nothing is confirmed that is not durable."""
        confirmed = self.source.confirmed()
        durable = self.durable() if confirmed else {}
        ahead = {part: (place, durable.get(part)) for part, place in confirmed.items() if place > durable.get(part, -1)}
        self.ahead += [ahead] if ahead else []
        self.checks += 1

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Check beside, all the time."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.005):
                self.check()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(60)
        self.check()
        assert not self.ahead
        assert self.checks > 3


@pytest.mark.parametrize("point", POINTS if NIGHTLY else SHORT)
def test_confirmed_positions_of_killed_and_stopped_programs(source: Source, tmp_path: Path, point: str) -> None:
    job = Job(source, tmp_path)
    source.add()
    run_child(PROGRAM, *job.arguments, "ends")
    with job.watched():
        source.add()
        kill_child(PROGRAM, *job.arguments, point=f"{point}:3")
        source.add()
        with parked(PROGRAM, *job.arguments, point=f"{point}:3") as child:
            child.send_signal(signal.SIGTERM)
            assert wake(child) == (0, "")
        wait_until(lambda: source.confirmed() == job.durable(), 30)
        run_child(PROGRAM, *job.arguments, "ends")
    wait_until(lambda: source.confirmed() == job.durable(), 30)
    assert kept_states(backend(tmp_path), "count") == {"all": source.added}
