"""Stream methods that set keys, move records, split streams and merge them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from malflow.failures import ErrorPolicy, OnError
from malflow.graph import check_name, names_of
from malflow.message import DataMessage
from malflow.nodes import ExchangeNode, KeyNode, Port, SplitNode, UnionNode
from malflow.operators.columns import Place
from malflow.operators.contract import Logic
from malflow.operators.keying import KeyBy, KeyByField
from malflow.operators.routing import Cloned, Split
from malflow.partitioners import rendezvous_select
from malflow.records.rows import is_position
from malflow.streams.arguments import check_count, check_places, checked_function, checked_policy, location
from malflow.streams.handle import StreamHandle

if TYPE_CHECKING:
    from malflow.streams.stream import KeyedStream, Stream

__all__ = ["RoutingOperators"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
KO = TypeVar("KO")


class RoutingOperators(StreamHandle[K, V_co, T]):
    """Methods for keys, exchanges, splits and unions."""

    __slots__ = ()

    @overload
    def key_local(
        self, name: str, key_fn: Callable[[DataMessage[K, V_co, T]], KO], *, on_error: ErrorPolicy = ...
    ) -> KeyedStream[KO, V_co, T]: ...
    @overload
    def key_local(
        self, name: str, key_fn: str | Place, *, on_error: ErrorPolicy = ...
    ) -> KeyedStream[Any, V_co, T]: ...
    def key_local(self, name: str, key_fn: Any, *, on_error: ErrorPolicy = "fail") -> Any:
        """Set each record's key to ``key_fn(message)`` without moving it: equal keys may be on several workers.

        Args:
            name: the operator's name.
            key_fn: a function or a field, as for `key_distribute`.
            on_error: the fate of a record without a valid key, as for `map`.

        >>> run([1, 2], lambda stream: stream.key_local("parity", lambda msg: msg.value % 2))
        [1, 2]
        """
        return self._stream(self._key(name, key_fn, on_error), keyed=True)

    @overload
    def key_distribute(
        self,
        name: str,
        key_fn: Callable[[DataMessage[K, V_co, T]], KO],
        partitioner: Callable[[Any, Sequence[int]], int] = ...,
        *,
        on_error: ErrorPolicy = ...,
    ) -> KeyedStream[KO, V_co, T]: ...
    @overload
    def key_distribute(
        self,
        name: str,
        key_fn: str | Place,
        partitioner: Callable[[Any, Sequence[int]], int] = ...,
        *,
        on_error: ErrorPolicy = ...,
    ) -> KeyedStream[Any, V_co, T]: ...
    def key_distribute(
        self,
        name: str,
        key_fn: Any,
        partitioner: Callable[[Any, Sequence[int]], int] = rendezvous_select,
        *,
        on_error: ErrorPolicy = "fail",
    ) -> Any:
        """Set each record's key to ``key_fn(message)``, and move it to the worker that the partitioner selects.

        Keys that are equal in Python are the same key, such as ``1 == 1.0 == True``. A key that is None, NaN or has no
        stable hash is an error at run time.

        Args:
            name: the operator's name.
            key_fn: returns the key of a message (a view that is valid only during the call); or the faster form, the
                name of a field of the value: an item of a mapping or an attribute of any other value. For tuples it is
                the place of an item, from 0, or a tuple of places for a key that is a tuple.
            partitioner: ``(key, workers) -> worker``; must be deterministic, since its results are cached.
            on_error: the fate of a record without a valid key, as for `map`; a failure of the partitioner always ends
                the run.

        >>> run([1, 2, 3], lambda stream: stream.key_distribute("parity", lambda msg: msg.value % 2))
        [1, 2, 3]
        >>> orders = [{"town": "Ulm", "amount": 3}, {"town": "Bonn", "amount": 4}, {"town": "Ulm", "amount": 5}]
        >>> run(orders, lambda stream: stream.key_distribute("town", "town").aggregate("sum", agg.sum("amount")))
        [3, 4, 8]
        >>> run([("Ulm", 3), ("Ulm", 5)], lambda stream: stream.key_distribute("town", 0).aggregate("sum", agg.sum(1)))
        [3, 8]
        """
        exchange = ExchangeNode(name, checked_function(name, "partitioner", partitioner, "key, workers"))
        keyed = self._key(name, key_fn, on_error)
        return self._stream(self._add(exchange, keyed), keyed=True)

    def split(
        self,
        name: str,
        partitioner: Callable[[DataMessage[K, V_co, T], list[bool]], object],
        outputs: int,
        *,
        on_error: ErrorPolicy = "fail",
    ) -> list[Stream[K, V_co, T]]:
        """Copy each record to the outputs that the partitioner flags in its second argument; copy epochs to all.

        With an `on_error` other than ``"fail"``, a record at which the partitioner fails is copied to no output.

        >>> def small(stream):
        ...     def by_size(msg, outputs):
        ...         outputs[0 if msg.value < 10 else 1] = True
        ...     return stream.split("size", by_size, 2)[0]
        >>> run([1, 20], small)
        [1]
        """
        checked_function(name, "partitioner", partitioner, "msg, outputs", returns=False)
        logic = partial(Split, partitioner=partitioner, outputs=outputs)
        return self._split(name, logic, outputs, checked_policy(name, on_error))

    def cloned(self, name: str, outputs: int) -> list[Stream[K, V_co, T]]:
        """Copy each record and each epoch to all outputs; the copies share their values.

        >>> run([1], lambda stream: stream.cloned("both", 2)[1])
        [1]
        """
        return self._split(name, partial(Cloned, outputs=outputs), outputs, passes=frozenset())

    def union(self, *streams: Stream[K, V_co, T], name: str | None = None) -> Stream[K, V_co, T]:
        """Merge streams into one. The epoch is the least of theirs; the order between streams is not specified.

        Args:
            streams: the other streams.
            name: the operator's name; snapshots store the epochs under it. By default it is composed of the names of
                the merged operators, so it changes when one of them is renamed.

        >>> run([1, 2], lambda stream: stream.union(stream.map("negative", lambda value: -value)))
        [1, -1, 2, -2]
        """
        subject = "union" if name is None else name
        ports = self._ports(subject, streams)
        if name is None:
            name = names_of(self._graph.vertices, ports)
            self._graph.share(name, location())
        else:
            self._graph.claim(name, location())
        port = self._add(UnionNode(name), *ports)
        return self._stream(port, keyed=all(stream._is_keyed for stream in (self, *streams)))

    def _key(self, name: str, key_fn: Any, on_error: ErrorPolicy) -> Port:
        if isinstance(key_fn, str | tuple) or is_position(key_fn):
            check_name(name, location())
            check_places(name, "key_fn", key_fn)
            logic: Logic = partial(KeyByField, field=key_fn)
        else:
            logic = partial(KeyBy, callback=checked_function(name, "key_fn", key_fn, "msg"))
        passes = frozenset({key_fn}) if isinstance(key_fn, str) else None
        return self._append(KeyNode(name, logic, checked_policy(name, on_error), self._placed_by(), passes))

    def _split(
        self,
        name: str,
        logic: Logic,
        outputs: int,
        policy: OnError | None = None,
        passes: frozenset[str] | None = None,
    ) -> Any:
        check_count(name, outputs, "number of outputs")
        port = self._append(SplitNode(name, logic, outputs, policy, self._placed_by(), passes))
        return [self._at(Port(port.vertex, output)) for output in range(outputs)]
