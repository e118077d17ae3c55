"""Kafka to Kafka, exactly once: the program dies or sleeps at each point between two snapshots."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.connectors.kafka.kit import Broker
from tests.kit.killing import DRIVER_POINTS, POINTS, kill_child, parked, run_child, wake
from tests.kit.nights import NIGHTLY, at_night, only_nightly
from tests.kit.waiting import wait_until
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.slow

PROGRAM = "tests.connectors.kafka.program"
OWN = ["sink-prepare", "sink-commit", "sink-produced", "sink-after-commit"]
"""Points within the sink's calls."""

SHORT = ["before-manifest", "before-commit", "sink-produced", "sink-after-commit"]
"""The points of the short suite: those at which something is outside that no later snapshot tells of."""

SIZE = 40


class Reader:
    """A reader beside the program, which sees what is committed, as it comes."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.seen: dict[int, list[str]] = {0: [], 1: []}
        self._consumer = broker.consumer()
        self._consumer.assign([TopicPartition(topic, it, 0) for it in range(2)])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        quiet = False
        while not (quiet and self._ended.is_set()):
            message: Any = self._consumer.poll(0.5)
            quiet = message is None
            if message is not None and message.error() is None:
                self.seen[message.partition()].append(message.value().decode())
        self._consumer.close()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def job(broker: Broker) -> Iterator[tuple[str, str]]:
    """Return the topics of a job with its input; at the end check what a reader saw all the time, and sees now."""
    topics = broker.topic(2), broker.topic(2)
    for partition in range(2):
        broker.write(topics[0], [b"%d" % it for it in range(partition, SIZE, 2)], partition)
    reader = Reader(broker, topics[1])
    try:
        yield topics
        wait_until(
            lambda: len(reader.seen[0] + reader.seen[1]) >= SIZE
        )  # it may still look for a broker that has come back
    finally:
        reader.end()
    expected = sorted(f"{number} {number // 2 + 1}" for number in range(SIZE))
    assert sorted(reader.seen[0] + reader.seen[1]) == expected
    for partition in range(2):
        assert [it.decode() for it in broker.values(topics[1], partition)] == reader.seen[partition]
        for parity in range(2):  # a key is in one partition
            counts = [
                int(count) for number, count in map(str.split, reader.seen[partition]) if int(number) % 2 == parity
            ]
            assert counts in ([], list(range(1, SIZE // 2 + 1)))


def asleep(
    folder: Path, broker: Broker, topics: tuple[str, str], point: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run the job until it is suspended at a point."""
    return parked(PROGRAM, folder, broker.servers, *topics, point=point)


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", at_night([*POINTS, *OWN] if NIGHTLY else SHORT, but=["before-commit"]))
def test_kill_at_each_point(point: str, tmp_path: Path, broker: Broker) -> None:
    with job(broker) as topics:
        kill_child(PROGRAM, tmp_path, broker.servers, *topics, point=f"{point}:3")
        if NIGHTLY:
            kill_child(PROGRAM, tmp_path, broker.servers, *topics, point=f"{point}:2")
        run_child(PROGRAM, tmp_path, broker.servers, *topics)


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", [*POINTS, *OWN] if NIGHTLY else ["before-commit"])
@pytest.mark.nightly
def test_zombie_that_wakes_up_after_its_heir(point: str, tmp_path: Path, broker: Broker) -> None:
    with job(broker) as topics, asleep(tmp_path, broker, topics, point) as zombie:
        run_child(PROGRAM, tmp_path, broker.servers, *topics)
        _, errors = wake(zombie)
        assert "FencedError" in errors


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", [*POINTS, *OWN] if NIGHTLY else ["before-commit"])
@pytest.mark.nightly
def test_kill_of_the_broker_and_then_of_both(point: str, tmp_path: Path, own_kafka: Callable[[], Kafka]) -> None:
    server = own_kafka()
    broker = Broker(server.address)
    with job(broker) as topics, asleep(tmp_path / "survivor", broker, topics, point) as survivor:
        server.kill()
        survivor.send_signal(signal.SIGCONT)  # it asks a broker that is away
        server.start()
        code, errors = wake(survivor)
        assert code == 0, errors
    with job(broker) as topics:
        with asleep(tmp_path / "dead", broker, topics, point):
            server.kill()
        server.start()
        run_child(PROGRAM, tmp_path / "dead", broker.servers, *topics)


@pytest.mark.spark
@pytest.mark.fault("A7")
@only_nightly
@pytest.mark.parametrize("point", [*DRIVER_POINTS, "sink-after-commit"])
def test_kill_of_the_driver_on_spark(point: str, tmp_path: Path, broker: Broker) -> None:
    with job(broker) as topics:
        kill_child(PROGRAM, tmp_path, broker.servers, *topics, "spark", point=f"{point}:2")
        run_child(PROGRAM, tmp_path, broker.servers, *topics, "spark")
