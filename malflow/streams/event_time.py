"""Stream methods for event time: timestamps, then epochs (watermarks)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, overload

from malflow.callables import advice
from malflow.checks import check_flag
from malflow.durations import Duration
from malflow.errors import GraphError
from malflow.failures import ErrorPolicy
from malflow.graph import check_name
from malflow.message import DataMessage
from malflow.nodes import EpochsNode, Mixture, Port, StatelessNode, TimestampsNode, Vertex
from malflow.operators.contract import Logic, OperatorContext
from malflow.operators.epochs.generator import GenerateEpochs
from malflow.operators.epochs.idle_time import Units
from malflow.operators.epochs.part_epochs import GeneratePartEpochs
from malflow.operators.epochs.rounding import LimitedOutOfOrderness, Step, limit_out_of_orderness
from malflow.operators.epochs.timestamps import AssignTimestamps, AssignTimestampsByField, ConvertTimestamps
from malflow.records.rows import is_position
from malflow.states.kinds import StateLayout
from malflow.streams.arguments import (
    check_places,
    checked_function,
    checked_idleness,
    checked_policy,
    checked_step,
    location,
    malformed,
)
from malflow.streams.handle import StreamHandle
from malflow.streams.operators.several import Timed

if TYPE_CHECKING:
    from malflow.streams.keywords import Epochs, EventTime
    from malflow.streams.stream import KeyedStream, Stream, TimedStream

__all__ = [
    "EventTimeOperators",
    "KeyedNeedsEpochs",
    "NeedsEpochs",
]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)
T = TypeVar("T")


class NeedsEpochs(Generic[K, V_co, T]):
    """A stream with new timestamps and no epochs (watermarks) yet; its only method is `generate_epochs`."""

    __slots__ = ("_name", "_stream", "_unfinished")

    def __init__(self, name: str, stream: Stream[K, V_co, T], unfinished: set[str]) -> None:
        self._name = name
        self._stream = stream
        self._unfinished = unfinished

    def generate_epochs(
        self,
        name: str,
        generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
        *,
        every: Step | None = None,
        per_part: bool = True,
        idle_after: Duration | None = None,
        second: Units | None = None,
        layout: StateLayout | None = None,
    ) -> Timed[Stream[K, V_co, T]]:
        """Issue epochs (watermarks), and separate late records: see `Stream.generate_epochs`.

        >>> def on_time(stream):
        ...     stamped = stream.assign_timestamps("when", lambda msg: msg.value)
        ...     return stamped.generate_epochs("now", lambda msg, previous: msg.timestamp)[0]
        >>> run([5, 1, 7], on_time)
        [5, 7]
        """
        streams = self._stream.generate_epochs(
            name, generator, every=every, per_part=per_part, idle_after=idle_after, second=second, layout=layout
        )
        self._unfinished.discard(self._name)
        return streams

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the dataflow so far for notebooks, as other streams do."""
        return self._stream._repr_mimebundle_(include, exclude)

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Callable[..., NoReturn]:
            if attribute.startswith("_") or not hasattr(self._stream, attribute):
                methods = [method for method in dir(self._stream) if not method.startswith("_")]
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {attribute!r}{advice(attribute, methods)}"
                )

            def refuse(name: object = None, *_: object, **__: object) -> NoReturn:
                raise malformed(name, f"needs a stream with epochs; call .generate_epochs() before .{attribute}()")

            return refuse


class KeyedNeedsEpochs(NeedsEpochs[K, V_co, T]):
    """A keyed stream with new timestamps and no epochs yet."""

    __slots__ = ()

    if TYPE_CHECKING:

        def generate_epochs(
            self, name: str, generator: Callable[[DataMessage[K, V_co, T], T | None], T | None], **more: Unpack[Epochs]
        ) -> Timed[KeyedStream[K, V_co, T]]: ...


TO = TypeVar("TO")


