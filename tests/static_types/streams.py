"""The types of each fluent method; checked by mypy, not run."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, assert_type

from malflow import (
    DataMessage,
    ExpireMap,
    KeyedStream,
    StatefulLogic,
    Stream,
    StreamProvider,
    connect,
    limit_out_of_orderness,
)
from malflow.message import NoKeyType
from malflow.operators.contract import Output
from malflow.sinks import CsvSink, StatelessSink, StdOutSink, VecSink
from malflow.sources import SingleIteratorSource, StatefulSource, StatefulSourceImpl, StatelessSource
from malflow.streams.event_time import KeyedNeedsEpochs, NeedsEpochs
from malflow.streams.stream import KeyedTimedStream, TimedStream
from malflow.windows import FOREVER


def sources(provider: StreamProvider, files: StatefulSourceImpl[str, bytes, int, int]) -> Stream[NoKeyType, int, int]:
    numbers = provider.new_stream().source("numbers", StatelessSource(SingleIteratorSource([1, 2])))
    assert_type(numbers, Stream[NoKeyType, int, int])
    assert_type(provider.new_stream().source("bare", SingleIteratorSource("ab")), Stream[NoKeyType, str, int])
    assert_type(provider.new_stream().source("files", StatefulSource(files)), KeyedStream[str, bytes, int])
    assert_type(provider.new_stream().source("named", connect("towns.csv")), KeyedStream[Any, Any, Any])
    numbers.sink("named out", connect("towns.txt"))
    return numbers


def stateless(numbers: Stream[NoKeyType, int, int]) -> None:
    assert_type(numbers.map("m", str), Stream[NoKeyType, str, int])
    assert_type(numbers.filter("f", lambda value: value > 1), Stream[NoKeyType, int, int])
    assert_type(numbers.filter_map("fm", lambda value: str(value) if value else None), Stream[NoKeyType, str, int])
    assert_type(numbers.flat_map("flm", lambda value: [str(value)]), Stream[NoKeyType, str, int])
    assert_type(numbers.map("l", lambda value: [str(value)]).flatten("fl"), Stream[NoKeyType, str, int])
    assert_type(numbers.inspect("i", lambda msg, ctx: print(msg.value + ctx.worker_id)), Stream[NoKeyType, int, int])
    assert_type(numbers.inspect_frontier("if", lambda epoch, ctx: print(epoch + 1)), Stream[NoKeyType, int, int])
    assert_type(numbers.split("s", lambda msg, outputs: None, 2), list[Stream[NoKeyType, int, int]])
    assert_type(numbers.cloned("c", 2), list[Stream[NoKeyType, int, int]])
    assert_type(numbers.union(numbers), Stream[NoKeyType, int, int])
    assert_type(numbers.union(numbers, name="u"), Stream[NoKeyType, int, int])

    def twice(msg: DataMessage[NoKeyType, int, int], output: Output[NoKeyType, str, int]) -> None:
        output.send(DataMessage(msg.key, str(msg.value), msg.timestamp))

    assert_type(numbers.stateless_op("o", twice), Stream[NoKeyType, str, int])


def keyed(numbers: Stream[NoKeyType, int, int]) -> None:
    by_parity = numbers.key_distribute("p", lambda msg: msg.value % 2 == 0)
    assert_type(by_parity, KeyedStream[bool, int, int])
    assert_type(numbers.key_local("pl", lambda msg: str(msg.value)), KeyedStream[str, int, int])
    assert_type(numbers.key_distribute("f", "real"), KeyedStream[Any, int, int])
    assert_type(numbers.key_distribute("place", 0), KeyedStream[Any, int, int])
    assert_type(numbers.key_distribute("places", (0, 2)), KeyedStream[Any, int, int])
    assert_type(numbers.event_time("at place", 1, out_of_orderness=0), TimedStream[NoKeyType, int, Any])
    assert_type(numbers.key_local("fl", "real"), KeyedStream[Any, int, int])
    assert_type(by_parity.map("m", str), KeyedStream[bool, str, int])
    assert_type(by_parity.map_with_key("mk", lambda key, value: (key, value)), KeyedStream[bool, tuple[bool, int], int])
    assert_type(by_parity.filter("f", bool), KeyedStream[bool, int, int])
    assert_type(by_parity.cloned("c", 2), list[KeyedStream[bool, int, int]])
    assert_type(by_parity.union(by_parity), KeyedStream[bool, int, int])
    assert_type(by_parity.union(by_parity, name="u"), KeyedStream[bool, int, int])

    def as_they_are(batch: Any) -> Any:
        return batch

    def of_lists(lists: list[int]) -> list[int]:
        return lists

    def lists(batch: Any) -> list[int]:
        return [len(batch)]

    assert_type(numbers.map_batches("b", as_they_are), Stream[NoKeyType, dict[str, Any], int])
    assert_type(by_parity.map_batches("b", of_lists, frame=lists), KeyedStream[bool, dict[str, Any], int])
    assert_type(by_parity.map_batches("b", as_they_are, schema={}), KeyedStream[bool, dict[str, Any], int])
    assert_type(by_parity.filter_batches("b", of_lists, frame=lists), KeyedStream[bool, int, int])
    assert_type(numbers.filter_batches("b", as_they_are, with_time="at"), Stream[NoKeyType, int, int])
    numbers.map_batches("b", of_lists, frame=str)  # type: ignore[misc]
    assert_type(by_parity.select_columns("b", "a", n="b"), KeyedStream[bool, dict[str, Any], int])
    assert_type(numbers.to_columns("b", timestamp="at"), Stream[NoKeyType, dict[str, Any], int])

    def total(key: bool, value: int, state: float) -> tuple[str, float]:
        return str(state), state + value

    def last(key: bool, value: int, state: int | None) -> tuple[int | None, int]:
        return state, value

    assert_type(by_parity.distinct("d", within=3), KeyedStream[bool, int, int])
    assert_type(by_parity.distinct("df", lambda value: value % 3, within=FOREVER), KeyedStream[bool, int, int])
    assert_type(by_parity.changes("c", "real"), KeyedStream[bool, int, int])
    passed, held_back = by_parity.throttle("th", 2, per=timedelta(seconds=1))
    by_parity.throttle("tb", 2, per=timedelta(seconds=1), kind="bucket")
    assert_type(passed, KeyedStream[bool, int, int])
    assert_type(held_back, KeyedStream[bool, int, int])
    assert_type(by_parity.sort("so", lambda value: -value), KeyedStream[bool, int, int])
    assert_type(by_parity.batch("ba", 3, within=10), KeyedStream[bool, list[int], int])
    assert_type(by_parity.sample("sa", 0.1), KeyedStream[bool, int, int])
    assert_type(numbers.sample("sn", 0.1, lambda value: value % 3), Stream[NoKeyType, int, int])
    assert_type(by_parity.stateful_map("t", total, default=float), KeyedStream[bool, str, int])
    assert_type(by_parity.stateful_map("l", last), KeyedStream[bool, int | None, int])

    def renew(state: Any, version: int) -> float | None:
        return float(state) if version == 1 else None

    assert_type(by_parity.stateful_map("t2", total, float, version=2, migrate=renew), KeyedStream[bool, str, int])
    assert_type(
        by_parity.stateful_map("l2", last, version=2, migrate=lambda state, version: int(state)),
        KeyedStream[bool, int | None, int],
    )

    def count(msg: DataMessage[bool, int, int], state: int, output: Output[bool, str, int]) -> int:
        return state + 1

    assert_type(by_parity.stateful_op("n", count, default=int), KeyedStream[bool, str, int])
    assert_type(
        by_parity.stateful_op("n2", count, int, version=2, migrate=lambda state, version: int(state)),
        KeyedStream[bool, str, int],
    )

    def seen(
        key: bool, value: int, timestamp: int, entries: ExpireMap[Any, Any, int]
    ) -> tuple[str, ExpireMap[Any, Any, int]]:
        return str(value), entries

    assert_type(by_parity.ttl_map("s", seen), KeyedStream[bool, str, int])
    assert_type(
        by_parity.ttl_map("s2", seen, version=2, migrate=lambda entries, version: entries if entries else None),
        KeyedStream[bool, str, int],
    )


def times(numbers: Stream[NoKeyType, int, int]) -> None:
    def moment(msg: DataMessage[Any, int, int]) -> datetime:
        return datetime(2013, 1, 1) + timedelta(minutes=msg.value)

    stamped = numbers.assign_timestamps("t", moment)
    assert_type(stamped, NeedsEpochs[NoKeyType, int, datetime])
    on_time, late = stamped.generate_epochs("e", limit_out_of_orderness(timedelta(seconds=1)), every=timedelta(hours=1))
    assert_type(on_time, Stream[NoKeyType, int, datetime])
    assert_type(late, Stream[NoKeyType, int, datetime])
    keyed_stamped = numbers.key_local("k", lambda msg: msg.value).assign_timestamps("kt", moment)
    assert_type(keyed_stamped, KeyedNeedsEpochs[int, int, datetime])
    assert_type(keyed_stamped.generate_epochs("ke", lambda msg, previous: None)[0], KeyedStream[int, int, datetime])
    assert_type(numbers.assign_timestamps("f", "real"), NeedsEpochs[NoKeyType, int, Any])
    timed = numbers.event_time("et", moment, out_of_orderness=timedelta(seconds=1), every=timedelta(hours=1))
    assert_type(
        numbers.event_time("idle", moment, out_of_orderness="1s", idle_after="30s"),
        TimedStream[NoKeyType, int, datetime],
    )
    assert_type(timed, TimedStream[NoKeyType, int, datetime])
    assert_type(timed.late, Stream[NoKeyType, int, datetime])
    assert_type(timed.map("m", str), Stream[NoKeyType, str, datetime])
    assert_type(timed.key_distribute("d", lambda msg: msg.value), KeyedStream[int, int, datetime])
    keyed_timed = numbers.key_local("k2", lambda msg: msg.value).event_time("ket", "real", out_of_orderness=1)
    assert_type(keyed_timed, KeyedTimedStream[int, int, Any])
    assert_type(keyed_timed.late, KeyedStream[int, int, Any])


def sinks(numbers: Stream[NoKeyType, int, int]) -> None:
    numbers.sink("print", StatelessSink(StdOutSink()))
    numbers.sink("csv", CsvSink("out/", formatter=lambda msg: {"n": msg.value}))
    collected: VecSink[NoKeyType, int, int] = VecSink()
    numbers.sink("collect", collected)
    assert_type(list(collected), list[DataMessage[NoKeyType, int, int]])


def unsaid(stream: Stream, message: DataMessage, logic: StatefulLogic) -> None:
    collected = VecSink()
    assert_type(collected, VecSink[Any, Any, Any])
    assert_type(stream, Stream[Any, Any, Any])
    assert_type(message, DataMessage[Any, Any, Any])
    assert_type(logic, StatefulLogic[Any, Any, Any, Any, Any])
    stream.sink("collect", collected)


def mistakes(numbers: Stream[NoKeyType, int, int]) -> None:
    numbers.map("m", lambda value: value.upper())  # type: ignore[attr-defined]
    numbers.key_local("k", lambda msg: 1).stateful_map("s", lambda key, value, state: value)  # type: ignore[return-value, arg-type]
    by_value = numbers.key_local("k", lambda msg: msg.value)
    by_value.stateful_map("v", lambda key, value, state: (value, state), version="2")  # type: ignore[call-overload]
    numbers.assign_timestamps("t", lambda msg: 1).map("m", str)  # type: ignore[attr-defined]
    numbers.stateful_map("s", lambda key, value, state: (value, state))  # type: ignore[attr-defined]
