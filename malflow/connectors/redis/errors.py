"""Errors of Redis, of its streams, and of rows for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from malflow.errors import MalflowError
from malflow.words import short_repr

__all__ = ["BadStreamEntry", "RedisDataLost", "RedisFailed", "UnwritableRow"]


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