class EventTimeOperators(StreamHandle[K, V_co, T]):
    """Methods for timestamps and epochs (watermarks)."""

    __slots__ = ()

    @overload
    def event_time(
        self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO], **more: Unpack[EventTime]
    ) -> TimedStream[K, V_co, TO]: ...
    @overload
    def event_time(self, name: str, assigner: str | int, **more: Unpack[EventTime]) -> TimedStream[K, V_co, Any]: ...
    def event_time(  # noqa: PLR0913 - all of them a user's
        self,
        name: str,
        assigner: Callable[[DataMessage[K, V_co, T]], Any] | str | int,
        *,
        out_of_orderness: Any,
        every: Step | None = None,
        per_part: bool = True,
        idle_after: Duration | None = None,
        second: Units | None = None,
        layout: StateLayout | None = None,
        on_error: ErrorPolicy = "fail",
    ) -> TimedStream[K, V_co, Any]:
        """Set each record's timestamp, and issue epochs (watermarks) that leave time for records out of order.

        This is `assign_timestamps` and `generate_epochs` with `limit_out_of_orderness` in one step. Epochs of the old
        timestamps are dropped. The result has the records on time. Its attribute ``late`` has the late ones: those at
        or before the newest timestamp so far minus `out_of_orderness`. They may be left unread; `Windowed.allow_late`
        adds them to windows.

        Args:
            name: the operator's name; snapshots store the epochs under it.
            assigner: returns the timestamp of a message, of any ordered type; or the name of a field of the value, an
                item of a mapping or an attribute of any other value; or the place of an item of a tuple, from 0.
            out_of_orderness: how far records may be behind the newest one: a number in the unit of the timestamps; for
                datetimes, a timedelta or a text such as ``"5s"``.
            every: the step of the epochs, as for `generate_epochs`.
            per_part: whether each part of a source has its own epoch, as for `generate_epochs`.
            idle_after: the silence after which time advances without input, as for `generate_epochs`.
            second: how many units of a numeric timestamp make a second, for `idle_after`.
            layout: the unit of the timestamps, in words, for programs that are generated: see `StateLayout`.
            on_error: the fate of a record without a timestamp that can be compared with others, as for `map`.

        Raises:
            GraphError: if the stream already mixes several parts or sources.

        >>> readings = [{"at": 1, "heat": 20}, {"at": 9, "heat": 21}, {"at": 2, "heat": 19}]
        >>> run(readings, lambda stream: stream.event_time("times", "at", out_of_orderness=5))
        [{'at': 1, 'heat': 20}, {'at': 9, 'heat': 21}]
        >>> run(readings, lambda stream: stream.event_time("times", "at", out_of_orderness=5).late)
        [{'at': 2, 'heat': 19}]
        """
        bound = _bound(name, out_of_orderness)
        stamping = self._stamping(name, assigner, on_error)
        epochs = self._epochs_node(name, bound, every, per_part, idle_after, second, layout, checked=True)
        stream: TimedStream[K, V_co, Any] = self._timed(self._add(epochs, self._append(stamping)))
        return stream

    @overload
    def assign_timestamps(
        self, name: str, assigner: Callable[[DataMessage[K, V_co, T]], TO], *, on_error: ErrorPolicy = ...
    ) -> NeedsEpochs[K, V_co, TO]: ...
    @overload
    def assign_timestamps(
        self, name: str, assigner: str | int, *, on_error: ErrorPolicy = ...
    ) -> NeedsEpochs[K, V_co, Any]: ...
    def assign_timestamps(
        self,
        name: str,
        assigner: Callable[[DataMessage[K, V_co, T]], Any] | str | int,
        *,
        on_error: ErrorPolicy = "fail",
    ) -> NeedsEpochs[K, V_co, Any]:
        """Set each record's timestamp to ``assigner(message)``, of any ordered type.

        Epochs (watermarks) of the old timestamps are dropped; `NeedsEpochs.generate_epochs` makes new ones.
        `event_time` does both in one step.

        Args:
            name: the operator's name.
            assigner: returns the timestamp of a message; or the name of a field of the value, an item of a mapping or
                an attribute of any other value; or the place of an item of a tuple, from 0.
            on_error: the fate of a record without a timestamp that can be compared with others, as for `map`.
        """
        stamped = self._at(self._append(self._stamping(name, assigner, on_error)))
        self._graph.unfinished.add(name)
        kind = KeyedNeedsEpochs if self._is_keyed else NeedsEpochs
        return kind(name, stamped, self._graph.unfinished)

    def convert_timestamps(self, name: str, function: Callable[[T], TO]) -> Stream[K, V_co, TO]:
        """Replace each timestamp and each epoch (watermark) with the function's result, such as datetimes with numbers.

        Unlike `assign_timestamps` it keeps the epochs. So the function must keep the order: a later instant must not
        become an earlier one, and two timestamps of records that differ must not become one. Epochs may lie between
        timestamps, and be rounded down. Convert the late records of a stream too.

        Args:
            name: the operator's name.
            function: returns the new timestamp, or epoch.

        >>> def seconds(stream):
        ...     timed = stream.event_time("times", lambda msg: msg.value, out_of_orderness=5)
        ...     inspected = timed.convert_timestamps("seconds", lambda millis: millis // 1000)
        ...     return inspected.inspect_frontier("time", lambda epoch, ctx: print(epoch))
        >>> run([1000, 3000], seconds)
        0
        2
        MAX
        [1000, 3000]
        """
        logic = partial(ConvertTimestamps, callback=checked_function(name, "function", function, "timestamp"))
        return self._at(self._append(StatelessNode(name, logic, placed_by=self._placed_by())))

    def generate_epochs(
        self,
        name: str,
        generator: Callable[[DataMessage[K, V_co, T], T | None], T | None],
        *,
        every: Step | None = None,
        per_part: bool = True,
        idle_after: Duration | None = None,
        second: Units | None = None,
        layout: StateLayout | None = None,
    ) -> Timed[Stream[K, V_co, T]]:
        """Issue epochs (watermarks), and separate late records from those on time.

        The generator receives each message, including late ones, and the previous epoch (None at first). Its result is
        issued after the message if it is greater than the previous epoch. A record is late if its timestamp is at or
        before the previous epoch. Incoming epochs are forwarded if they are greater.

        If records are keyed by their part of a source, each part has its own epoch: the generator receives it, and it
        decides whether a record is late. So lateness depends neither on the number of workers nor on the order in which
        they read the parts. The stream's epoch is the least epoch of the worker's unfinished parts. A part without an
        epoch holds it back, even if a filter has dropped all of the part's records. After all parts have finished, the
        stream's epoch therefore depends on which one was last. If a later run finds new records in a finished part,
        those at or before the stream's epoch are late.

        Keys are parts after a keyed source, and remain so after a `stateless_op` or `stateful_op`. Such an operator
        must then keep the key of each message. After `key_local` or `key_distribute`, records of different parts can't
        be told apart; a `union` mixes the parts of several sources, and reorders records from branches of one source.
        So generating the first epochs there is an error; with ``per_part=False`` it is allowed, and a worker has one
        epoch for all of its records.

        Each epoch interrupts batching downstream: ``on_epoch`` runs and entries expire. If a generator returns a new
        epoch for nearly every record, set `every` to the precision that the downstream operators need, such as a
        minute. Epochs, including incoming ones and those of parts, are then rounded down to a multiple of it, and
        issued if the multiple is greater than the previous epoch. This makes no additional record late. The generator
        still receives the epoch before rounding, so it returns the same epochs as without `every`.

        Without input there are no new epochs, so windows stay open. With `idle_after`, time no longer waits for an
        input that has been silent for that long: a source whose parts on a worker emit nothing, or a single part if
        parts have epochs. Its epoch follows the active inputs that the stream meets downstream, on all workers: it
        advances to the least of their epochs. If all of them are silent, it advances from the greatest of their epochs
        with the clock, by the silence beyond `idle_after`. Records at or before such an epoch are late, as always. A
        backlog, a slow dataflow, downtime or an operator that drops all records does not count as silence. Results then
        depend on when records arrive, also in a run that resumes after a failure: a record that was on time may become
        late, or the reverse, but each is in exactly one of the two streams.

        Args:
            name: the operator's name; snapshots store the epochs under it.
            generator: ``(msg, epoch) -> epoch``, such as `limit_out_of_orderness` returns; None issues no epoch.
            every: a positive number or timedelta that fits the timestamps. Its multiples count from 0, or from the
                start of 1970 (UTC if the timestamps have a zone). None issues epochs as they are.
            per_part: whether each part has its own epoch, if keys are parts. If False, a part that is ahead makes
                records of the others late.
            idle_after: the silence, by the clock, after which time advances without input; None to wait for
                input.
            second: how many units of a numeric timestamp make a second, for `idle_after`: 1000 for milliseconds.
                Datetimes, dates and timedeltas don't need it. For numbers without it, and for other types, silent
                inputs follow active ones, but time stands still if all are silent.
            layout: the unit of the timestamps, in words, for programs that are generated: see `StateLayout`.

        Returns:
            The records on time and the late ones; both streams carry all epochs.

        Raises:
            GraphError: if the stream already mixes several parts or sources.

        >>> def late(stream):
        ...     on_time, late = stream.generate_epochs("now", lambda msg, previous: msg.value)
        ...     return late
        >>> run([5, 1, 2], late)
        [1, 2]
        >>> def thinned(stream):
        ...     on_time, _ = stream.generate_epochs("now", lambda msg, previous: msg.timestamp, every=2)
        ...     return on_time.inspect_frontier("time", lambda epoch, ctx: print(epoch))
        >>> run(["at 0", "at 1", "at 2", "at 3"], thinned)
        0
        2
        MAX
        ['at 0', 'at 1', 'at 2', 'at 3']
        """
        generator, port = checked_function(name, "generator", generator, "msg, epoch"), self._input(name)
        checked = isinstance(self._graph.vertices[port.vertex].node, TimestampsNode)
        node = self._epochs_node(name, generator, every, per_part, idle_after, second, layout, checked=checked)
        port = self._append(node)
        return Timed(self._at(port), self._at(Port(port.vertex, 1)))

    def _stamping(self, name: str, assigner: Any, on_error: ErrorPolicy) -> TimestampsNode:
        if isinstance(assigner, str) or is_position(assigner):
            check_name(name, location())
            check_places(name, "assigner", assigner)
            logic: Logic = partial(AssignTimestampsByField, field=assigner)
        else:
            logic = partial(AssignTimestamps, callback=checked_function(name, "assigner", assigner, "msg"))
        passes = frozenset({assigner}) if isinstance(assigner, str) else None
        return TimestampsNode(name, logic, checked_policy(name, on_error), self._placed_by(), passes)

    def _epochs_node(
        self,
        name: str,
        generator: Any,
        every: Any,
        per_part: Any,
        idle_after: Any,
        second: Any,
        layout: StateLayout | None,
        *,
        checked: bool,
    ) -> EpochsNode:
        """Return the node that generates epochs for this stream. Its timestamps may have been checked already."""
        port = self._input(name)
        check_flag(partial(malformed, name), "per_part", per_part)
        lineage = self._graph.lineage(port)
        if per_part and lineage.mixture is not None:
            raise malformed(name, _mixed(lineage.mixture))
        source = lineage.parts if per_part else None
        if source is not None and (waiting := self._graph.first_after_exchange(port)) is not None:
            raise malformed(name, _too_late(source, waiting))
        every = checked_step(name, every, getattr(generator, "bound", None))
        idle_after, second = checked_idleness(name, idle_after, second)
        options: dict[str, Any] = {"generator": generator, "every": every, "checked": checked, "idle_after": idle_after}
        logic: Callable[[OperatorContext], GenerateEpochs] = partial(GenerateEpochs, **options)
        if source is not None:
            logic = partial(GeneratePartEpochs, parts_of=source, sender=lineage.sender, **options)
        passes = frozenset[str]() if isinstance(generator, LimitedOutOfOrderness) else None
        return EpochsNode(name, logic, self._graph.settled(port), source, idle_after, second, passes, layout)


