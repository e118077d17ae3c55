"""Windows that also receive late records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from malflow.aggregators.contract import Aggregator
from malflow.graph import Graph
from malflow.nodes import ExchangeNode, KeyNode, Port
from malflow.states.kinds import StateLayout
from malflow.streams.arguments import malformed
from malflow.streams.handle import StreamHandle
from malflow.streams.operators.several import LateGroups, LateResults
from malflow.streams.operators.stateful import StatefulOperators
from malflow.streams.operators.windows import WindowOptions, add_cogroup, add_window
from malflow.windows import until_fault
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Described, Grouped
    from malflow.streams.stream import KeyedStream

__all__ = ["LateWindowed"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")
R6 = TypeVar("R6")


class LateWindowed(Generic[K, V, T]):
    """A keyed stream and its late records, divided into windows; `aggregate` or `cogroup` adds the operator."""

    __slots__ = ("_late", "_options", "_stream")

    def __init__(self, stream: StatefulOperators[K, V, T], options: WindowOptions, late: Any) -> None:
        self._stream = stream
        self._options = options
        self._late = late

    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V, Any, R1], /, **more: Unpack[Described]
    ) -> LateResults[K, R1, V, T]: ...
    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V, Any, R1], a2: Aggregator[V, Any, R2], /, **more: Unpack[Described]
    ) -> LateResults[K, tuple[R1, R2], V, T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V, Any, R1],
        a2: Aggregator[V, Any, R2],
        a3: Aggregator[V, Any, R3],
        /,
        **more: Unpack[Described],
    ) -> LateResults[K, tuple[R1, R2, R3], V, T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V, Any, R1],
        a2: Aggregator[V, Any, R2],
        a3: Aggregator[V, Any, R3],
        a4: Aggregator[V, Any, R4],
        /,
        **more: Unpack[Described],
    ) -> LateResults[K, tuple[R1, R2, R3, R4], V, T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V, Any, R1],
        a2: Aggregator[V, Any, R2],
        a3: Aggregator[V, Any, R3],
        a4: Aggregator[V, Any, R4],
        a5: Aggregator[V, Any, R5],
        /,
        **more: Unpack[Described],
    ) -> LateResults[K, tuple[R1, R2, R3, R4, R5], V, T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V, Any, R1],
        a2: Aggregator[V, Any, R2],
        a3: Aggregator[V, Any, R3],
        a4: Aggregator[V, Any, R4],
        a5: Aggregator[V, Any, R5],
        a6: Aggregator[V, Any, R6],
        /,
        **more: Unpack[Described],
    ) -> LateResults[K, tuple[R1, R2, R3, R4, R5, R6], V, T]: ...
    def aggregate(
        self,
        name: str,
        *aggregators: Any,
        version: int = 1,
        migrate: Any = None,
        layout: StateLayout | None = None,
    ) -> Any:
        """Aggregate the records of each key in each window, as `Windowed.aggregate` does.

        Returns:
            The results; those revised because a late record reached a closed window, with the timing ``LATE``; and the
            records that were too late. A revised result has its window's last instant as its timestamp, so, like
            records that are too late, it is behind the epochs of its stream.

        Raises:
            GraphError: if the streams are not the two outputs of one epoch generator, or this kind of windows does not
                support late records.
        """
        self._check(name)
        late = self._late_ones(name)
        return LateResults(
            *add_window(self._stream, self._options, name, aggregators, version, migrate, late=late, layout=layout)
        )

    @overload
    def cogroup(
        self, name: str, s2: KeyedStream[K, R2, T], /, **more: Unpack[Grouped]
    ) -> LateGroups[K, tuple[list[V], list[R2]], T]: ...
    @overload
    def cogroup(
        self, name: str, s2: KeyedStream[K, R2, T], s3: KeyedStream[K, R3, T], /, **more: Unpack[Grouped]
    ) -> LateGroups[K, tuple[list[V], list[R2], list[R3]], T]: ...
    @overload
    def cogroup(
        self, name: str, *others: KeyedStream[K, Any, T], **more: Unpack[Grouped]
    ) -> LateGroups[K, tuple[list[Any], ...], T]: ...
    def cogroup(
        self,
        name: str,
        *others: Any,
        late: Any = (),
        version: int = 1,
        migrate: Any = None,
        layout: StateLayout | None = None,
    ) -> Any:
        """Collect the records of this and other streams in each window of each key, as `Windowed.cogroup` does.

        A late record is added to its window unless the epoch (watermark) of all streams has closed it. So whether it is
        too late depends on the progress of the other streams when it arrives.

        Args:
            name: the operator's name; snapshots store the open windows under it.
            others: the other streams.
            late: the late records of each of the other streams, in the same order and with the same keys; None for a
                stream without any.
            version: the schema version of the records.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.
            layout: what the values of each stream hold, as for `Windowed.cogroup`.

        Returns:
            The results; and for each stream, a stream of its records that were too late.

        Raises:
            GraphError: if `until` is not 0, or late records belong to other streams.
        """
        self._check(name)
        if self._options.until:
            raise malformed(name, "has groups, whose results can't be revised: leave out until=")
        if not isinstance(late, Sequence) or len(late) > len(others):
            raise malformed(
                name,
                f"needs late= as a list with the late records of each of the other streams; got {short_repr(late)}",
            )
        self._stream._ports(name, others, keyed=True)
        for stream, its in zip(others, late, strict=False):
            if its is not None:
                _check_late(name, stream, its)
        late_ones = [self._late_ones(name), *late]
        results, *too_late = add_cogroup(
            self._stream, self._options, name, others, version, migrate, late=late_ones, layout=layout
        )
        return LateGroups(results, too_late)

    def _late_ones(self, name: str) -> Any:
        """Return the late records, with the keys of the stream.

        Raises:
            GraphError: if they belong to another generator, or there are none.
        """
        if self._late is not None:
            _check_late(name, self._stream, self._late)
            return self._late
        late = self._stream._graph.late_of(self._stream._input(name))
        if late is None:
            raise malformed(name, _unfound(self._stream._graph, self._stream._input(name)))
        return self._stream._stream(late, keyed=True)

    def _check(self, name: str) -> None:
        """Check that this kind of windows supports late records.

        Raises:
            GraphError: if it does not.
        """
        reason = until_fault(self._options.windows, self._options.until)
        if reason is not None:
            raise malformed(name, reason)


def _unfound(graph: Graph, port: Port) -> str:
    """Return why the late records of an edge can't be found automatically."""
    while isinstance(graph.vertices[port.vertex].node, KeyNode | ExchangeNode):
        (port,) = graph.vertices[port.vertex].inputs
    found = graph.vertices[port.vertex]
    where = f" [{found.location}]" if found.location else ""
    return (
        f"can't find its late records: between its keys and .event_time() is operator '{found.node.name}'"
        f"{where}; call it after the windows or before .event_time(), or pass them: timed = stream.event_time(...), "
        "then .allow_late(late), where late is timed.late with the same operators, under names of their own"
    )


def _check_late(name: str, stream: StreamHandle[Any, Any, Any], late: Any) -> None:
    """Check that records are the late ones of the epoch generator upstream of a stream."""
    if not isinstance(late, StreamHandle) or not late._is_keyed:
        raise malformed(
            name, f"needs late records with keys: .allow_late(late.key_distribute(...)); got {short_repr(late)}"
        )
    graph = stream._graph
    there = graph.generator(stream._input(name))
    here = graph.generator(late._input(name)) if late._graph is graph else None
    if there is None or here is None or (there.vertex, there.output, here.output) != (here.vertex, 0, 1):
        raise malformed(
            name,
            "needs the late records of the generator that its own records come from: on_time, late = "
            "stream.generate_epochs(...), then on_time.key_distribute(...).window(...).allow_late("
            "late.key_distribute(...))",
        )
