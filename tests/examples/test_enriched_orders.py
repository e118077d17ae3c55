"""The example on real servers: killed between two snapshots, and read by a reader of committed records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from examples.enriched_orders import ORDERS
from tests.kit.killing import kill_child, run_child


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


def command(servers: str, dsn: str, name: str, folder: Path) -> list[object]:
    """Return what runs the example to the current end of the input."""
    places = ["--servers", servers, "--postgres", dsn, "--state", folder]
    return ["examples.enriched_orders", "--once", "--name", name, *places]


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


@pytest.mark.nightly
def test_enriched_orders(kafka_servers: str, postgres_dsn: str, name: str, tmp_path: Path) -> None:
    topic, (program, *options) = f"{name}_enriched", command(kafka_servers, postgres_dsn, name, tmp_path)
    for point in ("prepared:1", "before-commit:1", "committed:1"):
        kill_child(program, *options, point=point)
        known = written(kafka_servers, topic)
        assert len({it["order"] for it in known}) == len(known)
        if point == "committed:1":
            assert {it["customer"] for it in known} in ({1}, {2}, {1, 2}), "the third customer is not there yet"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"insert into {name}_customers values (3, 'Katherine', 'Hampton')")  # noqa: S608 - as above
        connection.execute(f"update {name}_customers set town = 'Paris' where id = 1")  # noqa: S608
    run_child(program, *options)
    found = {it["order"]: it for it in written(kafka_servers, topic)}
    assert len(written(kafka_servers, topic)) == len(found) == len(ORDERS)
    for order in ORDERS:
        name_of, town = {1: ("Ada", "London"), 2: ("Grace", "New York"), 3: ("Katherine", "Hampton")}[order["customer"]]
        assert found[order["order"]] == {**order, "name": name_of, "town": town}
