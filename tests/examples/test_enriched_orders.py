"""The example on real servers: killed between two snapshots, and read by a reader of committed records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from examples.enriched_orders import ORDERS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def name(postgres_dsn: str) -> Iterator[str]:
    """Return a name for the job, whose slot is dropped at the end."""
    name = f"shop{uuid4().hex[:12]}"
    yield name
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s", [name]
        )
        connection.execute(f"drop publication if exists {name}")


def run(servers: str, dsn: str, name: str, folder: Path, point: str = "") -> int:
    """Run the example to the end of what is there, or to its death; return its exit code."""
    script = [str(ROOT / "examples" / "enriched_orders.py"), "--once", "--name", name, "--state", str(folder)]
    done = subprocess.run(
        [sys.executable, "-W", "error", *script, "--servers", servers, "--postgres", dsn],
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MALFLOW_FAILPOINT": point},
        capture_output=True,
        timeout=300,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def written(servers: str, topic: str) -> list[dict[str, Any]]:
    """Return the committed records of a topic."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    try:
        _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[dict[str, Any]] = []
        deadline = time.monotonic() + 60
        while consumer.position([TopicPartition(topic, 0)])[0].offset < high and high > 0:
            assert time.monotonic() < deadline
            for message in consumer.consume(100, 0.2):
                value = message.value()
                assert message.error() is None
                assert value is not None
                found.append(json.loads(value))
        return found
    finally:
        consumer.close()


def test_enriched_orders(kafka_servers: str, postgres_dsn: str, name: str, tmp_path: Path) -> None:
    topic = f"{name}_enriched"
    for point in ("prepared:1", "before-commit:1", "committed:1"):
        assert run(kafka_servers, postgres_dsn, name, tmp_path, point) == -signal.SIGKILL
        known = written(kafka_servers, topic)
        assert len({it["order"] for it in known}) == len(known)
        if point == "committed:1":
            assert sorted(it["order"] for it in known) == [it["order"] for it in ORDERS if it["customer"] < 3]
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"insert into {name}_customers values (3, 'Katherine', 'Hampton')")  # noqa: S608 - as above
        connection.execute(f"update {name}_customers set town = 'Paris' where id = 1")  # noqa: S608
    assert run(kafka_servers, postgres_dsn, name, tmp_path) == 0
    found = {it["order"]: it for it in written(kafka_servers, topic)}
    assert len(written(kafka_servers, topic)) == len(found) == len(ORDERS)
    for order in ORDERS:
        name_of, town = {1: ("Ada", "London"), 2: ("Grace", "New York"), 3: ("Katherine", "Hampton")}[order["customer"]]
        assert found[order["order"]] == {**order, "name": name_of, "town": town}
