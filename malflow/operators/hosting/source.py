"""The operator that hosts a user's source."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self

from malflow.diagnostics import operator_error, short_repr
from malflow.errors import (
    GraphError,
    MissingDependency,
    OperatorError,
    refuse_deferred,
    release_all,
    require_methods,
)
from malflow.event_time.tick import Tick
from malflow.message import MAX
from malflow.operators.contract import OperatorContext
from malflow.operators.hosting.part_operator import PartOperator
from malflow.operators.hosting.poll_pacing import PollPacing
from malflow.operators.hosting.reader_methods import Lags, lag_of, offers_own
from malflow.operators.waiting import OperatorTime
from malflow.partitioners import check_key
from malflow.records.batch import BATCH_SIZE, Batch, interleave
from malflow.records.rows import Rows
from malflow.sources.contract import StatefulSource, StatefulSourcePartition, StatelessSource, poll_until

__all__ = ["Source", "gone_error", "list_parts", "refuse_gone"]

_NO_TIME = timedelta(0)


def list_parts(
    operator_name: str, source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any]
) -> list[Any]:
    """Return the parts that a source lists.

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
        raise operator_error(operator_name, f"it lists part {short_repr(twice[0])} more than once", None, source.impl)
    return parts


def refuse_gone(
    operator_name: str,
    source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
    part: Any,
    position: Any,
) -> None:
    """Refuse a part that is listed no more, unless the reader built from its last position is finished.

    Raises:
        OperatorError: naming the part.
    """
    about = f"part {short_repr(part)}"
    try:
        is_pickled = isinstance(position, _PickledReader)
        reader = pickle.loads(position.data) if is_pickled else source.build_part(part, position)  # noqa: S301 - of this run
        is_finished = bool(reader.is_finished())
        if hasattr(reader, "suspend"):
            reader.suspend()
    except Exception as error:
        raise operator_error(operator_name, error, None, source.impl, about=f"{about}, which is gone") from error
    if not is_finished:
        raise gone_error(operator_name, part, source.impl)


def gone_error(operator_name: str, part: Any, impl: Any) -> OperatorError:
    """Return the error that says that an unfinished part is listed no more."""
    reason = (
        "list_parts() lists it no more, though its reader is not finished; bring it back, start without the snapshot "
        "by restore=None, or have its reader say is_finished()"
    )
    return operator_error(operator_name, reason, None, impl, about=f"part {short_repr(part)}")


@dataclass(frozen=True, slots=True)
class _PickledReader:
    """A reader without a position, pickled whole."""

    data: bytes


