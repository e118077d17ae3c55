"""A sink that sends records to a URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from malflow.checks import check_choice_or_function, check_mapping, check_whole_number
from malflow.connectors.http.client import Client, HttpSinkError, checked_headers, target_of
from malflow.connectors.json_names import check_names
from malflow.connectors.options import check_delivery, checked_timeout
from malflow.durations import Duration
from malflow.errors import GraphError, RecordsRefused
from malflow.message import DataMessage
from malflow.sinks.formatting import Formatter, checked_formatter, formatted
from malflow.sinks.transactional import Delivery, Divided, Refused, SinkOwner, TransactionalSinkImpl
from malflow.type_parameters import K, T, V
from malflow.words import short_repr

__all__ = ["Handle", "HttpSink"]


Request: TypeAlias = tuple[Any, ...]
"""An idempotency key and a body; with a policy, also the values if a function of the user's has encoded them."""

Handle: TypeAlias = tuple[Request, ...]
"""The requests of a transaction."""

Encode: TypeAlias = Literal["json", "json-lines"] | Callable[[list[Any]], bytes]

_KEY = "Idempotency-Key"
_BODY = "(the body of a request)"
"""The key of a refused item that is a whole body, since no values of it are known."""

_TYPES = {"json": "application/json", "json-lines": "application/x-ndjson"}


