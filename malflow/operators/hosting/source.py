"""The operator that hosts a user's source."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from time import monotonic
from typing import Any, Self

from malflow.errors import GraphError, release_all
from malflow.event_time.tick import Tick
from malflow.message import MAX
from malflow.operators.contract import OperatorContext
from malflow.operators.failures.guard import Guard
from malflow.operators.hosting.parts import PartOperator
from malflow.operators.hosting.poll_limits import PollLimits
from malflow.operators.hosting.reader import Lags, PickledReader, Reader, Share, lag_of, share_of, total_share
from malflow.operators.waiting import OperatorTime
from malflow.records.batch import Batch, concat, interleave
from malflow.records.columnar import is_columnar
from malflow.sources.contract import Rejected, StatefulSource, StatelessSource
from malflow.words import error_line, error_text, qualified_name, short_repr

__all__ = ["Source", "reading"]

_NO_TIME = timedelta(0)

_SHARE_SECONDS = 0.2
"""The least time between two reports of how much was read, since a report may take longer than a tick."""


class Source(PartOperator):
    """Poll the parts of a source that this worker holds.

    Attributes:
        polled: the number of records polled in the last tick, including those that could not be read.
        emitted: the number of records emitted in the last tick.
        polled_by_part: the same for each part that emitted records.
        pauses: whether the next tick polls nothing.
        limits: how many records a tick polls.
        final: whether the next tick is the last, which emits the epoch `MAX` and polls nothing.
        heard: the start of the last tick in which each part emitted records, in this process.
        in_order: whether the parts are read one after the other.
        live_parts: the unfinished parts, in the order listed; replaced by a new object when they change.
        polled_parts: the value of `live_parts` when the last tick began.
        asked_parts: the parts that were polled in the last tick.
        may_get_more: whether parts that no worker has read yet may come to this one.
        polls: how often the source was polled since a worker last set this to zero.
        saturated: how many of these polls filled the limit of a part.
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
        self._again = 0  # the records that were read again in this tick, after a replay
        self.polled = self.emitted = 0
        self.polled_by_part: dict[Any, int] = {}
        self.polls = self.saturated = 0
        self.pauses = False
        self.final = False
        self.heard: dict[Any, datetime] = {}
        self.in_order = bool(getattr(source.impl, "in_order", False))
        self.live_parts: tuple[Any, ...] = ()
        self.polled_parts = self.live_parts
        self.limits = PollLimits(self._poll, self._is_at_end)
        self._now = datetime.now(UTC)
        self._source = source
        self._has_positions = isinstance(source, StatefulSource)
        self._keyed = keyed
        self.asked_parts: Sequence[Any] = ()
        self.may_get_more = False
        self._in_turn = False
        self._listed = [*parts]
        self._waiting: Collection[Any] = ()
        self._discovered: Collection[Any] = ()
        self._is_open = False
        self._readers: dict[Any, Reader] = {}
        self._parked: dict[Any, Reader] = {}
        self._finished: set[Any] = set()
        self._newly_finished: list[Any] = []
        self._untold: list[Any] = []
        self._share_due = 0.0
        self._share_of: tuple[Any, ...] | None = None
        self._ended_of: tuple[Any, ...] | None = None
        self._ended: list[Share | None] = []

    @property
    def is_finished(self) -> bool:
        """Whether all parts of this worker are finished."""
        return self._is_open and not self.live_parts

    @property
    def finished(self) -> Collection[Any]:
        """The parts that have been read to their end in this run."""
        return self._finished

    @property
    def parts(self) -> Sequence[Any]:
        """The parts of this worker, in the order in which it got them."""
        return self._listed

    def has_part(self, part: Any) -> bool:
        """Whether a part is being read on this worker, or has been."""
        return part in self._readers

    def set_parts(self, parts: Sequence[Any], discovered: Collection[Any], waiting: Collection[Any] = ()) -> None:
        """Set the parts of this worker; `open` builds the readers of new ones.

        Args:
            parts: the parts.
            discovered: the parts that appeared after the job's first start.
            waiting: parts that no worker had read then. If one has a position now, this worker has got it since.
        """
        self._listed, self._discovered, self._waiting = [*parts], discovered, waiting
        self.may_get_more = self._in_turn = bool(waiting)

    def take_parts(self, parts: Sequence[Any], *, may_get_more: bool) -> None:
        """Build the readers of parts that are handed out; a tick may begin several times.

        Args:
            parts: the parts that this worker gets.
            may_get_more: whether parts that no worker has read yet may come to it.
        """
        new = [part for part in parts if part not in self._readers]
        for part in new:
            self._open_reader(part)
        self._listed += new
        if new or may_get_more != self.may_get_more:
            self.may_get_more = may_get_more
            self.live_parts = (*self.live_parts, *(part for part in new if self._readers[part].is_live))
            self._drop_finished()

    def open(self) -> None:
        """Build the missing readers, from their positions if they have one."""
        self._is_open = True
        if self._waiting:
            held, waiting = set(self._listed), set(self._waiting)
            self._listed += [part for part in self.state if part in waiting and part not in held]
        for part in self._listed:
            if part not in self._readers:
                self._open_reader(part)
        listed = set(self._listed)
        for part, reader in self._readers.items():
            reader.is_live = reader.is_live and part in listed
        self._note_live()
        self._drop_finished()

    def _open_reader(self, part: Any) -> None:
        partition = self._call(part, self._parked_or_built, part, self.state.get(part))
        reader = Reader(partition, has_position=self._has_positions)
        self._call(part, reader.check)
        reader.is_live = part not in self._finished
        self._readers[part] = reader
        if self.context.pickle_reader is not None and not self._has_positions:
            self._pickled(part, partition)  # a reader that can't be pickled is rejected before it is read

    def _note_live(self) -> None:
        self.live_parts = tuple(
            part for part in self._listed if (reader := self._readers.get(part)) is not None and reader.is_live
        )

    def begin_tick(self, tick: Tick) -> None:
        """Set the poll limit, and the clock of the readers that have one."""
        self._now, self.limits.limit = tick.now, tick.limit
        for part in self.live_parts:
            self._call(part, self._readers[part].set_clock, tick)

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Poll each part, or only the next one in order; emit the epoch `MAX` if the run ends."""
        del edges
        self.polled_parts = self.live_parts
        if self.final:
            self.polled, self.emitted, self.polled_by_part = 0, 0, {}
            return ((Batch(None, (), (), ((0, MAX),)),),)
        polled: dict[Any, Batch] = {}
        limit = 0
        self.asked_parts = parts = self.live_parts[: 1 if self.in_order else None]
        if not self.pauses:
            limit = self.limits.of_part(1 if self._in_turn else len(parts) or 1)
            polled = self._poll_in_turn(limit) if self._in_turn else self.limits.side_by_side(parts, limit)
        self.polled = 0 if self.guard is None else sum(self._reject(part, self.guard) for part in polled)
        self.polled_by_part = {part: len(batch) for part, batch in polled.items() if len(batch)}
        if polled:
            self.polls += 1
            self.saturated += max(self.polled_by_part.values(), default=0) >= limit
        self.heard.update(dict.fromkeys(self.polled_by_part, self._now))
        batches = [*polled.values()]
        batch = concat(batches) if self._in_turn and batches else interleave(batches)
        self.limits.note(batch)
        self.emitted, self._again = len(batch) + self._again, 0
        self.polled += len(batch)
        self._drop_finished()
        return ((batch,),)

    def time(self) -> OperatorTime:
        """Return the last tick start with records for each unfinished part."""
        return OperatorTime(heard=[(part, self.heard.get(part)) for part in self.live_parts])

    def take_skipped(self) -> timedelta:
        """Return the time, set by readers of test scripts, by which to advance the clock of ticks."""
        return max((self._readers[part].take_skipped() for part in self.live_parts), default=_NO_TIME)

    def transfer_parts(self, holder_of: Callable[[Any], Self]) -> None:
        """Transfer each part to its holder.

        A reader with a position that moves is collected, suspended and rebuilt there. Other readers are passed on
        unchanged. A part without a position thus does not start over.
        """
        for part, reader in list(self._readers.items()):
            holder = holder_of(part)
            moves = reader.is_live and holder.context.worker_id != self.context.worker_id
            rebuilt = moves and self._has_positions
            if rebuilt:
                holder.state[part] = self._collect(part, reader.partition)
            del self._readers[part]
            if rebuilt:
                self._call(part, reader.suspend)
            else:
                holder.attach(part, reader)
        for part in self._finished:
            holder_of(part).finish((part,))

    def give_up(self, parts: Collection[Any]) -> list[Any]:
        """Suspend the readers of parts that another worker reads from now on; their positions are in the state.

        Returns:
            The parts that have been read to their end in this run.
        """
        for part in parts:
            reader = self._readers.pop(part, None)
            if reader is None:
                continue
            if reader.is_live and self._has_positions:
                self.state[part] = self._collect(part, reader.partition)
            elif reader.must_note and self._has_positions:
                self.state[part] = self._snapshot(part, reader.partition)
            self._call(part, reader.suspend)
        ended = [part for part in parts if part in self._finished]
        self._finished.difference_update(ended)
        self._note_live()
        return ended

    def attach(self, part: Any, reader: Reader) -> None:
        """Take over the reader of a part."""
        self._readers[part] = reader
        reader.must_note = not reader.is_live

    def take_finished(self, *, whole: bool) -> list[Any]:
        """Return the parts that have finished since the last call, or all that have finished in this run."""
        new, self._newly_finished = self._newly_finished, []
        return list(self._finished) if whole else new

    def finish(self, parts: Iterable[Any]) -> None:
        """Mark parts that finished earlier in this run: their readers are not polled again."""
        again = [*parts]
        self._finished.update(again)
        self._untold.extend(again)

    @property
    def has_ended(self) -> bool:
        """Whether parts have ended since `take_ended`."""
        return bool(self._untold)

    def take_ended(self) -> list[Any]:
        """Return the parts that have ended since the last call; all of them if they came from another worker."""
        ended, self._untold = self._untold, []
        return ended

    @property
    def confirms(self) -> bool:
        """Whether a reader confirms positions, by ``committed``."""
        return any(reader.confirms for reader in self._readers.values())

    def positions(self) -> dict[Any, Any]:
        """Return the positions in the last delta, of the parts with readers that confirm them."""
        return {part: self.state[part] for part, it in self._readers.items() if it.confirms and part in self.state}

    def confirm(self, positions: Mapping[Any, Any]) -> list[Exception]:
        """Pass positions in a durable snapshot to their readers; return the errors of readers that fail.

        A part that is no longer read here is skipped.
        """
        errors: list[Exception] = []
        for part in positions:
            reader = self._readers.get(part)
            if reader is None or not reader.confirms:
                continue
            try:
                reader.partition.committed(positions[part])
            except Exception as error:  # noqa: BLE001 - the run continues, and its listeners are notified
                errors.append(self.error(error, about=f"part {short_repr(part)}"))
                errors[-1].__cause__ = error
        return errors

    @property
    def tells_lag(self) -> bool:
        """Whether a reader reports how much input waits after its position, by ``lag``."""
        return any(reader.tells_lag for reader in self._readers.values())

    def lags(self) -> Lags:
        """Return the lag of each unfinished part with a reader that reports it."""
        telling = (part for part in self.live_parts if self._readers[part].tells_lag)
        return {part: self._call(part, lag_of, self._readers[part].partition) for part in telling}

    @property
    def tells_share(self) -> bool:
        """Whether it is time to report how much was read, and a reader has ``share``.

        That is the case a few times a second, and after a tick in which a part ended.
        """
        now = monotonic()
        if now < self._share_due and self._share_of is self.live_parts:
            return False
        self._share_due, self._share_of = now + _SHARE_SECONDS, self.live_parts
        return any(reader.tells_share for reader in self._readers.values())

    def share(self) -> Share | None:
        """Return how much of all parts has been read, and their total size; None if that of any part is unknown."""
        if self._ended_of is not self.live_parts:  # ended parts are asked once
            ended = [part for part, reader in self._readers.items() if not reader.is_live]
            self._ended_of, self._ended = self.live_parts, [self._share(part) for part in ended]
        return total_share([*self._ended, *map(self._share, self.live_parts)])

    def _share(self, part: Any) -> Share | None:
        reader = self._readers[part]
        return self._call(part, share_of, reader.partition) if reader.tells_share else None

    def close(self) -> None:
        """Suspend the readers."""
        held = [*self._readers.items(), *self._parked.items()]
        self._is_open, self._readers, self._parked, self.live_parts = False, {}, {}, ()
        release_all(partial(self._call, part, reader.suspend) for part, reader in held)

    def park(self) -> None:
        """Suspend the readers, except for those that can continue from the positions that `open` will find."""
        parked = {part: reader for part, reader in self._readers.items() if reader.may_go_on}
        self._readers = {part: reader for part, reader in self._readers.items() if part not in parked}
        try:
            self.close()
        finally:
            self._parked = parked

    def _parked_or_built(self, part: Any, state: Any) -> Any:
        parked = self._parked.pop(part, None)
        if parked is not None:
            if state is not None and parked.partition.go_on_from(state):
                return parked.partition
            parked.suspend()
        return self._build(part, state)

    def note_positions(self) -> None:
        """Write changed positions to the state."""
        if not self._has_positions and self.context.pickle_reader is None:
            return
        note = self._snapshot if self._has_positions else self._pickled
        for part, reader in self._readers.items():
            if reader.is_live or reader.must_note:  # a part that finished earlier stays where it is
                self._positions.note(part, note(part, reader.partition))
                reader.must_note = False

    def _build(self, part: Any, state: Any) -> Any:
        if isinstance(self._source, StatefulSource):
            is_new = state is None and part in self._discovered
            return self._source.build_discovered_part(part) if is_new else self._source.build_part(part, state)
        if state is None:
            return self._source.build_part(part, None)
        if isinstance(state, PickledReader):
            return pickle.loads(state.data)  # noqa: S301 - this run wrote it
        return self._source.impl.resume_part(part, state)  # type: ignore[attr-defined] # it returned a position

    def states_to_move(self, pickle_reader: Callable[[Any], bytes]) -> Mapping[Any, Any]:
        """Return the data from which another process continues each part: its position, or a pickle of its reader.

        Args:
            pickle_reader: pickles a reader without a position.

        Raises:
            GraphError: if a reader can't be pickled.
        """
        if self._has_positions:
            return self.state
        live = {part: reader for part, reader in self._readers.items() if reader.is_live}
        return {part: self._pickled(part, reader.partition, pickle_reader) for part, reader in live.items()}

    def _pickled(self, part: Any, partition: Any, pickle_reader: Callable[[Any], bytes] | None = None) -> Any:
        """Return a pickle with which another process can continue a reader that has no position.

        Raises:
            GraphError: if the reader can't be pickled.
        """
        if hasattr(self._source.impl, "resume_part") and hasattr(partition, "position"):
            return self._call(part, partition.position)
        pickle_reader = pickle_reader or self.context.pickle_reader
        if pickle_reader is None:
            return None
        try:
            return PickledReader(pickle_reader(partition))
        except Exception as error:
            raise GraphError(
                f"the reader of part {short_repr(part)} of source '{self.context.operator_name}' can't move to another "
                f"process: {error_line(error)}; write it as a StatefulSource, whose parts are built where "
                "they are read, from a position",
                operator=self.context.operator_name,
            ) from error

    def _poll_in_turn(self, limit: int) -> dict[Any, Batch]:
        polled = self.limits.in_turn(self.live_parts, limit)
        self.asked_parts = [*polled]
        return polled

    def _is_at_end(self, part: Any) -> bool:
        return bool(self._call(part, self._readers[part].is_finished))

    def _poll(self, part: Any, limit: int) -> Batch:
        values, timestamps = self._call(part, self._readers[part].poll, limit)
        keys = None if not self._keyed else values.constant(part) if is_columnar(values) else [part] * len(values)
        return Batch(keys, values, timestamps)

    def process_again(self, batch: Batch) -> Sequence[Batch]:
        """Read the raw record of a dead letter again, and emit it."""
        (part,), (raw,), timestamps = batch.keys or (), batch.values, batch.timestamps
        try:
            value = self._source.impl.read_again(part, raw)  # type: ignore[union-attr] # others refuse the request
        except Exception as error:
            if self.guard is None:
                raise self.error(error, (part, raw, timestamps[0])) from error
            reason = getattr(error, "reason", None) or error_text(error)
            self.guard.reject(part, Rejected(raw, timestamps[0], None, qualified_name(error), f"{reason}"))
            return (Batch(None, (), ()),)
        self._again += 1
        return (Batch([part] if self._keyed else None, [value], timestamps),)

    def _reject(self, part: Any, guard: Guard) -> int:
        """Handle the records that the reader of a part could not read; return their number."""
        reader = self._readers[part]
        rejected: Sequence[Rejected] = self._call(part, reader.take_rejected) if reader.rejects else ()
        for it in rejected:
            guard.reject(part, it)
        return len(rejected)

    def _drop_finished(self) -> None:
        finished = [part for part in self.live_parts if self._is_at_end(part)]
        if not finished:
            return
        for part in finished:
            self._readers[part].is_live, self._readers[part].must_note = False, True
        self._newly_finished.extend(finished)
        self._untold.extend(finished)
        self._finished.update(finished)
        self.live_parts = tuple(part for part in self.live_parts if self._readers[part].is_live)


def reading(source: Any, fields: Collection[str] | None) -> Any:
    """Return a source that need not read more than some fields of its values, if it can do that.

    Args:
        source: the source, as users pass it to streams.
        fields: the names of the fields; None for whole values.
    """
    impl = source.impl
    return (
        source if not fields or not hasattr(impl, "reading") else replace(source, impl=impl.reading(frozenset(fields)))
    )
