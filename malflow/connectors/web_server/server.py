"""An aiohttp server in a thread of its own, which forked children let go of."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from aiohttp import web

from malflow.connectors.web_server.addresses import Place
from malflow.connectors.web_server.connection_limits import LOG, Guard, connection_limits

__all__ = [
    "Limits",
    "WebServer",
    "keep_in_children",
    "release_in_children",
]

_held: Final[WeakKeyDictionary[object, Callable[[], Iterable[int]]]] = WeakKeyDictionary()


def release_in_children(owner: object, descriptors: Callable[[], Iterable[int]]) -> None:
    """In each child forked from now on, release the sockets of an object. They stay open in this process.

    Args:
        owner: the object; nothing is done once it is gone.
        descriptors: returns the file descriptors of its sockets.
    """
    _held[owner] = descriptors


def keep_in_children(owner: object) -> None:
    """Leave an object's sockets alone from now on. Call this before it closes them: their numbers will be reused."""
    _held.pop(owner, None)


def _release() -> None:
    """Replace the sockets with the null device. Their numbers stay taken, as objects of the child will close them."""
    for descriptors in [*_held.values()]:
        with suppress(OSError, RuntimeError):  # RuntimeError: the parent was adding one just then
            nothing = os.open(os.devnull, os.O_RDWR)
            for it in descriptors():
                if it >= 0:
                    os.dup2(nothing, it, inheritable=False)
            os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)


_CLOSING_SECONDS = 1.0
"""The most seconds for open requests to finish when the server stops. Half of it cuts off slow answers, double delays
the end of the process."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a server.

    Attributes:
        connections: the most that may be open; at most a third of the process's file descriptors.
        head_seconds: how long the head of a request may take, counted from the connection or from its first byte.
        idle_seconds: how long an answer and the wait for the next request may take together.
        makes_room: whether a connection that sends nothing is closed for a new one; otherwise, the new one is closed.
    """

    connections: int
    head_seconds: float
    idle_seconds: float
    makes_room: bool = False


class WebServer:
    """An aiohttp server in a thread of its own.

    Args:
        app: the application.
        place: where it listens.
        limits: its limits.
        name: the name of the thread.
        error_headers: the headers of answers to requests that are not valid HTTP; these answers do not quote the
            request. None for aiohttp's own answers.
        on_stop: called in its thread before the connections are closed.

    Attributes:
        place: where it listens, with the port that it got.
        loop: its event loop.

    Raises:
        OSError: if it can't listen there.
        UnicodeError: if the host is not a valid name.
        RuntimeError: if no thread can be started.
    """

    def __init__(
        self,
        app: web.Application,
        place: Place,
        limits: Limits,
        *,
        name: str,
        error_headers: Mapping[str, str] | None = None,
        on_stop: Callable[[], object] = lambda: None,
    ) -> None:
        self.place = place
        self.loop = asyncio.new_event_loop()
        self._app = app
        self._limits = limits
        self._on_stop = on_stop
        self._protocol = None if error_headers is None else _plain_errors(error_headers)
        self._done = asyncio.Event()
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.loop.close()
            raise
        try:
            started.result()
        except BaseException:
            self._thread.join()
            raise

    @property
    def is_stopping(self) -> bool:
        """Whether it is stopping or has stopped."""
        return self._done.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether it is serving."""
        return self._thread.is_alive() and not self.is_stopping

    def stop(self) -> None:
        """Refuse further requests, answer the waiting ones, and stop. A second call does nothing."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._done.set)
            self._thread.join()

    def _run(self, started: Future[None]) -> None:
        try:
            self.loop.run_until_complete(self._serve(started))
        finally:
            self.loop.close()

    async def _serve(self, started: Future[None]) -> None:
        limits = self._limits
        runner = web.AppRunner(
            self._app,
            access_log=None,
            shutdown_timeout=_CLOSING_SECONDS,
            logger=LOG,
            keepalive_timeout=limits.idle_seconds,
            lingering_time=limits.head_seconds,
        )
        server: asyncio.Server | None = None
        try:
            most, at_once = connection_limits(limits.connections)
            guard = Guard(
                lambda: self._made_by(runner),
                most,
                limits.head_seconds,
                limits.idle_seconds,
                makes_room=limits.makes_room,
            )
            self._app.middlewares.insert(0, guard.heard)
            await runner.setup()
            server = await self.loop.create_server(guard, self.place.host, self.place.port, backlog=at_once)
            host, port = server.sockets[0].getsockname()[:2]
            self.place = Place(host, port)
            listening = [it.fileno() for it in server.sockets]
            release_in_children(self, lambda: [*listening, *guard.descriptors])
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            await runner.cleanup()
            started.set_exception(error)
            return
        started.set_result(None)
        await self._done.wait()
        self._on_stop()
        keep_in_children(self)
        server.close()
        await runner.cleanup()

    def _made_by(self, runner: web.AppRunner) -> asyncio.Protocol:
        """Return aiohttp's protocol for a new connection."""
        server = runner.server
        assert server is not None  # noqa: S101 - it is set up
        made = server()
        if self._protocol is not None:
            made.__class__ = self._protocol
        return made


def _plain_errors(headers: Mapping[str, str]) -> type[web.RequestHandler]:
    """Return a protocol that answers malformed requests with these headers, without a quote of the request."""

    class PlainErrors(web.RequestHandler):
        __slots__ = ()

        def handle_error(
            self,
            request: web.BaseRequest,
            status: int = 500,
            exc: BaseException | None = None,
            message: str | None = None,
        ) -> web.StreamResponse:
            answer = super().handle_error(request, status, exc, message)
            plain = web.Response(status=answer.status, text="the request can't be answered\n", headers=headers)
            plain.force_close()
            return plain

    return PlainErrors