class HttpSink(TransactionalSinkImpl[K, V, T, Handle]):
    """Send records to a URL in batches, and retry each request until the server accepts it.

    A request has the header ``Idempotency-Key``. It stays the same on a retry. Timeouts, broken connections and the
    statuses 408, 425, 429, 500, 502, 503 and 504 are retried, with growing pauses or after the server's ``Retry-After``
    (5 minutes at most); the run waits meanwhile. Any other status but 2xx ends the run. Redirects are not followed.

    Statuses such as 400, 413 and 422 are about the records of a request. If ``on_error=`` of the stream's ``sink`` lets
    the run continue without a record, such a request is sent again in halves until the records that the server refuses
    are alone. The keys of the halves derive from its own. A server that has refused a request must not have accepted
    any of it.

    With ``delivery="at-least-once"``, records are sent by the end of each tick; after a restart, records since the last
    snapshot are sent again, with other keys. With ``"exactly-once"`` (it needs snapshots) they are sent once the
    snapshot that covers them is durable, and after a restart with the same keys: each counts once if the server ignores
    keys that it has seen. Before halves are sent, a snapshot has them. A restart sends the same ones.

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
        timeout: how long to wait for a connection, and for the whole head of the response.
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
        timeout: Duration = 30.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        me = "HttpSink"
        check_delivery(me, delivery)
        check_whole_number(me, "batch", batch)
        check_whole_number(me, "retries", retries, least=0)
        seconds = checked_timeout(me, timeout)
        check_mapping(me, "settings", settings, "arguments of urllib3.PoolManager")
        check_choice_or_function(me, "encode", encode, tuple(_TYPES))
        kinds = {"Content-Type": _TYPES[encode]} if isinstance(encode, str) else {}
        given = checked_headers({} if headers is None else headers)
        if any(name.lower() == _KEY.lower() for name in given):
            raise GraphError(f"HttpSink sets the header {_KEY}, which is different for each request")
        if any(name.lower() == "content-type" for name in given):
            kinds = {}
        self.delivery = delivery
        self._target = target_of(url, {**kinds, **given})
        self._client = Client(self._target, method, retries, seconds, settings or {})
        self._encode = encode
        self._formatter = checked_formatter("HttpSink", formatter)
        self._most = batch
        self._values: list[Any] = []
        self._requests: list[Request] = []
        self._records: list[tuple[Any, Any, Any]] = []
        self._refused: list[Refused] = []
        self._answers: dict[str, HttpSinkError | None] = {}

    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one record."""
        self.sink_batch([msg.key], [msg.value], [msg.timestamp])

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of records; full requests are sent, unless they wait for a snapshot.

        Raises:
            HttpSinkError: if the server rejects a request.
        """
        items = formatted(self._formatter, keys, values, timestamps)
        if self.divides:
            for item in items:
                self._body([item])
            if self.delivery == "at-least-once":
                self._records += zip(keys, values, timestamps, strict=True)
        self._values.extend(items)
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
        requests, self._requests = self._requests, []
        del transaction  # a run from an older snapshot has other records under its number, which need other keys
        return tuple(requests) or None

    def commit(self, handles: Sequence[Handle]) -> None:
        """Send requests with the idempotency keys chosen by `prepare`.

        Raises:
            HttpSinkError: if the server rejects one.
        """
        for handle in handles:
            for request in handle:
                if (error := self._answer(request)) is not None:
                    raise error
            self._answers.clear()

    def divide(self, handle: Handle) -> Divided[Handle]:
        """Send the requests of a transaction, and halve those that the server refuses.

        Raises:
            HttpSinkError: if the server refuses all requests, or can't be reached.
        """
        found = [(request, error, self._values_of(request)) for request in handle for error in [self._answer(request)]]
        size = sum(len(values) for *_, values in found)
        refused = [(request, error, values) for request, error, values in found if error is not None]
        if all(len(values) == 1 for *_, values in refused):
            return Divided((), [_refused(*it) for it in refused], size)
        kept: list[Request] = []
        for request, _, values in refused:
            kept += [request] if len(values) == 1 else self._halves(request[0], values)
        return Divided(tuple(kept), (), size)

    def _halves(self, key: str, values: list[Any]) -> list[Request]:
        middle = len(values) // 2
        halves = values[:middle], values[middle:]
        return [self._request(f"{key}.{number}", half) for number, half in enumerate(halves)]

    def write_refused(self, records: Sequence[Refused]) -> None:
        """Send values again that the server has refused; the formatter has made them, and is not called again."""
        self._requests.extend((str(uuid4()), it.value) for it in records if it.key == _BODY)
        self._values.extend(it.value for it in records if it.key != _BODY)
        while len(self._values) >= self._most:
            self._end_request()

    def _answer(self, request: Request) -> HttpSinkError | None:
        """Send a request, unless this process knows the answer; return the error if the server refuses its records."""
        key, body, *_ = request
        if key not in self._answers:
            try:
                self._client.send(body, {_KEY: key})
                self._answers[key] = None
            except HttpSinkError as error:
                if not error.refuses_records:
                    raise
                self._answers[key] = error
        return self._answers[key]

    def abort(self, keep: Sequence[Handle]) -> None:
        """Drop records that are not prepared."""
        del keep
        self._drop()

    def _end_request(self) -> None:
        values, self._values = self._values[: self._most], self._values[self._most :]
        if not values:
            return
        if self.delivery == "at-least-once":
            records, self._records = self._records[: self._most], self._records[self._most :]
            self._send_now(values, records)
        else:
            self._requests.append(self._request(str(uuid4()), values))

    def _send_now(self, values: list[Any], records: list[tuple[Any, Any, Any]]) -> None:
        """Send values; if the policy allows it, again in halves, until the records that are refused are alone."""
        try:
            self._client.send(self._body(values), {_KEY: str(uuid4())})
        except HttpSinkError as error:
            if not (self.divides and error.refuses_records):
                raise
            if len(values) == 1:
                key, value, timestamp = records[0]
                self._refused.append(Refused(value, error, key, timestamp))
                return
            middle = len(values) // 2
            self._send_now(values[:middle], records[:middle])
            self._send_now(values[middle:], records[middle:])

    def take_refused(self) -> list[Refused]:
        """Return the records that the server has refused since the last call, if delivery is at-least-once."""
        refused, self._refused = self._refused, []
        return refused

    def _request(self, key: str, values: list[Any]) -> Request:
        body = self._body(values)
        return (key, body, values) if self.divides and callable(self._encode) else (key, body)

    def _values_of(self, request: Request) -> list[Any]:
        """Return the values that a request has; its body as the only one if they are no longer known."""
        _, body, *values = request
        if values:
            return list(values[0])
        if self._encode == "json":
            return list(json.loads(body))
        if self._encode == "json-lines":
            return [json.loads(line) for line in body.splitlines()]
        return [body]

    def _body(self, values: list[Any]) -> bytes:
        if callable(self._encode):
            body = self._encode(values)
            if not isinstance(body, bytes):
                raise RecordsRefused(f"encode of HttpSink must return bytes; it returned {short_repr(body)}")
            return body
        try:
            texts = [json.dumps(value, allow_nan=False) for value in values]
            check_names(values)
            return (f"[{', '.join(texts)}]" if self._encode == "json" else "".join(f"{it}\n" for it in texts)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            bad = next((value for value in values if not _is_json(value)), values)
            raise RecordsRefused(
                f"{self!r} cannot send {short_repr(bad)}: it is not JSON ({error}); pass formatter= or encode="
            ) from error

    def _drop(self) -> None:
        self._values, self._requests = [], []
        self._records, self._refused = [], []
        self._answers.clear()

    def __repr__(self) -> str:
        return f"HttpSink({self._target.shown!r})"


def _refused(request: Request, error: HttpSinkError, values: list[Any]) -> Refused:
    is_body = values[0] is request[1]
    return Refused(values[0], error, _BODY) if is_body else Refused(values[0], error)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
        check_names((value,))
    except (TypeError, ValueError, RecursionError):
        return False
    return True
