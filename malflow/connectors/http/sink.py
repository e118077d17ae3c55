"""A sink that sends records to a URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from malflow.connectors.http.client import Client, checked_headers, target_of
from malflow.connectors.options import (
    require_choice_or_function,
    require_count,
    require_delivery,
    require_mapping,
    require_seconds,
)
from malflow.errors import GraphError, MalflowError, short_repr
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, SinkOwner, TransactionalSinkImpl
from malflow.type_parameters import K, T, V

__all__ = ["Handle", "HttpSink"]


Handle: TypeAlias = tuple[tuple[str, bytes], ...]
"""The requests of a transaction: idempotency keys and bodies."""

Encode: TypeAlias = Literal["json", "json-lines"] | Callable[[list[Any]], bytes]

_KEY = "Idempotency-Key"

_TYPES = {"json": "application/json", "json-lines": "application/x-ndjson"}


class HttpSink(TransactionalSinkImpl[K, V, T, Handle]):
    """Send records to a URL in batches, and retry each request until the server accepts it.

    A request has the header ``Idempotency-Key``, which stays the same on a retry. Timeouts, broken connections and the
    statuses 408, 425, 429, 500, 502, 503 and 504 are retried, with growing pauses or after the server's
    ``Retry-After`` (5 minutes at most); the run waits meanwhile. Any other status but 2xx ends the run. Redirects are
    not followed.

    With ``delivery="at-least-once"``, records are sent by the end of each tick; after a restart, records since the last
    snapshot are sent again, with other keys. With ``"exactly-once"``, which needs snapshots, they are sent once the
    snapshot that covers them is durable, and after a restart with the same keys: each counts once if the server
    ignores keys that it has seen.

    Args:
        url: the target; ``http`` or ``https``. A user and password in it are sent as basic authentication.
        batch: the maximum number of records in a request.
        encode: how records become the body: ``"json"``, an array; ``"json-lines"``; or a function of the list of
            values that returns bytes.
        headers: sent with each request, such as ``Authorization``.
        delivery: see above.
        formatter: returns the value to send for a message; by default its value.
        method: the HTTP method.
        retries: how often to retry a request; 8 retries take about 2 minutes.
        timeout: seconds to wait for a connection, and for the whole head of the response.
        settings: arguments of `urllib3.PoolManager`, such as ``{"ca_certs": "ca.pem"}``.

    Raises:
        GraphError: if an argument is not valid.

    >>> HttpSink("https://example.org/hooks/T0k3n", headers={"Authorization": "Bearer hush"})
    HttpSink('https://example.org/...')
    """

    def __init__(
        self,
        url: str,
        *,
        batch: int = 100,
        encode: Encode = "json",
        headers: Mapping[str, str] | None = None,
        delivery: Delivery = "at-least-once",
        formatter: Formatter | None = None,
        method: str = "POST",
        retries: int = 8,
        timeout: float = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "HttpSink"
        require_delivery(me, delivery)
        require_count(me, "batch", batch)
        require_count(me, "retries", retries, least=0)
        require_seconds(me, "timeout", timeout)
        require_mapping(me, "settings", settings, "arguments of urllib3.PoolManager")
        require_choice_or_function(me, "encode", encode, tuple(_TYPES))
        kinds = {"Content-Type": _TYPES[encode]} if isinstance(encode, str) else {}
        given = checked_headers({} if headers is None else headers)
        if any(name.lower() == _KEY.lower() for name in given):
            raise GraphError(f"HttpSink sets the header {_KEY}, which is different for each request")
        if any(name.lower() == "content-type" for name in given):
            kinds = {}
        self.delivery = delivery
        self._target = target_of(url, {**kinds, **given})
        self._client = Client(self._target, method, retries, timeout, settings or {})
        self._encode = encode
        self._formatter = checked_formatter("HttpSink", formatter)
        self._most = batch
        self._values: list[Any] = []
        self._bodies: list[bytes] = []

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records; full requests are sent, unless they wait for a snapshot.

        Raises:
            HttpSinkError: if the server rejects a request.
        """
        self._values.extend(formatted(self._formatter, keys, values, timestamps))
        while len(self._values) >= self._most:
            self._end_request()

    def flush(self) -> None:
        """Send the written records, unless they wait for a snapshot."""
        if self.delivery == "at-least-once":
            self._end_request()

    def close(self) -> None:
        """Drop unsent records, and close the connection."""
        self._drop()
        self._client.close()

    def fence(self, owner: SinkOwner) -> None:
        """Return None, since only the server knows which requests it has accepted."""
        del owner
        self._drop()

    def prepare(self, transaction: int) -> Handle | None:
        """Return the requests of a transaction; None if there are none."""
        self._end_request()
        bodies, self._bodies = self._bodies, []
        del transaction  # a run from an older snapshot has other records under its number, which need other keys
        return tuple((str(uuid4()), body) for body in bodies) or None

    def commit(self, handles: Sequence[Handle]) -> None:
        """Send requests with the idempotency keys chosen by `prepare`.

        Raises:
            HttpSinkError: if the server rejects one.
        """
        for handle in handles:
            for key, body in handle:
                self._client.send(body, {_KEY: key})

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop records that are not prepared."""
        del keep
        self._drop()

    def _end_request(self) -> None:
        values, self._values = self._values[: self._most], self._values[self._most :]
        if not values:
            return
        body = self._body(values)
        if self.delivery == "at-least-once":
            self._client.send(body, {_KEY: str(uuid4())})
        else:
            self._bodies.append(body)

    def _body(self, values: list[Any]) -> bytes:
        if callable(self._encode):
            body = self._encode(values)
            if not isinstance(body, bytes):
                raise MalflowError(f"encode of HttpSink must return bytes; it returned {short_repr(body)}")
            return body
        try:
            if self._encode == "json":
                return json.dumps(values, allow_nan=False).encode()
            return b"".join(f"{json.dumps(value, allow_nan=False)}\n".encode() for value in values)
        except (TypeError, ValueError, RecursionError) as error:
            bad = next((value for value in values if not _is_json(value)), values)
            raise MalflowError(
                f"{self!r} cannot send {short_repr(bad)}: it is not JSON ({error}); pass formatter= or encode="
            ) from error

    def _drop(self) -> None:
        self._values, self._bodies = [], []

    def __repr__(self) -> str:
        return f"HttpSink({self._target.shown!r})"


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
