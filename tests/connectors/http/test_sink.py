"""Records sent to a URL: batches, retries, keys, refusals, secrets."""

from __future__ import annotations

import json
import math
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from malflow import DataMessage, SingleThreadRuntime
from malflow.connectors.http import HttpSink
from malflow.connectors.http.client import Client, HttpSinkError, target_of
from malflow.errors import GraphError, MalflowError
from malflow.sinks.transactional import SinkOwner
from malflow.sources import SingleIteratorSource

SECRET = "s3cr3t-t0ken"


@dataclass
class Server:
    """A server that answers as it is told: a status, headers and a body for each request; then 200."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes]] = field(default_factory=list)
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, _, body in self.requests]

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for _, headers, _ in self.requests]


@pytest.fixture
def server() -> Iterator[Server]:
    told = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.ports.append(self.client_address[1])
            told.requests.append((self.path, dict(self.headers), body))
            status, headers, answer = told.answers.pop(0) if told.answers else (200, {}, b"ok")
            if status <= 0:
                self.close_connection = True
                with suppress(OSError):
                    for _ in range(-status):  # a head that drips
                        self.wfile.write(b"H")
                        time.sleep(0.1)
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Print nothing: the client closes connections that it has not read to the end."""

    http = Quiet(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    told.url = f"http://127.0.0.1:{http.server_port}/hooks/{SECRET}"
    yield told
    http.shutdown()
    thread.join()
    http.server_close()


def send(sink: HttpSink[Any, Any, Any], *values: Any) -> None:
    sink.sink_batch([0] * len(values), values, [0] * len(values))
    sink.flush()
    sink.close()


def quick(sink: HttpSink[Any, Any, Any]) -> list[float]:
    """Replace the pauses of a sink by a list of them, which is returned."""
    pauses: list[float] = []
    sink._client._sleep = pauses.append
    return pauses


def test_batches_and_the_rest_at_the_end_of_a_tick(server: Server) -> None:
    send(HttpSink(server.url, batch=2), 1, "zwölf", None, {"a": [1]}, 5)
    assert server.bodies == [[1, "zwölf"], [None, {"a": [1]}], [5]]
    path, headers, _ = server.requests[0]
    assert (path, headers["Content-Type"]) == (f"/hooks/{SECRET}", "application/json")
    assert len(set(server.keys)) == 3


def test_encodings_headers_and_basic_authentication(server: Server) -> None:
    url = server.url.replace("http://", "http://me:hush@")
    send(HttpSink(url, encode="json-lines", headers={"X-Mine": "1"}), 1, 2)
    send(
        HttpSink(url, encode=lambda values: b"-".join(map(bytes, values)), headers={"content-type": "x/y"}), b"a", b"b"
    )
    assert [body for _, _, body in server.requests] == [b"1\n2\n", b"a-b"]
    first, second = (headers for _, headers, _ in server.requests)
    assert (first["Content-Type"], first["X-Mine"], first["Authorization"]) == (
        "application/x-ndjson",
        "1",
        "Basic bWU6aHVzaA==",
    )
    assert second["content-type"] == "x/y"


def test_formatter_gets_the_message(server: Server) -> None:
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, formatter=lambda msg: {"key": msg.key, "value": msg.value})
    sink.sink(DataMessage("Ulm", 3, 0))
    sink.flush()
    assert server.bodies == [[{"key": "Ulm", "value": 3}]]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 0])
@pytest.mark.slow
def test_request_repeated_with_its_key(server: Server, status: int) -> None:
    server.answers += [(status, {}, b"later")] * 3
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url)
    pauses = quick(sink)
    send(sink, 1)
    assert server.bodies == [[1]] * 4
    assert len(set(server.keys)) == 1
    assert [0.25 * 2**n <= pause <= 0.5 * 2**n for n, pause in enumerate(pauses)] == [True] * 3


def test_time_that_the_server_asks_for(server: Server) -> None:
    server.answers += [(429, {"Retry-After": "7"}, b""), (503, {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"")]
    server.answers += [(503, {"Retry-After": "86400"}, b"")]
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url)
    pauses = quick(sink)
    send(sink, 1)
    assert (pauses[0], pauses[2]) == (7.0, 300.0)
    assert 0 < pauses[1] <= 1


