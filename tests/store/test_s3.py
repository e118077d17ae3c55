"""S3: lost and varying replies, and one request for each operation."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from malflow.errors import StoreError
from malflow.store.contract import KeyExists, KeyMissing, Store, Transient, UnknownOutcome
from malflow.store.opening import open_store
from malflow.store.remote import FsspecStore
from tests.kit.faulty_s3 import FaultyS3
from tests.kit.waiting import wait_until
from tests.store.conftest import moved

pytestmark = pytest.mark.slow

Operation = Callable[[Store], object]

GET: Operation = lambda store: store.get("m/0", 100)  # noqa: E731
LIST: Operation = lambda store: store.list("m/")  # noqa: E731
DELETE: Operation = lambda store: store.delete("m/0")  # noqa: E731
PUT: Operation = lambda store: store.put_new("m/1", b"body")  # noqa: E731
READS = {"get": ("GET", GET), "list": ("GET", LIST), "delete": ("DELETE", DELETE)}


@pytest.fixture
def server(s3: FaultyS3) -> Iterator[FaultyS3]:
    s3.reset()
    yield s3
    s3.reset()


@pytest.fixture
def store(server: FaultyS3, s3_clients: list[Store]) -> Store:
    """Return a store with one object."""
    store = moved(s3_clients[0], f"{server.bucket}/{time.monotonic_ns()}")
    store.put_new("m/0", b"zero")
    server.reset()
    return store


def is_there(server: FaultyS3, store: Store, key: str = "m/1") -> bool:
    """Look for an object without the store under test."""
    return bool(server.filesystem().exists(store._url(key)))  # type: ignore[attr-defined]


def outcome(operation: Operation, store: Store) -> Exception:
    with pytest.raises((StoreError, KeyExists, KeyMissing)) as raised:
        operation(store)
    return raised.value


@pytest.mark.fault("C11", "C12")
@pytest.mark.parametrize(
    ("fault", "kind", "lands"),
    [
        ("error_before", UnknownOutcome, False),
        ("error_after", UnknownOutcome, True),
        ("throttled", UnknownOutcome, False),
        ("reset_before", UnknownOutcome, False),
        ("reset_after", UnknownOutcome, True),
        ("404_without_code", UnknownOutcome, False),
        ("409", Transient, False),
        ("412_without_condition", KeyExists, False),
        ("403", StoreError, False),
        ("expired", StoreError, False),
        ("501", StoreError, False),
    ],
)
def test_a_write_tells_what_is_known_of_it(
    server: FaultyS3, store: Store, fault: str, kind: type[Exception], lands: bool
) -> None:
    server.inject(fault, "PUT", "m/1")
    assert type(outcome(PUT, store)) is kind
    assert (server.fired, [request.method for request in server.requests]) == (1, ["PUT"])
    assert is_there(server, store) == lands
    if lands:
        assert type(outcome(PUT, store)) is KeyExists
        assert store.get("m/1", 10) == b"body"
    else:
        PUT(store)


@pytest.mark.fault("C16")
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error_before", Transient),
        ("throttled", Transient),
        ("409", Transient),
        ("reset_before", Transient),
        ("403", StoreError),
        ("expired", StoreError),
        ("501", StoreError),
        ("404_without_code", StoreError),
    ],
)
@pytest.mark.parametrize("operation", READS)
def test_any_other_operation_tells_whether_to_try_again(
    server: FaultyS3, store: Store, operation: str, fault: str, kind: type[Exception]
) -> None:
    method, do = READS[operation]
    server.inject(fault, method)
    assert type(outcome(do, store)) is kind
    assert (server.fired, [request.method for request in server.requests]) == (1, [method])
    do(store)


@pytest.mark.parametrize("operation", ["get", "list"])
def test_half_an_answer_is_no_answer(server: FaultyS3, store: Store, operation: str) -> None:
    server.inject("truncate", "GET")
    assert type(outcome(READS[operation][1], store)) is Transient
    assert (server.fired, server.count("GET")) == (1, 1)


@pytest.mark.fault("C5")
def test_each_operation_is_one_request(server: FaultyS3, store: Store) -> None:
    def asked(operation: Operation) -> list[str]:
        server.requests.clear()
        with suppress(KeyExists, KeyMissing):
            operation(store)
        return [request.method for request in server.requests]

    assert asked(PUT) == ["PUT"]
    assert asked(PUT) == ["PUT"]
    assert asked(GET) == ["GET"]
    assert asked(lambda store: store.get("m/9", 10)) == ["GET"]
    assert asked(LIST) == ["GET"]
    assert asked(lambda store: store.list("nothing/")) == ["GET"]
    assert asked(DELETE) == ["DELETE"]
    assert asked(lambda store: store.sweep("m/", lambda _: True)) == []


def test_a_body_of_any_size_is_one_request(server: FaultyS3, store: Store) -> None:
    store.put_new("d/1", bytes(100 * 2**20))
    assert [(request.method, request.query) for request in server.requests] == [("PUT", "")]


def test_a_listing_has_all_pages_or_is_none(server: FaultyS3, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "3")
    keys = [f"p/{number}" for number in range(8)]
    for key in keys:
        store.put_new(key, b"")
    server.reset()
    assert store.list("p/") == keys
    assert server.count("GET") == 3
    server.inject("delay", "GET", times=2)
    server.inject("error_before", "GET", nth=2)
    assert type(outcome(lambda store: store.list("p/"), store)) is Transient
    assert server.fired == 3


@pytest.fixture(scope="module")
def impatient(s3: FaultyS3) -> Store:
    options = {**s3.options, "config_kwargs": {"read_timeout": 1, "connect_timeout": 1}}
    store = open_store(f"s3://{s3.bucket}/slow", options)
    store._filesystem().connect()  # type: ignore[attr-defined] # it takes long
    return store


@pytest.mark.fault("C8")
def test_a_write_that_times_out_may_land_later(server: FaultyS3, impatient: Store) -> None:
    store = impatient
    server.inject("late", "GET", "m/0")
    assert type(outcome(GET, store)) is Transient
    server.inject("late", "PUT", "m/1")
    assert type(outcome(PUT, store)) is UnknownOutcome
    wait_until(lambda: server.fired == 2)
    assert not is_there(server, store)
    server.release()
    wait_until(lambda: is_there(server, store))
    assert server.count("PUT") == 1


@pytest.mark.fault("C8")
@pytest.mark.parametrize(("operation", "kind"), [(GET, Transient), (PUT, UnknownOutcome)])
def test_a_server_that_keeps_talking_does_not_hold_up_for_ever(
    server: FaultyS3, impatient: Store, operation: Operation, kind: type[Exception]
) -> None:
    for method in ("GET", "PUT"):
        server.inject("trickle", method)
    started = time.monotonic()
    error = outcome(operation, impatient)
    assert (type(error), type(error.__cause__).__name__) == (kind, "FSTimeoutError")
    assert time.monotonic() - started < 12, "it would have talked for 15 seconds"
    assert len(server.requests) == 1


def test_a_large_body_has_more_time(server: FaultyS3, store: Store) -> None:
    filesystem = store._filesystem()  # type: ignore[attr-defined]
    limits = [store._limited(filesystem, size) for size in (0, 64 * 2**20)]  # type: ignore[attr-defined]
    assert limits == [{"timeout": 35}, {"timeout": pytest.approx(169, abs=1)}]
    filesystem = type(filesystem)(**server.options, config_kwargs={"read_timeout": None, "connect_timeout": 5})
    assert store._limited(filesystem, 0) == {"timeout": None}  # type: ignore[attr-defined]


@pytest.mark.fault("H4")
def test_an_interrupt_passes_through_a_write_that_goes_on(server: FaultyS3, store: Store) -> None:
    server.inject("late", "PUT")
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        wait_until(lambda: server.fired == 1)
        signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            PUT(store)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join()
    assert not is_there(server, store)
    server.release()
    wait_until(lambda: is_there(server, store))
    assert store.get("m/1", 10) == b"body"


def test_a_request_that_was_broken_off_is_no_success(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    PUT(store)
    monkeypatch.setattr(store._filesystem(), "pipe_file", lambda *_, **__: None)  # type: ignore[attr-defined]
    assert type(outcome(lambda store: store.put_new("m/2", b""), store)) is UnknownOutcome


def test_a_server_that_is_not_there_is_tried_once(unused_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(
        "s3://bucket/job", {"key": "k", "secret": "s", "client_kwargs": {"endpoint_url": unused_endpoint}}
    )
    tried: list[object] = []
    connect = BaseSelectorEventLoop.sock_connect

    async def count(loop: Any, sock: Any, address: Any) -> None:
        tried.append(address)
        await connect(loop, sock, address)

    monkeypatch.setattr(BaseSelectorEventLoop, "sock_connect", count)
    assert type(outcome(PUT, store)) is UnknownOutcome
    for _, operation in READS.values():
        assert type(outcome(operation, store)) is Transient
    assert len(tried) == 1 + len(READS)


@pytest.mark.fault("C16")
@pytest.mark.parametrize("operation", [GET, LIST, DELETE, PUT])
def test_a_missing_bucket_is_no_missing_object(server: FaultyS3, operation: Operation) -> None:
    store = open_store("s3://no-bucket/job", server.options)
    error = outcome(operation, store)
    assert type(error) is StoreError
    assert "NoSuchBucket" in str(error)
    assert str(error).endswith(
        "(HTTP 404); create the bucket, or check its name and the endpoint: endpoint_url in storage_options, or "
        "AWS_ENDPOINT_URL"
    )


@pytest.mark.parametrize("operation", [GET, LIST, DELETE, PUT])
def test_missing_credentials_are_told_with_what_helps(
    server: FaultyS3, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    server.requests.clear()
    store = open_store(f"s3://{server.bucket}/job", {"client_kwargs": server.options["client_kwargs"]})
    error = outcome(operation, store)
    assert type(error) is StoreError
    assert "Unable to locate credentials" in str(error)
    assert "AWS_ACCESS_KEY_ID" in str(error)
    assert server.requests == []


def test_a_bucket_name_that_can_not_be_is_an_error_of_its_own(server: FaultyS3) -> None:
    store = open_store("s3://no_such*bucket/job", server.options)
    for operation in (PUT, GET, LIST):
        assert type(outcome(operation, store)) is StoreError


def test_a_file_system_of_the_users_is_asked_once_and_never_from_its_cache(server: FaultyS3) -> None:
    import s3fs  # noqa: PLC0415

    theirs = s3fs.S3FileSystem(**server.options)
    assert theirs.retries == 5
    store = open_store(f"{server.bucket}/theirs", filesystem=theirs)
    store.put_new("m/1", b"")
    assert theirs.ls(f"{server.bucket}/theirs/m") == [f"{server.bucket}/theirs/m/1"]
    open_store(f"s3://{server.bucket}/theirs", server.options).put_new("m/2", b"two")
    assert (store.list("m/"), store.get("m/2", 9)) == (["m/1", "m/2"], b"two")
    server.reset()
    server.inject("throttled", "PUT")
    assert type(outcome(lambda store: store.put_new("m/3", b""), store)) is UnknownOutcome
    assert (server.count("PUT"), theirs.retries) == (1, 5)
    own, another = (place._filesystem() for place in (store, FsspecStore(theirs, server.bucket)))  # type: ignore[attr-defined]
    assert len({id(filesystem) for filesystem in (own, another, theirs)}) == 3
    assert (own.dircache.use_listings_cache, theirs.dircache.use_listings_cache) == (False, True)


def test_a_store_that_ignores_the_condition_is_looked_at_first(server: FaultyS3) -> None:
    url = f"s3://{server.bucket}/clone"
    store = open_store(url, server.options, exclusive=False)
    store.put_new("m/1", b"first")
    with pytest.raises(KeyExists):
        store.put_new("m/1", b"second")
    assert store.get("m/1", 10) == b"first"
    server.reset()
    server.inject("403", "GET")
    assert type(outcome(lambda store: store.put_new("m/2", b""), store)) is StoreError
    assert server.count("PUT") == 0


SECRETS = {
    "key": "CANARY-ACCESS-KEY",
    "secret": "CANARY/secret+key=",
    "token": "CANARY-session-token",
    "config_kwargs": {"user_agent_extra": "a", "proxies": {"gopher": "http://me:CANARY-proxy@nowhere"}},
}


@pytest.fixture(scope="module")
def hushed(s3: FaultyS3) -> Store:
    return open_store(f"s3://{s3.bucket}/hush", {**s3.options, **SECRETS})


@pytest.mark.parametrize("fault", ["403", "error_before", "409", "expired", "throttled"])
@pytest.mark.parametrize("operation", [GET, LIST, DELETE, PUT])
def test_no_error_shows_a_secret(
    server: FaultyS3, hushed: Store, fault: str, operation: Operation, caplog: pytest.LogCaptureFixture
) -> None:
    store = hushed
    echo = (
        "you said CANARY-ACCESS-KEY, CANARY/secret+key=, CANARY%2Fsecret%2Bkey%3D, CANARY-session-token, CANARY-proxy"
    )
    for method in ("GET", "PUT", "DELETE"):
        server.inject(fault, method, message=f"{echo}\nat https://me:CANARY@host/x?X-Amz-Signature=CANARY")
    with caplog.at_level(logging.DEBUG, "malflow"):
        error = outcome(operation, store)
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error)) + repr(store) + caplog.text
    assert "you said ***" in shown
    assert "CANARY" not in shown
    assert "\n" not in str(error)
    assert (error.__cause__, error.__context__) == (None, None)


def test_an_error_without_a_secret_keeps_its_cause(server: FaultyS3, store: Store) -> None:
    server.inject("403", message="not for\nyou")
    error = outcome(PUT, store)
    assert isinstance(error.__cause__, PermissionError)
    assert r"AccessDenied: not for\nyou (HTTP 403)" in str(error)


def test_a_signature_that_nobody_named_is_a_secret_too(server: FaultyS3, store: Store) -> None:
    server.inject("403", message="no https://host/x?X-Amz-Signature=CANARY")
    error = outcome(PUT, store)
    assert error.__cause__ is None
    assert "X-Amz-Signature=***" in str(error)


def test_secrets_of_a_users_file_system_are_hidden_too(server: FaultyS3) -> None:
    import s3fs  # noqa: PLC0415

    theirs = s3fs.S3FileSystem(**{**server.options, "secret": SECRETS["secret"]}, skip_instance_cache=True)
    store = FsspecStore(theirs, f"{server.bucket}/theirs", secrets=["CANARY-other"])
    server.inject("403", message="CANARY/secret+key= CANARY-other")
    assert "AccessDenied: *** ***" in str(outcome(PUT, store))


@pytest.fixture
def unused_endpoint() -> str:
    with FaultyS3() as server:
        return server.endpoint
