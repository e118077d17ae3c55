"""Streams and keyed streams, whose methods add operators; each family of methods has a module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TypeVar, Unpack, overload

from malflow.callables import advice
from malflow.connectors.by_name import Connection
from malflow.failures import DeadLetter, ErrorPolicy
from malflow.graph import Graph
from malflow.lookups.contract import LookupTable
from malflow.message import DataMessage, NoKeyType
from malflow.nodes import ExchangeNode, KeyNode, Port, SinkNode, SourceNode
from malflow.operators.contract import OperatorContext, Output, StatelessLogic
from malflow.operators.keying import AssignPart
from malflow.partitioners import rendezvous_select
from malflow.sinks.contract import StatefulSink, StatefulSinkImpl, StatelessSink, StatelessSinkImpl
from malflow.sources.contract import StatefulSource, StatefulSourceImpl, StatelessSource, StatelessSourceImpl
from malflow.sources.single_iterator import SingleIteratorSource
from malflow.streams.arguments import (
    checked_function,
    checked_policy,
    checked_sink,
    checked_source,
    location,
    malformed,
)
from malflow.streams.broadcasting import BroadcastOperators
from malflow.streams.connecting import ConnectOperators
from malflow.streams.dead_letters import add_letters
from malflow.streams.event_time import EventTimeOperators, KeyedNeedsEpochs, NeedsEpochs
from malflow.streams.operators.aggregation import AggregateOperators
from malflow.streams.operators.columns import ColumnOperators
from malflow.streams.operators.joins import JoinOperators
from malflow.streams.operators.matching import MatchOperators
from malflow.streams.operators.outside import CallingOperators, LookupOperators
from malflow.streams.operators.rollup import RollupOperators
from malflow.streams.operators.selection import SelectionOperators
from malflow.streams.operators.several import Timed
from malflow.streams.operators.stateless import KeyedStatelessOperators, StatelessOperators
from malflow.streams.operators.table import Table
from malflow.streams.operators.tables import TableOperators
from malflow.streams.routing import RoutingOperators
from malflow.type_parameters import K, T, V_co

if TYPE_CHECKING:
    from malflow.sql.api import Sql
    from malflow.streams.keywords import (
        Awaited,
        Cached,
        Epochs,
        EventTime,
        Guarded,
        OfBatches,
        OfMappedBatches,
        Threaded,
    )

__all__ = ["KeyedStream", "KeyedTimedStream", "NeedsEpochs", "Stream", "StreamProvider", "TimedStream"]

A = TypeVar("A")
F = TypeVar("F")
KO = TypeVar("KO")
R = TypeVar("R")
VO = TypeVar("VO")
TO = TypeVar("TO")


class StreamProvider:
    """The argument of the build function; each call of `new_stream` starts a stream of the same dataflow."""

    __slots__ = ("_graph",)

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def new_stream(self) -> Stream[NoKeyType, Any, Any]:
        """Start a stream. Unless it stays empty, its first operator is a source."""
        return Stream(self._graph, None)

    def sql(self, name: str, *, connect: Callable[[str, str, dict[str, str]], Any] | None = None) -> Sql:
        """Return a catalogue of SQL: streams become tables, queries become streams, in this dataflow.

        Args:
            name: the name of the catalogue. The names of its operators begin with it.
            connect: returns the source or sink of a table by its name, its URL and its options, as tests replace them;
                by default `malflow.connect` does.

        >>> from malflow import SingleThreadRuntime
        >>> from malflow.sinks import VecSink
        >>> from malflow.sources import SingleIteratorSource
        >>> found = VecSink()
        >>> def build(provider):
        ...     bids = provider.new_stream().source("bids", SingleIteratorSource([{"id": 1, "price": 7}]))
        ...     sql = provider.sql("shop")
        ...     sql.table("bids", bids, "id BIGINT, price BIGINT")
        ...     dear = sql.query("dear", "SELECT id, price * 2 AS twice FROM bids WHERE price > :floor", floor=5)
        ...     dear.rows().sink("out", found)
        >>> SingleThreadRuntime(build).execute()
        >>> found.values
        [{'id': 1, 'twice': 14}]
        """
        from malflow.sql.api import Sql  # noqa: PLC0415 - programs without SQL don't load it
        from malflow.sql.catalog import Catalog  # noqa: PLC0415 - as above

        return Sql(Catalog(self, name, self._graph.last.append, connect))

    def on_dead_letters(
        self,
        build: Callable[[Stream[NoKeyType, DeadLetter, datetime]], object],
        operators: Sequence[str] | None = None,
    ) -> None:
        """Take the dead letters of operators as a stream, rather than keep them in the operators' state.

        The values are `DeadLetter` objects, the timestamps the times of their ticks. Until the last tick, the stream
        has no epochs (watermarks). Operators on it may only fail or skip. With an exactly-once sink, each letter is
        written exactly once.

        Args:
            build: adds operators to the stream; called once the rest of the dataflow is complete.
            operators: the names of the operators; by default those with an ``on_error=`` in code that may be
                ``"dead_letter"``.

        >>> from malflow import SingleThreadRuntime
        >>> from malflow.sinks import VecSink
        >>> from malflow.sources import SingleIteratorSource
        >>> bad = VecSink()
        >>> def careful(provider):
        ...     numbers = provider.new_stream().source("texts", SingleIteratorSource(["1", "x"]))
        ...     numbers.map("number", int, on_error="dead_letter").sink("numbers", VecSink())
        ...     provider.on_dead_letters(lambda letters: letters.sink("bad", bad))
        >>> SingleThreadRuntime(careful).execute()
        >>> [(letter.operator, letter.value, letter.error) for letter in bad.values]
        [('number', 'x', 'ValueError')]
        """
        checked_function("on_dead_letters", "build", build, "letters", returns=False)
        where = location()
        self._graph.last.append(lambda: build(Stream(self._graph, add_letters(self._graph, operators, where))))


class Stream(
    StatelessOperators[K, V_co, T],
    ColumnOperators[K, V_co, T],
    LookupOperators[K, V_co, T],
    BroadcastOperators[K, V_co, T],
    CallingOperators[K, V_co, T],
    RoutingOperators[K, V_co, T],
    EventTimeOperators[K, V_co, T],
):
    """Records of one value type, each with a key and a timestamp.

    A stream is immutable: each method returns a new one. A stream used twice feeds both consumers. They share its
    values.

    In the examples, ``run(items, build)`` streams the items through the operators that `build` adds, and returns the
    values.

    Raises, in every method:
        GraphError: if the name is invalid or taken, an argument is invalid, or the dataflow is already complete.
    """

    __slots__ = ()

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
    @overload
    def source(self, name: str, source: Connection) -> KeyedStream[Any, Any, Any]: ...
    def source(self, name: str, source: Any) -> Any:
        """Read from a source; the key of each record is its part, unless the source declares ``keyed = False``.

        Args:
            name: the operator's name; snapshots store the positions under it.
            source: a `StatelessSource` or `StatefulSource`, an instance of a subclass of their ``Impl`` classes, or
                what `malflow.connect` returns for a URL.
        """
        source = checked_source(name, source, self._graph)
        if self._port is not None:
            raise malformed(name, "is a source on a stream that already has one; start with provider.new_stream()")
        keyed = bool(getattr(source.impl, "keyed", True))
        port = self._append(SourceNode(name, source, keyed))
        return self._stream(port, keyed=keyed)

    def sink(
        self,
        name: str,
        sink: StatelessSink[K, V_co, T]
        | StatefulSink[K, V_co, T, Any, Any]
        | StatelessSinkImpl[K, V_co, T]
        | StatefulSinkImpl[K, V_co, T, Any, Any]
        | Connection,
        *,
        on_error: ErrorPolicy = "fail",
    ) -> None:
        """Write the stream to a sink.

        Args:
            name: the operator's name; snapshots store the state of a stateful sink under it.
            sink: a `StatelessSink` or `StatefulSink`, an instance of a subclass of their ``Impl`` classes, or what
                `malflow.connect` returns for a URL.
            on_error: what to do with a record that the sink can't write, or that its external system refuses for good:
                ``"fail"``, ``"skip"``, ``"dead_letter"``, a function of the `malflow.Failure`, or a `malflow.OnError`.
        """
        sink = checked_sink(name, sink, self._graph)
        policy = checked_policy(name, on_error)
        if isinstance(sink, StatelessSink):
            self._append(SinkNode(name, sink, policy))
            return
        keyed = self._append(KeyNode(name, partial(AssignPart, callback=sink.impl.assign_part)))
        exchanged = self._add(ExchangeNode(name, rendezvous_select), keyed)
        self._add(SinkNode(name, sink, policy), exchanged)

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

    def _stream(self, port: Port, *, keyed: bool) -> Any:
        return (KeyedStream if keyed else Stream)(self._graph, port)

    def _timed(self, port: Port) -> Any:
        return (KeyedTimedStream if self._is_keyed else TimedStream)(self._graph, port)


class KeyedStream(
    AggregateOperators[K, V_co, T],
    RollupOperators[K, V_co, T],
    JoinOperators[K, V_co, T],
    ConnectOperators[K, V_co, T],
    MatchOperators[K, V_co, T],
    SelectionOperators[K, V_co, T],
    TableOperators[K, V_co, T],
    KeyedStatelessOperators[K, V_co, T],
    Stream[K, V_co, T],
):
    """A stream whose records have keys, with operators that keep per-key state."""

    __slots__ = ()

    _is_keyed: ClassVar[bool] = True

    if TYPE_CHECKING:  # the same methods, returning keyed streams

        def map(
            self, name: str, mapper: Callable[[V_co], VO], *, on_error: ErrorPolicy = ...
        ) -> KeyedStream[K, VO, T]: ...
        def filter(
            self, name: str, predicate: Callable[[V_co], object], *, on_error: ErrorPolicy = ...
        ) -> KeyedStream[K, V_co, T]: ...
        def filter_map(
            self, name: str, mapper: Callable[[V_co], VO | None], *, on_error: ErrorPolicy = ...
        ) -> KeyedStream[K, VO, T]: ...
        def flat_map(
            self, name: str, function: Callable[[V_co], Iterable[VO]], *, on_error: ErrorPolicy = ...
        ) -> KeyedStream[K, VO, T]: ...
        def sample(
            self, name: str, fraction: float, by: Callable[[V_co], Any] | str | None = None
        ) -> KeyedStream[K, V_co, T]: ...
        @overload
        def map_batches(
            self, name: str, function: Callable[[Any], object], *, frame: None = None, **more: Unpack[OfMappedBatches]
        ) -> KeyedStream[K, dict[str, Any], T]: ...
        @overload
        def map_batches(
            self,
            name: str,
            function: Callable[[F], object],
            *,
            frame: Callable[[Any], F],
            **more: Unpack[OfMappedBatches],
        ) -> KeyedStream[K, dict[str, Any], T]: ...
        def map_batches(self, name: str, function: Any, **options: Any) -> Any: ...
        @overload
        def filter_batches(
            self, name: str, function: Callable[[Any], object], *, frame: None = None, **more: Unpack[OfBatches]
        ) -> KeyedStream[K, V_co, T]: ...
        @overload
        def filter_batches(
            self, name: str, function: Callable[[F], object], *, frame: Callable[[Any], F], **more: Unpack[OfBatches]
        ) -> KeyedStream[K, V_co, T]: ...
        def filter_batches(self, name: str, function: Any, **options: Any) -> Any: ...
        def select_columns(self, name: str, *fields: str, **renamed: str) -> KeyedStream[K, dict[str, Any], T]: ...
        def to_columns(
            self, name: str, *, schema: Any = ..., key: str | None = ..., timestamp: str | None = ...
        ) -> KeyedStream[K, dict[str, Any], T]: ...
        @overload
        def lookup(
            self,
            name: str,
            by: Callable[[V_co], A],
            table: LookupTable[A, R],
            joiner: Callable[[V_co, R | None], VO],
            *,
            how: Literal["left"] = "left",
            **more: Unpack[Cached],
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def lookup(
            self,
            name: str,
            by: Callable[[V_co], A],
            table: LookupTable[A, R],
            joiner: Callable[[V_co, R], VO],
            *,
            how: Literal["inner"],
            **more: Unpack[Cached],
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def lookup(
            self,
            name: str,
            by: str | None,
            table: LookupTable[Any, R],
            joiner: Callable[[V_co, Any], VO],
            *,
            how: Literal["left", "inner"] = "left",
            **more: Unpack[Cached],
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def lookup(
            self,
            name: str,
            by: Callable[[V_co], Any] | str | None,
            table: Connection,
            joiner: Callable[[V_co, Any], VO],
            *,
            how: Literal["left", "inner"] = "left",
            **more: Unpack[Cached],
        ) -> KeyedStream[K, VO, T]: ...
        def lookup(self, name: str, by: Any, table: Any, joiner: Any, **options: Any) -> Any: ...
        @overload
        def map_async(
            self, name: str, function: Callable[[V_co], Awaitable[VO]], *, batch: None = ..., **more: Unpack[Awaited]
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def map_async(
            self,
            name: str,
            function: Callable[[list[V_co]], Awaitable[Sequence[VO]]],
            *,
            batch: int,
            **more: Unpack[Awaited],
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def map_async(
            self, name: str, function: Callable[[V_co], VO], *, batch: None = ..., **more: Unpack[Threaded]
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def map_async(
            self, name: str, function: Callable[[list[V_co]], Sequence[VO]], *, batch: int, **more: Unpack[Threaded]
        ) -> KeyedStream[K, VO, T]: ...
        def map_async(self, name: str, function: Any, **options: Any) -> Any: ...
        def join_broadcast(
            self,
            name: str,
            rows: Table[A, R, Any] | KeyedStream[A, R | None, Any],
            joiner: Callable[[V_co, Mapping[A, R]], VO],
            **more: Unpack[Guarded],
        ) -> KeyedStream[K, VO, T]: ...
        def flatten(
            self: KeyedStream[K, Iterable[VO], T], name: str, *, on_error: ErrorPolicy = ...
        ) -> KeyedStream[K, VO, T]: ...
        def inspect(
            self,
            name: str,
            inspector: Callable[[DataMessage[K, V_co, T], OperatorContext], object],
            *,
            on_error: ErrorPolicy = ...,
        ) -> KeyedStream[K, V_co, T]: ...
        def inspect_frontier(
            self, name: str, inspector: Callable[[T, OperatorContext], object]
        ) -> KeyedStream[K, V_co, T]: ...
        def stateless_op(
            self,
            name: str,
            logic: StatelessLogic[K, V_co, T, VO] | Callable[[DataMessage[K, V_co, T], Output[K, VO, T]], object],
            *,
            on_error: ErrorPolicy = ...,
        ) -> KeyedStream[K, VO, T]: ...
        @overload
        def event_time(
            self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO], **more: Unpack[EventTime]
        ) -> KeyedTimedStream[K, V_co, TO]: ...
        @overload
        def event_time(
            self, name: str, assigner: str | int, **more: Unpack[EventTime]
        ) -> KeyedTimedStream[K, V_co, Any]: ...
        def event_time(self, name: str, assigner: Any, **options: Any) -> Any: ...
        @overload
        def assign_timestamps(
            self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO], *, on_error: ErrorPolicy = ...
        ) -> KeyedNeedsEpochs[K, V_co, TO]: ...
        @overload
        def assign_timestamps(
            self, name: str, assigner: str | int, *, on_error: ErrorPolicy = ...
        ) -> KeyedNeedsEpochs[K, V_co, Any]: ...
        def assign_timestamps(self, name: str, assigner: Any, *, on_error: ErrorPolicy = "fail") -> Any: ...
        def generate_epochs(
            self, name: str, generator: Callable[[DataMessage[K, V_co, T], T | None], T | None], **more: Unpack[Epochs]
        ) -> Timed[KeyedStream[K, V_co, T]]: ...
        def split(  # type: ignore[override] # a list of keyed streams is read only
            self,
            name: str,
            partitioner: Callable[[DataMessage[K, V_co, T], list[bool]], object],
            outputs: int,
            *,
            on_error: ErrorPolicy = ...,
        ) -> list[KeyedStream[K, V_co, T]]: ...
        def cloned(self, name: str, outputs: int) -> list[KeyedStream[K, V_co, T]]: ...  # type: ignore[override] # as split
        @overload
        def union(self, *streams: KeyedStream[K, V_co, T], name: str | None = None) -> KeyedStream[K, V_co, T]: ...
        @overload
        def union(self, *streams: Stream[K, V_co, T], name: str | None = None) -> Stream[K, V_co, T]: ...
        def union(self, *streams: Any, name: str | None = None) -> Any: ...


class TimedStream(Stream[K, V_co, T]):
    """The on-time records of `Stream.event_time`; streams derived from it have no ``late``."""

    __slots__ = ()

    @property
    def late(self) -> Stream[K, V_co, T]:
        """The records at or before the epoch (watermark), with all epochs."""
        return self._at(Port(self._input("late").vertex, 1))  # type: ignore[no-any-return] # its class depends on keys

    def _at(self, port: Port) -> Any:
        return self._stream(port, keyed=self._is_keyed)


class KeyedTimedStream(KeyedStream[K, V_co, T], TimedStream[K, V_co, T]):
    """The on-time records of `Stream.event_time`, with keys."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def late(self) -> KeyedStream[K, V_co, T]: ...


_STREAM_METHODS = frozenset(method for method in dir(KeyedStream) if not method.startswith("_"))
_KEYED_METHODS = _STREAM_METHODS.difference(dir(Stream))