def test_refused_request_with_its_answer_shortened(server: Server) -> None:
    server.answers += [(422, {}, b"no such order \x00 " + b"x" * 1_000)]
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url)
    with pytest.raises(HttpSinkError, match=r"127.0.0.1:\d+/... answered 422 .*: no such order .* x{100}") as refused:
        send(sink, 1)
    assert (refused.value.status, len(server.requests)) == (422, 1)
    assert len(str(refused.value)) < 400
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.status) == (str(refused.value), 422)


def test_redirect_is_not_followed(server: Server) -> None:
    server.answers += [(302, {"Location": "http://127.0.0.1:1/"}, b"")]
    with pytest.raises(HttpSinkError, match=r"answered 302 .*; pass the URL that it redirects to"):
        send(HttpSink(server.url), 1)


def test_end_of_the_retries(server: Server) -> None:
    server.answers += [(503, {}, b"busy")] * 3
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, retries=2)
    quick(sink)
    with pytest.raises(HttpSinkError, match=r"answered 503 .*: busy, 3 times"):
        send(sink, 1)


def test_server_that_is_not_there() -> None:
    sink: HttpSink[Any, Any, Any] = HttpSink(f"http://127.0.0.1:1/{SECRET}", retries=1)
    quick(sink)
    with pytest.raises(HttpSinkError, match=r"http://127.0.0.1:1/... could not be reached: .*, 2 times"):
        send(sink, 1)


def test_value_that_is_no_json(server: Server) -> None:
    with pytest.raises(MalflowError, match=r"cannot send \{1, 2\}: it is not JSON"):
        send(HttpSink(server.url), 1, {1, 2})
    with pytest.raises(MalflowError, match=r"cannot send nan: it is not JSON"):
        send(HttpSink(server.url, encode="json-lines"), 1, math.nan)
    with pytest.raises(MalflowError, match=r"must return bytes; it returned 'text'"):
        send(HttpSink(server.url, encode=lambda values: "text"), 1)  # type: ignore[return-value, unused-ignore]
    assert server.requests == []


@pytest.mark.parametrize("status", [400, 503, 0])
def test_no_secret_in_an_error(server: Server, status: int, caplog: pytest.LogCaptureFixture) -> None:
    url = f"{server.url.replace('http://', 'http://me:hush-hush@')}?api_key=k3y-k3y"
    server.answers += [(status, {}, f"you sent {SECRET} hush-hush k3y-k3y b34r3r".encode())] * 2
    sink: HttpSink[Any, Any, Any] = HttpSink(url, retries=1, headers={"Authorization": "Bearer b34r3r"})
    quick(sink)
    with pytest.raises(HttpSinkError) as raised:
        send(sink, 1)
    shown = f"{raised.value} {raised.value!r} {sink!r} {sink._target!r} {caplog.text}"
    for secret in (SECRET, "hush-hush", "k3y-k3y", "b34r3r"):
        assert secret not in shown


def test_transactions_sent_with_the_same_keys_again(server: Server) -> None:
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=2, delivery="exactly-once")
    assert sink.fence(SinkOwner("job", "out", 1)) is None
    sink.abort([])
    sink.sink_batch([0] * 3, [1, 2, 3], [0] * 3)
    sink.flush()
    handle = sink.prepare(1)
    assert sink.prepare(2) is None
    assert server.requests == []
    assert handle is not None
    sink.commit([handle])
    heir: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=5, delivery="exactly-once")
    heir.fence(SinkOwner("job", "out", 2))
    heir.commit(pickle.loads(pickle.dumps([handle])))
    assert server.bodies == [[1, 2], [3]] * 2
    assert server.keys[:2] == server.keys[2:]
    assert len(set(server.keys)) == 2


def test_other_records_under_the_same_transaction_have_other_keys(server: Server) -> None:
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, delivery="exactly-once")
    for number in (1, 2):
        sink.fence(SinkOwner("job", "out", number))
        sink.sink_batch([0], [number], [0])
        sink.commit([sink.prepare(1) or ()])
    assert len(set(server.keys)) == 2


def test_large_response_is_not_read(server: Server) -> None:
    server.answers += [(200, {}, b"x" * 1_000_000)]
    send(HttpSink(server.url, batch=1), 1, 2)
    assert server.bodies == [[1], [2]]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Length": "10"}, b"shorter"),
        ({"Content-Encoding": "gzip"}, b"no gzip"),
        ({"Transfer-Encoding": "chunked", "Content-Length": "0"}, b"zz\r\n"),
    ],
)
def test_status_of_an_answer_whose_body_breaks_off(server: Server, headers: dict[str, str], body: bytes) -> None:
    server.answers += [(200, {"Connection": "close", **headers}, body), (400, {"Connection": "close", **headers}, body)]
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=1, timeout=0.2)
    quick(sink)
    with pytest.raises(HttpSinkError, match=r"answered 400"):
        send(sink, 1, 2)
    assert server.bodies == [[1], [2]]


