"""A client of Confluent's REST protocol for schema registries, and the frame of its records."""

from __future__ import annotations

import base64
import http.client
import json
import struct
import time
from datetime import timedelta
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from malflow.checks import check_mapping, check_name, checked_seconds
from malflow.connectors.codecs.contract import CodecUnavailable
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.words import error_line, short_repr

__all__ = [
    "FRAME_SIZE",
    "RegistryUnavailable",
    "SchemaRegistry",
    "UnknownSchema",
    "check_registry",
    "check_subject",
    "frame",
    "message_indexes",
    "read_message_indexes",
    "schema_id",
]

_TYPE = "application/vnd.schemaregistry.v1+json"
_FIRST_PAUSE = 0.1
"""The seconds before the first retry; each pause is double the previous one. A short one suffices for a lost
connection; a longer one delays the first records."""

_LONGEST_PAUSE = 5.0
"""The longest pause between retries in seconds. Half of it asks a registry without an answer twice as often, double
notices its return later."""

_UNKNOWN_FOR = 30.0
"""Seconds after which to ask again for an id that the registry did not know."""

_PASSING = frozenset({404, 408, 429, 500, 502, 503, 504})
"""Statuses to retry, including those that a proxy returns while the registry behind it is down."""

_UNKNOWN = frozenset({40401, 40402, 40403})
"""The registry's error codes for an unknown subject, version or schema."""


class RegistryUnavailable(CodecUnavailable):
    """The schema registry did not answer, or refused the request."""


class UnknownSchema(ValueError):
    """The registry does not have the schema, so a record that names it cannot be decoded."""


