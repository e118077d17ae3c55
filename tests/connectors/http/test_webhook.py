"""A web server as a source: queue, token, acknowledgement, shutdown."""

from __future__ import annotations

import http.client
import json
import logging
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from malflow import SingleThreadRuntime, SparkRuntime
from malflow.connectors.http import WebhookSource
from malflow.connectors.http.webhook import WebhookError
from malflow.errors import GraphError
from malflow.message import NoKey
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from tests.kit.waiting import wait_until


class Open:
    """A source whose server runs."""

    def __init__(self, **options: Any) -> None:
        self.source = WebhookSource(port=0, **options)
        self.reader = self.source.build_part(NoKey, None)

    def post(self, body: bytes = b"1", path: str | None = None, method: str = "POST", **headers: str) -> Any:
        url = urlsplit(self.source.address or "")
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
        try:
            connection.request(method, path or url.path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()


@pytest.fixture
def opened() -> Iterator[Any]:
    servers: list[Open] = []

    def open_one(**options: Any) -> Open:
        servers.append(Open(**options))
        return servers[-1]

    yield open_one
    for server in servers:
        server.reader.suspend()


def test_bodies_become_records(opened: Any) -> None:
    server = opened(path="/orders")
    before = datetime.now(UTC)
    assert server.post(b'{"n": 1}')[0] == 202
    assert server.post(b"[2, null]")[0] == 202
    values, times = server.reader.poll_batch(10)
    assert values == [{"n": 1}, [2, None]]
    assert before <= times[0] <= times[1] <= datetime.now(UTC)
    assert (server.reader.poll(), server.reader.is_finished(), server.reader.snapshot()) == (None, False, 2)


def test_refused_requests(opened: Any) -> None:
    server = opened(path="/orders", max_body=100)
    assert server.post(b"{")[:2] == (400, "the body can't be decoded: JSONDecodeError")
    assert server.post(b"1" * 101)[0] == 413
    assert server.post(path="/")[0] == 404
    assert server.post(method="GET")[0] == 405
    assert server.reader.poll() is None


@pytest.mark.parametrize(("decode", "value"), [("text", "é"), ("bytes", "é".encode()), (len, 2)])
def test_decoders(opened: Any, decode: Any, value: Any) -> None:
    server = opened(decode=decode)
    assert server.post("é".encode())[0] == 202
    assert server.reader.poll()[0] == value


def test_token(opened: Any) -> None:
    server = opened(token="hush-hush-ü")
    for wrong in ("", "hush-hush-ü", "Bearer", "Bearer hush", "Basic hush-hush-ü", "Bearer \xff"):
        status, text, headers = server.post(Authorization=wrong.encode())
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "hush" not in text
    assert server.post(Authorization="Bearer hush-hush-ü".encode())[0] == 202
    assert "hush" not in repr(server.source) + repr(server.source._options)


def test_full_queue(opened: Any) -> None:
    server = opened(max_queue=2)
    assert [server.post()[0] for _ in range(3)] == [202, 202, 429]
    assert server.post()[2]["Retry-After"] == "1"
    server.reader.poll()
    assert [server.post()[0] for _ in range(2)] == [202, 429]
    assert opened(max_queue=1, on_full="503").post()[0] == 202


def test_queue_that_is_full_by_bytes(opened: Any) -> None:
    server = opened(max_queue_bytes=1_000, decode="bytes", on_full="503")
    assert [server.post(b"x" * 400)[0] for _ in range(3)] == [202, 202, 503]
    assert opened(max_queue_bytes=10, decode="bytes").post(b"x" * 400)[0] == 202


def test_waiting_for_room(opened: Any) -> None:
    server = opened(max_queue=1, on_full="wait", timeout=10)
    server.post(b"1")
    with ThreadPoolExecutor() as pool:
        second = pool.submit(server.post, b"2")
        time.sleep(0.1)
        assert not second.done()
        assert server.reader.poll()[0] == 1
        assert second.result()[0] == 202
    assert opened(max_queue=1, on_full="wait", timeout=0.1).post()[0] == 202


def test_acknowledgement_by_a_snapshot(opened: Any) -> None:
    server = opened(acknowledge="snapshot", timeout=20)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(server.post, b"1")
        wait_until(lambda: server.reader.lag() == 1)
        server.reader.poll_batch(10)
        state = server.reader.snapshot()
        second = pool.submit(server.post, b"2")
        wait_until(lambda: server.reader.lag() == 1)
        server.reader.poll_batch(10)
        server.reader.committed(state)
        assert first.result()[0] == 200
        assert not second.done()
        server.reader.suspend()
        assert second.result()[0] == 503


def test_acknowledgement_that_does_not_come(opened: Any) -> None:
    server = opened(acknowledge="snapshot", timeout=0.1, max_queue=1)
    assert server.post()[:2] == (503, "not in a snapshot; send it again")
    assert server.post()[0] == 429
    server.reader.poll()
    server.reader.committed(server.reader.snapshot())
    assert server.post()[0] == 503


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"


def raw(server: Open, *parts: bytes, end: bool = False) -> bytes:
    """Send bytes, and return the first line of the answer; empty if there is none."""
    url = urlsplit(server.source.address or "")
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.sendall(b"".join(parts))
        if end:
            return b""
        with connection.makefile("rb") as answer:
            return answer.readline()


def test_body_that_does_not_arrive(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = opened(timeout=0.1)
    assert b" 408 " in raw(server, HEAD, b"\r\n", b"12")
    assert raw(server, HEAD, b"\r\n", b"12", end=True) == b""
    assert b" 400 " in raw(server, HEAD, b"Content-Encoding: gzip\r\n\r\n", b"123456789")
    assert server.post()[0] == 202
    server.reader.suspend()
    assert server.reader.poll_batch(10)[0] == [1]
    assert "Error handling request" not in caplog.text


def test_many_senders_at_once(opened: Any) -> None:
    server = opened(max_queue=50, on_full="wait", timeout=30)
    stop = threading.Event()
    read: list[int] = []

    def reading() -> None:
        while not stop.is_set() or server.reader.lag():
            read.extend(server.reader.poll_batch(7)[0])
            stop.wait(0.001)  # or it takes the processor from the senders

    thread = threading.Thread(target=reading)
    thread.start()
    with ThreadPoolExecutor(16) as pool:
        statuses = [status for status, _, _ in pool.map(lambda n: server.post(b"%d" % n), range(400))]
    stop.set()
    thread.join()
    assert statuses == [202] * 400
    assert sorted(read) == list(range(400))


def test_shutdown_frees_the_port(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(WebhookError, match=rf"no server can listen at 127.0.0.1:{port}: "):
            WebhookSource(port=port).build_part(NoKey, None)
    threads = threading.active_count()
    source = WebhookSource(port=port)
    for state in (None, 0):
        reader = source.build_part(NoKey, state)
        reader.suspend()
        reader.suspend()
    assert threading.active_count() == threads
    assert caplog.text == ""


def test_records_left_in_the_queue(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = opened()
    server.post(b"1")
    server.post(b"2")
    server.reader.poll()
    with caplog.at_level(logging.WARNING, "malflow"):
        server.reader.suspend()
    assert "stops with 1 accepted records that were not read" in caplog.text
    again = server.source.build_part(NoKey, 1)
    assert (again.poll()[0], again.snapshot()) == (2, 2)
    again.suspend()
    assert pickle.loads(pickle.dumps(server.source)).address is None


def test_webhook_on_spark() -> None:
    pytest.importorskip("pyspark")

    def build(provider: Any) -> None:
        provider.new_stream().source("hooks", WebhookSource(token="hush"))

    with pytest.raises(
        GraphError, match=r"'hooks' can't run on Spark.*must stay in one process; run it with"
    ) as refused:
        SparkRuntime(build).execute()
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "0.0.0.0"}, "without a token; pass token=, or host='127.0.0.1'"),
        ({"host": "example.org"}, "without a token"),
        ({"port": 70_000}, "port must be a whole number, from 0 to 65535"),
        ({"path": "orders"}, "path must begin with a slash"),
        ({"path": "/a?b"}, "path must begin with a slash, without any of {}[?]#%; got '/a'"),
        ({"token": " "}, "token must be a text that is not empty"),
        ({"token": "hush\n"}, "token must be a text that is not empty, without white space around it"),
        ({"timeout": float("nan")}, "timeout must be a time above zero, .*; got nan"),
        ({"max_queue": 0}, "max_queue must be a whole number, from 1 to"),
        ({"on_full": "drop"}, "on_full must be '429', '503' or 'wait'"),
        ({"acknowledge": "never"}, "acknowledge must be 'queue' or 'snapshot'"),
        ({"decode": "xml"}, "decode must be 'json', 'text', 'bytes' or a plain function"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        WebhookSource(**options)
    assert WebhookSource("::1").address is WebhookSource("0.0.0.0", token="x").address is None


def test_dataflow_that_acknowledges_after_its_snapshots(tmp_path: Path) -> None:
    source = WebhookSource(port=0, acknowledge="snapshot", timeout=20)
    found: VecSink[Any, Any, Any] = VecSink()
    runtime = SingleThreadRuntime(
        lambda provider: provider.new_stream().source("hooks", source).sink("out", found),
        FsspecBackend(str(tmp_path)),
        timedelta(milliseconds=50),
    )
    handle = runtime.start()
    wait_until(lambda: source.address is not None)
    url = urlsplit(source.address or "")
    with ThreadPoolExecutor(4) as pool:

        def post(number: int) -> int:
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=20)
            connection.request("POST", "/", json.dumps(number))
            status = connection.getresponse().status
            connection.close()
            return status

        assert list(pool.map(post, range(8))) == [200] * 8
    handle.stop()
    handle.await_termination()
    assert sorted(found.values) == list(range(8))


def connected(server: Open, sent: bytes) -> socket.socket:
    url = urlsplit(server.source.address or "")
    client = socket.create_connection((url.hostname or "", url.port or 0), timeout=20)
    client.sendall(sent)
    return client


def ends(client: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    said = b""
    with client:
        try:
            while data := client.recv(1000):
                said += data
        except ConnectionResetError:
            pass
    return said


@pytest.mark.slow  # it waits for the server's patience, as the next two do
def test_connections_on_which_no_head_comes(opened: Any) -> None:
    server = opened(timeout=1, token="t0k3n")
    heads = [b"", b"POST / HTTP/1.1\r\nHost: x\r\nX-A: ", b"POST /"]
    clients = [connected(server, sent) for sent in heads for _ in range(20)]
    none = [connected(server, b"\r\n\r\n") for _ in range(20)]
    assert server.post(b"1", Authorization="Bearer t0k3n")[0] == 202
    assert {ends(client) for client in clients} == {b""}
    for client in none:
        ends(client)


@pytest.mark.slow
def test_head_that_comes_byte_by_byte(opened: Any) -> None:
    server = opened(timeout=1)
    client = connected(server, b"POST / HTTP/1.1\r\nX-A: ")
    begun = time.monotonic()
    with client, suppress(OSError):
        while time.monotonic() < begun + 20:
            client.sendall(b"y")
            time.sleep(0.05)
    assert time.monotonic() < begun + 15


@pytest.mark.slow
def test_connection_that_is_kept_between_requests(opened: Any) -> None:
    server = opened(timeout=2)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
    client = connected(server, request)
    for _ in range(3):
        assert client.recv(1000).startswith(b"HTTP/1.1 202")
        time.sleep(0.8)  # in all longer than a head may take
        client.sendall(request)
    assert ends(client).startswith(b"HTTP/1.1 202")  # and closed, when no more comes
    assert len(server.reader.poll_batch(10)[0]) == 4


def test_more_connections_than_are_taken(opened: Any) -> None:
    server = opened(max_connections=3)
    clients = [connected(server, b"POST") for _ in range(3)]
    assert ends(connected(server, b"")) == b""
    clients.pop().close()
    wait_until(lambda: status_or_none(server) == 202, 20)
    for client in clients:
        client.close()


def status_or_none(server: Open) -> int | None:
    try:
        return int(server.post()[0])
    except OSError:
        return None


def test_malformed_requests_write_no_traceback(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = opened()
    caplog.set_level(logging.INFO)
    for sent in (b"nonsense\0\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"GET\r\n\r\n"):
        assert b" 400 " in ends(connected(server, sent))
    assert caplog.text == ""


@pytest.mark.parametrize(("encoding", "status"), [("zork", 415), ("gzip, gzip", 415), ("identity", 202)])
def test_encodings_of_bodies(encoding: str, status: int, opened: Any) -> None:
    server = opened()
    answer, _, headers = server.post(b"1", **{"Content-Encoding": encoding})
    assert answer == status
    assert status == 202 or headers["Accept-Encoding"] == "gzip, deflate, br, zstd"
    assert len(server.reader.poll_batch(10)[0]) == (status == 202)