class Source(PartOperator):
    """Poll the parts of a source that this worker holds.

    Attributes:
        polled: the number of records polled in the last tick.
        polled_by_part: the same for each part that emitted any.
        pauses: whether the next tick polls nothing.
        most: how many records a tick may poll.
        final: whether the next tick is the last, which emits the epoch `MAX` and polls nothing.
        heard: when the last tick began in which each part emitted records; of this worker's process.
        in_order: whether the parts are read one after the other.
        live_parts: the parts that are not finished, in the order listed; replaced by another object when they change.
        polled_parts: the value of `live_parts` when the last tick began.
    """

    def __init__(
        self,
        context: OperatorContext,
        source: StatelessSource[Any, Any, Any] | StatefulSource[Any, Any, Any, Any],
        *,
        keyed: bool,
        parts: Sequence[Any],
    ) -> None:
        super().__init__(context, source.impl)
        self.polled = 0
        self.polled_by_part: dict[Any, int] = {}
        self.pauses = False
        self.most = BATCH_SIZE
        self.final = False
        self.heard: dict[Any, datetime] = {}
        self.in_order = bool(getattr(source.impl, "in_order", False))
        self.live_parts: tuple[Any, ...] = ()
        self.polled_parts = self.live_parts
        self._pacing = PollPacing(BATCH_SIZE if context.debug else 1)
        self._now = datetime.now(UTC)
        self._source = source
        self._keyed = keyed
        self._listed = parts
        self._discovered: Collection[Any] = ()
        self._is_open = False
        self._live: dict[Any, Any] = {}
        self._just_finished: list[Any] = []
        self._finished: set[Any] = set()
        self._newly_finished: list[Any] = []
        self._parked: dict[Any, Any] = {}
        self._confirming: set[Any] = set()
        self._lagging: set[Any] = set()

    @property
    def is_finished(self) -> bool:
        """Whether all parts of this worker are finished."""
        return self._is_open and not self._live

    def has_part(self, part: Any) -> bool:
        """Whether a part is read on this worker, or has been read to its end."""
        return part in self._partitions

    def set_parts(self, parts: Sequence[Any], discovered: Collection[Any]) -> None:
        """Set the parts of this worker, of which some are new; `open` builds the readers of these.

        Args:
            parts: the parts.
            discovered: those that have appeared since the job's first start.
        """
        self._listed, self._discovered = parts, discovered

    def open(self) -> None:
        """Build the missing readers, from their positions if they have any."""
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
            if part not in self._finished:
                self._live[part] = partition
            self._add_reader(part, partition)
            if self.context.pickle_reader is not None and not isinstance(self._source, StatefulSource):
                self._pickled(part, partition)  # one that can't is refused before it is read
        self._live = {part: self._live[part] for part in self._listed if part in self._live}
        self.live_parts = tuple(self._live)
        self._drop_finished()

    def begin_tick(self, tick: Tick) -> None:
        """Set the clock of the readers that have one."""
        self._now = tick.now
        for part, partition in self._live.items():
            if hasattr(partition, "set_clock"):
                self._call(part, partition.set_clock, tick.now, tick.started)

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Poll each part once, or only the next one in order; emit the epoch `MAX` if the run ends."""
        del edges
        self.polled_parts = self.live_parts
        if self.final:
            self.polled, self.polled_by_part = 0, {}
            return ((Batch(None, (), (), ((0, MAX),)),),)
        polled: dict[Any, Batch] = {}
        if not self.pauses:
            self._pacing.start_tick(self.polled)
            parts = self.live_parts[: 1 if self.in_order else None]
            polled = {part: self._poll(part, self._live[part], len(parts)) for part in parts}
        self.polled_by_part = {part: len(batch) for part, batch in polled.items() if len(batch)}
        self.heard.update(dict.fromkeys(self.polled_by_part, self._now))
        batch = interleave(list(polled.values()))
        self.polled = len(batch)
        self._drop_finished()
        return ((batch,),)

    def time(self) -> OperatorTime:
        """Return when each unfinished part was last heard."""
        return OperatorTime(heard=[(part, self.heard.get(part)) for part in self.live_parts])

    def reset_pacing(self) -> None:
        """Ignore the time since the last tick when the poll limit is adjusted."""
        self._pacing.reset()

    def limit_batch(self, growth: float) -> None:
        """Poll fewer records where operators emit many for each, so that the largest batch stays small."""
        self._pacing.limit_batch(growth)

    def take_skipped(self) -> timedelta:
        """Return how much time the clock of ticks skips, by the readers of test scripts, since the last call."""
        live = self._live.values()
        return max((it.take_skipped() for it in live if hasattr(it, "take_skipped")), default=_NO_TIME)

    def transfer_parts(self, holder_of: Callable[[Any], Self]) -> None:
        """Transfer each part to its holder.

        A reader with a position that changes worker is collected, suspended and built again there. Other readers are
        passed on as they are, so that a part without a position does not start over.
        """
        for part, partition in list(self._partitions.items()):
            holder, live = holder_of(part), part in self._live
            moves = live and holder.context.worker_id != self.context.worker_id
            rebuilt = moves and isinstance(self._source, StatefulSource)
            if rebuilt:
                holder.state[part] = self._collect(part)
            del self._partitions[part]
            self._live.pop(part, None)
            self._confirming.discard(part)
            self._lagging.discard(part)
            if not rebuilt:
                holder.attach(part, partition, live=live)
            elif hasattr(partition, "suspend"):
                self._call(part, partition.suspend)
        for part in self._finished:
            holder_of(part).finish((part,))

    def attach(self, part: Any, partition: Any, *, live: bool) -> None:
        """Take over the reader of a part."""
        self._add_reader(part, partition)
        if live:
            self._live[part] = partition
        else:
            self._just_finished.append(part)

    def take_finished(self, *, whole: bool) -> list[Any]:
        """Return the parts that have finished since the last call, or all that have finished in this run."""
        new, self._newly_finished = self._newly_finished, []
        return list(self._finished) if whole else new

    def finish(self, parts: Iterable[Any]) -> None:
        """Note parts that finished earlier in this run: their readers are not polled again, whatever they say."""
        self._finished.update(parts)

    @property
    def confirms(self) -> bool:
        """Whether a reader confirms positions, by ``committed``."""
        return bool(self._confirming)

    def positions(self) -> dict[Any, Any]:
        """Return the positions in the last delta, of the parts whose readers confirm them."""
        return {part: self.state[part] for part in self._confirming if part in self.state}

    def confirm(self, positions: Mapping[Any, Any]) -> list[Exception]:
        """Pass positions in a durable snapshot to the readers of these parts; return the errors of those that fail.

        A part that is not read here any more is left out.
        """
        errors: list[Exception] = []
        for part in positions:
            if part not in self._confirming or part not in self._partitions:
                continue
            try:
                self._partitions[part].committed(positions[part])
            except Exception as error:  # noqa: BLE001 - the run goes on, and its listeners hear of it
                errors.append(self.error(error, about=f"part {short_repr(part)}"))
                errors[-1].__cause__ = error
        return errors

    @property
    def tells_lag(self) -> bool:
        """Whether a reader tells how much waits behind its position, by ``lag``."""
        return bool(self._lagging)

    def lags(self) -> Lags:
        """Return the lag of each unfinished part whose reader tells it."""
        return {part: self._call(part, lag_of, it) for part, it in self._live.items() if part in self._lagging}

    def _add_reader(self, part: Any, partition: Any) -> None:
        self._partitions[part] = partition
        if isinstance(self._source, StatefulSource) and offers_own(partition, "committed"):
            self._confirming.add(part)
        if offers_own(partition, "lag"):
            self._lagging.add(part)

    def close(self) -> None:
        """Suspend the readers."""
        held = [*self._partitions.items(), *self._parked.items()]
        self._is_open, self._partitions, self._live, self._just_finished, self._parked = False, {}, {}, [], {}
        self._confirming, self._lagging = set(), set()
        release_all(partial(self._call, part, it.suspend) for part, it in held if hasattr(it, "suspend"))

    def park(self) -> None:
        """Suspend the readers, but keep those that may continue from the positions that `open` will find."""
        parked = {part: it for part, it in self._partitions.items() if _may_go_on(it)}
        self._partitions = {part: it for part, it in self._partitions.items() if part not in parked}
        try:
            self.close()
        finally:
            self._parked = parked

    def _parked_or_built(self, part: Any, state: Any) -> Any:
        parked = self._parked.pop(part, None)
        if parked is not None:
            if state is not None and parked.go_on_from(state):
                return parked
            parked.suspend()
        return self._build(part, state)

    def _note_positions(self) -> None:
        is_stateful = isinstance(self._source, StatefulSource)
        if not is_stateful and self.context.pickle_reader is None:
            return
        for part in (*self._live, *self._just_finished):  # one that finished earlier stays where it is
            position = self._snapshot(part) if is_stateful else self._pickled(part, self._partitions[part])
            self._positions.note(part, position)
        self._just_finished.clear()

    def _build(self, part: Any, state: Any) -> Any:
        if isinstance(self._source, StatefulSource):
            is_new = state is None and part in self._discovered
            return self._source.build_discovered_part(part) if is_new else self._source.build_part(part, state)
        if state is None:
            return self._source.build_part(part, None)
        if isinstance(state, _PickledReader):
            return pickle.loads(state.data)  # noqa: S301 - this run wrote it
        return self._source.impl.resume_part(part, state)  # type: ignore[attr-defined] # it gave a position

    def _pickled(self, part: Any, partition: Any) -> Any:
        """Return a pickle with which another process can continue a reader that has no position.

        Raises:
            GraphError: if the reader can't be pickled.
        """
        if hasattr(self._source.impl, "resume_part") and hasattr(partition, "position"):
            return self._call(part, partition.position)
        if self.context.pickle_reader is None:
            return None
        try:
            return _PickledReader(self.context.pickle_reader(partition))
        except Exception as error:
            raise GraphError(
                f"the reader of part {short_repr(part)} of source '{self.context.operator_name}' can't move to another "
                f"process: {type(error).__name__}: {error}; write it as a StatefulSource, whose parts are built where "
                "they are read, from a position",
                operator=self.context.operator_name,
            ) from error

    def _poll(self, part: Any, partition: Any, parts: int) -> Batch:
        limit = max(1, min(self._pacing.part_limit(parts), self.most // parts))
        values, timestamps = self._take(part, partition, limit)
        return Batch([part] * len(values) if self._keyed else None, values, timestamps)

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
        self._newly_finished.extend(finished)
        self._finished.update(finished)
        if len(self._live) != len(self.live_parts):
            self.live_parts = tuple(self._live)


def _may_go_on(partition: Any) -> bool:
    """Whether a reader overrides `go_on_from`."""
    kind = StatefulSourcePartition
    return isinstance(partition, kind) and type(partition).go_on_from is not kind.go_on_from


def _is_finished(partition: Any) -> bool:
    return bool(partition.is_finished())


def _two_columns(answer: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    values, timestamps = answer
    if len(values) != len(timestamps):
        raise ValueError(f"poll_batch gave {len(values)} values and {len(timestamps)} timestamps")
    return _counted(values), _counted(timestamps)


def _counted(column: Sequence[Any]) -> Sequence[Any]:
    """Return a column whose iterators have a length hint, by which a failing record is found."""
    return column if type(column) in (list, tuple, range, Rows) else list(column)
