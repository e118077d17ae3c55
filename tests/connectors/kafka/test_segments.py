"""Records that workers of Spark encode for a topic: each is there once, and not in the snapshots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from malflow.snapshot import FsspecBackend
from tests.connectors.kafka.kit import Broker
from tests.spark.simulation import Cluster, Plan, settings_at, simulated
from tests.spark.test_distributed_sinks import assert_once, program_of

pytestmark = pytest.mark.slow

pytest.importorskip("pyspark")


@pytest.mark.fault("I24")
def test_each_record_is_in_the_topic_once(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic()
    sink = broker.sink(topic, delivery="exactly-once", encode="json")
    sink.share_bytes = 1
    backend = FsspecBackend(str(tmp_path / "state"), job="segments")
    plans = [
        Plan(asks=True, doubled=True, again=frozenset({1, 3})),
        Plan(rescale=3),
        Plan(asks=True),
        Plan(crash=True),
        Plan(asks=True, doubled=True),
        Plan(),
        Plan(asks=True, killed=0),
    ]
    with simulated():
        Cluster(plans).run(program_of(sink), settings_at(str(tmp_path / "scratch"), backend), 2)
    assert_once([json.loads(value) for value in broker.values(topic)])
    assert sink._segments is not None
    assert sink._store is not None
    assert not [*tmp_path.glob("state/segments/s/*/*")]
