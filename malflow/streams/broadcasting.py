"""The stream method that joins records with rows that all workers have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from malflow.failures import ErrorPolicy
from malflow.nodes import ExchangeNode, KeyNode, StatefulNode
from malflow.operators.tables.broadcast import BroadcastJoin, Replicate
from malflow.partitioners import index_select
from malflow.states.kinds import StateKind
from malflow.streams.arguments import check_count, checked_function, checked_policy, location, malformed
from malflow.streams.handle import StreamHandle
from malflow.streams.operators.table import Table
from malflow.type_parameters import K, T, V_co
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream, Stream

__all__ = ["BroadcastOperators"]

A = TypeVar("A")
R = TypeVar("R")
VO = TypeVar("VO")


class BroadcastOperators(StreamHandle[K, V_co, T]):
    """The method for rows that all workers have."""

    __slots__ = ()

    def join_broadcast(
        self,
        name: str,
        rows: Table[A, R, Any] | KeyedStream[A, R | None, Any],
        joiner: Callable[[V_co, Mapping[A, R]], VO],
        *,
        version: int = 1,
        migrate: Callable[[Any, int], Any] | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> Stream[K, VO, T]:
        """Replace each value with ``joiner(value, rows)``, where `rows` are all rows of a small table or stream.

        Each row is sent to all workers, and every record sees all of them, on any key and worker: rules, rates,
        settings. The last row of each key counts; None deletes it. All workers have the same rows. The joiner can only
        read them. Snapshots have them once, under the operator's name.

        Within a tick, the rows come first, then the records. Otherwise the order between the two is that of arrival: a
        record that arrives before a row does not see it. The result has the keys and the epochs (watermarks) of the
        records alone, so rows without epochs hold nobody back. Use `join_table` for the row of a record's own key that
        was valid at its time.

        Args:
            name: the operator's name; snapshots store the rows under it.
            rows: a table, or a keyed stream of rows. It should be small: each worker keeps all of it.
            joiner: ``(value, rows) -> result``; `rows` is a mapping by key that never changes, so it may be kept.
            version: the schema version of the rows: increase it when their schema changes.
            migrate: ``(old_row, old_version) -> row``: converts a row from a snapshot of an older version; None drops
                it.
            on_error: the fate of a record at which the joiner fails, as for `map`.

        >>> def charged(stream):
        ...     rates = stream.filter("rates", lambda it: it[0] == "rate").key_distribute("k", lambda msg: msg.value[1])
        ...     orders, rates = stream.filter("orders", lambda it: it[0] == "order"), rates.map("row", lambda it: it[2])
        ...     return orders.join_broadcast("charged", rates, lambda order, rows: order[2] * rows[order[1]])
        >>> run([("rate", "de", 2), ("rate", "fr", 3), ("order", "fr", 10), ("order", "de", 10)], charged)
        [30, 20]
        """
        joiner = checked_function(name, "joiner", joiner, "value, rows")
        check_count(name, version, "version")
        if migrate is not None:
            checked_function(name, "migrate", migrate, "old, old_version")
        stream: Any = rows.rows() if isinstance(rows, Table) else rows
        if not isinstance(stream, StreamHandle):
            raise malformed(
                name, f"joins with rows that all workers have: a table, or a keyed stream; got {short_repr(rows)}"
            )
        port, source = self._ports(name, [stream], keyed=True)
        policy = checked_policy(name, on_error)
        self._graph.claim(name, location())
        copies = f"({name} rows to all)"
        self._graph.share(copies, location())
        keyed = self._add(KeyNode(copies, Replicate), source)
        everywhere = self._add(ExchangeNode(copies, index_select), keyed)
        node = StatefulNode(
            name,
            partial(BroadcastJoin, joiner=joiner),
            self._graph.settled(port),
            StateKind.BROADCAST,
            version,
            migrate,
            definition="rows that all workers have",
            times=1,
            on_error=policy,
            method="join_broadcast",
        )
        result: Stream[K, VO, T] = self._stream(self._add(node, port, everywhere), keyed=self._is_keyed)
        return result
