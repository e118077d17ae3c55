"""Streams, and the methods that add operators to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, overload

from malflow.callables import advice
from malflow.errors import shown
from malflow.graph import (
    EpochsNode,
    ExchangeNode,
    Graph,
    KeyNode,
    Node,
    Port,
    SinkNode,
    SourceNode,
    SplitNode,
    StatefulNode,
    StatelessNode,
    TimestampsNode,
    UnionNode,
    names_of,
)
from malflow.message import DataMessage, NoKeyType
from malflow.operators.contract import Logic, OperatorContext, Output, StatefulLogic, StatelessLogic
from malflow.operators.event_time import AssignTimestamps, GenerateEpochs
from malflow.operators.part_epochs import GeneratePartEpochs
from malflow.operators.routing import AssignPart, Cloned, KeyBy, Split
from malflow.operators.stateful import StatefulMap, StatefulOp
from malflow.operators.stateless import Filter, FilterMap, FlatMap, Flatten, Inspect, InspectFrontier, Map, StatelessOp
from malflow.operators.ttl import ExpireMap, TtlMap, checked_map
from malflow.partitioners import rendezvous_select
from malflow.sinks.contract import StatefulSink, StatefulSinkImpl, StatelessSink, StatelessSinkImpl
from malflow.sources.contract import StatefulSource, StatefulSourceImpl, StatelessSource, StatelessSourceImpl
from malflow.sources.single_iterator import SingleIteratorSource
from malflow.state import StateKind
from malflow.streams.arguments import (
    STATEFUL_HOOKS,
    STATELESS_HOOKS,
    checked_count,
    checked_default,
    checked_function,
    checked_logic,
    checked_sink,
    checked_source,
    location,
    malformed,
)
from malflow.streams.timed import KeyedNeedsEpochs, NeedsEpochs

__all__ = ["KeyedStream", "NeedsEpochs", "Stream", "StreamProvider"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")
KO = TypeVar("KO")
VO = TypeVar("VO")
TO = TypeVar("TO")
S = TypeVar("S")


class StreamProvider:
    """Passed to the build function; each call of `new_stream` starts a stream of the same dataflow."""

    __slots__ = ("_graph",)

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def new_stream(self) -> Stream[NoKeyType, Any, Any]:
        """Start a stream. Unless it stays empty, its first operator is a source."""
        return Stream(self._graph, None)


class Stream(Generic[K, V_co, T]):
    """Records of one value type, each with a key and a timestamp.

    A stream is immutable: each method returns a new one. A stream that is used twice feeds both consumers, which share
    its values.

    In the examples, ``run(items, build)`` streams the items through the operators that `build` adds, and returns the
    values.

    Raises, in every method:
        GraphError: if the name is invalid or taken, an argument is invalid, or the dataflow is already complete.
    """

    __slots__ = ("_graph", "_port")

    def __init__(self, graph: Graph, port: Port | None) -> None:
        self._graph = graph
        self._port = port

    @overload
    def source(  # type: ignore[overload-overlap] # a source without keys is the narrower case
        self, name: str, source: StatelessSource[NoKeyType, VO, TO] | StatefulSource[NoKeyType, VO, TO, Any]
    ) -> Stream[NoKeyType, VO, TO]: ...
    @overload
    def source(  # type: ignore[overload-overlap] # as above
        self, name: str, source: SingleIteratorSource[VO]
    ) -> Stream[NoKeyType, VO, int]: ...
    @overload
    def source(
        self,
        name: str,
        source: StatelessSource[KO, VO, TO]
        | StatefulSource[KO, VO, TO, Any]
        | StatelessSourceImpl[KO, VO, TO]
        | StatefulSourceImpl[KO, VO, TO, Any],
    ) -> KeyedStream[KO, VO, TO]: ...
    def source(self, name: str, source: Any) -> Any:
        """Read from a source; the key of each record is its part, unless the source declares ``keyed = False``.

        Args:
            name: the operator's name; snapshots store the positions under it.
            source: a `StatelessSource` or `StatefulSource`, or an instance of a subclass of their ``Impl`` classes.
        """
        source = checked_source(name, source)
        if self._port is not None:
            raise malformed(name, "is a source on a stream that already has one; start with provider.new_stream()")
        keyed = bool(getattr(source.impl, "keyed", True))
        port = self._append(SourceNode(name, source, keyed))
        return (KeyedStream if keyed else Stream)(self._graph, port)

    def map(self, name: str, mapper: Callable[[V_co], VO]) -> Stream[K, VO, T]:
        """Replace each value by ``mapper(value)``.

        >>> run([1, 2], lambda stream: stream.map("double", lambda value: value * 2))
        [2, 4]
        """
        return self._stateless(name, partial(Map, callback=checked_function(name, "mapper", mapper)))

    def filter(self, name: str, predicate: Callable[[V_co], object]) -> Stream[K, V_co, T]:
        """Keep the records whose value satisfies the predicate.

        >>> run([1, 2], lambda stream: stream.filter("even", lambda value: value % 2 == 0))
        [2]
        """
        return self._stateless(name, partial(Filter, callback=checked_function(name, "predicate", predicate)))

    def filter_map(self, name: str, mapper: Callable[[V_co], VO | None]) -> Stream[K, VO, T]:
        """Replace each value by ``mapper(value)``, and drop the record if that is None.

        >>> run(["1", "x"], lambda stream: stream.filter_map("digits", lambda v: int(v) if v.isdigit() else None))
        [1]
        """
        return self._stateless(name, partial(FilterMap, callback=checked_function(name, "mapper", mapper)))

    def flat_map(self, name: str, function: Callable[[V_co], Iterable[VO]]) -> Stream[K, VO, T]:
        """Replace each value by the elements of ``function(value)``, which may be any number of values.

        They have the key and the timestamp of the value. The function may return any iterable, or be a generator
        function. A string is an error, since its elements are its characters.

        >>> run(["a b", "", "c"], lambda stream: stream.flat_map("words", str.split))
        ['a', 'b', 'c']
        >>> def digits(value):
        ...     while value:
        ...         yield value % 10
        ...         value //= 10
        >>> run([123, 4], lambda stream: stream.flat_map("digits", digits))
        [3, 2, 1, 4]
        """
        function = checked_function(name, "function", function, generators=True)
        return self._stateless(name, partial(FlatMap, callback=function))

    def flatten(self: Stream[K, Iterable[VO], T], name: str) -> Stream[K, VO, T]:
        """Replace each value by its elements, with the key and the timestamp of the value.

        A string is an error, since its elements are its characters.

        >>> run([[1, 2], [], [3]], lambda stream: stream.flatten("elements"))
        [1, 2, 3]
        """
        return self._stateless(name, Flatten)

    def inspect(
        self, name: str, inspector: Callable[[DataMessage[K, V_co, T], OperatorContext], object]
    ) -> Stream[K, V_co, T]:
        """Call the inspector with each message and a context that has `worker_id` and `operator_name`.

        >>> run([1], lambda stream: stream.inspect("show", lambda msg, ctx: print(msg.value, ctx.operator_name)))
        1 show
        [1]
        """
        return self._stateless(name, partial(Inspect, callback=checked_function(name, "inspector", inspector)))

    def inspect_frontier(self, name: str, inspector: Callable[[T, OperatorContext], object]) -> Stream[K, V_co, T]:
        """Call the inspector with each epoch (watermark); the last one is `MAX`, which is not a number or date.

        >>> run([1], lambda stream: stream.inspect_frontier("time", lambda epoch, ctx: print(epoch)))
        MAX
        [1]
        """
        return self._stateless(name, partial(InspectFrontier, callback=checked_function(name, "inspector", inspector)))

    def stateless_op(
        self,
        name: str,
        logic: StatelessLogic[K, V_co, T, VO] | Callable[[DataMessage[K, V_co, T], Output[K, VO, T]], object],
    ) -> Stream[K, VO, T]:
        """Call the logic with each message; it sends any number of messages.

        Args:
            name: the operator's name.
            logic: an object with ``on_data(msg, output)`` and optionally ``on_epoch(epoch, output)``, or a function
                ``(msg, output)``; they return nothing. The epoch follows the messages that `on_epoch` sends. One
                object serves every worker of a process: its attributes are not state and do not survive a restart.

        >>> run([1, 2], lambda stream: stream.stateless_op("twice", lambda msg, out: [out.send(msg), out.send(msg)]))
        [1, 1, 2, 2]
        """
        return self._stateless(
            name, partial(StatelessOp, logic=checked_logic(name, logic, STATELESS_HOOKS)), keeps_keys=False
        )

    def key_local(self, name: str, key_fn: Callable[[DataMessage[K, V_co, T]], KO]) -> KeyedStream[KO, V_co, T]:
        """Set each record's key to ``key_fn(message)`` without moving it: equal keys may be on several workers.

        >>> run([1, 2], lambda stream: stream.key_local("parity", lambda msg: msg.value % 2))
        [1, 2]
        """
        return KeyedStream(self._graph, self._key(name, key_fn))

    def key_distribute(
        self,
        name: str,
        key_fn: Callable[[DataMessage[K, V_co, T]], KO],
        partitioner: Callable[[Any, Sequence[int]], int] = rendezvous_select,
    ) -> KeyedStream[KO, V_co, T]:
        """Set each record's key to ``key_fn(message)``, and move it to the worker that the partitioner selects.

        Keys that are equal in Python are the same key, such as ``1 == 1.0 == True``. A key that is None, NaN or has no
        stable hash is an error at run time.

        Args:
            name: the operator's name.
            key_fn: returns the key of a message, which is a view valid only during the call.
            partitioner: ``(key, workers) -> worker``; must be deterministic, since its results are cached.

        >>> run([1, 2, 3], lambda stream: stream.key_distribute("parity", lambda msg: msg.value % 2))
        [1, 2, 3]
        """
        exchange = ExchangeNode(name, checked_function(name, "partitioner", partitioner))
        keyed = self._key(name, key_fn)
        return KeyedStream(self._graph, self._add(exchange, keyed))

    def assign_timestamps(
        self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO]
    ) -> NeedsEpochs[K, V_co, TO]:
        """Set each record's timestamp to ``assigner(message)``, of any ordered type.

        Epochs (watermarks) of the old timestamps end here; the result needs new ones by `NeedsEpochs.generate_epochs`.
        """
        logic = partial(AssignTimestamps, callback=checked_function(name, "assigner", assigner))
        stamped = self._at(self._append(TimestampsNode(name, logic)))
        self._graph.unfinished.add(name)
        kind = KeyedNeedsEpochs if isinstance(self, KeyedStream) else NeedsEpochs
        return kind(name, stamped, self._graph.unfinished)

    def generate_epochs(
        self,
        name: str,
        generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
        *,
        per_part: bool = True,
    ) -> tuple[Stream[K, V_co, T], Stream[K, V_co, T]]:
        """Issue epochs (watermarks), and separate late records from those on time.

        The generator is called with each message, including late ones, and the previous epoch, None at first. Its
        result is issued after the message if it is greater than the previous epoch. A record is late if its timestamp
        is at or before the previous epoch. Incoming epochs are forwarded if they are greater.

        If a record's key is its part of a source, each part has its own epoch, which the generator receives and which
        decides whether a record is late. So lateness depends neither on the number of workers nor on the order in
        which they read the parts. The stream's epoch is the least epoch of the worker's unfinished parts. A part that
        has no epoch yet holds it back, even if a filter dropped all of its records. After the last part has finished,
        the stream's epoch therefore depends on which part was the last. If a later run finds new records in a finished
        part, those at or before the stream's epoch are late.

        Keys are parts after a keyed source, until a `key_local`, `key_distribute`, `union`, `stateless_op` or
        `stateful_op`. Everywhere else a worker has one epoch for all of its records.

        Each epoch interrupts batching downstream: ``on_epoch`` runs and entries expire. If a generator returns a new
        epoch for nearly every record, round it down to the precision that the downstream operators need, such as the
        minute.

        Args:
            name: the operator's name; snapshots store the epochs under it.
            generator: ``(msg, epoch) -> epoch``, such as `limit_out_of_orderness` returns; None issues no epoch.
            per_part: whether each part has its own epoch, if keys are parts. If False, a part that is ahead makes the
                records of the others late.

        Returns:
            The records on time and the late ones; both streams carry all epochs.

        >>> def late(stream):
        ...     on_time, late = stream.generate_epochs("now", lambda msg, previous: msg.value)
        ...     return late
        >>> run([5, 1, 2], late)
        [1, 2]
        """
        generator, port = checked_function(name, "generator", generator), self._input(name)
        if not isinstance(per_part, bool):
            raise malformed(name, f"needs True or False for per_part; got {shown(per_part)}")
        source = self._graph.parts(port) if per_part else None
        checked = isinstance(self._graph.vertices[port.vertex].node, TimestampsNode)
        logic: Logic = partial(GenerateEpochs, generator=generator, checked=checked)
        if source is not None:
            logic = partial(GeneratePartEpochs, generator=generator, parts_of=source, checked=checked)
        port = self._append(EpochsNode(name, logic, self._graph.settled(port), source))
        return self._at(port), self._at(Port(port.vertex, 1))

    def split(
        self, name: str, partitioner: Callable[[DataMessage[K, V_co, T], list[bool]], object], outputs: int
    ) -> list[Stream[K, V_co, T]]:
        """Copy each record to the outputs whose flags the partitioner sets in its second argument, epochs to all.

        >>> def small(stream):
        ...     def by_size(msg, outputs):
        ...         outputs[0 if msg.value < 10 else 1] = True
        ...     return stream.split("size", by_size, 2)[0]
        >>> run([1, 20], small)
        [1]
        """
        checked_function(name, "partitioner", partitioner)
        return self._split(name, partial(Split, partitioner=partitioner, outputs=outputs), outputs)

    def cloned(self, name: str, outputs: int) -> list[Stream[K, V_co, T]]:
        """Copy each record and each epoch to all outputs; they share the values.

        >>> run([1], lambda stream: stream.cloned("both", 2)[1])
        [1]
        """
        return self._split(name, partial(Cloned, outputs=outputs), outputs)

    def union(self, *streams: Stream[K, V_co, T], name: str | None = None) -> Stream[K, V_co, T]:
        """Merge streams into one, whose epoch is the least of theirs; the order between them is not specified.

        Args:
            streams: the other streams.
            name: the operator's name; snapshots store the epochs under it. By default it is composed of the names of
                the merged operators, so it changes when one of these is renamed.

        >>> run([1, 2], lambda stream: stream.union(stream.map("negative", lambda value: -value)))
        [1, -1, 2, -2]
        """
        subject = "union" if name is None else name
        for stream in streams:
            if not isinstance(stream, Stream):
                raise malformed(subject, f"takes streams as separate arguments; got {shown(stream)}")
            if stream._graph is not self._graph:
                raise malformed(subject, "merges streams of one dataflow; got a stream of another")
        joined = (self, *streams)
        ports = [stream._input(subject) for stream in joined]
        if name is None:
            name = names_of(self._graph.vertices, ports)
            self._graph.share(name, location())
        else:
            self._graph.claim(name, location())
        port = self._add(UnionNode(name), *ports)
        keyed = all(isinstance(stream, KeyedStream) for stream in joined)
        return (KeyedStream if keyed else Stream)(self._graph, port)

    def sink(
        self,
        name: str,
        sink: StatelessSink[K, V_co, T]
        | StatefulSink[K, V_co, T, Any, Any]
        | StatelessSinkImpl[K, V_co, T]
        | StatefulSinkImpl[K, V_co, T, Any, Any],
    ) -> None:
        """Write the stream to a sink.

        Args:
            name: the operator's name; snapshots store the state of a stateful sink under it.
            sink: a `StatelessSink` or `StatefulSink`, or an instance of a subclass of their ``Impl`` classes.
        """
        sink = checked_sink(name, sink)
        if isinstance(sink, StatelessSink):
            self._append(SinkNode(name, sink))
            return
        keyed = self._append(KeyNode(name, partial(AssignPart, callback=sink.impl.assign_part)))
        exchanged = self._add(ExchangeNode(name, rendezvous_select), keyed)
        self._add(SinkNode(name, sink), exchanged)

    if not TYPE_CHECKING:  # type checkers report missing methods themselves

        def __getattr__(self, attribute: str) -> Callable[..., NoReturn]:
            if attribute not in _KEYED_METHODS:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {attribute!r}{advice(attribute, _STREAM_METHODS)}"
                )

            def refuse(name: object = None, *_: object, **__: object) -> NoReturn:
                raise malformed(
                    name,
                    f"needs a keyed stream; its input has no key; call .key_distribute() before .{attribute}()",
                )

            return refuse

    def _stateless(self, name: str, logic: Logic, *, keeps_keys: bool = True) -> Any:
        return self._at(self._append(StatelessNode(name, logic, keeps_keys)))

    def _key(self, name: str, key_fn: Any) -> Port:
        return self._append(KeyNode(name, partial(KeyBy, callback=checked_function(name, "key_fn", key_fn))))

    def _split(self, name: str, logic: Logic, outputs: int) -> Any:
        checked_count(name, outputs, "number of outputs")
        port = self._append(SplitNode(name, logic, outputs))
        return [self._at(Port(port.vertex, output)) for output in range(outputs)]

    def _append(self, node: Node) -> Port:
        """Claim the node's name, and add the node after this stream."""
        inputs = () if isinstance(node, SourceNode) else (self._input(node.name),)
        self._graph.claim(node.name, location())
        return self._add(node, *inputs)

    def _add(self, node: Node, *inputs: Port) -> Port:
        return self._graph.add(node, inputs, location())

    def _input(self, name: object) -> Port:
        if self._port is None:
            raise malformed(name, "needs a stream with a source; call .source() on the new stream first")
        return self._port

    def _at(self, port: Port) -> Any:
        return type(self)(self._graph, port)


