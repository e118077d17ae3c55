"""A Redis server by its URL: clients, values as they write them, and errors without secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import AuthenticationError, AuthorizationError, MaxConnectionsError
from redis.retry import Retry

from malflow.checks import check_mapping
from malflow.connectors.codecs.contract import Encoder
from malflow.connectors.remote import RemoteSystem
from malflow.durations import Duration
from malflow.errors import GraphError, MalflowError
from malflow.words import error_line, short_repr

__all__ = [
    "PLAIN",
    "BadStreamEntry",
    "RedisDataLost",
    "RedisFailed",
    "RedisServer",
    "UnwritableRow",
]


class RedisFailed(MalflowError, RuntimeError):
    """Redis refused a command, or could not be reached for too long."""


class RedisDataLost(RedisFailed):
    """Redis no longer has what it confirmed, or entries that have not been read."""


class BadStreamEntry(MalflowError, ValueError):
    """An entry of a stream that cannot be decoded.

    Attributes:
        stream: the key of the stream.
        id: the entry's id.
        fields: its fields, as bytes.
        reason: the cause.
    """

    def __init__(self, stream: str, id: str, fields: Mapping[bytes, bytes], reason: str) -> None:  # noqa: A002 - Redis's name
        super().__init__(
            f"stream '{stream}' entry {id}: it cannot be decoded: {reason}; its fields are {short_repr(fields)}; "
            "to continue without it, pass on_error='skip', or a function that takes this error"
        )
        self.stream = stream
        self.id = id
        self.fields = fields
        self.reason = reason


class UnwritableRow(MalflowError, ValueError):
    """A record with a key or value that cannot be written as bytes.

    Attributes:
        key, value: the key and value of the record.
        reason: the cause.
    """

    refuses_records = True

    def __init__(self, key: Any, value: Any, reason: str) -> None:
        super().__init__(f"key {short_repr(key)} with value {short_repr(value)} cannot be written: {reason}")
        self.key = key
        self.value = value
        self.reason = reason


_LOST = (redis.ConnectionError, redis.TimeoutError)
"""Errors of a connection, after which a retry may succeed; also that of a server that is loading its data."""

_parse: Callable[[str], Any] = parse_url  # has no types
_PERMANENT = (AuthenticationError, AuthorizationError, MaxConnectionsError)
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_FIXED = {
    "protocol": "replies are read as RESP2 shapes them",
    "legacy_responses": "replies are read as RESP2 shapes them",
    "decode_responses": "replies are bytes; use decode= or encode=",
    "cache": "reads must come from the server",
    "cache_config": "reads must come from the server",
}
_SECRETS = ("password", "ssl_password")


class RedisServer(RemoteSystem[RedisFailed]):
    """A server and a database. Its repr shows host, port and database, never a secret.

    Args:
        url: ``redis://[user:password@]host:port/db``, ``rediss://`` for TLS, or ``unix://``.
        settings: arguments of `redis.Redis`, passed through.
        retry_for: how long to retry a lost connection before the error surfaces.
        asked_by: the class that uses the server, for messages.

    Raises:
        GraphError: if the URL can't be parsed, or a setting conflicts with one that malflow depends on.
    """

    error = RedisFailed
    refusals = (redis.RedisError,)

    def __init__(self, url: str, settings: Mapping[str, Any] | None, retry_for: Duration, asked_by: str) -> None:
        super().__init__(asked_by, retry_for)
        if not isinstance(url, str):
            raise GraphError(f"{asked_by} url must be a text; got a {type(url).__name__}")
        try:
            parsed: dict[str, Any] = _parse(url)
        except ValueError:
            wanted = "'redis://host:6379/0', 'rediss://...' or 'unix://...'"
            raise GraphError(f"{asked_by} got a URL that is not a Redis URL; write {wanted}") from None
        check_mapping(asked_by, "settings", settings, "redis-py's arguments")
        given = {**parsed, **(settings or {})}
        for name, why in _FIXED.items():
            if name in given:
                raise GraphError(f"{asked_by} got the setting '{name}'; remove it: {why}")
        self._url = url
        self._settings: dict[str, Any] = {"socket_timeout": 5, "socket_connect_timeout": 5, **(settings or {})}
        self._where = f"{given.get('host') or given.get('path') or 'localhost'}:{given.get('port', 6379)}"
        self._database = given.get("db", 0)
        self._secrets = [str(given[name]) for name in _SECRETS if given.get(name)]
        try:
            self.client().connection_pool.make_connection()  # it does not connect
        except (TypeError, ValueError, redis.RedisError) as error:
            raise GraphError(
                f"{asked_by} got a setting that redis-py refuses: {self.without_secrets(str(error))}"
            ) from None

    def client(self) -> redis.Redis:
        """Return a client. It connects when it is first used."""
        retry = {} if "retry" in self._settings else {"retry": Retry(NoBackoff(), 0)}
        return redis.Redis.from_url(self._url, protocol=2, **retry, **self._settings)

    @staticmethod
    def is_lost(error: BaseException) -> bool:
        """Whether a retry may succeed."""
        return isinstance(error, _LOST) and not isinstance(error, _PERMANENT) and _UNTRUSTED not in str(error)

    @staticmethod
    def reason(error: BaseException) -> str:
        """Return the server's error text, and the class of the error."""
        return error_line(error)

    def __repr__(self) -> str:
        return f"{self._where}/{self._database}"


class _PlainEncoder(Encoder[Any]):
    """Encode values as Redis clients do."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, int) and not isinstance(value, bool):
            return int.__repr__(value).encode()
        if isinstance(value, float):
            return float.__repr__(value).encode()
        raise TypeError(f"it is {type(value).__name__}, not bytes, text or a number")


PLAIN = _PlainEncoder()
