"""The example on a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from examples import column_kafka
from tests.connectors.kafka.kit import Broker
from tests.servers.kafka import Kafka


@pytest.mark.nightly
def test_column_kafka(own_kafka: Callable[[], Kafka], tmp_path: Path) -> None:
    broker = Broker(own_kafka().address)
    for topic in ("orders", "revenue"):
        broker.topic(2, topic)
    for partition, town in enumerate(("Ulm", "Bonn")):
        lines = [json.dumps({"town": town, "at": 20_000 * it, "cents": it, "note": "?"}) for it in range(8)]
        broker.write("orders", [*lines, "no JSON", '{"town": null}'], partition)
    column_kafka.main(broker.servers, str(tmp_path), "latest")
    found = [json.loads(it) for partition in range(2) for it in broker.values("revenue", partition)]
    assert sorted((it["town"], it["minute"], it["cents"]) for it in found) == [
        (town, minute * 60_000, cents) for town in ("Bonn", "Ulm") for minute, cents in ((0, 3), (1, 12), (2, 13))
    ]
