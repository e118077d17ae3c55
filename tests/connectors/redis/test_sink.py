"""Tables in Redis: transactions and their ledger, zombies, losses, and a server that is killed."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
import redis

from malflow import DataMessage, GraphError, OperatorError, SingleThreadRuntime
from malflow.connectors.redis import RedisDataLost, RedisFailed, RedisSink, UnwritableRow
from malflow.errors import FencedError
from malflow.message import NoKey
from malflow.sinks import SinkOwner
from malflow.testing import ScriptedSource
from tests.kit.backends import at_once
from tests.servers.redis_server import RedisServer

NONE: list[Any] = []


def write(sink: Any, rows: dict[Any, Any]) -> None:
    sink.sink_batch(list(rows), list(rows.values()), [0] * len(rows))


def fenced(sink: Any, claim: int = 1, job: str = "job") -> Any:
    sink.fence(SinkOwner(job, "sink", claim))
    return sink


def committed(sink: Any, transaction: int, rows: dict[Any, Any]) -> Any:
    """Write a transaction and commit it; return its handle."""
    write(sink, rows)
    handle = pickle.loads(pickle.dumps(sink.prepare(transaction)))
    sink.commit([handle])
    return handle


@pytest.fixture(params=["table", "prefix"])
def sink_of(request: pytest.FixtureRequest, redis_url: str, name: str) -> Callable[..., Any]:
    """Return what makes sinks into one table."""
    place = {"table": name} if request.param == "table" else {"prefix": f"{name}:"}
    return lambda **options: RedisSink(redis_url, **{**place, **options})


@pytest.fixture
def rows(client: Any, name: str) -> Callable[[], dict[bytes, bytes]]:
    """Return what reads the table."""

    def read() -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = client.hgetall(name)
        prefix = f"{name}:".encode()
        keys = list(client.scan_iter(f"{name}:*", count=10_000))
        return found or dict(zip((key[len(prefix) :] for key in keys), client.mget(keys) if keys else (), strict=True))

    return read


def test_transaction_is_not_visible_before_its_commit(sink_of: Any, rows: Any) -> None:
    sink = sink_of()
    assert sink.fence(SinkOwner("job", "sink", 1)) == 0
    write(sink, {"a": 1, "b": "two"})
    sink.flush()
    write(sink, {"a": 3.5, "c": b"\xff"})
    handle = sink.prepare(1)
    write(sink, {"d": 4})
    assert rows() == {}
    sink.commit([handle])
    assert rows() == {b"a": b"3.5", b"b": b"two", b"c": b"\xff"}
    assert sink_of().fence(SinkOwner("job", "sink", 2)) == 1


def test_transaction_without_rows(sink_of: Any) -> None:
    sink = fenced(sink_of())
    assert sink.prepare(1) is None


def test_transaction_committed_again_is_left_as_it_is(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of())
    handles = [committed(sink, 1, {"a": 1}), committed(sink, 2, {"a": 2, "b": 2})]
    other = fenced(sink_of(), claim=2)
    for again in (handles, handles[:1], handles[1:]):
        other.commit(again)
        assert rows() == {b"a": b"2", b"b": b"2"}


def test_pending_transactions_committed_by_another_process(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of())
    handles = []
    for transaction in (1, 2, 5):
        write(sink, {"a": transaction, f"k{transaction}": transaction})
        handles.append(sink.prepare(transaction))
    sink.commit(handles[:1])
    other = sink_of()
    assert other.fence(SinkOwner("job", "sink", 2)) == 1
    other.commit(pickle.loads(pickle.dumps(handles)))
    other.abort(NONE)
    assert rows() == {b"a": b"5", b"k1": b"1", b"k2": b"2", b"k5": b"5"}
    assert other.fence(SinkOwner("job", "sink", 2)) == 5


def test_zombie_is_fenced(sink_of: Any, rows: Any) -> None:
    zombie = fenced(sink_of(), claim=1)
    write(zombie, {"a": "zombie"})
    handle = zombie.prepare(1)
    heir = fenced(sink_of(), claim=2)
    belongs = r"ledger 'malflow:ledger:\{t-.*\}:job/sink' at .* belongs to a run with claim 2; this one, with claim 1"
    with pytest.raises(FencedError, match=belongs):
        zombie.commit([handle])
    committed(heir, 1, {"a": "heir"})
    with pytest.raises(FencedError, match=belongs):
        zombie.commit([handle])
    with pytest.raises(FencedError, match=belongs):
        zombie.fence(SinkOwner("job", "sink", 1))
    assert rows() == {b"a": b"heir"}


def test_jobs_have_ledgers_of_their_own(sink_of: Any, rows: Any) -> None:
    ours, theirs = fenced(sink_of(), claim=7), fenced(sink_of(), claim=1, job="another job")
    committed(theirs, 1, {"a": "theirs", "b": "theirs"})
    committed(ours, 1, {"a": "ours"})
    assert rows() == {b"a": b"ours", b"b": b"theirs"}


def test_deleted_keys(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of())
    committed(sink, 1, {"a": 1, "b": 2, "c": 3})
    write(sink, {"a": None, "b": None, "d": None})
    committed(sink, 2, {"b": 4})
    assert rows() == {b"b": b"4", b"c": b"3"}
    sink = fenced(sink_of(delete=lambda value: value == 0, encode="json"), claim=2)
    committed(sink, 3, {"b": 0, "c": None, "e": [1]})
    assert rows() == {b"c": b"null", b"e": b"[1]"}


def test_transaction_of_many_rows(sink_of: Any, rows: Any, client: Any) -> None:
    sink = fenced(sink_of(settings={"socket_timeout": 300}))  # a busy server takes seconds for one call
    many = {f"k{number}": number for number in range(120_003)}
    committed(sink, 1, many)
    assert rows() == {f"k{number}".encode(): str(number).encode() for number in range(120_003)}
    committed(sink, 2, dict.fromkeys(list(many)[1:]))
    assert rows() == {b"k0": b"0"}


def test_transaction_in_parts_of_which_one_was_written(sink_of: Any, rows: Any, client: Any) -> None:
    sink = fenced(sink_of(rows_per_call=10))
    write(sink, dict.fromkeys(range(25), "new"))
    handle = sink.prepare(1)
    half = (handle[0], handle[1], [*handle[2][:10], b"x"], [*handle[3][:10], object()])
    with pytest.raises(RedisFailed, match="DataError"):  # the second call has a value that has no bytes
        sink.commit([half])
    assert len(rows()) == 10
    heir = sink_of(rows_per_call=10)
    assert heir.fence(SinkOwner("job", "sink", 2)) == 0, "the number comes last"
    with pytest.raises(FencedError):
        sink.commit([handle])
    heir.commit([handle])
    assert len(rows()) == 25


def test_server_that_lost_a_transaction(sink_of: Any, rows: Any, client: Any, name: str) -> None:
    sink, tolerant = fenced(sink_of()), sink_of(on_data_loss="continue")
    committed(sink, 1, {"a": 1})
    [ledger] = list(client.scan_iter(f"*{name}*job/sink"))
    client.delete(ledger)
    write(sink, {"a": 2})
    handle = sink.prepare(2)
    lost = r"is at transaction 0, but later ones were confirmed: the server has lost writes.*on_data_loss='continue'"
    with pytest.raises(RedisDataLost, match=lost):
        sink.commit([handle])
    fenced(tolerant, claim=2).commit([handle])
    assert rows() == {b"a": b"2"}


def test_server_that_lost_a_transaction_between_two_runs(
    sink_of: Any, rows: Any, client: Any, name: str, tmp_path: Path
) -> None:
    def run(numbers: list[int], **options: Any) -> None:
        source, sink = ScriptedSource({"part": numbers}), sink_of(**options)
        SingleThreadRuntime(
            lambda provider: (
                provider.new_stream()
                .source("in", source)
                .key_distribute("key", lambda msg: msg.value)
                .sink("out", sink)
            ),
            at_once(tmp_path, job="numbers"),
        ).execute()

    run([1, 2])
    client.delete(*client.scan_iter(f"*{name}*"))
    with pytest.raises(OperatorError, match="is at transaction 0, but later ones were confirmed") as caught:
        run([1, 2, 3])
    assert isinstance(caught.value.__cause__, RedisDataLost)
    run([1, 2, 3], on_data_loss="continue")
    assert rows() == {b"3": b"3"}
    run([1, 2, 3, 4])
    assert rows() == {b"3": b"3", b"4": b"4"}


def test_at_least_once_writes_with_each_tick(sink_of: Any, rows: Any) -> None:
    sink = sink_of(delivery="at-least-once")
    write(sink, {f"k{number}": number for number in range(2_500)})
    write(sink, {"k0": "again", "k1": None})
    assert rows() == {}
    sink.flush()
    sink.flush()
    assert len(rows()) == 2_499
    assert rows()[b"k0"] == b"again"
    write(sink, {f"k{number}": None for number in range(1, 2_500)})
    sink.flush()
    assert rows() == {b"k0": b"again"}
    sink.close()


def test_records_of_one_key_and_one_by_one(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of())
    sink.sink_batch(["a", "a", "b", "a"], [1, None, 2, 3], [0] * 4)
    sink.sink(DataMessage("b", None, 0))
    committed(sink, 1, {})
    assert rows() == {b"a": b"3"}


class _Town(IntEnum):
    ULM = 7


def test_plain_keys_and_values(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of())
    committed(sink, 1, {1: 10**30, 1e300: 1e300, _Town.ULM: _Town.ULM, 2.5: float("inf"), -0.0: ""})
    numbers = {b"1": str(10**30).encode(), b"7": b"7", b"2.5": b"inf", b"0": b"", b"%d" % int(1e300): b"1e+300"}
    assert rows() == numbers
    sink = fenced(sink_of(), claim=2)
    committed(sink, 2, {"ä": b"\0", "": "ä"})
    assert rows() == {**numbers, "ä".encode(): b"\0", b"": "ä".encode()}


@pytest.mark.parametrize(
    ("rows", "options", "reason"),
    [
        ({NoKey: 1}, {}, "the stream has no key; call .key_distribute"),
        (
            {"a": 1, "b": [2]},
            {},
            "key 'b' with value .2. cannot be written: the value can't be encoded: it is list, .*encode='j",
        ),
        ({("b", 1): 2}, {}, "the key can't be encoded: it is tuple, .*; pass encode_key='json' or a function"),
        ({"a": True}, {}, "it is bool"),
        ({"a": float("nan")}, {"encode": "json"}, "the value can't be encoded"),
        ({"a": "\ud800"}, {}, "the value can't be encoded: .*surrogates"),
    ],
)
def test_records_that_have_no_row(rows: dict[Any, Any], options: dict[str, Any], reason: str) -> None:
    sink: Any = RedisSink("redis://h", table="t", **options)
    with pytest.raises(UnwritableRow, match=reason) as failed:
        write(sink, rows)
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)
    assert sink.prepare(1) is None


def test_table_of_another_type_is_left_alone(redis_url: str, client: Any, name: str) -> None:
    client.set(name, "text")
    sink = fenced(RedisSink(redis_url, table=name))
    with pytest.raises(RedisFailed, match=r"writing the ledger .* failed at 127.0.0.1:\d+/0: .*WRONGTYPE"):
        committed(sink, 1, {"a": 1})
    assert client.get(name) == b"text"
    assert fenced(sink, claim=2).fence(SinkOwner("job", "sink", 2)) == 0


def test_sink_of_two_runs(sink_of: Any, rows: Any) -> None:
    sink = fenced(sink_of(), claim=1)
    committed(sink, 1, {"a": 1})
    write(sink, {"b": "open"})
    sink.close()
    assert sink.fence(SinkOwner("job", "sink", 2)) == 1
    sink.abort(NONE)
    committed(sink, 2, {"c": 3})
    assert rows() == {b"a": b"1", b"c": b"3"}


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_server_killed_before_a_write(own_redis: Callable[[], RedisServer], delivery: Any) -> None:
    server = own_redis()
    sink: Any = RedisSink(server.address, table="t", delivery=delivery, retry_for=timedelta(seconds=60))
    if delivery == "exactly-once":
        fenced(sink)
        first = committed(sink, 1, {"a": 1})
    else:
        write(sink, {"a": 1})
        sink.flush()
    server.kill()
    server.start()  # without the scripts it knew, and connections are broken
    if delivery == "exactly-once":
        sink.commit([first])
        committed(sink, 2, {"b": 2})
        assert sink.fence(SinkOwner("job", "sink", 1)) == 2
    else:
        write(sink, {"b": 2})
        sink.flush()
    with redis.Redis.from_url(server.address) as client:
        assert client.hgetall("t") == {b"a": b"1", b"b": b"2"}
    server.kill()
    short: Any = RedisSink(server.address, table="t", delivery=delivery, retry_for=timedelta(seconds=0.2))
    write(short, {"a": 3})
    reach = short.flush if delivery == "at-least-once" else lambda: fenced(short)
    with pytest.raises(RedisFailed, match=r"failed at 127.0.0.1:\d+/0: ConnectionError"):
        reach()


def test_server_that_may_lose_writes_is_warned_of(
    own_redis: Callable[[], RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    fenced(RedisSink(server.address, table="t"))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with redis.Redis.from_url(server.address) as client:
        client.config_set("appendfsync", "everysec")
    fenced(RedisSink(server.address, table="t"))
    assert "confirms writes before they are on disk" in caplog.text


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random", "volatile-ttl", "noeviction"])
def test_server_that_evicts_rows_is_warned_of(
    policy: str, own_redis: Callable[[], RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.address) as client:
        client.config_set("maxmemory-policy", policy)
    fenced(RedisSink(server.address, table="t"))
    told = f"has maxmemory-policy {policy}: it deletes rows of sink" in caplog.text
    assert told == policy.startswith("allkeys")


def test_no_secret_in_texts() -> None:
    sink: Any = RedisSink("redis://user:hush-1@127.0.0.1:1/3", table="t", retry_for=timedelta(0))
    with pytest.raises(RedisFailed) as failed:
        fenced(sink)
    told = repr(sink) + str(failed.value) + repr(failed.value) + repr(failed.value.__context__)
    assert "hush" not in told
    assert "127.0.0.1:1/3" in told
    write(sink, {"a": 1})
    assert b"hush" not in pickle.dumps(sink.prepare(1))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"table": None}, "needs table='...', a hash, or prefix='...'"),
        ({"prefix": "p"}, "needs table='...', a hash, or prefix='...'"),
        ({"table": ""}, "needs table='...', a hash, or prefix='...'"),
        ({"delivery": "once"}, "delivery must be 'exactly-once' or 'at-least-once'; got 'once'"),
        ({"on_data_loss": "ignore"}, "on_data_loss must be 'fail' or 'continue'"),
        ({"rows_per_call": 0}, "rows_per_call must be a whole number, from 1 to"),
        ({"delete": 3}, "delete must be a plain function"),
        ({"encode": "jsn"}, "did you mean 'json'"),
        ({"retry_for": "5x"}, "retry_for must be a time of zero or more, .*; got '5x'"),
        ({"settings": ["db"]}, "settings must be a dict"),
        ({"settings": {"decode_responses": True}}, "got the setting 'decode_responses'"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        RedisSink(**{"url": "redis://h", "table": "t", **arguments})
