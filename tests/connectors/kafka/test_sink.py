from __future__ import annotations

import pickle
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from malflow import DataMessage, SingleThreadRuntime
from malflow.connectors.codecs import CodecUnavailable, Encoder
from malflow.connectors.kafka import KafkaFailed, KafkaSink, UnwritableKafkaRecord
from malflow.errors import FencedError, GraphError, OperatorError
from malflow.message import NoKey
from malflow.sinks import SinkOwner
from malflow.sources import SingleIteratorSource, StatelessSource
from tests.connectors.kafka.kit import Broker
from tests.kit.backends import at_once
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

LEAST, ONCE = "at-least-once", "exactly-once"


def write(sink: KafkaSink[Any, Any, Any], values: list[Any], key: Any = NoKey) -> None:
    sink.sink_batch([key] * len(values), values, range(len(values)))
    sink.flush()


def owner(topic: str, claim: int) -> SinkOwner:
    return SinkOwner(f"job-{topic}", "out", claim)


def fenced(broker: Broker, topic: str, claim: int = 1, **options: Any) -> KafkaSink[Any, Any, Any]:
    sink = broker.sink(topic, delivery=ONCE, **options)
    sink.fence(owner(topic, claim))
    return sink


def prepared(sink: KafkaSink[Any, Any, Any], transaction: int) -> Any:
    return sink.prepare(transaction)


def test_keys_and_times_of_records(broker: Broker) -> None:
    topic, at = broker.topic(), datetime(2026, 1, 1, tzinfo=UTC)
    sink = pickle.loads(pickle.dumps(broker.sink(topic, encode="json")))
    for key in (NoKey, "Köln", "17", "", None):
        sink.sink(DataMessage(key, {"v": 1}, at))
    sink.sink(DataMessage("gone", None, 5))
    sink.flush()
    sink.close()
    found = broker.read(topic)
    assert [it.key() for it in found] == [None, "Köln".encode(), b"17", b"", None, b"gone"]
    assert [it.value() for it in found] == [b'{"v":1}'] * 5 + [None]
    assert {it.timestamp()[1] for it in found[:5]} == {int(at.timestamp() * 1000)}
    assert found[5].timestamp()[1] > int(at.timestamp() * 1000)  # now, as 5 is no moment


def test_topic_key_headers_and_time_by_functions(broker: Broker) -> None:
    topics = [broker.topic(), broker.topic()]
    sink = broker.sink(
        lambda msg: topics[msg.value % 2],
        encode=lambda value: b"%d" % value,
        key=lambda msg: f"k{msg.value}",
        headers=lambda msg: [("h", b"%d" % msg.value), ("h", None)],
        timestamp=lambda msg: msg.value * 1000,
    )
    write(sink, [1, 2, 3])
    sink.close()
    found = broker.read(topics[1])
    assert [(it.key(), it.value(), it.timestamp()[1]) for it in found] == [(b"k1", b"1", 1000), (b"k3", b"3", 3000)]
    assert found[0].headers() == [("h", b"1"), ("h", None)]
    assert broker.values(topics[0]) == [b"2"]


def test_more_records_than_the_producer_holds(broker: Broker) -> None:
    topic = broker.topic()
    sink = broker.sink(topic, encode="json", settings={"queue.buffering.max.messages": 100, "linger.ms": 50})
    write(sink, list(range(3000)))
    sink.close()
    assert broker.values(topic) == [b"%d" % it for it in range(3000)]


@pytest.mark.parametrize("delivery", [LEAST, ONCE])
@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ({1, 2}, {"encode": "json"}, "TypeError: Object of type set is not JSON"),
        (float("nan"), {"encode": "json"}, "ValueError"),
        ("text", {}, "pass encode='json'"),
        (b"x" * 2_000_000, {}, "it takes 2,000,128 bytes of at most 1,000,000; raise 'message.max.bytes'"),
        (b"x", {"key": lambda _msg: b"k" * 1_500_000}, "it takes 1,500,129 bytes"),
    ],
)
def test_values_that_cannot_be_written(
    value: Any, options: dict[str, Any], message: str, delivery: Any, broker: Broker
) -> None:
    topic = broker.topic()
    sink = fenced(broker, topic, **options) if delivery == ONCE else broker.sink(topic, **options)
    with pytest.raises(UnwritableKafkaRecord, match=message) as caught:
        write(sink, [value])
    assert len(str(caught.value)) < 500
    assert f"topic '{topic}'" in str(pickle.loads(pickle.dumps(caught.value)))
    sink.close()


def test_key_that_is_no_text(broker: Broker) -> None:
    with pytest.raises(TypeError, match=r"cannot write \('a', 1\) as the key of a record: it is tuple, .*; pass key="):
        write(broker.sink(broker.topic()), [b"x"], key=("a", 1))


