"""A table in Redis with a ledger: one script writes rows and their transaction's number, only for the owner."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import redis

from malflow.connectors.redis.connection import RedisDataLost, RedisFailed, RedisServer
from malflow.errors import FencedError
from malflow.sinks.transactional import SinkOwner

__all__ = ["RedisTable", "TransactionRows"]

TransactionRows: TypeAlias = tuple[int, int, list[bytes], list[bytes | None]]
"""A transaction in a snapshot: its number, the previous number, the fields of its rows, and their values or None."""

_FENCE = """
local claim = tonumber(redis.call('HGET', KEYS[1], 'claim') or '0')
if claim > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. claim) end
redis.call('HSET', KEYS[1], 'claim', ARGV[1])
return tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
"""
_WRITE = """
-- ARGV: claim, transaction, the transaction before, whether it is complete with this call, the number of rows to set;
-- then their fields and values, then the fields to remove. A Lua call accepts some 8,000 arguments at most.
local claim = tonumber(redis.call('HGET', KEYS[1], 'claim') or '0')
if claim > tonumber(ARGV[1]) then return redis.error_reply('FENCED ' .. claim) end
local done = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if done >= tonumber(ARGV[2]) then return 0 end
if done < tonumber(ARGV[3]) then return redis.error_reply('BEHIND ' .. done) end
local last = 5 + 2 * tonumber(ARGV[5])
for i = 6, last, 5000 do redis.call(<set>, unpack(ARGV, i, math.min(i + 4999, last))) end
for i = last + 1, #ARGV, 5000 do redis.call(<remove>, unpack(ARGV, i, math.min(i + 4999, #ARGV))) end
if ARGV[4] == '1' then redis.call('HSET', KEYS[1], 'epoch', ARGV[2]) end
return 1
"""
_INTO_HASH = _WRITE.replace("<set>", "'HSET', KEYS[2]").replace("<remove>", "'HDEL', KEYS[2]")
_INTO_KEYS = _WRITE.replace("<set>", "'MSET'").replace("<remove>", "'DEL'")
_ROWS_PER_COMMAND = 1000
"""The most rows of a command, since Redis serves nobody else while it executes one. Half of it has more commands,
double longer pauses for other clients."""


class RedisTable:
    """A hash, or keys with a prefix.

    Args:
        server: the server.
        table: the key of the hash; None if each row has a key of its own.
        prefix: the prefix of the rows' keys, if there is no hash.
        rows_per_call: the number of rows that one script writes; the server does nothing else meanwhile.
    """

    def __init__(self, server: RedisServer, table: str | None, prefix: str, rows_per_call: int) -> None:
        self._server = server
        self._table = table
        self._prefix = prefix.encode()
        self._size = rows_per_call
        self._client: redis.Redis | None = None
        self._ledger = ""
        self._claim = 0

    def fence(self, owner: SinkOwner, *, accept_loss: bool) -> int:
        """Write the claim to the ledger; return the last transaction that was completely written.

        Raises:
            FencedError: if the ledger has a higher claim.
            RedisDataLost: if the ledger lacks a transaction that the owner has seen committed.
        """
        self._claim = owner.claim
        self._ledger = ledger_key(self._table if self._table is not None else self._prefix.decode(), owner.name)
        transaction: int = self._call(_FENCE, [self._ledger], [self._claim])
        if transaction < owner.transaction and not accept_loss:
            raise self._lost(transaction)
        return transaction

    def is_durable(self) -> bool | None:
        """Whether the server confirms a write only once it is on disk; None if unknown."""
        try:
            policy: Any = self._connected().config_get("append*")
        except redis.ResponseError:
            return None
        return str(policy.get("appendonly")) == "yes" and str(policy.get("appendfsync")) == "always"

    def eviction(self) -> str | None:
        """Return the policy by which the server evicts keys that never expire; None if it never does, or unknown."""
        try:
            answer: Any = self._connected().config_get("maxmemory-policy")
        except redis.ResponseError:
            return None
        policy = str(answer.get("maxmemory-policy") or "noeviction")
        return policy if policy.startswith("allkeys") else None

    def write_transaction(self, transaction: TransactionRows, *, accept_loss: bool) -> None:
        """Write a transaction unless it has been written: at once, or in parts if it has many rows.

        Raises:
            FencedError: if the ledger has a higher claim.
            RedisDataLost: if the ledger lacks the transaction before.
        """
        number, previous, fields, values = transaction
        for start in range(0, len(fields), self._size):
            stop = start + self._size
            sets, removes = self._split(fields[start:stop], values[start:stop])
            final = int(stop >= len(fields))
            header = [self._claim, number, 0 if accept_loss else previous, final, len(sets) // 2]
            if self._table is None:
                self._call(_INTO_KEYS, [self._ledger], [*header, *sets, *removes])
            else:
                self._call(_INTO_HASH, [self._ledger, self._table], [*header, *sets, *removes])

    def write(self, fields: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write rows without a ledger; again if the connection is lost."""
        for start in range(0, len(fields), self._size):
            stop = start + self._size
            sets, removes = self._split(fields[start:stop], values[start:stop])
            self._server.retry(lambda sets=sets, removes=removes: self._pipeline(sets, removes), "writing rows")  # type: ignore[misc] # bound now

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    def _pipeline(self, sets: list[bytes], removes: list[bytes]) -> None:
        put, remove = (["MSET"], ["DEL"]) if self._table is None else (["HSET", self._table], ["HDEL", self._table])
        with self._connected().pipeline(transaction=False) as pipe:
            queue: Callable[..., Any] = pipe.execute_command  # has no types
            for start in range(0, len(sets), 2 * _ROWS_PER_COMMAND):
                queue(*put, *sets[start : start + 2 * _ROWS_PER_COMMAND])
            for start in range(0, len(removes), _ROWS_PER_COMMAND):
                queue(*remove, *removes[start : start + _ROWS_PER_COMMAND])
            pipe.execute()

    def _split(self, fields: Sequence[bytes], values: Sequence[bytes | None]) -> tuple[list[bytes], list[bytes]]:
        names = fields if self._table is not None else [self._prefix + field for field in fields]
        sets = [(name, value) for name, value in zip(names, values, strict=True) if value is not None]
        removes = [name for name, value in zip(names, values, strict=True) if value is None]
        return list(chain.from_iterable(sets)), removes

    def _call(self, script: str, keys: list[str], arguments: list[Any]) -> Any:
        run: Callable[[], Any] = lambda: self._connected().register_script(script)(keys, arguments)  # noqa: E731
        try:
            return self._server.retry(run, f"writing the ledger '{self._ledger}'")
        except RedisFailed as error:
            raise self._explained(error) from None

    def _explained(self, error: RedisFailed) -> Exception:
        told = re.search(r"ResponseError: (?:ERR )?(FENCED|BEHIND) (\d+)", str(error))
        if told is None:
            return error
        if told[1] == "FENCED":
            return FencedError(
                f"the ledger '{self._ledger}' at {self._server!r} belongs to a run with claim {told[2]}; this one, "
                f"with claim {self._claim}, may no longer write"
            )
        return self._lost(int(told[2]))

    def _lost(self, transaction: int) -> RedisDataLost:
        return RedisDataLost(
            f"the ledger '{self._ledger}' at {self._server!r} is at transaction {transaction}, but later ones were "
            "confirmed: the server has lost writes, or is not the one that confirmed them. Restore a snapshot from "
            "before, or pass on_data_loss='continue'; with appendfsync=always a server loses none"
        )

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = self._server.client()
        return self._client


def ledger_key(place: str, owner: str) -> str:
    """Return the key of an owner's ledger, in the same slot of a cluster as the table.

    >>> ledger_key("totals", "job/sink"), ledger_key("{eu}:totals", "job/sink")
    ('malflow:ledger:{totals}:job/sink', 'malflow:ledger:{eu}:job/sink')
    """
    tag = re.search(r"\{([^}]+)\}", place)
    return f"malflow:ledger:{{{tag[1] if tag else place}}}:{owner}"
