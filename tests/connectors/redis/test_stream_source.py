"""Redis streams as sources: positions, losses, bad entries, and an unreachable server."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from malflow import GraphError, SingleThreadRuntime, StreamProvider
from malflow.connectors.redis import BadStreamEntry, RedisDataLost, RedisFailed, RedisStreamSource
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, dead_letters
from tests.kit.waiting import wait_until
from tests.servers.redis_server import RedisServer


def add(client: Any, stream: str, *numbers: int) -> list[str]:
    """Add entries with these numbers; return their ids."""
    return [client.xadd(stream, {"n": number}).decode() for number in numbers]


def numbers(reader: Any, limit: int = 100) -> list[int]:
    """Read what is there."""
    return [int(value) for value in reader.poll_batch(limit)[0]]


def source_of(url: str, *streams: str, **options: Any) -> RedisStreamSource:
    return RedisStreamSource(url, streams, **{"field": "n", **options})


def test_entries_in_their_order_with_the_times_of_their_ids(redis_url: str, client: Any, name: str) -> None:
    client.xadd(name, {"town": "Köln", "n": "1"}, id="1000-1")
    client.xadd(name, {"town": "Ulm"}, id="2000-0")
    reader = RedisStreamSource(redis_url, name).build_part(name, None)
    assert reader.poll_batch(10) == ([{"town": "Köln", "n": "1"}, {"town": "Ulm"}], [1000, 2000])
    assert reader.snapshot()[:2] == ("2000-0", 2)
    assert reader.poll_batch(10) == ((), ())
    assert reader.poll() is None
    source = RedisStreamSource(redis_url, name, field="n", decode="json", timestamps="datetime", on_error="skip")
    assert source.build_part(name, None).poll_batch(1) == ([1], [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)])


def test_reading_goes_on_at_any_position(redis_url: str, client: Any, name: str) -> None:
    add(client, name, *range(20))
    source = source_of(redis_url, name)
    for size in (1, 3, 7, 20):
        seen: list[int] = []
        position = None
        while len(seen) < 20:
            reader = source.build_part(name, position)
            seen += numbers(reader, size)
            position = pickle.loads(pickle.dumps(reader.snapshot()))
            reader.suspend()
        assert seen == [*range(20)]
        assert position is not None
        assert position[1] == 20


def test_reader_that_goes_on_from_another_position(redis_url: str, client: Any, name: str) -> None:
    add(client, name, *range(10))
    source = source_of(redis_url, name, stop="latest")
    reader, other = source.build_part(name, None), source.build_part(name, None)
    numbers(reader, 3)
    reader.suspend()
    numbers(other, 7)
    assert reader.go_on_from(other.snapshot())
    assert [numbers(reader), reader.is_finished()] == [[7, 8, 9], True]
    assert other.go_on_from(reader.snapshot())
    assert other.is_finished()


def test_start_at_the_end_and_at_a_time(redis_url: str, client: Any, name: str) -> None:
    for number in range(5):
        client.xadd(name, {"n": number}, id=f"{1000 * number + 1000}-{number}")
    late = source_of(redis_url, name, start="latest").build_part(name, None)
    assert late.snapshot() == ("5000-4", 5)
    client.xadd(name, {"n": 5}, id="9000-0")
    assert numbers(late) == [5]
    for start, expected in ((0, 0), (1000, 0), (1001, 1), (3000, 2), (9000, 5), (9001, 6)):
        at = datetime.fromtimestamp(start / 1000, UTC)
        assert numbers(source_of(redis_url, name, start=at).build_part(name, None)) == [*range(expected, 6)]


def test_stream_that_does_not_exist_yet(redis_url: str, client: Any, name: str) -> None:
    for start in ("earliest", "latest"):
        reader = source_of(redis_url, name, start=start).build_part(name, None)
        assert numbers(reader) == []
        add(client, name, 1)
        assert numbers(reader) == [1]
        client.delete(name)


def test_end_of_a_source_that_stops(redis_url: str, client: Any, name: str) -> None:
    add(client, name, 0, 1, 2)
    source = source_of(redis_url, name, stop="latest")
    reader = source.build_part(name, None)
    add(client, name, 3)
    assert numbers(reader, 2) == [0, 1]
    assert not reader.is_finished()
    position = reader.snapshot()
    assert numbers(reader) == [2]
    assert reader.is_finished()
    assert reader.snapshot()[1] == 3
    again = source.build_part(name, position)
    assert [numbers(again), again.is_finished()] == [[2, 3], True]
    assert source.build_part(name, again.snapshot()).is_finished()
    assert source.build_part("none", None).is_finished()


def test_lag_is_what_waits(redis_url: str, client: Any, name: str) -> None:
    add(client, name, *range(10))
    reader = source_of(redis_url, name).build_part(name, None)
    assert reader.lag() is None
    numbers(reader, 4)
    assert reader.lag() == 6
    numbers(reader)
    assert reader.lag() == 0


def test_trimmed_entries_that_were_read(redis_url: str, client: Any, name: str) -> None:
    add(client, name, *range(10))
    source = source_of(redis_url, name)
    reader = source.build_part(name, None)
    numbers(reader, 6)
    client.xtrim(name, maxlen=4, approximate=False)
    assert numbers(source.build_part(name, reader.snapshot())) == [6, 7, 8, 9]
    numbers(reader)
    client.xtrim(name, maxlen=0, approximate=False)
    assert numbers(source.build_part(name, reader.snapshot())) == []


@pytest.mark.parametrize("left", [3, 0])
@pytest.mark.parametrize("resumed", [True, False])
def test_trimmed_entries_that_were_not_read(
    redis_url: str, client: Any, name: str, resumed: bool, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    ids = add(client, name, *range(10))
    readers = {}
    for choice in ("fail", "earliest", "latest"):
        source = source_of(redis_url, name, on_data_loss=choice)
        reader = source.build_part(name, None)
        assert numbers(reader, 6) == [*range(6)]
        readers[choice] = source.build_part(name, reader.snapshot()) if resumed else reader
    client.xtrim(name, maxlen=left, approximate=False)
    there = f"its entries are {ids[7]} to {ids[9]}" if left else "it has no entries"
    lost = f"stream '{name}' .*: {4 - left} entries were trimmed .* position is {ids[5]}, and {there}; to continue"
    with pytest.raises(RedisDataLost, match=lost):
        numbers(readers["fail"])
    for choice, expected in (("earliest", [7, 8, 9][3 - left :]), ("latest", [])):
        assert numbers(readers[choice]) == []
        assert f"reading continues at the {choice}" in caplog.text
        assert numbers(readers[choice]) == expected
    add(client, name, 10)
    assert numbers(readers["latest"]) == [10]


def test_deleted_entries_are_passed_over(redis_url: str, client: Any, name: str) -> None:
    ids = add(client, name, *range(10))
    source = source_of(redis_url, name)
    reader = source.build_part(name, None)
    numbers(reader, 3)
    client.xdel(name, ids[1], ids[4], ids[5])
    assert numbers(source.build_part(name, reader.snapshot())) == [3, 6, 7, 8, 9]


def test_stream_that_was_recreated(redis_url: str, client: Any, name: str) -> None:
    for number in range(5):
        client.xadd(name, {"n": number}, id=f"{5000 + number}-0")
    source = source_of(redis_url, name)
    reader = source.build_part(name, None)
    numbers(reader)
    client.delete(name)
    recreated = "deleted and recreated, or the server has lost writes"
    with pytest.raises(RedisDataLost, match=recreated):
        numbers(source.build_part(name, reader.snapshot()))
    for first in (1000, 9000):  # lower ids; and higher ones, of which there are fewer
        client.delete(name)
        client.xadd(name, {"n": 7}, id=f"{first}-0")
        with pytest.raises(RedisDataLost, match=recreated):
            numbers(source.build_part(name, reader.snapshot()))
    for number in range(10):  # and more
        client.xadd(name, {"n": number}, id=f"{10_000 + number}-0")
    with pytest.raises(RedisDataLost, match=recreated):
        numbers(source.build_part(name, reader.snapshot()))
    again = source_of(redis_url, name, on_data_loss="earliest").build_part(name, reader.snapshot())
    assert numbers(again) == []
    assert numbers(again) == [7, *range(10)]


def test_bad_entries_by_policy(redis_url: str, client: Any, name: str) -> None:
    client.xadd(name, {"n": "1"}, id="1-0")
    client.xadd(name, {"n": b"\xff"}, id="2-0")
    client.xadd(name, {"other": "x"}, id="3-0")
    client.xadd(name, {"n": "4"}, id="4-0")
    reader = source_of(redis_url, name).build_part(name, None)
    with pytest.raises(
        BadStreamEntry, match=rf"stream '{name}' entry 2-0: .*UnicodeDecodeError.*on_error='skip'"
    ) as bad:
        reader.poll_batch(10)
    copy = pickle.loads(pickle.dumps(bad.value))
    assert (copy.stream, copy.id, copy.fields, str(copy)) == (name, "2-0", {b"n": b"\xff"}, str(bad.value))
    assert reader.snapshot() == ("0-0", 0)
    skipping = source_of(redis_url, name, on_error="skip").build_part(name, None)
    assert skipping.poll_batch(10) == (["1", "4"], [1, 4])
    assert skipping.snapshot()[:2] == ("4-0", 4)
    instead = source_of(redis_url, name, on_error=lambda bad: bad.reason if bad.id == "3-0" else None)
    assert instead.build_part(name, None).poll_batch(10) == (["1", "it has no field 'n'", "4"], [1, 3, 4])
    one_by_one = source_of(redis_url, name, on_error="skip").build_part(name, None)
    assert [one_by_one.poll(), one_by_one.poll(), one_by_one.poll()] == [("1", 1), ("4", 4), None]


@pytest.mark.fault("N14")
def test_bad_entries_are_dead_letters_once_over_runs(redis_url: str, client: Any, name: str, tmp_path: Path) -> None:
    store, values = FsspecBackend(str(tmp_path)), VecSink[Any, Any, Any]()

    def build_dataflow(provider: StreamProvider) -> None:
        source = source_of(redis_url, name, stop="latest", on_error="dead_letter")
        provider.new_stream().source("clicks", source).sink("out", values)

    for number, parallelism in ((1, 1), (2, 3)):
        client.xadd(name, {"n": f"{number}"}, id=f"{number}-0")
        client.xadd(name, {"n": b"\xff"}, id=f"{number}-1")
        client.xadd(name, {"other": "x"}, id=f"{number}-2")
        SingleThreadRuntime(build_dataflow, store, parallelism=parallelism).execute()
    assert values.values == ["1", "2"]
    letters = sorted(dead_letters(store), key=lambda it: f"{it.place}")
    expected = [
        (f"stream '{name}' entry {n}-{at}", it)
        for n in (1, 2)
        for at, it in ((1, {b"n": b"\xff"}), (2, {b"other": b"x"}))
    ]
    assert [(it.place, it.value) for it in letters] == expected
    assert letters[1].message == "it has no field 'n'"


def test_fields_that_come_twice_are_refused(redis_url: str, client: Any, name: str, tmp_path: Path) -> None:
    client.execute_command("XADD", name, "1-0", "n", "1", "a", "x", "a", "y")
    client.execute_command("XADD", name, "2-0", "n", "2", "n", "3")
    with pytest.raises(BadStreamEntry, match=r"entry 1-0: .* its field b'a' comes 2 times, with \[b'x', b'y'\]"):
        RedisStreamSource(redis_url, name).build_part(name, None).poll_batch(1)
    assert numbers(source_of(redis_url, name).build_part(name, None), 1) == [1], "only field n is read"
    found: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        source = source_of(redis_url, name, on_error="dead_letter", stop="latest")
        provider.new_stream().source("in", source).sink("out", found)

    store = FsspecBackend(tmp_path / "state")
    SingleThreadRuntime(build, store).execute()
    assert found.values == ["1"]
    [letter] = dead_letters(store)
    assert letter.value == [[b"n", b"2"], [b"n", b"3"]]
    assert "its field b'n' comes 2 times" in letter.message
    with pytest.raises(ValueError, match="comes 2 times"):
        source_of(redis_url, name).read_again(name, letter.value)


def test_time_that_no_datetime_has(redis_url: str, client: Any, name: str) -> None:
    add(client, name, 1)
    client.xadd(name, {"n": 2}, id=f"{2**64 - 1}-1")
    source = source_of(redis_url, name, timestamps="datetime", on_error=lambda _: 7)
    assert numbers(source.build_part(name, None)) == [1, 7]
    with pytest.raises(BadStreamEntry, match=rf"entry {2**64 - 1}-1: .*OverflowError"):
        numbers(source_of(redis_url, name, timestamps="datetime").build_part(name, None))


def test_key_that_is_no_stream(redis_url: str, client: Any, name: str) -> None:
    client.set(name, 1)
    with pytest.raises(RedisFailed, match=rf"looking at stream '{name}' failed at 127.0.0.1:\d+/0: .*WRONGTYPE"):
        source_of(redis_url, name).build_part(name, None)


def test_streams_as_parts_and_keys_of_a_run(redis_url: str, client: Any, name: str) -> None:
    streams = [f"{name}-{number}" for number in range(3)]
    for number, stream in enumerate(streams):
        add(client, stream, *range(number * 100, number * 100 + 50))
    seen: VecSink[Any, Any, Any] = VecSink()
    source = source_of(redis_url, *streams, stop="latest", decode=int)
    SingleThreadRuntime(
        lambda provider: provider.new_stream().source("numbers", source).sink("seen", seen),
        parallelism=2,
    ).execute()
    found = {stream: [msg.value for msg in seen if msg.key == stream] for stream in streams}
    assert found == {stream: [*range(n * 100, n * 100 + 50)] for n, stream in enumerate(streams)}


def test_server_killed_amid_reading(own_redis: Callable[[], RedisServer], name: str) -> None:
    server = own_redis()
    with redis.Redis.from_url(server.address) as client:
        add(client, name, 1, 2, 3)
        reader = source_of(server.address, name).build_part(name, None)
        assert numbers(reader, 2) == [1, 2]
        server.kill()
        started = time.monotonic()
        for _ in range(50):
            assert numbers(reader) == []
        assert time.monotonic() - started < 40, "poll does not wait: fifty polls of a second each would take longer"
        server.start()
        seen: list[int] = []
        wait_until(lambda: seen.extend(numbers(reader)) or seen == [3], 30)
        server.kill()
        short = source_of(server.address, name, retry_for=timedelta(seconds=0.2))
        with pytest.raises(
            RedisFailed, match=rf"looking at stream '{name}' failed at 127.0.0.1:\d+/0: ConnectionError"
        ):
            short.build_part(name, None)


def test_no_secret_in_texts(name: str) -> None:
    url = "rediss://user:hush-1@127.0.0.1:1/3"
    settings = {"ssl_password": "hush-2"}
    source = RedisStreamSource(url, name, settings=settings, retry_for=timedelta(0))
    with pytest.raises(RedisFailed) as failed:
        source.build_part(name, None)
    told = repr(source) + str(failed.value) + repr(failed.value) + repr(failed.value.__context__)
    assert "hush" not in told
    assert "127.0.0.1:1/3" in told


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"url": "http://x"}, "got a URL that is not a Redis URL"),
        ({"url": 3}, "url must be a text; got a int"),
        ({"url": "redis://h?protocol=3"}, "got the setting 'protocol'; remove it: replies are read as RESP2"),
        ({"settings": {"decode_responses": True}}, "got the setting 'decode_responses'"),
        ({"settings": {"hots": "h"}}, "a setting that redis-py refuses: .*'hots'"),
        ({"streams": []}, "needs the keys of streams; got streams="),
        ({"streams": ["a", "a"]}, "streams must be .*'a' more than once in"),
        ({"start": "first"}, "start must be 'earliest', 'latest' or an aware datetime; got 'first'"),
        ({"start": datetime(2026, 1, 1)}, "start must be an aware datetime"),
        ({"stop": "now"}, "stop must be 'latest' or None; got 'now'"),
        ({"decode": "jsn"}, "did you mean 'json'"),
        ({"on_error": "raise"}, "on_error must be 'fail', 'skip', 'dead_letter' or a plain function"),
        ({"on_data_loss": "ignore"}, "on_data_loss must be 'fail', 'earliest' or 'latest'"),
        ({"retry_for": timedelta(-1)}, "retry_for must be a time of zero or more"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        RedisStreamSource(**{"url": "redis://h", "streams": "s", **arguments})


@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize("is_amid", [False, True])
def test_stream_made_again_with_the_same_ids(
    redis_url: str, client: Any, name: str, count: int, *, is_amid: bool
) -> None:
    def fill(first: int, count: int) -> None:
        for number in range(count):
            client.xadd(name, {"n": first + number}, id=f"{number + 1}-0")

    fill(0, 10)
    source = source_of(redis_url, name)
    reader = source.build_part(name, None)
    assert numbers(reader) == [*range(10)]
    assert numbers(reader) == []
    position = reader.snapshot()
    client.delete(name)
    fill(100, count)
    if not is_amid:
        reader.suspend()
        reader = source.build_part(name, pickle.loads(pickle.dumps(position)))
    with pytest.raises(RedisDataLost, match="entry differs from the one that was read"):
        numbers(reader)
    reader = source.build_part(name, position[:2])  # of an older version
    assert numbers(reader) == [*range(110, 100 + count)]
    reader = source_of(redis_url, name, on_data_loss="earliest").build_part(name, position)
    assert numbers(reader) == []
    assert numbers(reader) == [*range(100, 100 + count)]


def test_entry_of_the_position_that_is_deleted(redis_url: str, client: Any, name: str) -> None:
    ids = add(client, name, *range(5))
    source = source_of(redis_url, name)
    reader = source.build_part(name, None)
    assert numbers(reader, 3) == [0, 1, 2]
    client.xdel(name, ids[2])
    assert numbers(source.build_part(name, reader.snapshot())) == [3, 4]