def java_partition(key: bytes, partitions: int) -> int:
    """Return the partition that org.apache.kafka.common.utils.Utils.murmur2 leads to."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if whole < len(key):
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return ((h ^ h >> 15) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("delivery", [LEAST, ONCE])
def test_keys_are_in_the_partitions_that_java_chooses(delivery: Any, broker: Broker) -> None:
    assert java_partition(b"21", 2**31) == -973932308 & 0x7FFFFFFF, "a case of Kafka's own UtilsTest"
    topic, keys = broker.topic(partitions=7), [f"k\u00fc{n}"[: n % 9 + 1] + str(n) for n in range(40)]
    sink: Any = fenced(broker, topic) if delivery == ONCE else broker.sink(topic)
    sink.sink_batch(keys, [b"x"] * len(keys), [0] * len(keys))
    if delivery == ONCE:
        sink.commit([sink.prepare(1)])
    sink.flush()
    sink.close()
    found = {record.key(): number for number in range(7) for record in broker.read(topic, number)}
    assert found == {key.encode(): java_partition(key.encode(), 7) for key in keys}


def test_equal_keys_are_written_alike_and_others_are_not(broker: Broker) -> None:
    topic = broker.topic()
    sink = broker.sink(topic)
    sink.sink_batch([1, 1.0, Decimal(1), None, 2], [b"x"] * 5, [0] * 5)
    sink.flush()
    assert [record.key() for record in broker.read(topic)] == [b"1", b"1", b"1", None, b"2"]
    with pytest.raises(TypeError, match="it is text, and the key 1 before it is a number"):
        sink.sink_batch(["1"], [b"x"], [0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": lambda _: "two words", "marker_topic": "t"}, "topic returned 'two words', not the name of a topic"),
        ({"topic": lambda _: "..", "marker_topic": "t"}, "not the name of a topic"),
        ({"headers": lambda _: {"id": b"x"}}, r"headers= returned {'id': b'x'}; it must be pairs"),
        ({"headers": lambda _: [("id", 5)]}, "it must be pairs of a name and bytes"),
        ({"headers": lambda _: [5]}, "it must be pairs of a name and bytes"),
        ({"timestamp": lambda _: 2**63}, "timestamp= returned 9223372036854775808; it must be"),
    ],
)
def test_results_of_functions_before_they_are_in_a_snapshot(options: dict[str, Any], message: str) -> None:
    sink = KafkaSink(**{"topic": "t", "servers": "x:1", "delivery": ONCE, **options})
    with pytest.raises((TypeError, UnwritableKafkaRecord), match=message):
        sink.sink(DataMessage("k", b"x", 0))


def test_transaction_with_a_time_that_the_broker_refuses(broker: Broker) -> None:
    topic = broker.topic()
    sink = fenced(broker, topic, timestamp=lambda _: datetime(2100, 1, 1, tzinfo=UTC))
    write(sink, [b"1"])
    with pytest.raises(KafkaFailed, match=r"INVALID_TIMESTAMP.*'message.timestamp.after.max.ms'"):
        sink.commit([prepared(sink, 1)])
    sink.close()


def test_transaction_with_a_topic_that_does_not_exist(broker: Broker) -> None:
    marker = broker.topic()
    options = {"marker_topic": marker, "timeout": timedelta(seconds=1)}
    sink = broker.sink(lambda msg: msg.value.decode(), delivery=ONCE, **options)

    def is_fenced() -> bool:
        with suppress(KafkaFailed):  # a busy broker takes longer than the timeout
            return sink.fence(owner(marker, 1)) == 0
        return False

    wait_until(is_fenced)
    write(sink, [b"missing"])
    with pytest.raises(KafkaFailed, match="topic 'missing' does not exist on"):
        sink.commit([prepared(sink, 1)])
    sink.close()


def test_codec_that_is_unavailable(broker: Broker) -> None:
    class Away(Encoder[Any]):
        def encode(self, value: Any) -> bytes:
            raise CodecUnavailable(f"not now, {value}")

    with pytest.raises(CodecUnavailable, match="not now, 5"):
        write(broker.sink(broker.topic(), encode=Away()), [5])


def test_record_that_the_broker_refuses(broker: Broker) -> None:
    topic = broker.topic(max_message_bytes="1000")
    sink = broker.sink(topic)
    with pytest.raises(KafkaFailed, match=rf"1 record could not be .*topic '{topic}' partition 0: MSG_SIZE_TOO"):
        write(sink, [b"x" * 5000])
    sink.close()
    sink = fenced(broker, topic)
    write(sink, [b"y" * 5000])
    with pytest.raises(KafkaFailed, match="MSG_SIZE_TOO_LARGE"):
        sink.commit([prepared(sink, 1)])
    sink.close()
    assert broker.values(topic) == []


@pytest.mark.parametrize("delivery", [LEAST, ONCE])
def test_topic_that_does_not_exist(delivery: Any, broker: Broker) -> None:
    topic = broker.topic()
    sink = broker.sink(f"{topic}s", delivery=delivery)
    with pytest.raises(KafkaFailed, match=f"topic '{topic}s' does not exist on .*; did you mean '{topic}'"):
        write(sink, [b"x"]) if delivery == LEAST else sink.fence(owner(topic, 1))


def test_brokers_that_do_not_acknowledge() -> None:
    sink = Broker("127.0.0.1:1").sink(lambda _msg: "t", timeout=timedelta(seconds=0.5))
    with pytest.raises(KafkaFailed, match=r"no acknowledgement of 3 records for topics .* within 0.5 s.*refused|DOWN"):
        write(sink, [b"x"] * 3)
    sink.close()


def test_transaction_is_visible_by_its_commit_and_once(broker: Broker) -> None:
    topic = broker.topic(2)
    sink = fenced(broker, topic)
    write(sink, [b"1", b"2"], key="k")
    first = pickle.loads(pickle.dumps(prepared(sink, 1)))
    write(sink, [b"3"])
    assert prepared(sink, 2) is not None
    assert prepared(sink, 3) is None
    assert broker.values(topic, 0) + broker.values(topic, 1) == []
    sink.commit([first])
    sink.commit([first])
    sink.close()
    other = broker.sink(topic, delivery=ONCE)
    assert other.fence(owner(topic, 2)) == 1
    other.commit([first])
    other.abort([])
    write(other, [b"4"])
    other.commit([first, prepared(other, 2)])
    other.close()
    assert sorted(broker.values(topic, 0) + broker.values(topic, 1)) == [b"1", b"2", b"4"]


def test_fenced_run_commits_nothing(broker: Broker) -> None:
    topic = broker.topic()
    zombie = fenced(broker, topic, 1)
    write(zombie, [b"zombie"])
    handle = prepared(zombie, 1)
    heir = fenced(broker, topic, 2)
    with pytest.raises(FencedError, match="belongs to a run with claim 2; this one has claim 1"):
        zombie.commit([handle])
    with pytest.raises(FencedError):
        zombie.commit([handle])
    with pytest.raises(FencedError):
        broker.sink(topic, delivery=ONCE).fence(owner(topic, 1))
    write(heir, [b"heir"])
    heir.commit([prepared(heir, 1)])
    for sink in (zombie, heir):
        sink.close()
    assert broker.values(topic) == [b"heir"]


def test_run_whose_producer_another_has_fenced_goes_on(broker: Broker) -> None:
    topic = broker.topic()
    sink = fenced(broker, topic)
    other = broker.producer_of(sink)
    other.init_transactions(30)
    write(sink, [b"1"])
    sink.commit([prepared(sink, 1)])
    sink.close()
    assert broker.values(topic) == [b"1"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_commit_whose_answer_is_lost(moment: str, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import KafkaError, KafkaException, Producer  # noqa: PLC0415

    class Deaf(Producer):  # type: ignore[misc]
        failed = False

        def commit_transaction(self, *arguments: Any) -> None:
            if not Deaf.failed:
                Deaf.failed = True
                if moment == "after":
                    super().commit_transaction(*arguments)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            super().commit_transaction(*arguments)

    topic = broker.topic()
    sink = fenced(broker, topic)
    sink.close()
    monkeypatch.setattr("malflow.connectors.kafka.client.Producer", Deaf)
    Deaf.failed = True
    sink = fenced(broker, topic, 2)
    Deaf.failed = False
    write(sink, [b"1", b"2"])
    sink.commit([prepared(sink, 1)])
    write(sink, [b"3"])
    sink.commit([prepared(sink, 2)])
    sink.close()
    assert broker.values(topic) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(("answer", "expected"), [("drop", []), ("write", [b"2"])])
def test_marker_that_is_lost(answer: Any, expected: list[bytes], broker: Broker) -> None:
    topic = broker.topic()
    sink = fenced(broker, topic)
    write(sink, [b"1"])
    sink.commit([prepared(sink, 1)])
    write(sink, [b"2"])
    handle = prepared(sink, 2)
    sink.close()
    broker.delete(topic)  # as its group's offsets are
    broker.topic(name=topic)
    sink = fenced(broker, topic, 2)
    lost = r"is lost: transaction 1 was committed, and .* says 0; .*on_lost_marker='drop'"
    with pytest.raises(KafkaFailed, match=lost):
        sink.commit([handle])
    sink.close()
    sink = fenced(broker, topic, 3, on_lost_marker=answer)
    sink.commit([handle])
    sink.close()
    assert broker.values(topic) == expected
    sink = fenced(broker, topic, 4)
    sink.commit([handle])
    sink.close()
    assert broker.values(topic) == expected


def test_brokers_that_lost_transactions_between_two_runs(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = broker.topic()
    sink = fenced(broker, topic)
    write(sink, [b"1"])
    sink.commit([prepared(sink, 1)])
    sink.close()
    later = SinkOwner(f"job-{topic}", "out", 2, transaction=3)
    sink = broker.sink(topic, delivery=ONCE)
    with pytest.raises(KafkaFailed, match=r"transaction 3 was committed, and .* says 1: the brokers have lost"):
        sink.fence(later)
    sink.close()
    sink = broker.sink(topic, delivery=ONCE, on_lost_marker="drop")
    assert sink.fence(later) == 1
    sink.close()
    assert "transaction 3 was committed" in caplog.text


def test_marker_of_the_first_transaction_that_is_in_another_topic(broker: Broker) -> None:
    first, second = broker.topic(), broker.topic()
    sink = fenced(broker, first)
    write(sink, [b"1"])
    handle = prepared(sink, 1)
    sink.commit([handle])
    sink.close()
    for claim in (2, 3):  # a restart that failed has made a marker there
        sink = broker.sink(second, delivery=ONCE)
        sink.fence(owner(first, claim))
        with pytest.raises(KafkaFailed, match=rf"an earlier run had one, .*offset of topic '{second}' says 0"):
            sink.commit([handle])
        sink.close()
    sink = broker.sink(second, delivery=ONCE, on_lost_marker="drop")
    sink.fence(owner(first, 4))
    sink.commit([handle])
    sink.close()
    assert broker.values(first) == [b"1"]


def test_transaction_timeout_above_the_brokers(broker: Broker) -> None:
    with pytest.raises(KafkaFailed, match=r"above the broker's 'transaction.max.timeout.ms'"):
        fenced(broker, broker.topic(), settings={"transaction.timeout.ms": 1_000_000_000})


def test_runs_deliver_to_the_topic(broker: Broker, tmp_path: Path) -> None:
    for delivery in (LEAST, ONCE):
        topic = broker.topic()
        sink = broker.sink(topic, encode="json", delivery=delivery)

        def build(provider: Any, sink: Any = sink) -> None:
            numbers = StatelessSource(SingleIteratorSource(range(100)))
            provider.new_stream().source("in", numbers).sink("out", sink)

        SingleThreadRuntime(build, at_once(tmp_path / delivery, job=topic), timedelta(microseconds=1)).execute()
        assert broker.values(topic) == [b"%d" % it for it in range(100)]


def test_error_names_the_sink_in_a_run(broker: Broker) -> None:
    sink = broker.sink(broker.topic(), encode="json")

    def build(provider: Any) -> None:
        values = StatelessSource(SingleIteratorSource([1, {2}]))
        provider.new_stream().source("in", values).sink("out", sink)

    with pytest.raises(OperatorError, match=r"operator 'out'.*Object of type set is not JSON"):
        SingleThreadRuntime(build).execute()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "exactly_once"}, "delivery must be 'exactly-once' or 'at-least-once'"),
        ({"topic": ""}, "name of a topic"),
        ({"topic": 5}, "or a plain function"),
        ({"topic": str, "delivery": ONCE}, "marker_topic"),
        ({"key": 5}, "key must be the name of a field or a plain function"),
        ({"headers": "h"}, "headers must be a plain function"),
        ({"on_lost_marker": "x"}, "on_lost_marker"),
        ({"timeout": timedelta(0)}, "timeout"),
        ({"settings": {"enable.idempotence": False}}, "needs 'enable.idempotence' to be True"),
        ({"settings": {"transactional.id": "mine"}}, "names of the job and the sink"),
        ({"settings": {"on_delivery": print}}, "checks the delivery of each record"),
        ({"settings": {"message.max.bytes": "1 MB"}}, "'message.max.bytes' must be a number of bytes; got '1 MB'"),
        ({"settings": ["acks"]}, "settings must be a dict"),
        ({"servers": 9092}, "needs servers='host:9092'"),
        ({"timeout": "5x"}, "timeout must be a time above zero, such as"),
        ({"settings": {"metadata.broker.list": "x"}}, "pass servers="),
    ],
)
def test_mistakes_that_are_found_while_building(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        KafkaSink(options.pop("topic", "t"), **{"servers": "localhost:1", **options})
