"""Send requests, and retry each until the server accepts it or rejects it for good."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError, SSLError
from urllib3.util import parse_url

from malflow.errors import GraphError, MalflowError
from malflow.store.redaction import is_secret_name, redacted, secrets_in
from malflow.words import cut, error_line, short_repr

__all__ = ["Client", "HttpSinkError", "Target", "checked_headers", "target_of"]

_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_ABOUT_ALL = frozenset({401, 402, 403, 404, 405, 406, 407, 408, 410, 411, 415, 421, 425, 426, 429, 431, 451})
"""The statuses of clients' faults that are about all requests, or may pass, rather than about the records of one."""

_SUCCESS, _REDIRECTION, _CLIENT = 2, 3, 4
_SHOWN = 200
"""The most characters of a server's answer in a message: some lines, enough for its reason. More would bring whole
error pages into logs."""

_LONG_ENOUGH = 8
"""The least characters of a path's segment to hide as a secret. Fewer hide ordinary words such as `events` in all
messages, more show short tokens."""

_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NO_HEADER = re.compile(r"[\r\n\0]|[^\x00-\xff]")
_READ = 1 << 16
"""The bytes to read at once, and the most to read of a body of no use. Half of it reuses fewer connections after long
answers, double reads more for nothing."""

_FIRST_PAUSE = 0.5
"""The most seconds before the first retry; each pause is double the previous one. Half of it strains an overloaded
server more, double delays records after a short fault."""

_LONGEST_PAUSE = 60.0
"""The longest pause between retries in seconds. Half of it asks a server without an answer twice as often, double
notices its return up to a minute later."""

_LONGEST_RETRY_AFTER = 300.0
"""The longest wait in seconds at a server's request. Less ignores real rate limits, more lets a wrong header hold up
the run."""


class HttpSinkError(MalflowError, OSError):
    """A server rejected a request, or could not be reached.

    Attributes:
        target: the server.
        status: the HTTP status; None if there was no response.
        problem: the cause.
    """

    def __init__(self, target: str, status: int | None, problem: str) -> None:
        super().__init__(f"{target} {problem}")
        self.target = target
        self.status = status
        self.problem = problem
        self.refuses_records = status is not None and status // 100 == _CLIENT and status not in _ABOUT_ALL


@dataclass(frozen=True, slots=True)
class Target:
    """The target of requests. The repr shows only the server, since paths and headers contain secrets.

    Attributes:
        url: the URL without userinfo.
        shown: the server, for messages.
        headers: headers of each request.
        secrets: texts that no message may show.
    """

    url: str = field(repr=False)
    shown: str
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)


