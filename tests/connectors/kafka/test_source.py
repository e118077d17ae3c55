from __future__ import annotations

import pickle
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import SingleThreadRuntime, StreamProvider
from malflow.connectors.codecs import (
    AvroDecoder,
    AvroEncoder,
    CodecUnavailable,
    JsonColumns,
    ProtobufDecoder,
    ProtobufEncoder,
)
from malflow.connectors.kafka import BadKafkaRecord, KafkaFailed, KafkaRecord, KafkaSource
from malflow.errors import GraphError, OperatorError
from malflow.records.columnar import rows_made
from malflow.runtime.handle import RunHandle
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from malflow.sources import StatefulSource
from tests.connectors.kafka.kit import Broker, poll_for, read_some, run_to_the_end
from tests.kit.waiting import wait_until


def test_partitions_are_the_keys_and_times_are_those_of_records(broker: Broker) -> None:
    topic = broker.topic(3)
    for partition in range(3):
        broker.write(topic, [b'{"n": %d}' % partition], partition, timestamp=1_700_000_000_000 + partition)
    found = run_to_the_end(broker.source(topic, decode="json", stop="latest"), parallelism=2)
    assert sorted(((it.key, it.value, it.timestamp) for it in found), key=str) == [
        ((topic, it), {"n": it}, 1_700_000_000_000 + it) for it in range(3)
    ]


def test_several_topics_and_times_as_datetimes(broker: Broker) -> None:
    topics = [broker.topic(), broker.topic()]
    for topic in topics:
        broker.write(topic, [topic.encode()], timestamp=1_500)
    found = run_to_the_end(broker.source(topics, decode="text", stop="latest", timestamps="datetime"))
    assert sorted(found.values) == sorted(topics)
    assert {it.timestamp for it in found} == {datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)}


def test_records_with_all_that_kafka_keeps(broker: Broker) -> None:
    topic = broker.topic()
    headers = [("a", b"1"), ("a", None)]
    broker.write(topic, [(b"k", b"v")], timestamp=5, headers=headers)
    broker.write(topic, [(None, None)], timestamp=6)
    found = run_to_the_end(broker.source(topic, decode="text", decode_key="text", emit="record", stop="latest"))
    assert found.values == [
        KafkaRecord("k", "v", topic, 0, 0, 5, (("a", b"1"), ("a", None))),
        KafkaRecord(None, None, topic, 0, 1, 6, ()),
    ]


@pytest.mark.parametrize("codec", ["avro", "protobuf"])
def test_binary_codecs(codec: str, broker: Broker) -> None:
    from google.protobuf.wrappers_pb2 import Int64Value  # noqa: PLC0415 - of one case

    encoder: Any = AvroEncoder('"long"') if codec == "avro" else ProtobufEncoder(Int64Value)
    decoder: Any = AvroDecoder('"long"') if codec == "avro" else ProtobufDecoder(Int64Value)
    values = [5, 6] if codec == "avro" else [Int64Value(value=5), Int64Value(value=6)]
    topic = broker.topic()
    broker.write(topic, encoder.encode_column(values))
    assert run_to_the_end(broker.source(topic, decode=decoder, stop="latest")).values == values


def test_start_at_the_end_and_at_a_time(broker: Broker) -> None:
    topic = broker.topic()
    for second in range(1, 6):
        broker.write(topic, [b"%d" % second], timestamp=second * 1000)
    at_3 = broker.source(topic, start=datetime(1970, 1, 1, 0, 0, 3, tzinfo=UTC), stop="latest")
    assert run_to_the_end(at_3).values == [b"3", b"4", b"5"]
    after_all = broker.source(topic, start=datetime(2100, 1, 1, tzinfo=UTC), stop="latest")
    assert run_to_the_end(after_all).values == []
    reader = broker.source(topic, start="latest").build_part((topic, 0), None)
    position = reader.snapshot()
    broker.write(topic, [b"6"])
    assert read_some(reader, 1) == [b"6"]
    again = broker.source(topic, start="latest").build_part((topic, 0), position)
    assert read_some(again, 1) == [b"6"]
    reader.suspend()
    again.suspend()


def test_records_behind_the_stop_are_left_for_the_next_run(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"1", b"2"])
    source, found = broker.source(topic, stop="latest"), []
    reader = source.build_part((topic, 0), None)
    broker.write(topic, [b"3", b"4"])
    time.sleep(0.3)  # so that the client has them, too, when it is asked
    while not reader.is_finished():
        found += reader.poll_batch(100)[0]
    reader.poll_batch(100)
    position = reader.collect()
    reader.suspend()
    assert (found, position[1]) == ([b"1", b"2"], 2)
    reader = source.build_part((topic, 0), position)
    assert read_some(reader, 2) == [b"3", b"4"]
    assert reader.is_finished()
    reader.suspend()


def test_partition_without_a_leader_at_the_start(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException  # noqa: PLC0415

    class Leaderless(Consumer):  # type: ignore[misc]
        def get_watermark_offsets(self, *arguments: Any, **named: Any) -> Any:
            if questions:
                questions.pop()
                raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
            return super().get_watermark_offsets(*arguments, **named)

        def offsets_for_times(self, *arguments: Any) -> Any:
            if questions:
                questions.pop()
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return super().offsets_for_times(*arguments)

    monkeypatch.setattr("malflow.connectors.kafka.client.Consumer", Leaderless)
    topic = broker.topic()
    broker.write(topic, [b"1"], timestamp=1000)
    for start in ("earliest", datetime(1970, 1, 1, tzinfo=UTC)):
        questions = [1]
        assert run_to_the_end(broker.source(topic, start=start, stop="latest")).values == [b"1"]


def test_readers_go_on_where_others_stopped(broker: Broker) -> None:
    topic = broker.topic()
    values = [b"%d" % it for it in range(2000)]
    broker.write(topic, values)
    source, position, found = broker.source(topic), None, []
    for count in (1, 7, 500, 1000, 492):
        reader = source.build_part((topic, 0), position)
        found += read_some(reader, count)
        position = pickle.loads(pickle.dumps(reader.collect()))
        reader.suspend()
    assert found == values
    assert position is not None
    assert position[1:3] == (2000, 0)


def test_one_consumer_for_many_partitions(broker: Broker) -> None:
    topic, count = broker.topic(8), 3000
    for partition in range(8):
        broker.write(topic, [b"%d %d" % (partition, it) for it in range(count)], partition)
    source = broker.source(topic, settings={"queued.max.messages.kbytes": 1024})
    readers = {part: source.build_part(part, None) for part in source.list_parts()}
    assert len(source._consumers) == 1
    found: dict[Any, list[bytes]] = {part: [] for part in readers}
    moved = set()
    deadline = time.monotonic() + 60
    while sum(map(len, found.values())) < 8 * count and time.monotonic() < deadline:
        for part, reader in readers.items():
            found[part] += reader.poll_batch(100 if part[1] else 1)[0]  # partition 0 is read slowly
            waiting = len(reader._buffer.messages)
            assert waiting < 40_000
            if len(found[part]) == count // 2 and part not in moved:
                moved.add(part)
                position = reader.collect()
                reader.suspend()
                readers[part] = source.build_part(part, position)
            elif part[1] == 0 and sum(map(len, found.values())) > 7 * count:
                found[part] += reader.poll_batch(5000)[0]
    for (_topic, partition), values in found.items():
        assert values == [b"%d %d" % (partition, it) for it in range(count)]
    for reader in readers.values():
        reader.suspend()
    assert not source._consumers[0].is_open


def test_full_partition_is_paused_while_others_starve(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("malflow.connectors.kafka.buffer._FULL_MESSAGES", 300)
    topic = broker.topic(2)
    broker.write(topic, [b"%d" % it for it in range(20_000)], 0)
    source = broker.source(topic)
    slow, fast = (source.build_part((topic, it), None) for it in range(2))
    broker.write(topic, [b"%d" % it for it in range(500)], 1)
    quick, rest, most = [], [], 0
    deadline = time.monotonic() + 60
    while len(quick) < 500 and time.monotonic() < deadline:
        rest += slow.poll_batch(1)[0]
        quick += fast.poll_batch(100)[0]
        most = max(most, len(slow._buffer.messages))
    assert quick == [b"%d" % it for it in range(500)]
    assert most < 1000
    rest += read_some(slow, 20_000 - len(rest))
    assert rest == [b"%d" % it for it in range(20_000)]
    slow.suspend()
    fast.suspend()


def test_paused_partition_that_moves(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.write(topic, [b"%d" % it for it in range(100)], 0)
    source = broker.source(topic)
    full, other = (source.build_part((topic, it), None) for it in range(2))
    source._consumers[0]._set_paused([full._buffer], paused=True)  # as where it is full
    position = full.collect()
    full.suspend()
    heir = source.build_part((topic, 0), position)
    assert read_some(heir, 100) == [b"%d" % it for it in range(100)]
    heir.suspend()
    other.suspend()


def test_gaps_of_aborted_transactions(broker: Broker) -> None:
    topic = broker.topic()
    for end, values in (("commit", [b"a", b"b"]), ("abort", [b"never"] * 10), ("commit", [b"c"]), ("abort", [b"no"])):
        with broker.transaction(topic, values, end):
            pass
    source = broker.source(topic, stop="latest")
    assert run_to_the_end(source).values == [b"a", b"b", b"c"]
    reader = broker.source(topic).build_part((topic, 0), None)
    assert read_some(reader, 3) == [b"a", b"b", b"c"]
    wait_until(lambda: not poll_for(reader, 0.1) and reader.lag() == 0, 30)
    assert reader.snapshot()[1] == 18  # 14 records, and the markers of four transactions
    reader.suspend()


def test_open_transaction_of_another_shows_as_lag(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [b"before"])
    reader = broker.source(topic).build_part((topic, 0), None)
    with broker.transaction(topic, [b"held"] * 5):
        broker.write(topic, [b"behind it"])
        assert read_some(reader, 1) == [b"before"]
        wait_until(lambda: not poll_for(reader, 0.1) and reader.lag() == 6, 30)
    assert read_some(reader, 6) == [b"held"] * 5 + [b"behind it"]
    wait_until(lambda: not poll_for(reader, 0.1) and reader.lag() == 0, 30)
    reader.suspend()


BAD: list[Any] = [b"1", b"oops", b"2", None, b"{", b"3"]


def test_bad_record_ends_the_run_after_those_before_it(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [*BAD[:1], (b"key", BAD[1] + b"!" * 200)])
    reader = broker.source(topic, decode="json").build_part((topic, 0), None)
    assert read_some(reader, 1) == [1]
    with pytest.raises(BadKafkaRecord) as caught:
        poll_for(reader, 30)
    bad = pickle.loads(pickle.dumps(caught.value))
    assert (bad.topic, bad.partition, bad.offset, bad.key) == (topic, 0, 1, b"key")
    assert f"topic '{topic}' partition 0 offset 1: the record cannot be decoded: JSONDecodeError" in str(bad)
    assert "(204 bytes)" in str(bad)
    assert len(str(bad)) < 500
    assert reader.snapshot()[1] == 1
    reader.suspend()


def test_bad_key_is_named(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, [(b"k", b"1")])
    source = broker.source(topic, decode="json", decode_key="json", emit="record", stop="latest")
    with pytest.raises(OperatorError, match=r"offset 0: .*its key is b'k', JSONDecodeError"):
        run_to_the_end(source)


def test_time_that_no_datetime_has(broker: Broker) -> None:
    topic = broker.topic(**{"message.timestamp.after.max.ms": str(2**63 - 1)})
    broker.write(topic, [b"1"], timestamp=1000)
    broker.write(topic, [b"2"], timestamp=2**62)
    source = broker.source(topic, timestamps="datetime", on_error=lambda bad: bad.offset)
    reader = source.build_part((topic, 0), None)
    assert read_some(reader, 2) == [b"1", 1]
    reader.suspend()
    reader = broker.source(topic, timestamps="datetime").build_part((topic, 0), None)
    assert read_some(reader, 1) == [b"1"]
    with pytest.raises(BadKafkaRecord, match=r"partition 0 offset 1: .*OverflowError") as caught:
        poll_for(reader, 60)
    assert caught.value.timestamp == 2**62
    reader.suspend()


def test_records_of_a_decoder_that_fails_once(broker: Broker) -> None:
    topic, failures = broker.topic(), [ValueError("at first")]

    def decode(raw: bytes) -> bytes:
        if raw == b"2" and failures:
            raise failures.pop()
        return raw

    broker.write(topic, [b"1", b"2", b"3"])
    failures *= 2  # by column, and one by one
    reader = broker.source(topic, decode=decode).build_part((topic, 0), None)
    assert read_some(reader, 3) + poll_for(reader, 0.1) == [b"1", b"2", b"3"]
    assert reader.snapshot()[1] == 3
    reader.suspend()


def test_records_after_a_codec_that_was_unavailable(broker: Broker) -> None:
    topic, failures = broker.topic(), [CodecUnavailable("not now")]

    def decode(raw: bytes) -> bytes:
        if failures:
            raise failures.pop()
        return raw

    broker.write(topic, [b"1", b"2"])
    reader = broker.source(topic, decode=decode).build_part((topic, 0), None)
    position = reader.snapshot()
    with pytest.raises(CodecUnavailable):
        poll_for(reader, 60)
    assert not reader.go_on_from(position)
    assert read_some(reader, 2) == [b"1", b"2"]
    reader.suspend()


def test_bad_records_are_skipped_and_counted_over_restarts(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, BAD)
    source = broker.source(topic, decode="json", on_error="skip")
    reader = source.build_part((topic, 0), None)
    assert read_some(reader, 2) == [1, 2]
    position = reader.collect()
    reader.suspend()
    reader = source.build_part((topic, 0), position)
    assert read_some(reader, 2) == [None, 3]
    assert reader.snapshot()[1:3] == (6, 2)
    assert source.skipped == {(topic, 0): 2}
    reader.suspend()


@pytest.mark.fault("N14")
def test_bad_records_are_dead_letters_once_over_runs(broker: Broker, tmp_path: Path) -> None:
    topic, store, values = broker.topic(), FsspecBackend(str(tmp_path)), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        source = broker.source(topic, decode="json", stop="latest", on_error="dead_letter")
        provider.new_stream().source("orders", source).sink("out", values)

    for parallelism in (1, 2):
        broker.write(topic, BAD)
        SingleThreadRuntime(build_dataflow, store, parallelism=parallelism).execute()
    assert values.values == [1, 2, None, 3] * 2
    bad = [at for at, raw in enumerate(BAD * 2) if raw in (b"oops", b"{")]
    letters = sorted(dead_letters(store), key=lambda it: int(f"{it.place}".split()[-1]))
    assert [(it.key, it.value) for it in letters] == [((topic, 0), (BAD * 2)[at]) for at in bad]
    assert [it.place for it in letters] == [f"{topic}[0] offset {at}" for at in bad]
    assert {it.error for it in letters} == {"BadKafkaRecord"}


def test_objects_are_columns_but_for_bad_records(broker: Broker, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    topic, store, values = broker.topic(), FsspecBackend(str(tmp_path)), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        decode = JsonColumns(pa.schema({"n": pa.int64()}))
        source = broker.source(topic, decode=decode, stop="latest", on_error="dead_letter")
        provider.new_stream().source("orders", source).sink("out", values)

    good = [b'{"n": %d}' % n for n in range(100)]
    broker.write(topic, good)
    before = rows_made()
    SingleThreadRuntime(build_dataflow, store).execute()
    assert [n for frame in values.frames() for n in frame.column("n") or ()] == list(range(100))
    assert rows_made() == before
    values.drain()
    bad = [b'{"n": 1.5}', b'{"n": 1}{"n": 2}', b"null", b""]
    broker.write(topic, [good[0], *bad, None, b'\n{"n":\n7}\n'])
    SingleThreadRuntime(build_dataflow, store).execute()
    assert values.values == [{"n": 0}, None, {"n": 7}]
    letters = sorted(dead_letters(store), key=lambda it: f"{it.place}")
    assert [(it.value, it.place) for it in letters] == [
        (raw, f"{topic}[0] offset {101 + at}") for at, raw in enumerate(bad)
    ]


def test_columns_around_a_bad_record(broker: Broker) -> None:
    pa = pytest.importorskip("pyarrow")
    topic, parsed = broker.topic(), list[int]()

    class Counted(JsonColumns):
        def decode_column(self, raws: Any) -> Any:
            parsed.append(len(raws))
            return super().decode_column(raws)

    broker.write(topic, [b'{"n": %d}' % n if n != 700 else b"oops" for n in range(1000)])
    source = broker.source(topic, decode=Counted(pa.schema({"n": pa.int64()})), stop="latest", on_error="skip")
    values = run_to_the_end(source)
    assert [n for frame in values.frames() for n in frame.column("n") or ()] == [n for n in range(1000) if n != 700]
    assert source.skipped == {(topic, 0): 1}
    assert parsed.count(1) <= 5  # of them two by halves
    assert sum(parsed) <= 3 * 1000


def test_function_that_replaces_bad_records(broker: Broker) -> None:
    topic = broker.topic()
    broker.write(topic, BAD)
    source = broker.source(
        topic, decode="json", stop="latest", on_error=lambda bad: bad.offset if bad.offset < 3 else None
    )
    assert run_to_the_end(source).values == [1, 1, 2, None, 3]


def test_new_partitions_while_running(broker: Broker) -> None:
    topic = broker.topic()
    source = broker.source(topic, decode="text", start="latest", discover_every=timedelta(seconds=0.3))
    collected: VecSink[Any, Any, Any] = VecSink()
    with running(source, collected):
        wait_until(lambda: (broker.write(topic, [b"first"]), "first" in collected.values)[1], 60)
        broker.grow(topic, 3)
        broker.write(topic, [b"second"], 2)
        broker.write(topic, [b"third"], 1)
        wait_until(lambda: {"second", "third"} <= {*collected.values}, 60)


def running(source: KafkaSource, collected: VecSink[Any, Any, Any], **options: Any) -> Any:
    """Run a source until the block ends."""
    from contextlib import contextmanager  # noqa: PLC0415

    @contextmanager
    def run() -> Any:
        handle: RunHandle = SingleThreadRuntime(
            lambda provider: (
                provider.new_stream().source("in", StatefulSource(source)).sink("out", StatelessSink(collected))
            ),
            **options,
        ).start()
        try:
            yield handle
        finally:
            handle.stop()
            handle.await_termination(60)

    return run()


def test_offsets_are_committed_for_tools_that_show_lag(broker: Broker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    topic = broker.topic()
    broker.write(topic, [b"x"] * 5)
    group = f"g-{topic}"
    source = broker.source(topic, group=group)
    collected: VecSink[Any, Any, Any] = VecSink()
    with running(source, collected, persistence=FsspecBackend(str(tmp_path))) as handle:
        wait_until(lambda: len(collected.values) == 5, 60)
        handle.snapshot().result(60)
    tool = broker.consumer(**{"group.id": group})
    assert tool.committed([TopicPartition(topic, 0)], 30)[0].offset == 5
    tool.close()


def test_topic_that_does_not_exist(broker: Broker) -> None:
    topic = broker.topic()
    with pytest.raises(KafkaFailed, match=f"topic '{topic}s' does not exist on .*; did you mean '{topic}'"):
        broker.source(f"{topic}s").list_parts()


def test_source_used_twice_in_a_dataflow(broker: Broker) -> None:
    topic = broker.topic(2)
    broker.write(topic, [b"0"], 0)
    broker.write(topic, [b"1"], 1)
    source, collected = broker.source(topic, stop="latest"), VecSink()

    def build(provider: Any) -> None:
        twice = [provider.new_stream().source(name, StatefulSource(source)) for name in ("a", "b")]
        twice[0].union(twice[1]).sink("out", StatelessSink(collected))

    SingleThreadRuntime(build).execute()
    assert sorted(collected.values) == [b"0", b"0", b"1", b"1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": {"auto.offset.reset": "latest"}}, "needs 'auto.offset.reset' to be 'error'"),
        ({"settings": {"enable.auto.commit": True}}, "positions are in its snapshots"),
        ({"settings": {"isolation.level": "read_uncommitted"}}, "aborted transaction"),
        ({"settings": {"group.id": "g"}}, "pass group="),
        ({"settings": {"on_commit": print}}, "for monitoring only"),
        ({"settings": {"bootstrap.servers": "x"}}, "pass servers="),
        ({"servers": "kafka://x"}, "'host:port'"),
        ({"servers": []}, "needs servers="),
        ({"start": "begining"}, "start must be 'earliest', 'latest' or an aware datetime; got 'begining'"),
        ({"start": datetime(2026, 1, 1)}, "aware"),
        ({"on_data_loss": "ignore"}, "on_data_loss"),
        ({"on_error": "raise"}, "on_error must be 'fail', 'skip', 'dead_letter' or a plain function"),
        ({"decode": "jsn"}, "did you mean 'json'"),
        ({"discover_every": timedelta(0)}, "discover_every"),
        ({"topic": []}, "name of a topic, or several; got topic="),
        ({"topic": ["a", "a"]}, "'a' more than once"),
        ({"topic": ""}, "topic must be a list of names, none empty"),
    ],
)
def test_mistakes_that_are_found_while_building(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        KafkaSource(options.pop("topic", "t"), **{"servers": "localhost:1", **options})


@pytest.mark.parametrize(
    "settings",
    [
        {"sasl.pasword": "hunter2"},
        {"sasl.password": "hunter2", "security.protocol": "hunter2"},
    ],
)
def test_secrets_are_not_shown(settings: dict[str, Any]) -> None:
    source = KafkaSource("t", servers="127.0.0.1:1", settings=settings)
    with pytest.raises(GraphError) as caught:
        source.build_part(("t", 0), ("id", 0, 0))
    assert "hunter2" not in f"{caught.value!r} {source!r} {vars(source)!r} {caught.value.__context__!r}"


@pytest.mark.slow
def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("malflow.connectors.kafka.topics.REQUEST_SECONDS", 1.0)
    source = KafkaSource("t", servers="127.0.0.1:1", settings={"sasl.password": "hunter2"})
    with pytest.raises(OperatorError, match=r"describing topic 't' failed on 127.0.0.1:1: .*refused"):
        run_to_the_end(source)
