"""The laws of sources and sinks, kept by topics of Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it does not list them
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from malflow import SingleThreadRuntime, StreamProvider
from malflow.cli.output.output import Output
from malflow.cli.running.tapping import ReplayingListener
from malflow.snapshot import dead_letters
from malflow.testing import ScriptedSource, assert_sink, assert_source
from malflow.testing.refusal_laws import REFUSAL_LAWS
from malflow.testing.sink_laws import SINK_LAWS
from malflow.testing.source_laws import SOURCE_LAWS
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import at_once
from tests.kit.going_back import copied
from tests.kit.nights import only_nightly
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.slow


@pytest.mark.nightly
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


def accept(broker: Broker, topic: str) -> None:
    """Make a topic take larger records."""
    larger = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[larger])
    broker.admin.incremental_alter_configs([resource])[resource].result(30)


@only_nightly  # takes two minutes; the next test has one refused record
@pytest.mark.nightly
def test_laws_of_records_that_a_broker_refuses(broker: Broker) -> None:
    topic = broker.topic(max_message_bytes="3000")
    assert_sink(
        lambda: broker.sink(topic, delivery="exactly-once", encode="json"),
        lambda: [json.loads(value) for value in broker.values(topic)],
        refuse=lambda number: [number, *range(3000)],
        mend=lambda: accept(broker, topic),
        without=[law for law in SINK_LAWS if law not in REFUSAL_LAWS],
    )


def test_a_record_that_a_broker_refuses_is_replayed(broker: Broker, tmp_path: Path) -> None:
    topic = broker.topic(max_message_bytes="3000")

    def run(*replays: ReplayingListener) -> None:
        def build(provider: StreamProvider) -> None:
            values = provider.new_stream().source("values", ScriptedSource([1, "large" * 1000, 3]))
            values.sink("out", broker.sink(topic, delivery="exactly-once", encode="json"), on_error="dead_letter")

        SingleThreadRuntime(build, at_once(tmp_path), listeners=replays).execute()

    run()
    assert [json.loads(value) for value in broker.values(topic)] == [1, 3]
    [letter] = dead_letters(at_once(tmp_path), "out")
    assert (letter.value["topic"], len(letter.value["value"])) == (topic, 5002)
    accept(broker, topic)
    run(ReplayingListener("out", Output()))
    assert [json.loads(value) for value in broker.values(topic)] == [1, 3, "large" * 1000]


@only_nightly  # a broker starts a dozen times; test_going_back has a selection
@pytest.mark.nightly
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
@pytest.mark.nightly
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
