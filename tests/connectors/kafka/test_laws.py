"""The laws of sources and sinks, kept by topics of Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, islice

import pytest

from malflow.testing import assert_sink, assert_source
from malflow.testing.sink_laws import SINK_LAWS
from malflow.testing.source_laws import SOURCE_LAWS
from tests.connectors.kafka.kit import Broker
from tests.kit.going_back import copied
from tests.kit.nights import only_nightly
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.slow


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


@only_nightly  # a broker starts a dozen times; test_going_back has a selection
def test_laws_of_a_server_that_goes_back(own_kafka: Callable[[], Kafka]) -> None:
    server = own_kafka()
    broker = Broker(server.address)
    topic = broker.topic()
    assert_sink(
        lambda: broker.sink(topic, delivery="exactly-once", encode="json"),
        lambda: [json.loads(value) for value in broker.values(topic)],
        copy_output=lambda: copied(server),
        without=[law for law in SINK_LAWS if law != "restored"],
    )


@only_nightly  # a broker starts half a dozen times; test_going_back has a selection
def test_laws_of_a_topic_whose_broker_goes_back(own_kafka: Callable[[], Kafka]) -> None:
    server, numbers = own_kafka(), count()
    broker = Broker(server.address)
    topic = broker.topic(2)

    def add(size: int) -> None:
        for number in islice(numbers, size):
            broker.write(topic, [b"%d" % number], partition=number % 2)

    add(10)
    assert_source(
        lambda: broker.source(topic, discover_every=None),
        count=10,
        add_records=add,
        copy_input=lambda: copied(server),
        timeout=60,
        without=[law for law in SOURCE_LAWS if law not in ("parts", "records", "restored")],
    )
