"""Methods of keyed streams that aggregate records, in windows or over the whole stream."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, overload

from malflow.aggregators.contract import Aggregator
from malflow.callables import advice
from malflow.durations import as_length
from malflow.operators.columns import are_columns
from malflow.operators.keyed.stateful import RunningAggregate
from malflow.states.kinds import StateKind, StateLayout
from malflow.streams.arguments import malformed
from malflow.streams.operators.late_windows import LateWindowed
from malflow.streams.operators.stateful import StatefulOperators
from malflow.streams.operators.windows import WindowOptions, add_cogroup, add_window, kernel_of
from malflow.windows import WindowResult, Windows, early_fault
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.streams.keywords import Described, Versioned
    from malflow.streams.stream import KeyedStream

__all__ = ["AggregateOperators", "Windowed"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
V = TypeVar("V")
T = TypeVar("T")
R = TypeVar("R")
R1 = TypeVar("R1")
R2 = TypeVar("R2")
R3 = TypeVar("R3")
R4 = TypeVar("R4")
R5 = TypeVar("R5")
R6 = TypeVar("R6")


class Windowed(Generic[K, V, T]):
    """A keyed stream divided into windows; `aggregate` or `cogroup` adds the operator."""

    __slots__ = ("_options", "_stream")

    def __init__(self, stream: StatefulOperators[K, V, T], options: WindowOptions) -> None:
        self._stream = stream
        self._options = options

    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V, Any, R1], /, **more: Unpack[Described]
    ) -> KeyedStream[K, WindowResult[R1, T], T]: ...
    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V, Any, R1], a2: Aggregator[V, Any, R2], /, **more: Unpack[Described]
    ) -> KeyedStream[K, WindowResult[tuple[R1, R2], T], T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V, Any, R1],
        a2: Aggregator[V, Any, R2],
        a3: Aggregator[V, Any, R3],
        /,
        **more: Unpack[Described],
    ) -> KeyedStream[K, WindowResult[tuple[R1, R2, R3], T], T]: ...
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
    ) -> KeyedStream[K, WindowResult[tuple[R1, R2, R3, R4], T], T]: ...
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
    ) -> KeyedStream[K, WindowResult[tuple[R1, R2, R3, R4, R5], T], T]: ...
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
    ) -> KeyedStream[K, WindowResult[tuple[R1, R2, R3, R4, R5, R6], T], T]: ...
    def aggregate(
        self,
        name: str,
        *aggregators: Any,
        version: int = 1,
        migrate: Any = None,
        layout: StateLayout | None = None,
    ) -> Any:
        """Aggregate the records of each key in each window; emit a `WindowResult` when the window closes.

        A window closes at the first epoch (watermark) at or after its last instant. That instant is also the timestamp
        of its result, so results are on time for downstream windows. At the end of the stream, windows that are still
        open emit results with the timing ``END``. Windows without records emit nothing.

        Args:
            name: the operator's name; snapshots store the open windows under it.
            aggregators: one or more of `malflow.agg`. With several, a result's value is a tuple.
            version: the schema version of the accumulators: increase it when the windows or aggregators change.
            migrate: ``(old_accumulator, old_version) -> accumulator``; None drops it.
            layout: what the accumulators hold, in words, for programs that are generated: see `StateLayout`.

        >>> from malflow.windows import tumbling
        >>> def hourly(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("all", lambda msg: "all")
        ...     return keyed.window(tumbling(2)).aggregate("sums", agg.sum())
        >>> run([1, 2, 3, 4], hourly)[0]
        WindowResult(start=0, end=2, value=3, timing=FINAL)
        """
        return add_window(self._stream, self._options, name, aggregators, version, migrate, layout=layout)

    @overload
    def cogroup(
        self, name: str, s2: KeyedStream[K, R2, T], /, **more: Unpack[Described]
    ) -> KeyedStream[K, WindowResult[tuple[list[V], list[R2]], T], T]: ...
    @overload
    def cogroup(
        self, name: str, s2: KeyedStream[K, R2, T], s3: KeyedStream[K, R3, T], /, **more: Unpack[Described]
    ) -> KeyedStream[K, WindowResult[tuple[list[V], list[R2], list[R3]], T], T]: ...
    @overload
    def cogroup(
        self, name: str, *others: KeyedStream[K, Any, T], **more: Unpack[Described]
    ) -> KeyedStream[K, WindowResult[tuple[list[Any], ...], T], T]: ...
    def cogroup(
        self, name: str, *others: Any, version: int = 1, migrate: Any = None, layout: StateLayout | None = None
    ) -> Any:
        """Collect the records of this and other streams in each window of each key, one list per stream.

        A window with a record of any stream emits a `WindowResult` when the epoch (watermark) of all streams closes it,
        as with `aggregate`. Its value is a tuple of lists, in the order of the streams; a stream without records has an
        empty list. Records are in order of arrival; in overlapping windows, pane by pane.

        To join the streams, write a comprehension over the lists, as in the example. For an outer join, handle an empty
        list.

        Args:
            name: the operator's name; snapshots store the open windows under it.
            others: the other streams. All streams must be keyed with the same partitioner.
            version: the schema version of the records: increase it when the windows or the records' classes change.
            migrate: ``(old_value, old_version) -> value``: converts the value of a record.
            layout: what the values of each stream hold, which are tuples, for programs that are generated.

        >>> from malflow.windows import tumbling
        >>> def clicks_with_views(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     clicks = timed.key_distribute("clicks", lambda msg: "all")
        ...     views = clicks.filter("odd", lambda value: value % 2)
        ...     both = clicks.window(tumbling(2)).cogroup("both", views)
        ...     return both.flat_map("pairs", lambda it: [(one, other) for one in it.value[0] for other in it.value[1]])
        >>> run([5, 6, 7, 8], clicks_with_views)
        [(5, 5), (6, 5), (7, 7), (8, 7)]
        """
        return add_cogroup(self._stream, self._options, name, others, version, migrate, layout=layout)

    def allow_late(self, late: KeyedStream[K, V, T] | None = None, until: Any = 0) -> LateWindowed[K, V, T]:
        """Add late records to windows that are still open; call `LateWindowed.aggregate` on the result.

        The epoch generator decides whether a record is late, even if the record's window is still open. With this
        method, such a record is added to its window, and a record is too late only once its window has closed. In
        overlapping windows, a late record is added to those that are open. With sessions, it joins the open sessions
        within the gap, or starts a new one if that would still be open. The order between late records and others is
        not specified.

        Args:
            late: the late records of the epoch generator upstream of this stream, with the same keys. With None,
                malflow finds them and keys them as this stream. This requires that only `key_distribute` or `key_local`
                is between `event_time`, or `generate_epochs`, and the windows. In snapshots, the copies of these
                operators for late records have composed names, such as ``(times[1] by airport)``.
            until: how long closed windows are kept, a number or timedelta. Until then, a late record is added to its
                closed window, which emits a revised result. Only for windows that do not overlap.

        Raises:
            GraphError: if `late` is not such a stream, or this kind of windows does not support late records.

        >>> from malflow.windows import tumbling
        >>> def counts(stream):
        ...     timed = stream.event_time("times", lambda msg: msg.value, out_of_orderness=0)
        ...     windows = timed.key_distribute("all", lambda msg: 1).window(tumbling(4))
        ...     return windows.allow_late(until=10).aggregate("counts", agg.count()).with_revisions()
        >>> [(it.start, it.value, it.timing.name) for it in run([1, 2, 4, 0, 5], counts)]
        [(0, 2, 'FINAL'), (0, 3, 'LATE'), (4, 2, 'END')]
        """
        return LateWindowed(self._stream, replace(self._options, until=as_length(until)), late)

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> NoReturn:
            raise AttributeError(
                f"windows have no method {attribute!r}{advice(attribute, ('aggregate', 'allow_late', 'cogroup'))}"
            )


class AggregateOperators(StatefulOperators[K, V_co, T]):
    """Methods that aggregate the records of each key."""

    __slots__ = ()

    def window(self, windows: Windows, *, early: Any = None) -> Windowed[K, V_co, T]:
        """Divide the records of each key into windows; call `Windowed.aggregate` on the result.

        With `early`, an open window emits early results, whenever an epoch (watermark) passes a multiple of `early`,
        counted from the window's start: one for each key with new records since its last result. An early result has
        the timing ``EARLY``, and the last instant before the multiple as its timestamp. It covers all records so far,
        even those after that instant.

        Raises:
            GraphError: when the operator is added, if time windows or sessions have no epochs to wait for.

        Args:
            windows: the kind of windows: see `malflow.windows`.
            early: the distance between early results, a number or timedelta; None for no early results. Not for
                sessions and count windows.

        >>> from malflow.windows import tumbling
        >>> def maxima(stream):
        ...     timed, _ = stream.generate_epochs("epochs", limit_out_of_orderness(0))
        ...     keyed = timed.key_distribute("parity", lambda msg: msg.value % 2)
        ...     return keyed.window(tumbling(3)).aggregate("max", agg.max()).map("value", lambda it: it.value)
        >>> run([1, 2, 3, 4], maxima)
        [3, 2, 4]
        """
        if not isinstance(windows, Windows):
            raise malformed(
                None, f"needs windows as the argument of .window(), such as tumbling(60); got {short_repr(windows)}"
            )
        early = as_length(early)
        reason = None if early is None else early_fault(windows, early)
        if reason is not None:
            raise malformed(None, reason)
        return Windowed(self, WindowOptions(windows, early))

    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V_co, Any, R1], /, **more: Unpack[Versioned]
    ) -> KeyedStream[K, R1, T]: ...
    @overload
    def aggregate(
        self, name: str, a1: Aggregator[V_co, Any, R1], a2: Aggregator[V_co, Any, R2], /, **more: Unpack[Versioned]
    ) -> KeyedStream[K, tuple[R1, R2], T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        /,
        **more: Unpack[Versioned],
    ) -> KeyedStream[K, tuple[R1, R2, R3], T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        a4: Aggregator[V_co, Any, R4],
        /,
        **more: Unpack[Versioned],
    ) -> KeyedStream[K, tuple[R1, R2, R3, R4], T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        a4: Aggregator[V_co, Any, R4],
        a5: Aggregator[V_co, Any, R5],
        /,
        **more: Unpack[Versioned],
    ) -> KeyedStream[K, tuple[R1, R2, R3, R4, R5], T]: ...
    @overload
    def aggregate(
        self,
        name: str,
        a1: Aggregator[V_co, Any, R1],
        a2: Aggregator[V_co, Any, R2],
        a3: Aggregator[V_co, Any, R3],
        a4: Aggregator[V_co, Any, R4],
        a5: Aggregator[V_co, Any, R5],
        a6: Aggregator[V_co, Any, R6],
        /,
        **more: Unpack[Versioned],
    ) -> KeyedStream[K, tuple[R1, R2, R3, R4, R5, R6], T]: ...
    def aggregate(self, name: str, *aggregators: Any, version: int = 1, migrate: Any = None) -> Any:
        """Replace each value with the aggregate of all values of its key so far.

        Args:
            name: the operator's name; snapshots store the accumulators under it.
            aggregators: one or more of `malflow.agg`. With several, the result is a tuple.
            version: the schema version of the accumulators: increase it when the aggregators change.
            migrate: ``(old_accumulator, old_version) -> accumulator``; None drops it.

        >>> def totals(stream):
        ...     keyed = stream.key_distribute("all", lambda msg: "all")
        ...     return keyed.aggregate("so far", agg.count(), agg.sum())
        >>> run([5, 6], totals)
        [(1, 5), (2, 11)]
        """
        kernel = kernel_of(name, aggregators)
        logic = partial(RunningAggregate, aggregators=kernel.aggregators)
        return self._stateful(
            name,
            logic,
            StateKind.AGGREGATE,
            version,
            migrate,
            definition=f"{kernel.definition} of all records",
            reads=kernel.fields,
            tells_by=(),
            takes_columns=kernel.reads_names,
            results=partial(are_columns, kernel),
        )
