"""Kafka to Kafka, exactly once: a worker process and the coordinator are killed between two snapshots."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.connectors.kafka.kit import Broker
from tests.kit.killing import POINTS
from tests.kit.nights import NIGHTLY
from tests.multiprocess.groups import started

pytestmark = pytest.mark.nightly

SIZE = 40


@pytest.mark.fault("A7")
@pytest.mark.parametrize("point", POINTS if NIGHTLY else ["before-commit"])
def test_kills_of_both_lose_and_double_nothing_on_kafka(tmp_path: Path, kafka_servers: str, point: str) -> None:
    broker = Broker(kafka_servers)
    topics = broker.topic(2), broker.topic(2)
    for partition in range(2):
        broker.write(topics[0], [b"%d" % it for it in range(partition, SIZE, 2)], partition)
    program = "tests.multiprocess.programs.kafka_counts"
    command = [sys.executable, "-m", program, str(tmp_path), kafka_servers, *topics]
    with started(command, tmp_path, MALFLOW_FAILPOINT=f"{point}:2:stop") as run:
        run.wait_for_stop()
        os.kill(run.workers()[0], signal.SIGKILL)
        run.process.send_signal(signal.SIGCONT)
        run.wait_for("restarted 1")
        run.process.kill()
        run.end(-signal.SIGKILL)
    with started(command, tmp_path) as run:
        run.end()
        assert run.said == ["ended 0"]
    written = [it.decode() for partition in range(2) for it in broker.values(topics[1], partition)]
    assert sorted(written) == sorted(f"{number} {number // 2 + 1}" for number in range(SIZE))
