"""An S3 server that fails on demand, over real HTTP connections: one in this process, or another behind a proxy."""

from __future__ import annotations

import io
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from http.client import HTTPConnection
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

import s3fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.kit.faults import ArmedFaults, Fault
from tests.kit.s3_clients import share_files

share_files()

_ANSWERS = {
    "error_before": ("500 Internal Server Error", "InternalError", "We encountered an internal error."),
    "error_after": ("500 Internal Server Error", "InternalError", "We encountered an internal error."),
    "throttled": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "409": ("409 Conflict", "ConditionalRequestConflict", "A conflicting operation is in progress."),
    "412_without_condition": ("412 Precondition Failed", "PreconditionFailed", "A precondition did not hold."),
    "403": ("403 Forbidden", "AccessDenied", "Access Denied"),
    "expired": ("400 Bad Request", "ExpiredToken", "The provided token has expired."),
    "501": ("501 Not Implemented", "NotImplemented", "A header you provided is not implemented."),
    "404_without_code": ("404 Not Found", "", ""),
}
_BUCKETS = count(1)


class Request(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    query: str


class QuietHandler(MotoRequestHandler):
    """Writes no log."""

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - werkzeug's name
        pass


class FaultyS3:
    """A moto server, or another S3 server, and faults in front of it.

    Kinds of fault, beside those of `tests.kit.faults.Fault`:

    - ``error_before`` (500, nothing done), ``error_after`` (done, then 500), ``throttled`` (503, nothing done);
    - ``409``, ``412_without_condition``, ``403``, ``expired``, ``501``, ``404_without_code`` (answered so, not done);
    - ``delay`` (waits `seconds`, then does it), ``late`` (waits until `release` is called, then does it);
    - ``reset_before``, ``reset_after`` (drops the connection, before or after it is done), ``truncate`` (does it, and
      drops the connection in the middle of the body), ``trickle`` (answers a bit now and then, and never all).

    Args:
        port: the port, or 0 for any.
        upstream: the options that lead to another server; by default moto is in this process.

    Attributes:
        endpoint: its URL.
        bucket: a bucket that nobody else uses.
        requests: what was asked, in its order.
    """

    def __init__(self, port: int = 0, upstream: dict[str, Any] | None = None) -> None:
        self._upstream = upstream
        self._app = DomainDispatcherApplication(create_backend_app) if upstream is None else _proxy_of(upstream)
        self._server = make_server("127.0.0.1", port, self._serve, threaded=True, request_handler=QuietHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._faults = ArmedFaults()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.bucket = f"bucket{next(_BUCKETS)}-{uuid4().hex[:8]}"
        self.requests: list[Request] = []
        self._released = threading.Event()
        self._plain: Any = None

    def __enter__(self) -> FaultyS3:
        self._thread.start()
        self.filesystem().mkdir(self.bucket)
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def options(self) -> dict[str, Any]:
        """The `storage_options` that lead here."""
        credentials = self._upstream or {"key": "an-access-key", "secret": "a-secret-key"}
        return {**credentials, "client_kwargs": {"endpoint_url": self.endpoint}}

    def filesystem(self) -> Any:
        """A plain s3fs, to look behind the store under test."""
        if self._plain is None:
            self._plain = s3fs.S3FileSystem(**self.options, skip_instance_cache=True, use_listings_cache=False)
        return self._plain

    @property
    def fired(self) -> int:
        """How many faults happened."""
        return len(self._faults.fired)

    def inject(
        self,
        kind: str,
        method: str = "PUT",
        path_contains: str = "",
        times: int = 1,
        *,
        nth: int = 0,
        seconds: float = 0,
        message: str = "",
    ) -> None:
        """Make the next requests of this kind fail; `message` is the server's."""
        assert kind in (*_ANSWERS, "delay", "late", "reset_before", "reset_after", "truncate", "trickle"), kind
        with self._lock:
            self._faults.arm(Fault(kind, method, path_contains, nth, times, seconds=seconds, message=message))

    def release(self) -> None:
        """Release the requests that are held."""
        self._released.set()

    def reset(self) -> None:
        """Forget requests and faults."""
        self._released.set()
        self._released = threading.Event()
        with self._lock:
            self.requests.clear()
            self._faults = ArmedFaults()

    def count(self, method: str, path_contains: str = "") -> int:
        """Count the requests."""
        return sum(request.method == method and path_contains in request.path for request in self.requests)

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        request = Request(environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"])
        fault = self._next_fault(request)
        if fault is None:
            return self._do(environ, start_response)
        if fault.kind in ("delay", "late"):
            time.sleep(fault.seconds)
            assert fault.kind == "delay" or self._released.wait(60)
            return self._do(environ, start_response)
        if fault.kind == "trickle":
            _trickle(environ)
        if fault.kind == "reset_before":
            _drop(environ)
        if fault.kind == "truncate":
            return _half(self._do(environ, start_response), environ)
        if fault.kind.endswith("_after"):
            self._do(environ, lambda *_: None)
        if fault.kind == "reset_after":
            _drop(environ)
        status, code, message = _ANSWERS[fault.kind]
        body = f"<Error><Code>{code}</Code><Message>{fault.message or message}</Message></Error>" if code else ""
        start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body.encode())))])
        return [body.encode()]

    def _do(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self._upstream is not None:
            return self._app(environ, start_response)
        with self._one_at_a_time:  # moto looks before it writes
            return list(self._app(environ, start_response))

    def _next_fault(self, request: Request) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            return self._faults.take(request.method, request.path)


def _proxy_of(options: dict[str, Any]) -> Callable[[dict[str, Any], Any], list[bytes]]:
    """Return an application that passes requests on, signed as they are."""
    host, _, port = options["client_kwargs"]["endpoint_url"].removeprefix("http://").partition(":")

    def serve(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        headers = {
            name[5:].replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_") and name not in ("HTTP_CONNECTION", "HTTP_EXPECT")
        }
        if environ.get("CONTENT_TYPE"):
            headers["content-type"] = environ["CONTENT_TYPE"]
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        with closing(HTTPConnection(host, int(port), timeout=60)) as connection:
            connection.request(environ["REQUEST_METHOD"], environ["REQUEST_URI"], body, headers)
            response = connection.getresponse()
            own = ("connection", "date", "keep-alive", "server", "transfer-encoding")
            kept = [(name, value) for name, value in response.getheaders() if name.lower() not in own]
            start_response(f"{response.status} {response.reason}", kept)
            return [response.read()]

    return serve


def _half(body: Iterable[bytes], environ: dict[str, Any]) -> Iterable[bytes]:
    data = b"".join(body)
    yield data[: len(data) // 2]
    _drop(environ)


def _trickle(environ: dict[str, Any]) -> None:
    with suppress(OSError):
        for _ in range(300):
            environ["werkzeug.socket"].sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.05)
    _drop(environ)


def _drop(environ: dict[str, Any]) -> None:
    """Break the connection, as a router does."""
    connection = environ["werkzeug.socket"]
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError
