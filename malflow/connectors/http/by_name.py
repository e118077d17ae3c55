"""HTTP by URL: ``http://`` and ``https://`` for sinks and look-ups, ``webhook://host:port/path`` for a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Literal

from malflow.connectors.address import Address
from malflow.connectors.http.lookup import HttpLookup
from malflow.connectors.http.sink import HttpSink
from malflow.connectors.http.webhook import WebhookSource
from malflow.durations import Duration
from malflow.errors import GraphError

__all__ = ["lookup", "sink", "source"]


def source(
    address: Address,
    /,
    *,
    token: str | None = None,
    decode: Literal["json", "text", "bytes"] = "json",
    max_queue: int = 10_000,
    max_queue_bytes: int = 64 << 20,
    max_body: int = 1 << 20,
    on_full: Literal["429", "503", "wait"] = "429",
    acknowledge: Literal["queue", "snapshot"] = "queue",
    timeout: Duration = 60.0,
    max_connections: int = 1000,
) -> WebhookSource:
    """Return the source that listens at an address.

    Raises:
        GraphError: if it has no host or port, or a user.
    """
    host, _, port = address.netloc.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()):
        raise GraphError(f"'{address}' has no host or no port; write webhook://127.0.0.1:8080/path")
    if address.user is not None:
        raise GraphError(f"'{address}' has a user, but WebhookSource has no basic authentication; pass token=")
    return WebhookSource(
        host.strip("[]"),
        int(port),
        path=f"/{address.path}",
        token=token,
        decode=decode,
        max_queue=max_queue,
        max_queue_bytes=max_queue_bytes,
        max_body=max_body,
        on_full=on_full,
        acknowledge=acknowledge,
        timeout=timeout,
        max_connections=max_connections,
    )


def sink(
    address: Address,
    /,
    *,
    batch: int = 100,
    encode: Literal["json", "json-lines"] = "json",
    headers: Mapping[str, str] | None = None,
    delivery: Literal["exactly-once", "at-least-once"] = "at-least-once",
    formatter: Callable[[Any], Any] | None = None,
    method: str = "POST",
    retries: int = 8,
    timeout: Duration = 30.0,
    settings: Mapping[str, Any] | None = None,
) -> HttpSink[Any, Any, Any]:
    """Return the sink that sends to the URL. The part after ``?`` has options; it is not sent as a query."""
    return HttpSink(
        address.url,
        batch=batch,
        encode=encode,
        headers=headers,
        delivery=delivery,
        formatter=formatter,
        method=method,
        retries=retries,
        timeout=timeout,
        settings=settings,
    )


@wraps(HttpLookup)
def lookup(address: Address, /, **options: Any) -> HttpLookup:
    """Return the table that answers at the URL. The part after ``?`` has options; it is not sent as a query."""
    return HttpLookup(address.url, **options)
