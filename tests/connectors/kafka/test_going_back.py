"""A log that lost its end, or was restored from an older copy, and has since grown past the position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from malflow.connectors.kafka import KafkaDataLost
from tests.connectors.kafka.kit import Broker, poll_for, read_some, run_to_the_end
from tests.kit.going_back import keep_copy, put_back
from tests.servers.kafka import Kafka

pytestmark = pytest.mark.slow

OLD = [b"old %d" % number for number in range(10)]
NEW = [b"new %d" % number for number in range(30)]


def cut(kafka: Kafka, broker: Broker, topic: str) -> Callable[[], None]:
    """Return what crashes the broker, and takes from the end of its log what is written from now on."""
    [log] = (kafka.folder / "data" / f"{topic}-0").glob("*.log")
    size = log.stat().st_size

    def lose() -> None:
        kafka.kill()
        with log.open("r+b") as file:
            file.truncate(size)
        kafka.start()

    return lose


def restore(kafka: Kafka, broker: Broker, topic: str) -> Callable[[], None]:
    """Return what puts back the broker's data as it is now."""
    keep_copy(kafka)
    broker.values(topic)  # it serves again
    return lambda: put_back(kafka)


@pytest.fixture
def kafka(own_kafka: Callable[[], Kafka]) -> Kafka:
    return own_kafka()


@pytest.mark.parametrize("loss", [cut, restore])
@pytest.mark.nightly
def test_log_that_grew_past_the_position_between_two_runs(loss: Any, kafka: Kafka) -> None:
    broker = Broker(kafka.address)
    topic = broker.topic()
    broker.write(topic, [b"first"])
    lose = loss(kafka, broker, topic)
    broker.write(topic, OLD)
    reader = broker.source(topic).build_part((topic, 0), None)
    assert read_some(reader, 11) == [b"first", *OLD]
    position = reader.collect()
    reader.suspend()

    lose()
    broker.write(topic, NEW[:10])
    with pytest.raises(KafkaDataLost, match=r"it has other records than those that were read|ends before"):
        read_to_end(broker, topic, position)  # just as long as before
    broker.write(topic, NEW[10:])
    for stop in ("latest", None):
        reader = broker.source(topic, stop=stop).build_part((topic, 0), position)
        with pytest.raises(KafkaDataLost, match="it has other records than those that were read"):
            poll_for(reader, 30)
        reader.suspend()
    source = broker.source(topic, stop="latest", on_data_loss="earliest")
    reader = source.build_part((topic, 0), position)
    assert read_some(reader, 31) == [b"first", *NEW]
    reader.suspend()


def read_to_end(broker: Broker, topic: str, position: Any) -> list[Any]:
    reader = broker.source(topic, stop="latest").build_part((topic, 0), position)
    try:
        values: list[Any] = []
        while not reader.is_finished():
            values += reader.poll_batch(100)[0]
        return values
    finally:
        reader.suspend()


@pytest.mark.parametrize("loss", [cut, restore])
@pytest.mark.nightly
def test_log_that_grew_past_the_position_while_it_was_read(loss: Any, kafka: Kafka) -> None:
    broker = Broker(kafka.address)
    topic, other = broker.topic(), broker.topic()
    broker.write(topic, [b"first"])
    broker.write(other, OLD)
    lose = loss(kafka, broker, topic)
    broker.write(topic, OLD)
    source = broker.source([topic, other])
    reader, beside = (source.build_part((it, 0), None) for it in (topic, other))
    assert read_some(reader, 11) == [b"first", *OLD]
    assert read_some(beside, 10) == OLD
    lose()
    broker.write(topic, NEW)
    broker.write(other, NEW)
    with pytest.raises(KafkaDataLost):
        poll_for(reader, 60)
    assert read_some(beside, 30) == NEW  # it lost nothing
    for it in (reader, beside):
        it.suspend()


@pytest.mark.nightly
def test_crash_of_a_broker_that_loses_nothing(kafka: Kafka) -> None:
    broker = Broker(kafka.address)
    topic = broker.topic()
    broker.write(topic, OLD)
    reader = broker.source(topic).build_part((topic, 0), None)
    assert read_some(reader, 10) == OLD
    kafka.kill()
    assert poll_for(reader, 0.5) == []
    kafka.start()
    broker.write(topic, NEW)
    assert read_some(reader, 30) == NEW
    reader.suspend()


def test_position_whose_last_record_is_gone(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, OLD)
    reader = broker.source(topic).build_part((topic, 0), None)
    read_some(reader, 5)
    position = reader.collect()
    reader.suspend()
    broker.delete_records(topic, 5)  # all that was read, and no more
    reader = broker.source(topic).build_part((topic, 0), position)
    assert read_some(reader, 5) == OLD[5:]
    reader.suspend()


def test_position_of_an_older_version(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, OLD)
    reader = broker.source(topic).build_part((topic, 0), None)
    read_some(reader, 5)
    position = reader.collect()[:3]  # without a mark
    reader.suspend()
    reader = broker.source(topic).build_part((topic, 0), position)
    assert read_some(reader, 5) == OLD[5:]
    reader.suspend()
    assert run_to_the_end(broker.source(topic, stop="latest")).values == OLD
