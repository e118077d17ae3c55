"""The example on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import kafka_totals
from tests.connectors.kafka.kit import Broker
from tests.servers.kafka import Kafka


@pytest.mark.nightly
def test_kafka_totals(own_kafka: Callable[[], Kafka], tmp_path: Path) -> None:
    broker = Broker(own_kafka().address)
    for topic in ("orders", "totals"):
        broker.topic(2, topic)
    for times in (1, 2):
        for partition, town in enumerate(("Ulm", "Bonn")):
            broker.write("orders", [json.dumps({"town": town, "amount": it}) for it in (1, 2)], partition)
        kafka_totals.main(broker.servers, str(tmp_path), "latest")
        found = [json.loads(it) for partition in range(2) for it in broker.values("totals", partition)]
        for town in ("Ulm", "Bonn"):
            assert [it["total"] for it in found if it["town"] == town] == [1, 3, 4, 6][: 2 * times]