class KeyedStream(Stream[K, V_co, T]):
    """A stream whose records have keys, with operators that keep per-key state."""

    __slots__ = ()

    @overload
    def stateful_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, S], tuple[VO, S | None]],
        default: Callable[[], S],
        *,
        version: int = 1,
        migrate: Callable[[Any, int], S | None] | None = None,
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def stateful_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, S | None], tuple[VO, S | None]],
        default: None = None,
        *,
        version: int = 1,
        migrate: Callable[[Any, int], S | None] | None = None,
    ) -> KeyedStream[K, VO, T]: ...
    def stateful_map(
        self, name: str, mapper: Any, default: Any = None, *, version: int = 1, migrate: Any = None
    ) -> Any:
        """Replace each value by the result of a mapper that also reads and updates the state of its key.

        Emitting the state object itself is safe: a copy is emitted. A state *inside* an emitted value is not copied:
        later records may mutate it before it is read; run with ``debug=True`` to detect such a mapper.

        Args:
            name: the operator's name; snapshots store the state under it.
            mapper: ``(key, value, state) -> (value, state)``; None as the new state drops the key.
            default: creates the state of a key that has none; without it that state is None.
            version: the schema version of each key's state: increase it when the schema changes.
            migrate: ``(old_state, old_version) -> state``: converts a state from a snapshot of an older version to
                this version; None drops the key. An object in it whose class is gone or has other fields now is
                passed as a read-only mapping of its old fields, which are also attributes; a named tuple as a tuple.

        >>> def total(stream):
        ...     keyed = stream.key_distribute("all", lambda msg: "all")
        ...     return keyed.stateful_map("sum", lambda key, value, state: (state + value, state + value), default=int)
        >>> run([1, 2, 3], total)
        [1, 3, 6]
        """
        mapper, default = checked_function(name, "mapper", mapper), checked_default(name, default)
        logic = partial(StatefulMap, mapper=mapper, default=default)
        return self._stateful(name, logic, StateKind.STATEFUL_MAP, version, migrate)

    @overload
    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[K, V_co, T, VO, S] | Callable[[DataMessage[K, V_co, T], S, Output[K, VO, T]], S | None],
        default: Callable[[], S],
        *,
        version: int = 1,
        migrate: Callable[[Any, int], S | None] | None = None,
    ) -> KeyedStream[K, VO, T]: ...
    @overload
    def stateful_op(
        self,
        name: str,
        logic: StatefulLogic[K, V_co, T, VO, Any] | Callable[[DataMessage[K, V_co, T], Any, Output[K, VO, T]], Any],
        default: None = None,
        *,
        version: int = 1,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> KeyedStream[K, VO, T]: ...
    def stateful_op(self, name: str, logic: Any, default: Any = None, *, version: int = 1, migrate: Any = None) -> Any:
        """Call the logic with each message and the state of its key; it sends any number of messages.

        Args:
            name: the operator's name; snapshots store the state under it.
            logic: an object with ``on_data(msg, state, output) -> state`` and optionally
                ``on_epoch(epoch, states, output)`` and ``on_schedule(states, output)``, or a function
                ``(msg, state, output) -> state``; None as the new state drops the key.
            default: creates the state of a key that has none; without it that state is None.
            version: the schema version of each key's state: increase it when the schema changes.
            migrate: ``(old_state, old_version) -> state``: converts a state from a snapshot of an older version to
                this version; None drops the key. An object in it whose class is gone or has other fields now is
                passed as a read-only mapping of its old fields, which are also attributes; a named tuple as a tuple.

        >>> def pairs(stream):
        ...     def join(msg, first, output):
        ...         if first is None:
        ...             return msg.value
        ...         output.send(DataMessage(msg.key, (first, msg.value), msg.timestamp))
        ...     return stream.key_distribute("all", lambda msg: "all").stateful_op("pairs", join)
        >>> run([1, 2, 3, 4], pairs)
        [(1, 2), (3, 4)]
        """
        logic, default = checked_logic(name, logic, STATEFUL_HOOKS), checked_default(name, default)
        logic = partial(StatefulOp, logic=logic, default=default)
        return self._stateful(name, logic, StateKind.STATEFUL_OP, version, migrate, keeps_keys=False)

    def ttl_map(
        self,
        name: str,
        mapper: Callable[[K, V_co, T, ExpireMap[Any, Any, T]], tuple[VO, ExpireMap[Any, Any, T] | None]],
        *,
        version: int = 1,
        migrate: Callable[[ExpireMap[Any, Any, T], int], ExpireMap[Any, Any, T] | None] | None = None,
    ) -> KeyedStream[K, VO, T]:
        """Replace each value by the result of a mapper that also updates its key's `ExpireMap`, initially empty.

        An epoch (watermark) removes the entries that expire at or before it; until then they stay readable. None as
        the new map drops the key.

        Args:
            name: the operator's name; snapshots store the state under it.
            mapper: ``(key, value, timestamp, expire_map) -> (value, expire_map)``.
            version: the schema version of each key's entries: increase it when the schema changes.
            migrate: ``(old_map, old_version) -> expire_map``: converts a map from a snapshot of an older version to
                this version; None drops the key. An object in it whose class is gone or has other fields now is
                passed as a read-only mapping of its old fields, which are also attributes; a named tuple as a tuple.

        >>> def seen_before(stream):
        ...     def look(key, value, timestamp, seen):
        ...         return seen.insert(value, True, timestamp + 10) is not None, seen
        ...     return stream.key_distribute("all", lambda msg: "all").ttl_map("seen", look)
        >>> run(["a", "b", "a"], seen_before)
        [False, False, True]
        """
        logic = partial(TtlMap, mapper=checked_function(name, "mapper", mapper))
        return self._stateful(name, logic, StateKind.TTL_MAP, version, migrate, validate=checked_map)

    def _stateful(
        self,
        name: str,
        logic: Logic,
        kind: StateKind,
        version: int,
        migrate: Any,
        *,
        validate: Any = None,
        keeps_keys: bool = True,
    ) -> Any:
        checked_count(name, version, "version")
        if migrate is not None:
            checked_function(name, "migrate", migrate)
        placement = self._graph.placement(name, self._input(name), location())
        node = StatefulNode(name, logic, placement, kind, version, migrate, validate, keeps_keys)
        return self._at(self._append(node))

    if TYPE_CHECKING:  # the same methods, returning keyed streams

        def map(self, name: str, mapper: Callable[[V_co], VO]) -> KeyedStream[K, VO, T]: ...
        def filter(self, name: str, predicate: Callable[[V_co], object]) -> KeyedStream[K, V_co, T]: ...
        def filter_map(self, name: str, mapper: Callable[[V_co], VO | None]) -> KeyedStream[K, VO, T]: ...
        def flat_map(self, name: str, function: Callable[[V_co], Iterable[VO]]) -> KeyedStream[K, VO, T]: ...
        def flatten(self: KeyedStream[K, Iterable[VO], T], name: str) -> KeyedStream[K, VO, T]: ...
        def inspect(
            self, name: str, inspector: Callable[[DataMessage[K, V_co, T], OperatorContext], object]
        ) -> KeyedStream[K, V_co, T]: ...
        def inspect_frontier(
            self, name: str, inspector: Callable[[T, OperatorContext], object]
        ) -> KeyedStream[K, V_co, T]: ...
        def stateless_op(
            self,
            name: str,
            logic: StatelessLogic[K, V_co, T, VO] | Callable[[DataMessage[K, V_co, T], Output[K, VO, T]], object],
        ) -> KeyedStream[K, VO, T]: ...
        def assign_timestamps(
            self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO]
        ) -> KeyedNeedsEpochs[K, V_co, TO]: ...
        def generate_epochs(
            self,
            name: str,
            generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
            *,
            per_part: bool = True,
        ) -> tuple[KeyedStream[K, V_co, T], KeyedStream[K, V_co, T]]: ...
        def split(  # type: ignore[override] # a list of keyed streams is read only
            self,
            name: str,
            partitioner: Callable[[DataMessage[K, V_co, T], list[bool]], object],
            outputs: int,
        ) -> list[KeyedStream[K, V_co, T]]: ...
        def cloned(self, name: str, outputs: int) -> list[KeyedStream[K, V_co, T]]: ...  # type: ignore[override] # as split
        @overload
        def union(self, *streams: KeyedStream[K, V_co, T], name: str | None = None) -> KeyedStream[K, V_co, T]: ...
        @overload
        def union(self, *streams: Stream[K, V_co, T], name: str | None = None) -> Stream[K, V_co, T]: ...
        def union(self, *streams: Any, name: str | None = None) -> Any: ...


_KEYED_METHODS = frozenset(method for method in vars(KeyedStream) if not method.startswith("_"))
_STREAM_METHODS = _KEYED_METHODS | {method for method in vars(Stream) if not method.startswith("_")}
