"""Limit a web server's connections that have not sent a request: their number, time and log messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["LOG", "Guard", "connection_limits"]

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LOG = logging.getLogger("malflow.http")
_KEPT, _KEPT_AT_ONCE = 3, 32
"""The shares of the process's file descriptors for connections, as divisors; snapshots need the others."""

_AT_ONCE = 128
"""The most connections to accept at once: the usual backlog of servers. Half of it refuses more of a burst, double
needs more file descriptors for it."""


def connection_limits(wanted: int) -> tuple[int, int]:
    """Return the number of connections that may be open, and the number that are accepted at once.

    Connections that are accepted at once are open before the server can refuse one.
    """
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return wanted, _AT_ONCE
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return wanted, _AT_ONCE
    return max(1, min(wanted, files // _KEPT)), max(1, min(_AT_ONCE, files // _KEPT_AT_ONCE))


class Guard:
    """Create the protocols of a server's connections.

    Args:
        make: creates aiohttp's protocol.
        most: the number of connections that may be open; further ones are closed at once.
        head_seconds: how long the head of the first request may take, counted from the connection.
        idle_seconds: how long an answer and the head of the next request may take together.
        makes_room: whether the connection that has waited longest for a head is closed to make room for a new one.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        most: int,
        head_seconds: float,
        idle_seconds: float,
        *,
        makes_room: bool = False,
    ) -> None:
        self._make, self._most, self._makes_room = make, most, makes_room
        self._head_seconds, self._idle_seconds = head_seconds, idle_seconds
        self._open: dict[asyncio.Protocol, _Guarded] = {}

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return _Guarded(self, self._make(), self._head_seconds)

    @web.middleware
    async def heard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Stop the wait for a head while a request is processed."""
        guarded = self._open.get(request.protocol)
        if guarded is not None:
            guarded.end_wait()
        try:
            return await handler(request)
        finally:
            if guarded is not None:
                guarded.begin_wait(self._idle_seconds)

    @property
    def descriptors(self) -> list[int]:
        """The file descriptors of the open connections."""
        return [it.descriptor for it in [*self._open.values()]]

    def admits(self, inner: asyncio.Protocol, guarded: _Guarded) -> bool:
        """Whether there is room for a connection; if so, count it."""
        if len(self._open) >= self._most:
            waiting = [it for it in self._open.values() if it.waits] if self._makes_room else []
            if not waiting:
                return False
            min(waiting, key=lambda it: it.since).abort()
        self._open[inner] = guarded
        return True

    def forget(self, inner: asyncio.Protocol) -> None:
        """Note that a connection has ended."""
        self._open.pop(inner, None)


class _Guarded(asyncio.Protocol):
    """aiohttp's protocol of a connection. It is closed if no request arrives."""

    def __init__(self, guard: Guard, inner: asyncio.Protocol, seconds: float) -> None:
        self._guard, self._inner, self._seconds = guard, inner, seconds
        self._transport: asyncio.Transport | None = None
        self._due: asyncio.TimerHandle | None = None
        self.since = 0.0

    @property
    def waits(self) -> bool:
        """Whether it waits for the head of a request."""
        return self._due is not None

    @property
    def descriptor(self) -> int:
        """Its file descriptor; -1 if it has none."""
        end = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if end is None else int(end.fileno())

    def abort(self) -> None:
        """Close the connection soon, and make room for another now; aiohttp may not have begun to serve it."""
        self.end_wait()
        self._guard.forget(self._inner)
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a TCP server
        if not self._guard.admits(self._inner, self):
            transport.abort()
            return
        self._transport = transport
        self.begin_wait(self._seconds)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self.end_wait()
            self._transport = None
            self._guard.forget(self._inner)
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def begin_wait(self, seconds: float) -> None:
        """Wait for the head of the next request, up to a number of seconds."""
        self.end_wait()
        if self._transport is not None:
            loop = asyncio.get_running_loop()
            self.since = loop.time()
            self._due = loop.call_later(seconds, self._transport.abort)

    def end_wait(self) -> None:
        """Note that the head has arrived."""
        if self._due is not None:
            self._due.cancel()
            self._due = None


class _Malformed(logging.Filter):
    """Log a malformed request in one line. With aiohttp's tracebacks, any client could flood the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        said = " ".join(str(error.message).split())[:200]
        _LOG.debug("a malformed request was refused: %s: %s", type(error).__name__, said)
        return False


LOG = logging.getLogger("malflow.http.server")
LOG.addFilter(_Malformed())
