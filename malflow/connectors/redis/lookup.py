"""Rows of Redis for look-ups: fields of a hash, or keys with a prefix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import redis

from malflow.checks import check_mapping
from malflow.connectors.codecs.plain import Decode, Encode, decoder_of
from malflow.connectors.key_texts import key_encoder_of
from malflow.connectors.redis.connection import RedisFailed, RedisServer
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.lookups.contract import LookupTable
from malflow.words import error_line, error_text, short_repr

__all__ = ["RedisLookup"]

_AT_ONCE = 1_000
"""Keys for one command; the server does nothing else meanwhile."""


class RedisLookup(LookupTable[Any, Any]):
    """Look up values in Redis: the fields of a hash, or Redis keys with a prefix, as `RedisSink` writes them.

    Args:
        url: ``redis://host:6379/0``, ``rediss://`` for TLS.
        table: the key of a hash with the keys as its fields.
        prefix: instead of `table`: each key has a Redis key of its own, this prefix and the key.
        decode: the decoder of values: ``"bytes"``, ``"text"``, ``"json"``, a `Decoder`, or a function of the bytes.
        encode_key: the encoder of keys: a name as in `decode`, an `Encoder`, or a function; by default bytes and text
            are sent as they are, and numbers in decimal. None has no row.
        retry_for: how long to wait for an unreachable server.
        settings: arguments of `redis.Redis`, such as ``ssl_ca_certs``. Never shown.

    Raises:
        GraphError: if an argument is invalid, or a setting conflicts with one that malflow depends on.

    >>> RedisLookup("redis://:secret@localhost:6379/0", table="users", decode="json")
    RedisLookup('users' at localhost:6379/0)
    """

    def __init__(
        self,
        url: str,
        *,
        table: str | None = None,
        prefix: str | None = None,
        decode: Decode = "bytes",
        encode_key: Encode | None = None,
        retry_for: Duration = timedelta(minutes=1),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if (table is None) == (prefix is None) or not isinstance(table or prefix or "", str) or table == "":
            raise GraphError(
                "RedisLookup needs table='...', a hash, or prefix='...', a key a row; "
                f"got table={short_repr(table)}, prefix={short_repr(prefix)}"
            )
        check_mapping("RedisLookup", "settings", settings, "redis-py's arguments")
        self._server = RedisServer(url, settings, retry_for, "RedisLookup")
        self._table, self._prefix = table, (prefix or "").encode()
        self._name = table if table is not None else f"{prefix}*"
        self._decoder = decoder_of(decode, "RedisLookup")
        self._encoder = key_encoder_of(encode_key, "RedisLookup", writes=False)
        self._client: redis.Redis | None = None

    def get_many(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        """Return the values of some keys, by one command for each thousand of them.

        Raises:
            RedisFailed: if a key can't be encoded, a value can't be decoded, or the server can't be reached for longer
                than `retry_for`.
        """
        rows: dict[Any, Any] = {}
        keys = [key for key in keys if key is not None]
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            fields = [self._encoded(key) for key in some]
            found = self._server.retry(partial(self._asked, fields), f"looking up {short_repr(some[0])}")
            for key, raw in zip(some, found, strict=True):
                if raw is not None:
                    rows[key] = self._decoded(key, raw)
        return rows

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(self, fields: list[bytes]) -> list[bytes | None]:
        self._client = client = self._client or self._server.client()
        found: Any = client.mget(fields) if self._table is None else client.hmget(self._table, fields)
        return list(found)

    def _encoded(self, key: Any) -> bytes:
        try:
            return self._prefix + self._encoder.encode(key)
        except Exception as error:
            raise RedisFailed(
                f"key {short_repr(key)} can't be encoded: {error_text(error)}; pass encode_key='json' or a function"
            ) from error

    def _decoded(self, key: Any, raw: bytes) -> Any:
        try:
            return self._decoder.decode(raw)
        except Exception as error:
            shown = error_line(error)
            raise RedisFailed(f"the value of key {short_repr(key)} in {self!r} can't be decoded: {shown}") from error

    def __repr__(self) -> str:
        return f"RedisLookup({self._name!r} at {self._server!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}
