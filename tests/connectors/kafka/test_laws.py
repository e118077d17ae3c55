"""The laws of sources and sinks, kept by topics of Kafka."""

from __future__ import annotations

import json

from malflow.testing import assert_sink, assert_source
from tests.connectors.kafka.kit import Broker


def test_laws_of_a_topic_as_a_source(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.write(topic, [b"%d" % number for number in range(12)])
    with broker.transaction(topic, [b"aborted"], "abort"):
        pass
    broker.write(topic, [b"%d" % number for number in range(12, 20)])
    broker.write(topic, [b"other"] * 5, partition=1)
    assert_source(lambda: broker.source(topic, discover_every=None), count=25)


def test_laws_of_a_topic_as_a_sink(broker: Broker) -> None:
    topic = broker.topic()
    assert_sink(
        lambda: broker.sink(topic, delivery="exactly-once", encode="json"),
        lambda: [json.loads(value) for value in broker.values(topic)],
        without=["crashes"],  # takes half a minute; processes are killed elsewhere
    )