class SchemaRegistry:
    """A schema registry. Schemas are cached, since they never change.

    Args:
        url: its address, ``http://`` or ``https://``; may contain a user and a password.
        username, password: the credentials of basic authentication. Never shown.
        timeout: how long one request may take.
        retry_for: how long to retry a request while the registry does not answer.
        headers: additional headers, such as a token. Never shown.

    Raises:
        GraphError: if an argument is invalid.

    >>> SchemaRegistry("http://anna:secret@localhost:8081")
    SchemaRegistry('http://localhost:8081')
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        timeout: Duration = timedelta(seconds=10),
        retry_for: Duration = timedelta(seconds=60),
        headers: dict[str, str] | None = None,
    ) -> None:
        me = "SchemaRegistry"
        check_mapping(me, "headers", headers, "names and texts")
        for option, given in {"url": url, "username": username or "", "password": password or ""}.items():
            if not isinstance(given, str):
                raise GraphError(f"{me} {option} must be a text; got a {type(given).__name__}")
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError:  # its message has a piece of the URL, perhaps of a password
            raise GraphError(
                "SchemaRegistry got a URL whose host and port can't be read; a password with one of '/?#[]@' must be "
                "percent-encoded, or passed as password="
            ) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GraphError("SchemaRegistry needs a URL that begins with http:// or https:// and names a host")
        self._https = parts.scheme == "https"
        self._host = parts.hostname
        self._path = parts.path.rstrip("/")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.url = f"{parts.scheme}://{host}{f':{parts.port}' if parts.port else ''}{self._path}"
        self._timeout = checked_seconds(me, "timeout", timeout)
        self._retry_for = checked_seconds(me, "retry_for", retry_for, may_be_zero=True)
        self._headers = {"Accept": _TYPE, "Content-Type": _TYPE, **(headers or {})}
        user = username if username is not None else parts.username and unquote(parts.username)
        word = password if password is not None else parts.password and unquote(parts.password)
        if user is not None:
            pair = base64.b64encode(f"{user}:{word or ''}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {pair}"
        self._by_id: dict[int, dict[str, Any]] = {}
        self._unknown: dict[int, float] = {}

    def schema(self, number: int) -> dict[str, Any]:
        """Return the registry's answer about a schema id: ``schema``, and perhaps ``schemaType`` and ``references``.

        Raises:
            UnknownSchema: if the registry does not have it.
            RegistryUnavailable: if the registry does not answer.
        """
        found = self._by_id.get(number)
        if found is not None:
            return found
        if self._unknown.get(number, 0.0) > time.monotonic():
            raise UnknownSchema(f"{self!r} has no schema with id {number}")
        try:
            found = self._by_id[number] = self._request("GET", f"/schemas/ids/{number}")
        except UnknownSchema:
            self._unknown[number] = time.monotonic() + _UNKNOWN_FOR
            raise
        return found

    def version(self, subject: str, version: int | str = "latest") -> dict[str, Any]:
        """Return the registry's answer about a version of a subject: ``id``, ``schema`` and so on."""
        return self._request("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def register(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema, after adding it to the subject if it is new."""
        return int(self._request("POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})["id"])

    def look_up(self, subject: str, schema: str) -> int:
        """Return the id of an Avro schema that the subject has."""
        return int(self._request("POST", f"/subjects/{quote(subject, safe='')}", {"schema": schema})["id"])

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        deadline, pause = time.monotonic() + self._retry_for, _FIRST_PAUSE
        while True:
            try:
                status, text = self._send(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                status, text = 0, error_line(error)
            if status == http.client.OK:
                return self._read(path, text)
            if status == http.client.NOT_FOUND and _code(text) in _UNKNOWN:
                raise UnknownSchema(f"{self!r} does not know {path}: {_message(text)}")
            if status and status not in _PASSING:
                raise RegistryUnavailable(f"{self!r} answers {status} to {method} {path}: {_message(text)}")
            if time.monotonic() + pause > deadline:
                raise RegistryUnavailable(
                    f"{self!r} did not answer {method} {path} for {self._retry_for:g} s; the last failure was "
                    f"{status or ''} {_message(text)}"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, str]:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout)
        try:
            connection.request(
                method, self._path + path, None if body is None else json.dumps(body).encode(), self._headers
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def _read(self, path: str, text: str) -> dict[str, Any]:
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RegistryUnavailable(f"{self!r} did not answer with a JSON object to {path}; is it a registry?")
        return answer

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"


def check_registry(asked_by: str, registry: object) -> None:
    """Check the schema registry of a codec, which may be None."""
    if registry is not None and not isinstance(registry, SchemaRegistry):
        got = f"a {type(registry).__name__}"  # perhaps a URL with a password
        raise GraphError(f"{asked_by} registry must be a SchemaRegistry('http://...') or None; got {got}")


def check_subject(asked_by: str, registry: object, subject: object) -> None:
    """Check the schema registry of an encoder and the subject in it: both are passed, or none."""
    check_registry(asked_by, registry)
    check_name(asked_by, "subject", subject, "the registry's name for the schema", optional=True)
    if (registry is None) != (subject is None):
        got = f"registry={short_repr(registry)} and subject={short_repr(subject)}"
        raise GraphError(f"{asked_by} needs registry= and subject= together, or neither; got {got}")


def _code(text: str) -> Any:
    try:
        return json.loads(text)["error_code"]
    except (ValueError, KeyError, TypeError):
        return None


def _message(text: str) -> str:
    try:
        answer = json.loads(text)
        return str(answer["message"])[:200]
    except (ValueError, KeyError, TypeError):
        return text[:200]


FRAME_SIZE = 5
"""The size of the frame in bytes, by Confluent's wire format: a zero byte, and a schema id of four bytes."""

_FRAME = struct.Struct(">bI")
_MOST_INDEXES = 100
"""The most levels of nested messages in a path. Damaged bytes may claim any number; no real schema has so many
levels."""

_MORE = 0x80
"""The bit of a byte that is set if the number continues."""
_LONGEST_SHIFT = 63
"""The shift of the tenth byte, seven bits each: a number of 64 bits has no further byte."""


def frame(number: int) -> bytes:
    r"""Return the frame of a schema id.

    >>> frame(258)
    b'\x00\x00\x00\x01\x02'
    """
    return _FRAME.pack(0, number)


def schema_id(raw: bytes) -> int:
    """Return the schema id of a framed record.

    Raises:
        ValueError: if the record is not framed.
    """
    if len(raw) < FRAME_SIZE or raw[0] != 0:
        raise ValueError("it does not begin with the zero byte and the schema id of a registry's wire format")
    return int.from_bytes(raw[1:FRAME_SIZE], "big")


def message_indexes(path: tuple[int, ...]) -> bytes:
    r"""Return the path of a Protobuf message in its file, in the encoding that follows the frame.

    >>> message_indexes((0,)), message_indexes((1, 0))
    (b'\x00', b'\x04\x02\x00')
    """
    if path == (0,):
        return b"\0"
    return b"".join(map(_varint, (len(path), *path)))


def read_message_indexes(raw: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return the path of a Protobuf message in its file, and the offset at which the message begins.

    Raises:
        ValueError: if it is damaged.
    """
    count, at = _read_varint(raw, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"it has {count} message indexes")
    path = []
    for _ in range(count):
        index, at = _read_varint(raw, at)
        path.append(index)
    return tuple(path), at


def _varint(number: int) -> bytes:
    rest, written = 2 * number, bytearray()  # zigzag encoding of a non-negative number
    while rest >= _MORE:
        written.append(rest & (_MORE - 1) | _MORE)
        rest >>= 7
    written.append(rest)
    return bytes(written)


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(raw) or shift > _LONGEST_SHIFT:
            raise ValueError("its message indexes are truncated")
        byte = raw[at]
        number |= (byte & (_MORE - 1)) << shift
        at, shift = at + 1, shift + 7
        if byte < _MORE:
            return (number >> 1) ^ -(number & 1), at
