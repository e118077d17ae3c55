"""Runs with a page, and requests to it, as raw as a test needs."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from malflow import SingleThreadRuntime, StreamProvider
from malflow.monitor import Monitor
from malflow.serve import Page
from tests.kit.waiting import wait_until

__all__ = ["TOKEN", "Reply", "Served", "bearer", "served"]

TOKEN = "hush-" + "0123456789abcdef"


class Reply(NamedTuple):
    """The answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The document in it."""
        return json.loads(self.body)


def bearer(token: str = TOKEN) -> dict[str, str]:
    """Return the header with a token."""
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Served:
    """A run with a page."""

    handle: Any
    page: Page

    @property
    def port(self) -> int:
        """The port of the page."""
        assert self.page.address is not None
        return int(self.page.address.rstrip("/").rpartition(":")[2])

    @property
    def origin(self) -> str:
        """The origin of the page."""
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET", body: Any = None
    ) -> Reply:
        """Return the answer to a request.

        Args:
            path: its path.
            headers: its headers; None for the token's header.
            method: its method.
            body: bytes to post, or a value to post as JSON.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, dict(bearer() if headers is None else headers))
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Return the answer to a POST of JSON with the token, as a tool would send it."""
        given = {"Content-Type": "application/json", **(bearer() if headers is None else headers)}
        return self.ask(path, given, method="POST", body={} if body is None else body)

    def connect(self) -> socket.socket:
        """Return a connection to the page."""
        return socket.create_connection(("127.0.0.1", self.port), 60)


@contextmanager
def served(
    build: Callable[[StreamProvider], object],
    runtime: Mapping[str, Any] | None = None,
    *,
    samples: bool = False,
    **options: Any,
) -> Iterator[Served]:
    """Run a dataflow with a page within the context, and stop it at the end.

    Args:
        build: builds the dataflow.
        runtime: options of the runtime.
        samples: whether records may be shown.
        options: options of the page.
    """
    page = Page("127.0.0.1:0", **{"token": TOKEN, **options})
    handle = SingleThreadRuntime(build, listeners=[Monitor(page, samples=samples)], **(runtime or {})).start()
    try:
        wait_until(lambda: page.address is not None and handle.progress.tick > 0)
        yield Served(handle, page)
    finally:
        handle.stop()
        handle.await_termination(120)
        page.close()
