"""The two ends of a stream: the operators that host a user's source and sink."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from malflow.batch import BATCH_SIZE, Batch, interleave
from malflow.diagnostics import operator_error, shown
from malflow.errors import (
    GraphError,
    MissingDependency,
    SourceNotReplayable,
    refuse_deferred,
    release_all,
    require_methods,
)
from malflow.message import MAX, DataMessage, NoKey
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.positions import Positions
from malflow.partitioners import check_key
from malflow.sinks.contract import StatefulSink, StatelessSink, StatelessSinkImpl, is_resumable
from malflow.sources.contract import StatefulSource, StatefulSourcePartition, StatelessSource, poll_until
from malflow.state import Delta, KeyedState

__all__ = ["Source", "StatefulSinkWriter", "StatelessSinkWriter", "list_parts"]

_SMALLEST_POLL = 64
"""Records asked of a part at least, where ticks are short enough for more than that in all."""

_SHORT_TICK_SECONDS = 0.05
_TARGET_SECONDS = 0.1
_TRY_MORE_AFTER = 16
_FASTEST_GROWTH = 64
_REPLAY_SECONDS = 30.0
_REPLAY_PAUSE = 0.01


def list_parts(
    operator_name: str, source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any]
) -> list[Any]:
    """Ask a source for its parts.

    Raises:
        OperatorError: if the source fails, a part can't be used as a key, or one is listed twice.
    """
    try:
        parts = list(source.impl.list_parts())
        for part in parts:
            check_key(part)
        twice = [part for part in parts if parts.count(part) > 1] if len(set(parts)) < len(parts) else []
    except (GraphError, MissingDependency):
        raise
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl) from error
    if twice:
        raise operator_error(operator_name, f"it lists part {shown(twice[0])} more than once", None, source.impl)
    return parts


@dataclass(frozen=True, slots=True)
class _Pickled:
    """A whole reader, where it has no position."""

    data: bytes


class Source(Operator):
    """Poll the parts of a source that this worker holds.

    `counts` tells how many records each part gave in the last tick; `replay`, where it is set, how many each must give
    in the next one: a tick that is done again reads what it read before. `most` is how many records a tick may have.

    Attributes:
        in_order: whether the parts are read one after the other.
        live_parts: the parts that are not finished, in the order listed; another object whenever they change.
        polled_parts: those that were not when the last tick began.
    """

    state: KeyedState

    def __init__(
        self,
        context: OperatorContext,
        source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
        *,
        keyed: bool,
        parts: Sequence[Any],
    ) -> None:
        super().__init__(context, source.impl)
        self.state = KeyedState(tracked=context.tracked)
        self._positions = Positions(self.state)
        self.polled = 0
        self.counts: dict[Any, int] = {}
        self.replay: Mapping[Any, int] | None = None
        self.most = BATCH_SIZE
        self.final = False
        self.in_order = bool(getattr(source.impl, "in_order", False))
        self.live_parts: tuple[Any, ...] = ()
        self.polled_parts = self.live_parts
        self._limit = BATCH_SIZE if context.debug else 1
        self._largest_limit = BATCH_SIZE
        self._polled_at = 0.0
        self._last_tick = (0, 0.0)
        self._same_ticks = 0
        self._source = source
        self._keyed = keyed
        self._listed = parts
        self._is_open = False
        self._partitions: dict[Any, Any] = {}
        self._live: dict[Any, Any] = {}
        self._just_finished: list[Any] = []
        self._parked: dict[Any, Any] = {}

    @property
    def is_finished(self) -> bool:
        """Tell whether no part of this worker will give a record again."""
        return self._is_open and not self._live

    def open(self) -> None:
        """Build the readers that are not there yet, from their positions where there are any."""
        self._is_open = True
        for part in self._listed:
            if part in self._partitions:
                continue
            state = self.state.get(part)
            partition = self._call(part, self._parked_or_built, part, state)
            poll = "poll_batch" if hasattr(partition, "poll_batch") and not hasattr(partition, "poll") else "poll"
            self._call(part, require_methods, partition, "build_part()", (poll, "is_finished"))
            self._call(
                part, refuse_deferred, partition, "build_part()", ("poll_batch", "snapshot", "collect", "suspend")
            )
            self._partitions[part] = self._live[part] = partition
            if self.context.travel is not None and not isinstance(self._source, StatefulSource):
                self._travelling(part, partition)  # one that can't is refused before it is read
        self._live = {part: self._live[part] for part in self._listed if part in self._live}
        self.live_parts = tuple(self._live)
        self._drop_finished()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Poll each part once, or the next one in order; at the end of the run give the epoch `MAX`."""
        del edges
        self.polled_parts = self.live_parts
        if self.final:
            self.polled, self.counts = 0, {}
            return ((Batch(None, (), (), ((0, MAX),)),),)
        if self.replay is None:
            self._pace()
            parts = self.live_parts[: 1 if self.in_order else None]
            polled = {part: self._poll(part, self._live[part], len(parts)) for part in parts}
        else:
            polled = {part: self._poll_again(part, count) for part, count in self.replay.items()}
        self.counts = {part: len(batch) for part, batch in polled.items() if len(batch)}
        batch = interleave(list(polled.values()))
        self.polled = len(batch)
        self._drop_finished()
        return ((batch,),)

    def rest(self) -> None:
        """Leave out of account what passed since the last tick."""
        self._polled_at = time.monotonic()

    def adapt(self, largest: int) -> None:
        """Ask for fewer records where operators make many of each, so that the largest batch stays small."""
        if self.polled:
            self._largest_limit = max(1, min(BATCH_SIZE, BATCH_SIZE * self.polled // largest))

    def _pace(self) -> None:
        """Ask for as many records as take `_TARGET_SECONDS`, what a tick takes whatever it holds left aside.

        A tick takes a fixed time and one for each record; two ticks with different numbers of records tell the latter.
        Where the number stays the same, twice as many are tried now and then.
        """
        now = time.monotonic()
        elapsed, self._polled_at = now - self._polled_at, now
        if not self.polled:
            return
        records, before = self._last_tick
        self._last_tick = (self.polled, elapsed)
        if elapsed < _SHORT_TICK_SECONDS:
            growth = min(_FASTEST_GROWTH, _SHORT_TICK_SECONDS / max(elapsed, 1e-6))
            self._limit = min(int(growth * self._limit), self._largest_limit)
            return
        if self.polled == records:
            self._same_ticks += 1
            if self._same_ticks % _TRY_MORE_AFTER == 1:
                self._limit = min(2 * self._limit, self._largest_limit)
            return
        per_record = (elapsed - before) / (self.polled - records)
        wanted = _TARGET_SECONDS / per_record if per_record > 0 else self._largest_limit
        self._limit = int(max(1, self._limit // 2, min(wanted, 2 * self._limit, self._largest_limit)))

    def settle(self) -> None:
        """Write down the positions of the parts that have moved on; a finished one stays where it is.

        Each is asked, also where it gave no record: it may have passed by some that it leaves out.
        """
        is_stateful = isinstance(self._source, StatefulSource)
        if not is_stateful and self.context.travel is None:
            return
        for part in (*self._live, *self._just_finished):
            partition = self._partitions[part]
            position = self._call(part, _snapshot, partition) if is_stateful else self._travelling(part, partition)
            self._positions.note(part, position)
        self._just_finished.clear()

    def apply(self, delta: Delta) -> None:
        """Bring the positions to where `delta` left them."""
        super().apply(delta)
        self._positions.apply(delta)

    def hand_over(self, holder_of: Callable[[Any], Source]) -> None:
        """Give each part to the source that holds it from now on.

        One that has a position and moves is collected and let go of; it is built again where it comes to. Others go
        as they are, so that a part without a position does not start over.
        """
        for part, partition in list(self._partitions.items()):
            holder, live = holder_of(part), part in self._live
            moves = live and holder.context.worker_id != self.context.worker_id
            rebuilt = moves and isinstance(self._source, StatefulSource)
            if rebuilt:
                holder.state[part] = self._call(part, _collect, partition)
            del self._partitions[part]
            self._live.pop(part, None)
            if not rebuilt:
                holder.adopt(part, partition, live=live)
            elif hasattr(partition, "suspend"):
                self._call(part, partition.suspend)

    def adopt(self, part: Any, partition: Any, *, live: bool) -> None:
        """Take over the reader of a part."""
        self._partitions[part] = partition
        if live:
            self._live[part] = partition
        else:
            self._just_finished.append(part)

    def suspend(self) -> None:
        """Let go of what the readers hold."""
        held = [*self._partitions.items(), *self._parked.items()]
        self._is_open, self._partitions, self._live, self._just_finished, self._parked = False, {}, {}, [], {}
        release_all(partial(self._call, part, it.suspend) for part, it in held if hasattr(it, "suspend"))

    def park(self) -> None:
        """Do as `suspend` does, but keep readers that may go on from the positions that `open` will find."""
        parked = {part: it for part, it in self._partitions.items() if _may_go_on(it)}
        self._partitions = {part: it for part, it in self._partitions.items() if part not in parked}
        try:
            self.suspend()
        finally:
            self._parked = parked

    def _parked_or_built(self, part: Any, state: Any) -> Any:
        parked = self._parked.pop(part, None)
        if parked is not None:
            if state is not None and parked.go_on_from(state):
                return parked
            parked.suspend()
        return self._build(part, state)

    def _build(self, part: Any, state: Any) -> Any:
        if state is None or isinstance(self._source, StatefulSource):
            return self._source.build_part(part, state)
        if isinstance(state, _Pickled):
            return pickle.loads(state.data)  # noqa: S301 - this run wrote it
        return self._source.impl.resume_part(part, state)  # type: ignore[attr-defined] # it gave a position

    def _travelling(self, part: Any, partition: Any) -> Any:
        """Give what a reader without a position of its own goes on from in another process.

        Raises:
            GraphError: if nothing can be given.
        """
        if hasattr(self._source.impl, "resume_part") and hasattr(partition, "position"):
            return self._call(part, partition.position)
        if self.context.travel is None:
            return None
        try:
            return _Pickled(self.context.travel(partition))
        except Exception as error:
            raise GraphError(
                f"the reader of part {shown(part)} of source '{self.context.operator_name}' can't move to another "
                f"process: {type(error).__name__}: {error}; write it as a StatefulSource, whose parts are built where "
                "they are read, from a position",
                operator=self.context.operator_name,
            ) from error

    def _poll(self, part: Any, partition: Any, parts: int) -> Batch:
        limit = max(min(self._limit, _SMALLEST_POLL), self._limit // parts)
        limit = max(1, min(limit, self.most // parts))
        values, timestamps = self._take(part, partition, limit)
        return Batch([part] * len(values) if self._keyed else None, values, timestamps)

    def _poll_again(self, part: Any, count: int) -> Batch:
        """Read as many records as were read before."""
        values: list[Any] = []
        timestamps: list[Any] = []
        deadline = time.monotonic() + _REPLAY_SECONDS
        while len(values) < count:
            partition = self._partitions[part]
            more, at = self._take(part, partition, count - len(values))
            values.extend(more)
            timestamps.extend(at)
            if not more and (self._call(part, _is_finished, partition) or time.monotonic() > deadline):
                break
            if not more:
                time.sleep(_REPLAY_PAUSE)
        if len(values) != count:
            raise SourceNotReplayable(
                f"source '{self.context.operator_name}' gave {count} records of part {shown(part)} at first, and "
                f"{len(values)} when they were read again"
            )
        return Batch([part] * count if self._keyed else None, values, timestamps)

    def _take(self, part: Any, partition: Any, limit: int) -> tuple[Sequence[Any], Sequence[Any]]:
        if hasattr(partition, "poll_batch"):
            answer = self._call(part, partition.poll_batch, limit)
        else:
            answer = self._call(part, poll_until, partition, limit)
        return self._call(part, _two_columns, answer)  # type: ignore[no-any-return] # what _two_columns gives

    def _drop_finished(self) -> None:
        finished = [part for part, partition in self._live.items() if self._call(part, _is_finished, partition)]
        for part in finished:
            del self._live[part]
        self._just_finished.extend(finished)
        if len(self._live) != len(self.live_parts):
            self.live_parts = tuple(self._live)

    def _call(self, part: Any, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise self.error(error, about=f"part {shown(part)}") from error


def _may_go_on(partition: Any) -> bool:
    """Whether a reader has more to say of going on than that it can't."""
    kind = StatefulSourcePartition
    return isinstance(partition, kind) and type(partition).go_on_from is not kind.go_on_from


class StatelessSinkWriter(Operator):
    """Hand records to a stateless sink."""

    def __init__(self, context: OperatorContext, sink: StatelessSink[Any, Any, Any]) -> None:
        super().__init__(context, sink.impl)
        self.resource: object = sink.impl

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Write the records."""
        if len(batch):
            _write(self, self.callback, batch)
        return ()

    @property
    def is_resumable(self) -> bool:
        """Whether the sink's position is kept."""
        return is_resumable(self.callback)

    def position(self) -> Any:
        """Return the sink's position after all that was written.

        Raises:
            OperatorError: if the sink fails.
        """
        try:
            return self.callback.snapshot()
        except Exception as error:
            raise self.error(error, about="snapshot") from error

    def restore(self, position: Any) -> None:
        """Return the sink to a position.

        Raises:
            OperatorError: if the sink can't.
        """
        try:
            self.callback.restore(position)
        except Exception as error:
            raise self.error(error, about="restore") from error

    @property
    def reader_is_gone(self) -> bool:
        """Whether nobody reads what is written any more, so that the run should end."""
        return bool(getattr(self.callback, "reader_is_gone", False))

    def flush(self) -> None:
        """Make what was written visible."""
        _call_optional(self, self.callback, "flush")

    def close(self) -> None:
        """Let go of what the sink holds."""
        _call_optional(self, self.callback, "close")


class StatefulSinkWriter(Operator):
    """Hand records to the parts of a stateful sink that this worker holds."""

    state: KeyedState

    def __init__(self, context: OperatorContext, sink: StatefulSink[Any, Any, Any, Any, Any]) -> None:
        super().__init__(context, sink.impl)
        self.state = KeyedState(tracked=context.tracked)
        self._positions = Positions(self.state)
        self.resource: object = self
        self._partitions: dict[Any, Any] = {}

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Part the records, give each its own key back, and write them."""
        chosen: dict[Any, list[int]] = {}
        for index, part in enumerate(batch.key_column()):
            chosen.setdefault(part, []).append(index)
        for part, indices in chosen.items():
            records = batch.take(indices)
            keys, values = zip(*records.values, strict=True)
            _write(self, self._partition(part), Batch(keys, values, records.timestamps))
        return ()

    def settle(self) -> None:
        """Write down the states of the parts built so far, where they have changed.

        Each is asked, also where it got no record: it may change with every flush.
        """
        for part, partition in self._partitions.items():
            self._positions.note(part, self._call(part, _snapshot, partition))

    def apply(self, delta: Delta) -> None:
        """Bring the states of the parts to where `delta` left them."""
        super().apply(delta)
        self._positions.apply(delta)

    def hand_over(self, holder_of: Callable[[Any], StatefulSinkWriter]) -> None:
        """Give each part to the writer that holds it from now on; one that moves is collected, closed, built again."""
        for part, partition in list(self._partitions.items()):
            holder = holder_of(part)
            moves = holder.context.worker_id != self.context.worker_id
            if moves:
                holder.state[part] = self._call(part, _collect, partition)
            del self._partitions[part]
            if moves:
                _call_optional(self, partition, "close")
            else:
                holder.adopt(part, partition)

    def adopt(self, part: Any, partition: Any) -> None:
        """Take over the writer of a part."""
        self._partitions[part] = partition

    def flush(self) -> None:
        """Make what was written visible."""
        release_all(partial(_call_optional, self, partition, "flush") for partition in self._partitions.values())

    def close(self) -> None:
        """Let go of what the parts hold; they are built again when records come."""
        partitions, self._partitions = self._partitions, {}
        release_all(partial(_call_optional, self, partition, "close") for partition in partitions.values())

    def _partition(self, part: Any) -> Any:
        if part not in self._partitions:
            partition = self._call(part, self.callback.build_part, part, self.state.get(part))
            needed = ("sink", "snapshot") if self.context.tracked else ("sink",)
            self._call(part, require_methods, partition, "build_part()", needed)
            self._call(part, refuse_deferred, partition, "build_part()", ("sink_batch", "snapshot", "flush", "close"))
            self._partitions[part] = partition
        return self._partitions[part]

    def _call(self, part: Any, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise self.error(error, about=f"part {shown(part)}") from error


def _write(operator: Operator, sink: Any, batch: Batch) -> None:
    write_batch = _batch_method(sink)
    if write_batch is not None:
        try:
            keys = [NoKey] * len(batch) if batch.keys is None else batch.keys
            write_batch(keys, batch.values, batch.timestamps)
        except Exception as error:
            raise operator.error(error) from error
        return
    write, rest = sink.sink, iter(batch.values)
    try:
        for message in map(DataMessage, batch.key_column(), rest, batch.timestamps):
            write(message)
    except Exception as error:
        raise operator.fail(error, batch, rest) from error


def _batch_method(sink: Any) -> Callable[..., Any] | None:
    """Give `sink_batch`, unless it is only the contract's, or a class below the one that has it has its own `sink`."""
    for cls in type(sink).__mro__:
        if "sink_batch" in vars(cls):
            return None if cls is StatelessSinkImpl else sink.sink_batch
        if "sink" in vars(cls):
            return None
    return getattr(sink, "sink_batch", None)


def _call_optional(operator: Operator, sink: Any, method: str) -> None:
    try:
        getattr(sink, method, _nothing)()
    except Exception as error:
        raise operator.error(error, about=method) from error


def _is_finished(partition: Any) -> bool:
    return bool(partition.is_finished())


def _snapshot(partition: Any) -> Any:
    return partition.snapshot()


def _collect(partition: Any) -> Any:
    return partition.collect() if hasattr(partition, "collect") else partition.snapshot()


def _nothing() -> None:
    return None


def _two_columns(answer: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    values, timestamps = answer
    if len(values) != len(timestamps):
        raise ValueError(f"poll_batch gave {len(values)} values and {len(timestamps)} timestamps")
    return _counted(values), _counted(timestamps)


def _counted(column: Sequence[Any]) -> Sequence[Any]:
    """Take a column whose iterators tell how far they are, so that a record at fault can be found."""
    return column if type(column) in (list, tuple, range) else list(column)
