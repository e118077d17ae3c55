"""Redis and Valkey as a store of snapshots: ``FsspecBackend("redis://host:6379/0", job="orders")``.

Each object is a string ``{folder}:o:<key>``, and a sorted set ``{folder}:index`` has the keys of all. The braces keep
them in one slot of a cluster. Each operation is one script, and so all of it or nothing: if `get` were two commands, an
object that is written between them would read as empty. Nothing ever expires.

A server loses the end of what was written: its last second with ``appendfsync everysec``, or what had not reached a
replica. Then a later run starts from an older, whole snapshot, and a run that is still there ends at its next commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    ReadOnlyError,
    TryAgainError,
)

from malflow.connectors.redis.connection import RedisServer
from malflow.errors import GraphError, StoreError
from malflow.store.contract import KeyExists, KeyMissing, Transient, UnknownOutcome, require_folder, require_key

__all__ = ["RedisStore"]

_log = logging.getLogger("malflow.snapshot")

_URL = re.compile(r"(redis|rediss|valkey|valkeys)://([^/?#]+)/(\d+)/([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*)")
"""A server, a database, and the folder."""

_PUT = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
"""The index first: if it is not a sorted set, nothing is written. An object without an entry would stay forever."""

_GET = """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
return redis.call('GETRANGE', KEYS[1], 0, ARGV[1])
"""
_LIST = "return redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2])"
_DELETE = "redis.call('DEL', KEYS[1]) redis.call('ZREM', KEYS[2], ARGV[1]) return 1"
"""The object first: a crash of the server between both leaves an entry of nothing, and the next deletion removes it."""

_NOT_NOW = (BusyLoadingError, ClusterDownError, MasterDownError, ReadOnlyError, TryAgainError)
"""Refusals of a server that loads its data, or has just become a replica: nothing was executed."""

_FILE_LIMIT = 4 << 20
"""Bytes of a data file. A server answers nobody while it takes one; smaller files would be more requests."""


class RedisStore:
    """A folder of a Redis or Valkey database; see `malflow.store.Store`.

    Args:
        url: ``redis://host:6379/0/folder``, ``rediss://`` for TLS, or ``valkey://`` and ``valkeys://``.
        settings: arguments of `redis.Redis`.

    Attributes:
        file_limit: the bytes of a data file that the store takes well.

    Raises:
        GraphError: if the URL has another form, or a setting is refused.
    """

    file_limit = _FILE_LIMIT

    def __init__(self, url: str, settings: Mapping[str, Any] | None = None) -> None:
        parts = _URL.fullmatch(url)
        if parts is None:
            wanted = "redis://host:6379/0, with the number of a database, and a job of letters and digits"
            raise GraphError(f"a store in Redis has a URL of another form; write {wanted}")
        scheme, host, database, self._folder = parts.groups()
        scheme = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
        self._server = RedisServer(f"{scheme}://{host}/{database}", settings, 0, "RedisStore")
        self._index = f"{{{self._folder}}}:index"
        self._client: redis.Redis | None = None

    def put_new(self, key: str, data: bytes) -> None:
        """Create an object."""
        require_key(key)
        if not self._run(_PUT, [self._object(key), self._index], [key, data], lost=UnknownOutcome):
            raise KeyExists(key)

    def get(self, key: str, limit: int) -> bytes:
        """Return an object, or its first ``limit + 1`` bytes."""
        require_key(key)
        found = self._run(_GET, [self._object(key)], [limit])
        if found is None:
            raise KeyMissing(key)
        return bytes(found)

    def list(self, prefix: str) -> list[str]:
        """Return the keys below a folder, sorted."""
        require_folder(prefix)
        bounds = [f"[{prefix}", f"({prefix[:-1]}0"] if prefix else ["-", "+"]  # 0 comes after /
        return [key.decode("ascii") for key in self._run(_LIST, [self._index], bounds)]

    def delete(self, key: str) -> None:
        """Delete an object."""
        require_key(key)
        self._run(_DELETE, [self._object(key), self._index], [key])

    def sweep(self, prefix: str, dead: Callable[[str], bool]) -> None:
        """Delete nothing: a write that was interrupted leaves nothing."""
        require_folder(prefix)

    def _object(self, key: str) -> str:
        return f"{{{self._folder}}}:o:{key}"

    def _run(
        self, script: str, keys: Sequence[str], arguments: Sequence[Any], lost: type[StoreError] = Transient
    ) -> Any:
        """Return the answer of a script; `lost` is the error of a connection that broke after it was sent."""
        client = self._opened()  # kept until the answer: the connections of a client are closed with it
        pool = client.connection_pool
        try:
            connection: Any = pool.get_connection()
        except redis.RedisError as error:
            raise self._failure(error, Transient) from None
        try:
            connection.send_command("EVAL", script, len(keys), *keys, *arguments)
            return connection.read_response()
        except redis.RedisError as error:
            raise self._failure(error, lost) from None
        except BaseException:
            connection.disconnect()  # the answer would be read as that of the next command
            raise
        finally:
            pool.release(connection)

    def _failure(self, error: redis.RedisError, lost: type[StoreError]) -> StoreError:
        reason = f"{self!r}: {self._server.without_secrets(self._server.reason(error))}"
        if isinstance(error, _NOT_NOW):
            return Transient(reason)
        if isinstance(error, redis.OutOfMemoryError):
            return StoreError(f"{reason}; the server is full: raise its maxmemory, or retain fewer snapshots")
        return lost(reason) if self._server.is_lost(error) else StoreError(reason)

    def _opened(self) -> redis.Redis:
        """Return the client; look at the server first. Threads may each open one: a lock could be held in a fork."""
        if self._client is not None:
            return self._client
        client = self._server.client()
        try:
            self._check(client.info())
        except NoPermissionError:
            _log.warning("%r may not be asked by INFO; %s", self, _CHECK_YOURSELF)
        except redis.RedisError as error:
            raise self._failure(error, Transient) from None
        self._client = client
        return client

    def _check(self, found: Mapping[str, Any]) -> None:
        """Refuse a server that may forget objects, and warn of one that a restart makes empty."""
        policy = str(found.get("maxmemory_policy", "noeviction"))
        if policy.startswith("allkeys"):
            cure = "CONFIG SET maxmemory-policy noeviction"
            raise StoreError(f"{self!r} has maxmemory-policy {policy}: it would evict snapshots; {cure}")
        if found.get("role", "master") != "master":
            where = f"{found.get('master_host')}:{found.get('master_port')}"
            raise Transient(f"{self!r} is a replica of {where}, and takes no snapshots; use the address of its master")
        if found.get("aof_enabled", 1) == 0:
            cure = "CONFIG SET appendonly yes, and set it in the server's configuration"
            _log.warning("%r has appendonly no: a restart of the server loses the job; %s", self, cure)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the connections out."""
        return {**vars(self), "_client": None}

    def __repr__(self) -> str:
        return f"RedisStore({self._server!r}, {self._folder!r})"


_CHECK_YOURSELF = "check that it is not a replica, that maxmemory-policy is noeviction, and that appendonly is yes"
