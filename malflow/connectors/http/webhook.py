"""A source that is a web server: each request is a record."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from aiohttp import web

from malflow.checks import check_choice, check_choice_or_function, check_name, check_whole_number
from malflow.connectors.http.inbox import Inbox
from malflow.connectors.options import checked_timeout
from malflow.connectors.web_server.addresses import Place, is_loopback
from malflow.connectors.web_server.server import Limits, WebServer
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.message import NoKey, NoKeyType
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition

__all__ = ["WebhookError", "WebhookSource"]

Decode: TypeAlias = Literal["json", "text", "bytes"] | Callable[[bytes], Any]
OnFull: TypeAlias = Literal["429", "503", "wait"]
Acknowledge: TypeAlias = Literal["queue", "snapshot"]

_LOG = logging.getLogger("malflow")
_DECODERS: dict[str, Callable[[bytes], Any]] = {"json": json.loads, "text": bytes.decode, "bytes": bytes}
_NO_PATH = frozenset("{}?#%")
_ENCODINGS = ("identity", "gzip", "deflate", "br", "zstd")
"""Encodings that a body may have; aiohttp refuses those whose library is not installed."""

_HEAD_SECONDS = 15.0
"""The most seconds for the head of a request, and for an idle connection. Less drops slow senders, more lets silent
clients hold connections."""

_SHORT_WAIT = 0.02
"""The seconds between two tries to put a body into a full inbox: short for its sender. Half of it tries twice as often,
double delays waiting senders."""

_MOST = 1 << 62
"""The highest limit of an option: beyond any memory, and sums of limits stay within 64 bits."""


class WebhookError(MalflowError, OSError):
    """The server of a source could not be started."""


@dataclass(frozen=True, slots=True)
class _Options:
    host: str
    port: int
    path: str
    token: bytes | None = field(repr=False)
    decode: Callable[[bytes], Any]
    on_full: OnFull
    acknowledge: Acknowledge
    timeout: float
    max_body: int
    max_connections: int


class WebhookSource(StatefulSourceImpl[NoKeyType, Any, datetime, int]):
    """Emit the body of each POST request, with the time of its arrival (in UTC) as timestamp and without a key.

    The server runs in a thread of this process while the source is read, for `SingleThreadRuntime`. Requests wait in a
    bounded queue. A body that can't be decoded is answered with 400, one that is too long with 413, a wrong token with
    401.

    With ``acknowledge="queue"``, a request is answered (202) once its record is in the queue: if the process dies,
    records that are in no snapshot are lost. With ``"snapshot"``, it is answered (200) once a snapshot that covers its
    record is durable, or with 503 if the run ends first. A sender that repeats unaccepted requests loses nothing
    (delivery at least once), and waits for about the interval of snapshots.

    Args:
        host: the address to listen on. Any other than loopback needs a token.
        port: the port; 0 for any free port, see `address`.
        path: the path of requests; other paths are answered with 404.
        token: the token that requests must have as ``Authorization: Bearer <token>``.
        decode: ``"json"``, ``"text"``, ``"bytes"``, or a function of the body.
        max_queue: the maximum number of records in the queue, including those that wait to be acknowledged.
        max_queue_bytes: the maximum size of their bodies, in bytes.
        max_body: the maximum size of a body, in bytes.
        on_full: the answer when the queue is full: ``"429"`` or ``"503"``, with ``Retry-After: 1``; or ``"wait"`` for
            room, up to `timeout`.
        acknowledge: see above.
        timeout: how long a request waits at most before it is answered with 503; or with 408, if its body has
            not arrived. A connection without a complete head is closed after the same time, or 15 seconds if that is
            less.
        max_connections: the maximum number of open connections, limited to a third of the process's file descriptors;
            further ones are closed at once.

    Raises:
        GraphError: if an argument is not valid.
    """

    keyed = False
    in_one_process = True

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        path: str = "/",
        token: str | None = None,
        decode: Decode = "json",
        max_queue: int = 10_000,
        max_queue_bytes: int = 64 << 20,
        max_body: int = 1 << 20,
        on_full: OnFull = "429",
        acknowledge: Acknowledge = "queue",
        timeout: Duration = 60.0,
        max_connections: int = 1000,
    ) -> None:
        _check_place(host, port, path, token)
        me = "WebhookSource"
        limits = {"max_queue": max_queue, "max_queue_bytes": max_queue_bytes, "max_body": max_body}
        for name, limit in {**limits, "max_connections": max_connections}.items():
            check_whole_number(me, name, limit, most=_MOST)
        seconds = checked_timeout(me, timeout)
        check_choice(me, "on_full", on_full, ("429", "503", "wait"))
        check_choice(me, "acknowledge", acknowledge, ("queue", "snapshot"))
        check_choice_or_function(me, "decode", decode, tuple(_DECODERS))
        decoder = decode if callable(decode) else _DECODERS[decode]
        secret = None if token is None else token.encode()
        self._options = _Options(
            host, port, path, secret, decoder, on_full, acknowledge, seconds, max_body, max_connections
        )
        self._limits = (max_queue, max_queue_bytes)
        self._inbox = Inbox(*self._limits)
        self._server: _Server | None = None

    @property
    def address(self) -> str | None:
        """The URL of the server; None if it does not run in this process."""
        return None if self._server is None else self._server.address

    def list_parts(self) -> list[NoKeyType]:
        """Return the only part, `NoKey`."""
        return [NoKey]

    def build_part(self, part: NoKeyType, state: int | None) -> _WebhookPartition:
        """Start the server.

        Raises:
            WebhookError: if the server can't listen on the address.
        """
        del part
        self._inbox.taken = max(self._inbox.taken, state or 0)
        self._server = _Server(self._options, self._inbox)
        return _WebhookPartition(self._inbox, self._server)

    def __repr__(self) -> str:
        options = self._options
        return f"WebhookSource({options.host!r}, {options.port}, path={options.path!r})"

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the server and its queue."""
        return {**vars(self), "_inbox": None, "_server": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin with an empty queue."""
        self.__dict__.update(state)
        self._inbox = Inbox(*self._limits)


class _WebhookPartition(StatefulSourcePartition[Any, datetime, int]):
    """The queue of a server; the position is the number of records taken from it."""

    def __init__(self, inbox: Inbox, server: _Server) -> None:
        self._inbox = inbox
        self._server = server

    def poll(self) -> tuple[Any, datetime] | None:
        """Return the next record."""
        values, times = self._inbox.take(1)
        return (values[0], times[0]) if values else None

    def poll_batch(self, limit: int) -> tuple[Sequence[Any], Sequence[datetime]]:
        """Return the waiting records."""
        return self._inbox.take(limit)

    def is_finished(self) -> bool:
        """Whether there will be no more records: never."""
        return False

    def snapshot(self) -> int:
        """Return the number of records taken."""
        return self._inbox.taken

    def committed(self, state: int) -> None:
        """Answer requests that a durable snapshot covers."""
        self._inbox.settle(state)

    def lag(self) -> int:
        """Return the number of records in the queue."""
        return len(self._inbox)

    def suspend(self) -> None:
        """Stop the server; waiting records are kept, for a later run in this process."""
        self._server.stop()
        if len(self._inbox):
            _LOG.warning("%s stops with %d accepted records that were not read", self._server, len(self._inbox))


class _Server:
    """A web server that puts the bodies of requests into an inbox."""

    def __init__(self, options: _Options, inbox: Inbox) -> None:
        self._options = options
        self._inbox = inbox
        app = web.Application(client_max_size=options.max_body)
        app.router.add_post(options.path, self._receive)
        seconds = min(options.timeout, _HEAD_SECONDS)
        try:
            self._web = WebServer(
                app,
                Place(options.host, options.port),
                Limits(options.max_connections, seconds, seconds),
                name="malflow webhook",
                on_stop=inbox.give_up,  # from now on nothing is accepted
            )
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise WebhookError(f"no server can listen at {options.host}:{options.port}: {reason}") from error
        self.address = f"http://{self._web.place}{options.path}"

    def stop(self) -> None:
        """Refuse further requests, answer the waiting ones, and stop. A second call does nothing."""
        self._web.stop()

    def __repr__(self) -> str:
        return f"the webhook at {self.address}"

    async def _receive(self, request: web.Request) -> web.Response:
        if not self._is_allowed(request.headers.get("Authorization", "")):
            return web.Response(status=401, text="wrong or missing token", headers={"WWW-Authenticate": "Bearer"})
        if request.headers.get("Content-Encoding", "identity").strip().lower() not in _ENCODINGS:
            accepted = {"Accept-Encoding": ", ".join(_ENCODINGS[1:])}
            return _closing(415, "the Content-Encoding is not supported", accepted)
        deadline = self._web.loop.time() + self._options.timeout
        try:
            async with asyncio.timeout_at(deadline):
                body = await request.read()
        except TimeoutError:
            return _closing(408, "the body did not arrive in time")
        except (web.RequestPayloadError, ConnectionError) as error:
            return _closing(400, f"the body can't be read: {type(error).__name__}")
        try:
            value = self._options.decode(body)
        except Exception as error:  # noqa: BLE001 - a function of the user's; the sender is at fault
            return web.Response(status=400, text=f"the body can't be decoded: {type(error).__name__}")
        settled: asyncio.Future[bool] | None = None
        if self._options.acknowledge == "snapshot":
            settled = self._web.loop.create_future()
        if not await self._accepted(value, len(body), settled, deadline):
            return self._refusal()
        return web.Response(status=202) if settled is None else await self._answer(settled, deadline)

    async def _accepted(self, value: Any, size: int, settled: asyncio.Future[bool] | None, deadline: float) -> bool:
        settle = None if settled is None else self._settler(settled)
        while not self._web.is_stopping:
            if self._inbox.offer(value, size, settle):
                return True
            if self._options.on_full != "wait" or self._web.loop.time() >= deadline:
                return False
            await asyncio.sleep(_SHORT_WAIT)
        return False

    def _settler(self, settled: asyncio.Future[bool]) -> Callable[[bool], object]:
        def set_result(durable: bool) -> None:
            if not settled.done():
                settled.set_result(durable)

        def settle(durable: bool) -> None:
            with suppress(RuntimeError):  # the server has stopped, and its loop is closed
                self._web.loop.call_soon_threadsafe(set_result, durable)

        return settle

    async def _answer(self, settled: asyncio.Future[bool], deadline: float) -> web.Response:
        try:
            durable = await asyncio.wait_for(settled, max(0.0, deadline - self._web.loop.time()))
        except TimeoutError:
            durable = False
        return (
            web.Response(status=200) if durable else web.Response(status=503, text="not in a snapshot; send it again")
        )

    def _refusal(self) -> web.Response:
        stopping = self._web.is_stopping
        status = 503 if stopping or self._options.on_full == "wait" else int(self._options.on_full)
        text = "the run ends" if stopping else "the queue is full"
        return web.Response(status=status, text=text, headers={"Retry-After": "1"})

    def _is_allowed(self, authorization: str) -> bool:
        token = self._options.token
        if token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        sent = given.strip().encode("utf-8", "surrogateescape")
        return hmac.compare_digest(sent, token) and scheme.lower() == "bearer"


def _closing(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer after which the connection is closed."""
    response = web.Response(status=status, text=text, headers=headers)
    response.force_close()
    return response


def _check_place(host: str, port: int, path: str, token: str | None) -> None:
    check_name("WebhookSource", "host", host, "an address")
    check_whole_number("WebhookSource", "port", port, least=0, most=65535)
    shown = path.partition("?")[0] if isinstance(path, str) else path  # a query may contain secrets
    if not isinstance(path, str) or not path.startswith("/") or not _NO_PATH.isdisjoint(path):
        raise GraphError(f"WebhookSource path must begin with a slash, without any of {{}}?#%; got {shown!r}")
    if token is not None and (not isinstance(token, str) or not token or token != token.strip()):
        raise GraphError(
            f"WebhookSource token must be a text that is not empty, without white space around it; got a "
            f"{type(token).__name__}"
        )
    if token is None and not is_loopback(host):
        raise GraphError(
            f"WebhookSource would accept requests from other machines at {host!r} without a token; pass token=, or "
            "host='127.0.0.1'"
        )
