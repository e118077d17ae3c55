"""HTTP by URL: ``http://`` and ``https://`` for sinks and look-ups, ``webhook://host:port/path`` for a source."""

from __future__ import annotations

from functools import wraps
from typing import Any

from malflow.connectors.address import Address
from malflow.connectors.http.lookup import HttpLookup
from malflow.connectors.http.sink import HttpSink
from malflow.connectors.http.webhook import WebhookSource
from malflow.connectors.option_texts import with_options_of
from malflow.errors import GraphError

__all__ = ["lookup", "sink", "source"]


@with_options_of(WebhookSource, without="path")
def source(address: Address, /, **options: Any) -> WebhookSource:
    """Return the source that listens at an address.

    Raises:
        GraphError: if it has no host or port, or a user.
    """
    host, _, port = address.netloc.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()):
        raise GraphError(f"'{address}' has no host or no port; write webhook://127.0.0.1:8080/path")
    if address.user is not None:
        raise GraphError(f"'{address}' has a user, but WebhookSource has no basic authentication; pass token=")
    return WebhookSource(host.strip("[]"), int(port), path=f"/{address.path}", **options)


@wraps(HttpSink)
def sink(address: Address, /, **options: Any) -> HttpSink[Any, Any, Any]:
    """Return the sink that sends to the URL. The part after ``?`` has options; it is not sent as a query."""
    return HttpSink(address.url, **options)


@wraps(HttpLookup)
def lookup(address: Address, /, **options: Any) -> HttpLookup:
    """Return the table that answers at the URL. The part after ``?`` has options; it is not sent as a query."""
    return HttpLookup(address.url, **options)