def test_status_of_an_answer_whose_body_never_ends(server: Server) -> None:
    server.answers += [(202, {"Content-Length": "10"}, b"and"), (409, {"Content-Length": "10"}, b"you know why")]
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=1, timeout=0.2)
    quick(sink)
    with pytest.raises(HttpSinkError, match=r"answered 409 .*: you know"):
        send(sink, 1, 2)
    assert server.bodies == [[1], [2]]


@pytest.mark.slow
def test_head_of_an_answer_that_drips(server: Server) -> None:
    server.answers += [(-100, {}, b"")] * 2
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=1, timeout=0.5, retries=1)
    quick(sink)
    begun = time.monotonic()
    with pytest.raises(HttpSinkError, match=r"could not be reached: .*, 2 times"):
        send(sink, 1)
    assert time.monotonic() - begun < 18  # two would take twenty


def test_connection_used_again(server: Server) -> None:
    server.answers += [(200, {}, b""), (200, {}, b"x" * 200_000), (503, {"Retry-After": "Mon, 01 +9999999999999"}, b"")]
    sink: HttpSink[Any, Any, Any] = HttpSink(server.url, batch=1)
    pauses = quick(sink)
    send(sink, 1, 2, 3, 4)
    assert (server.bodies, len(pauses)) == ([[1], [2], [3], [3], [4]], 1)
    assert server.ports[0] == server.ports[1] != server.ports[2] == server.ports[4]


def test_server_that_goes_away_in_a_tls_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            for _ in range(2):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)

        thread = threading.Thread(target=hang_up)
        thread.start()
        sink: HttpSink[Any, Any, Any] = HttpSink(f"https://127.0.0.1:{listener.getsockname()[1]}/", retries=1)
        quick(sink)
        with pytest.raises(HttpSinkError, match=r"could not be reached: .*, 2 times"):
            send(sink, 1)
        thread.join()


def test_dataflow_into_a_server(server: Server) -> None:
    SingleThreadRuntime(
        lambda provider: (
            provider.new_stream().source("numbers", SingleIteratorSource(range(250))).sink("out", HttpSink(server.url))
        )
    ).execute()
    assert [number for body in server.bodies for number in body] == list(range(250))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "ftp://x"}, "url must be one such as https"),
        ({"url": "http://"}, "url must be one such as https"),
        ({"batch": 0}, "batch must be a whole number, at least 1"),
        ({"retries": -1}, "retries must be a whole number, at least 0"),
        ({"timeout": 0}, "timeout must be a time above zero"),
        ({"encode": "xml"}, "encode must be 'json', 'json-lines' or a plain function"),
        ({"delivery": "once"}, "delivery must be"),
        ({"headers": {"idempotency-key": "1"}}, "sets the header Idempotency-Key"),
        ({"headers": {"X-Api-Key": None}}, "header 'X-Api-Key' must be a text; got NoneType"),
        ({"headers": {"X Y": "1"}}, "headers have the invalid name 'X Y'"),
        ({"headers": [("X", "1")]}, "headers must be a mapping of names to texts; got list"),
        ({"url": b"http://x"}, "url must be one such as https"),
        ({"method": "PO ST"}, "method must be an HTTP method, such as 'POST'; got 'PO ST'"),
        ({"timeout": math.inf}, "timeout must be a time above zero, .*; got inf"),
        ({"settings": {"certs": "x"}}, "settings are not valid for urllib3.PoolManager: .*'certs'"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        HttpSink(**{"url": "http://127.0.0.1/", **options})


def test_token_with_the_line_break_of_its_file() -> None:
    with pytest.raises(GraphError, match=r"header 'Authorization' has a line break, .* strip\(\) it") as raised:
        HttpSink("http://127.0.0.1/", headers={"Authorization": f"Bearer {SECRET}\n"})
    assert SECRET not in f"{raised.value!r} {raised.value.__cause__!r}"


def test_client_without_its_connection_in_pickles(server: Server) -> None:
    client = Client(target_of(server.url, {}), "POST", 0, 5.0, {})
    client.send(b"1", {})
    pickle.loads(pickle.dumps(client)).send(b"2", {})
    assert [body for _, _, body in server.requests] == [b"1", b"2"]
