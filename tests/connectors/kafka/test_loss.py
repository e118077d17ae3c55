from __future__ import annotations

import logging
import pickle
import time
from datetime import timedelta
from typing import Any

import pytest

from malflow.connectors.kafka import KafkaDataLost, KafkaFailed
from tests.connectors.kafka.kit import Broker, poll_for, read_some
from tests.kit.waiting import wait_until


def lose(broker: Broker, **options: Any) -> tuple[str, Any]:
    """Return a topic and a reader whose next records have been deleted."""
    topic = broker.topic()
    broker.write(topic, [b"%d" % it for it in range(20)])
    source = broker.source(topic, **options)
    reader = source.build_part((topic, 0), None)
    assert read_some(reader, 5)[-1] == b"4"
    position = reader.collect()
    reader.suspend()
    broker.delete_records(topic, 10)
    return topic, source.build_part((topic, 0), position)


def test_offset_that_is_gone(broker: Broker) -> None:
    topic, reader = lose(broker)
    with pytest.raises(KafkaDataLost) as caught:
        poll_for(reader, 30)
    lost = pickle.loads(pickle.dumps(caught.value))
    assert (lost.topic, lost.partition, lost.wanted, lost.available) == (topic, 0, 5, (10, 20))
    assert "expected offset 5, but the offsets are 10 to 20" in str(lost)
    reader.suspend()


@pytest.mark.parametrize(("answer", "first"), [("earliest", b"10"), ("latest", b"20")])
def test_reading_on_after_a_loss(answer: str, first: bytes, broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "malflow.kafka"):
        topic, reader = lose(broker, on_data_loss=answer)
        poll_for(reader, 0)
        values: list[Any] = []
        deadline = time.monotonic() + 30
        while "expected offset 5" not in caplog.text and time.monotonic() < deadline:
            values += poll_for(reader, 0.05)
        broker.write(topic, [b"20"])
        values += read_some(reader, (11 if answer == "earliest" else 1) - len(values))
    assert values[0] == first
    assert values[-1] == b"20"
    reader.suspend()


def test_end_before_the_position_of_a_bounded_run(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"1", b"2"])
    reader = broker.source(topic).build_part((topic, 0), None)
    topic_id = reader.snapshot()[0]
    reader.suspend()
    position = (topic_id, 5, 0)  # as after the election of a leader that had less
    with pytest.raises(KafkaDataLost, match="it ends before the position; expected offset 5"):
        broker.source(topic, stop="latest").build_part((topic, 0), position)
    reader = broker.source(topic, stop="latest", on_data_loss="latest").build_part((topic, 0), position)
    assert (reader.is_finished(), reader.snapshot()[1]) == (True, 2)
    reader.suspend()


def test_topic_made_anew_between_two_runs(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"old"] * 3)
    reader = broker.source(topic).build_part((topic, 0), None)
    read_some(reader, 2)
    position = reader.collect()
    reader.suspend()
    broker.delete(topic)
    broker.topic(name=topic)
    broker.write(topic, [b"new"] * 5)
    with pytest.raises(KafkaDataLost, match=r"the topic was deleted and recreated .*expected offset 2.* 0 to 5"):
        broker.source(topic).build_part((topic, 0), position)
    reader = broker.source(topic, on_data_loss="earliest").build_part((topic, 0), position)
    assert read_some(reader, 5) == [b"new"] * 5
    assert reader.snapshot()[0] != position[0]
    reader.suspend()


@pytest.mark.parametrize("answer", ["fail", "earliest"])
def test_topic_made_anew_while_it_is_read(answer: str, broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"old"] * 3)
    source = broker.source(topic, on_data_loss=answer, discover_every=timedelta(seconds=0.2))
    reader = source.build_part((topic, 0), None)
    assert read_some(reader, 3) == [b"old"] * 3
    broker.delete(topic)
    broker.topic(name=topic)
    broker.write(topic, [b"new 1", b"new 2"])
    if answer == "fail":
        # A busy reader asks for the next offset of the new topic before it asks for the topic.
        with pytest.raises(KafkaFailed, match=r"was deleted|it ends before the position; expected offset 3"):
            poll_for(reader, 60)
    else:
        assert read_some(reader, 2) == [b"new 1", b"new 2"]
    reader.suspend()


def test_position_in_a_topic_made_anew_that_is_empty(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"old"] * 3)
    source = broker.source(topic, on_data_loss="earliest", discover_every=timedelta(seconds=0.2))
    reader = source.build_part((topic, 0), None)
    assert read_some(reader, 3) == [b"old"] * 3
    position = reader.snapshot()
    broker.delete(topic)
    broker.topic(name=topic)
    wait_until(lambda: poll_for(reader, 0.05) == [] and reader.snapshot()[0] != position[0], 60)
    assert reader.snapshot()[1] == 0
    reader.suspend()


def test_topic_deleted_while_it_is_read(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"x"])
    reader = broker.source(topic, discover_every=timedelta(seconds=0.2)).build_part((topic, 0), None)
    read_some(reader, 1)
    broker.delete(topic)
    with pytest.raises(KafkaFailed, match=f"topic '{topic}' was deleted .*up to offset 1"):
        poll_for(reader, 60)
    reader.suspend()