def _bound(name: str, out_of_orderness: Any) -> LimitedOutOfOrderness:
    try:
        return limit_out_of_orderness(out_of_orderness)
    except GraphError as error:
        raise malformed(name, f"can't have this out_of_orderness: {error.reason}") from None


def _too_late(source: str, vertex: Vertex) -> str:
    where = f" [{vertex.location}]" if vertex.location else ""
    return (
        f"can't have a time for each part of source '{source}': operator '{vertex.node.name}'{where} comes before it, "
        "and its records wait for data of other workers; call .event_time() or .generate_epochs() before it, or pass "
        "per_part=False for one time"
    )


def _mixed(mixture: Mixture) -> str:
    sources = " and ".join(f"'{source}'" for source in sorted(mixture.sources))
    if mixture.is_of_branches:
        return (
            f"would get the records of source {sources} in another order than they have there, so that some would be "
            f"late by the time of others; {mixture}, a batch of each in turn; call it before the branches, or pass "
            "per_part=False to accept that order"
        )
    several = "sources" if len(mixture.sources) > 1 else "all parts of source"
    return (
        f"would have one time for {several} {sources}, which are read at different speeds, so that records would be "
        f"late by the time of others; {mixture}; call .event_time() or .generate_epochs() before it, or pass "
        "per_part=False for one time"
    )