def target_of(url: str, headers: Mapping[str, str], asked_by: str = "HttpSink") -> Target:
    """Return the target of a URL; its userinfo becomes a header.

    Raises:
        GraphError: if it is not an HTTP URL.

    >>> target_of("https://me:hush@example.org/hooks/T0k3n", {})
    Target(shown='https://example.org/...')
    """
    try:
        parsed = parse_url(url if isinstance(url, str) else "")
    except LocationParseError:
        parsed = parse_url("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        got = "" if isinstance(url, str) else f"; got a {type(url).__name__}"  # a text may contain secrets
        raise GraphError(f"{asked_by} url must be one such as https://example.org/orders{got}")
    sent = dict(headers)
    if parsed.auth is not None:
        sent = {"Authorization": _basic(unquote(parsed.auth)), **sent}
    path = "/..." if (parsed.path or "/") != "/" or parsed.query else ""
    shown = f"{parsed.scheme}://{parsed.netloc}{path}"
    secrets = [value for name, value in sent.items() if is_secret_name(name)]
    secrets += [word for value in tuple(secrets) for word in value.split()[1:]]
    secrets += [*secrets_in({}, url), *_segments(parsed.path or ""), parsed.query or ""]
    return Target(parsed._replace(auth=None, fragment=None).url, shown, sent, tuple(filter(None, secrets)))


def checked_headers(headers: Any, asked_by: str = "HttpSink") -> dict[str, str]:
    """Return headers that can be sent; the error does not show a value."""
    if not isinstance(headers, Mapping):
        raise GraphError(f"{asked_by} headers must be a mapping of names to texts; got {type(headers).__name__}")
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise GraphError(f"{asked_by} headers have the invalid name {short_repr(name)}")
        if not isinstance(value, str):
            raise GraphError(f"{asked_by} header '{name}' must be a text; got {type(value).__name__}")
        if _NO_HEADER.search(value):
            raise GraphError(
                f"{asked_by} header '{name}' has a line break, or a character that is not Latin-1; if it was read from "
                "a file, strip() it"
            )
    return dict(headers)


def _basic(userinfo: str) -> str:
    raw = userinfo.encode("utf-8" if _NO_HEADER.search(userinfo) else "latin-1")
    return f"Basic {b64encode(raw).decode()}"


def _segments(path: str) -> list[str]:
    """Return the segments of a path that may be secrets."""
    return [segment for segment in path.split("/") if len(segment) >= _LONG_ENOUGH]


class _Bounded(HTTPConnection):
    """A connection with one timeout for the whole head of a response; otherwise each byte would restart it."""

    def getresponse(self) -> Any:
        """Return the response once its head has arrived."""
        if not isinstance(self.timeout, int | float):
            return super().getresponse()
        timer = threading.Timer(self.timeout, _shut, (self.sock,))
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()
        finally:
            timer.cancel()


class _Secure(_Bounded, HTTPSConnection):
    """The same, over TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Bounded


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


def _shut(sock: socket.socket) -> None:
    """Shut down a connection on which another thread waits."""
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


class _Answer(NamedTuple):
    """The outcome of a request.

    Attributes:
        status: of the response; None if there was none.
        problem: None if the request was accepted.
        wait: seconds until a retry; 0: as usual, None: no retry.
        text: the body of the response, if it was accepted.
    """

    status: int | None
    problem: str | None
    wait: float | None
    text: bytes = b""


class Client:
    """Send requests to one target, one after the other.

    Args:
        target: the target.
        method: the HTTP method.
        retries: how often to retry a request.
        timeout: seconds to wait for a connection, and for the whole head of the response.
        settings: arguments of `urllib3.PoolManager`.
        sleep: sleeps for a number of seconds.
        largest: the maximum size in bytes of a response that is returned whole; 0 if only the status counts.
        asked_by: the class that uses it, for messages.

    Raises:
        GraphError: if the method or a setting is invalid.
    """

    def __init__(
        self,
        target: Target,
        method: str,
        retries: int,
        timeout: float,
        settings: Mapping[str, Any],
        sleep: Callable[[float], object] = time.sleep,
        *,
        largest: int = 0,
        asked_by: str = "HttpSink",
    ) -> None:
        self._target = target
        self._largest = largest
        self._method = method
        self._retries = retries
        self._timeout = timeout
        self._settings = dict(settings)
        self._sleep = sleep
        self._pool: urllib3.PoolManager | None = None
        self._process = 0
        if not isinstance(method, str) or not _TOKEN.fullmatch(method):
            raise GraphError(f"{asked_by} method must be an HTTP method, such as 'POST'; got {method!r}")
        try:
            self._new_pool().connection_from_url(target.url)
        except TypeError as error:
            said = re.sub(r"'key_(\w+)'", r"'\1'", str(error))
            raise GraphError(f"{asked_by} settings are not valid for urllib3.PoolManager: {said}") from None

    def send(self, body: bytes | None, headers: Mapping[str, str], url: str | None = None) -> bytes:
        """Send a request until it is accepted; return the body of the response.

        Args:
            body: the body of the request, if it has one.
            headers: headers besides the target's own.
            url: a URL of the target's server, instead of the target.

        Raises:
            HttpSinkError: if the server rejects it, or has not accepted it after all retries.
        """
        for attempt in range(self._retries + 1):
            status, problem, wait, text = self._try(body, headers, url or self._target.url)
            if problem is None:
                return text
            if wait is None or attempt == self._retries:
                break
            self._sleep(wait if wait else _pause(attempt))
        tries = f", {attempt + 1} times" if attempt else ""
        raise HttpSinkError(self._target.shown, status, redacted(f"{problem}{tries}", self._target.secrets))

    def close(self) -> None:
        """Close the connection."""
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _try(self, body: bytes | None, headers: Mapping[str, str], url: str) -> _Answer:
        """Send a request once."""
        try:
            response = self._opened().request(
                self._method,
                url,
                body=body,
                headers={**self._target.headers, **headers},
                retries=False,
                redirect=False,
                timeout=self._timeout,
                preload_content=False,
            )
        except SSLError as error:
            if isinstance(error.args[0] if error.args else None, _LOST):
                return _Answer(None, f"could not be reached: {error}", 0.0)
            return _Answer(None, f"has no valid certificate: {error}", None)
        except HTTPError as error:
            return _Answer(None, f"could not be reached: {error_line(error)}", 0.0)
        kind = response.status // 100
        if kind == _SUCCESS and self._largest:
            return self._whole(response)
        text = self._read(response)
        if kind == _SUCCESS:
            return _Answer(response.status, None, None, text)
        said = text.decode("utf-8", "replace").strip()
        shown = cut(said, _SHOWN)
        problem = f"answered {response.status} {response.reason or ''}".rstrip() + (f": {shown}" if shown else "")
        if response.status in _TRANSIENT:
            return _Answer(response.status, problem, _retry_after(response.headers.get("Retry-After")))
        if kind == _REDIRECTION:
            problem += "; pass the URL that it redirects to"
        return _Answer(response.status, problem, None)

    def _whole(self, response: urllib3.BaseHTTPResponse) -> _Answer:
        """Return the whole body of a response; it is a problem if it breaks off, is late or too large."""
        pieces: list[bytes] = []
        size, deadline = 0, time.monotonic() + self._timeout
        try:
            while size <= self._largest and time.monotonic() < deadline:
                piece = response.read1(_READ)
                if not piece:
                    response.release_conn()
                    return _Answer(response.status, None, None, b"".join(pieces))
                pieces.append(piece)
                size += len(piece)
        except HTTPError as error:
            response.close()
            return _Answer(response.status, f"broke off its response: {error_line(error)}", 0.0)
        response.close()
        if size > self._largest:
            return _Answer(response.status, f"answered more than {self._largest:,} bytes", None)
        return _Answer(response.status, f"had not sent its response after {self._timeout:g} s", 0.0)

    def _read(self, response: urllib3.BaseHTTPResponse) -> bytes:
        """Return the beginning of a body. Only the status counts: the body may break off, be damaged or be slow."""
        text, deadline = b"", time.monotonic() + self._timeout
        try:
            while len(text) < _READ and time.monotonic() < deadline:
                piece = response.read1(_READ)
                text += piece
                if response.closed:
                    response.release_conn()
                    return text
                if not piece:
                    break
        except HTTPError:
            pass
        response.close()
        return text

    def _opened(self) -> urllib3.PoolManager:
        if self._pool is None or self._process != os.getpid():
            self._pool, self._process = self._new_pool(), os.getpid()
        return self._pool

    def _new_pool(self) -> urllib3.PoolManager:
        pool = urllib3.PoolManager(num_pools=1, maxsize=1, **self._settings)
        pool.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
        return pool

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the connection."""
        return {**vars(self), "_pool": None}


def _pause(attempt: int) -> float:
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - jitter


def _retry_after(header: str | None) -> float:
    """Return the seconds that a server asks to wait, at most 300; 0 if it doesn't say.

    >>> _retry_after("7"), _retry_after("86400"), _retry_after("soon"), _retry_after(None)
    (7.0, 300.0, 0.0, 0.0)
    """
    if header is None:
        return 0.0
    try:
        seconds = float(header) if header.strip().isdigit() else _seconds_until(parsedate_to_datetime(header))
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return max(0.0, min(_LONGEST_RETRY_AFTER, seconds))


def _seconds_until(when: datetime) -> float:
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time()
