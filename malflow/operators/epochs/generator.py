"""The operator that generates epochs and separates late records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from operator import length_hint
from typing import Any

from malflow.errors import OperatorError
from malflow.event_time.tick import Tick
from malflow.message import MAX, MIN, DataMessage, NoKey
from malflow.operators.contract import Operator, OperatorContext, check_not_kept
from malflow.operators.epochs.frontiers import Floors
from malflow.operators.epochs.idle_time import greatest_lateness, silence_after
from malflow.operators.epochs.rounding import LimitedOutOfOrderness, Step, Thinning, calm_until, can_skip, rounded_down
from malflow.operators.epochs.timestamps import check_epoch, checked_timestamps, uncomparable
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime, Reached
from malflow.records.batch import Batch
from malflow.records.column import is_column
from malflow.states.keyed import Delta, KeyedState

__all__ = ["ANSWERED", "LATE", "SILENCE", "GenerateEpochs", "Late", "Marks", "Row"]

Late = dict[int, Any]
"""The epochs by which records are late, by index of the record."""

Marks = list[tuple[int, Any]]
"""Epochs with their positions."""

Row = tuple[int, Any, Any, Any]
"""The position after a record, its key, its value and its timestamp."""

ANSWERED = "answered"
"""The key, in the state, of the generator's epoch if a different one was issued."""

SILENCE = "silence"
"""The key, in the state, of the silence: tick time without input."""

LATE = "late"
"""The name of the counter of late records."""

_SHORT_RUN = 8
"""Up to this number of records between two epochs, a loop over single records is faster."""

_EXACT = 2**52
"""Integers from here on may be rounded up to a float; the epoch of a record may then be above its timestamp."""


class GenerateEpochs(Operator):
    """Issue the epochs that the generator returns, and separate late records from those on time.

    A record is on time if there is no epoch yet or its timestamp is greater than the epoch. The generator sees every
    record, including late ones; its result is issued after the record, if it is greater than the previous epoch. Both
    outputs carry all epochs.

    With `every`, epochs are rounded down before they are compared and issued; the generator still receives its own
    epoch before rounding. So it returns the same epochs, and `every` makes no additional record late.

    After a rescale, the stream continues from the least epoch of the old workers, but a record is also late if it would
    have been late on its key's former worker.

    Args:
        context: the operator's context.
        generator: the user's epoch generator.
        every: the step of the epochs; None to issue them as they are.
        checked: whether the timestamps have just been checked.
        idle_after: the silence after which time advances without input; None to wait for input.

    Attributes:
        lift: an epoch to issue at the beginning of the next tick, if it is greater, or None.
        silence: the tick time without input; None if there is input. Kept only with `idle_after`.
        fed_by: the sources and workers that emit its records; set before the first tick.
    """

    state: KeyedState

    def __init__(
        self,
        context: OperatorContext,
        generator: Any,
        *,
        every: Step | None = None,
        checked: bool = False,
        idle_after: timedelta | None = None,
    ) -> None:
        super().__init__(context, generator)
        self.state = KeyedState(tracked=context.tracked)
        self._every = every
        self._thin = Thinning(every)
        self._keeps_answers = every is not None and not (
            idle_after is None and isinstance(generator, LimitedOutOfOrderness)
        )
        self._checked = checked
        self._late = 0
        self._lateness: Any = None
        self._previous: Any = None
        self._answered: Any = None
        self._idle = 0
        self._floors: Floors | None = None
        self._tick: int | None = None
        self.lift: Any = None
        self.idle_after = idle_after
        self.silence: timedelta | None = None
        self.fed_by: Sequence[tuple[str, int]] = ()

    @property
    def epoch(self) -> Any:
        """The last epoch issued, or None."""
        return self._previous

    @property
    def is_silent(self) -> bool:
        """Whether time advances without input."""
        return self._is_idle(self.silence)

    def _is_idle(self, silence: timedelta | None) -> bool:
        return self.idle_after is not None and silence is not None and silence >= self.idle_after

    @property
    def progress(self) -> Any:
        """The epoch before rounding, or the last one issued if that is greater, or None."""
        if self._previous is None or self._answered is None:
            return self._previous
        return max(self._previous, self._answered)

    def time(self) -> OperatorTime:
        """Return the last epoch issued."""
        return OperatorTime(epoch=self.epoch)

    def join_source(self, sources: Mapping[str, Source]) -> None:
        """Connect with the sources of the stage, by name, before the first tick."""

    def reached(self, *, is_finished: bool) -> Iterable[Reached]:
        """Return the generator's progress, from which idle generators are advanced.

        Args:
            is_finished: whether the sources that feed it have finished on this worker.
        """
        if self.idle_after is None:
            return [Reached(self.epoch, is_finished)]
        return [Reached(self.progress, is_finished, self.silence)]

    def begin_tick(self, tick: Tick) -> None:
        """Measure the silence of the sources; a tick may begin several times."""
        if self.idle_after is not None and self.fed_by and tick.number != self._tick:
            self._tick = tick.number
            self._note_silence(tick)

    def _note_silence(self, tick: Tick) -> None:
        self.silence = silence_after(self.silence, self.fed_by, tick)

    def lift_to(self, epoch: Any, *, is_finished: bool) -> None:
        """Issue an epoch at the beginning of the tick if the sources are silent, or finished here."""
        if is_finished or self.is_silent:
            self.lift = epoch

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Issue the lift, then process a tick's input."""
        yield from self._lifted()
        for batch in edges[0]:
            if len(batch):
                self.silence = None
            yield self.process(batch)

    def _lifted(self) -> Iterable[Sequence[Batch]]:
        if self.lift is not None:
            epochs: Marks = []
            self._receive(0, self.lift, epochs)
            self.lift = None
            if epochs:
                mark = Batch(None, (), (), epochs)
                yield mark, mark

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process records and epochs in order."""
        if not self._checked:
            timestamps = checked_timestamps(self, batch, batch.timestamps)
            if timestamps is not batch.timestamps:
                batch = Batch(batch.keys, batch.values, timestamps, batch.epochs)
        if is_column(batch.timestamps) and (found := self._by_column(batch)) is not None:
            return found
        skips = self._may_skip(batch)
        rest = iter(batch.timestamps if isinstance(self.callback, LimitedOutOfOrderness) else batch.values)
        try:
            late, epochs = (self._skim if skips else self._walk)(batch, rest)
            if self._floors is not None:
                self._add_late_by_floors(self._floors, batch, late)
        except OperatorError:
            raise
        except Exception as error:
            raise self.fail(uncomparable(error), batch, rest) from error
        marked = Batch(batch.keys, batch.values, batch.timestamps, epochs)
        if not late:
            return marked, Batch(None, (), (), [(0, epoch) for _, epoch in epochs])
        self._late += len(late)
        self._lateness = greatest_lateness(late, batch.timestamps, self._lateness)
        on_time = [True] * len(batch)
        for index in late:
            on_time[index] = False
        return marked.select(on_time), marked.select([not flag for flag in on_time])

    def _by_column(self, batch: Batch) -> Sequence[Batch] | None:
        """Process timestamps that are a column of whole numbers as one; None if they are not."""
        from malflow.columns.epochs import stamps_of  # noqa: PLC0415 - only the extra has it

        if not isinstance(self.callback, LimitedOutOfOrderness) or self.context.debug or self._floors is not None:
            return None
        stamps = stamps_of(batch, self.callback.bound, self._every)
        if stamps is None or not self._fits(stamps, batch):
            return None
        done = 0
        for end, arrived in (*batch.epochs, (len(batch), None)):
            self._skip_column(stamps, batch, done, end)
            done = end
            if arrived is not None:
                self._receive(end, arrived, stamps.marks)
        marked = Batch(batch.keys, batch.values, batch.timestamps, stamps.marks)
        late = stamps.count_late()
        if not late:
            return marked, Batch(None, (), (), [(0, epoch) for _, epoch in stamps.marks])
        self._late += late
        if self._lateness is None or stamps.lateness > self._lateness:
            self._lateness = stamps.lateness
        return marked.select(stamps.on_time), marked.select(stamps.late)

    def _fits(self, stamps: Any, batch: Batch) -> bool:
        """Whether the epochs so far, and those that arrive, have the type of the timestamps."""
        known = [self._previous, *(epoch for at, epoch in batch.epochs if epoch is not MAX or at < len(batch))]
        return all(epoch is None or stamps.number_of(epoch) is not None for epoch in known)

    def _skip_column(self, stamps: Any, batch: Batch, start: int, stop: int) -> None:
        """Find the records that are late or move the epoch, between two incoming epochs."""
        del batch
        self._previous = stamps.walk(start, stop, self._previous)

    def _may_skip(self, batch: Batch) -> bool:
        """Whether the records need no loop over single records.

        With `every`, the type of the first timestamp decides, since all comparable types move an epoch alike. Without
        it, all must have one type, or a greater timestamp might result in a lesser epoch.
        """
        generator, timestamps = self.callback, batch.timestamps
        if not isinstance(generator, LimitedOutOfOrderness) or self.context.debug:
            return False
        if len(timestamps) <= _SHORT_RUN * sum(epoch is not MAX for _, epoch in batch.epochs):
            return False
        is_rounded = type(timestamps[0]) is int and float in (type(generator.bound), type(self._every))
        if is_rounded and (set(map(type, timestamps)) != {int} or max(map(abs, timestamps)) >= _EXACT):
            return False
        return can_skip(timestamps[0], generator.bound, self._every) and (
            self._every is not None or type(timestamps) is range or len(set(map(type, timestamps))) == 1
        )

    def _skim(self, batch: Batch, rest: Iterator[Any]) -> tuple[Late, Marks]:
        """Return the result of `_walk` from the column of timestamps alone."""
        late: Late = {}
        epochs: Marks = []
        done = 0
        for end, arrived in (*batch.epochs, (len(batch), None)):
            self._skip(batch.part(done, end) if end - done < len(batch) else batch, rest, len(batch), late, epochs)
            done = end
            if arrived is not None:
                self._receive(end, arrived, epochs)
        return late, epochs

    def _skip(self, batch: Batch, rest: Iterator[Any], size: int, late: Late, epochs: Marks) -> None:
        """Find the records that are late or move the epoch, between two incoming epochs."""
        low = MIN if self._previous is None else self._previous
        bound, every = self.callback.bound, self._every
        stamps = islice(rest, len(batch))
        if every is None:
            low = _move_often(low, enumerate(stamps, size - length_hint(rest) + 1), bound, late, epochs)
        else:
            until = calm_until(low, bound, every)
            for stamp in stamps:
                if low < stamp <= until:
                    continue
                position = size - length_hint(rest)
                if not stamp > low:
                    late[position - 1] = low
                    continue
                epoch = rounded_down(stamp - bound, every)
                if epoch > low:
                    low, until = epoch, calm_until(epoch, bound, every)
                    epochs.append((position, epoch))
        if low is not MIN:
            self._previous = low

    def _walk(self, batch: Batch, rest: Any) -> tuple[Late, Marks]:
        """Call the generator with each record; return the late ones and the epochs."""
        view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
        rows = zip(range(1, len(batch) + 1), batch.key_column(), rest, batch.timestamps, strict=True)
        late: Late = {}
        epochs: Marks = []
        done = 0
        for end, arrived in (*batch.epochs, (len(batch), None)):
            self._ask(islice(rows, end - done), view, late, epochs)
            done = end
            if arrived is not None:
                self._receive(end, arrived, epochs)
        if self.context.debug:
            check_not_kept(view)
        return late, epochs

    def _ask(self, rows: Iterable[Row], view: DataMessage[Any, Any, Any], late: Late, epochs: Marks) -> None:
        """Call the generator with the records between two incoming epochs."""
        generator, every, thin, previous = self.callback, self._every, self._thin, self._previous
        answered = previous if self._answered is None else self._answered
        for position, view.key, view.value, timestamp in rows:
            view.timestamp = timestamp
            candidate = generator(view, answered)
            if previous is not None and not timestamp > previous:
                late[position - 1] = previous
            if candidate is not None and (answered is None or candidate > answered):
                if answered is None:
                    check_epoch(candidate, timestamp)
                answered = candidate
                if every is not None:
                    candidate = thin(candidate)
                    if previous is not None and not candidate > previous:
                        continue
                previous = candidate
                epochs.append((position, candidate))
            elif candidate != candidate:  # noqa: PLR0124 - NaN and NaT, which are greater than nothing
                check_epoch(candidate)
        self._previous, self._answered = previous, None if every is None else answered

    def _receive(self, position: int, arrived: Any, epochs: Marks) -> None:
        """Issue an incoming epoch if it is greater than the previous one."""
        if self._every is not None:
            if self._answered is None or arrived > self._answered:
                self._answered = arrived
            arrived = self._thin(arrived)
        if self._previous is None or arrived > self._previous:
            self._previous = arrived
            epochs.append((position, arrived))

    def _add_late_by_floors(self, floors: Floors, batch: Batch, late: Late) -> None:
        """Add the records that are late by the floor of their key."""
        for index, (key, timestamp) in enumerate(zip(batch.key_column(), batch.timestamps, strict=True)):
            if index not in late and not timestamp > floors[key]:
                late[index] = floors[key]
        if floors.are_passed(self._previous):
            self._floors = None

    def take_counts(self) -> Mapping[str, int]:
        """Return the number of late records since the last call."""
        late, self._late = self._late, 0
        return {LATE: late}

    def take_lateness(self) -> Any:
        """Return the greatest lateness since the last call; see `greatest_lateness`."""
        lateness, self._lateness = self._lateness, None
        return lateness

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records can arrive; if not, the epoch does not count."""
        (self._idle,) = edges

    def sync_state(self) -> None:
        """Write the epoch to the state."""
        past = None if self._floors is None else self._floors.past
        answered = self._answered if self._keeps_answers else None
        self.state.assign({"epoch": self._previous, ANSWERED: answered, "idle": int(self._idle) or None, "past": past})
        self.state.assign({SILENCE: self.silence})

    def apply(self, delta: Delta) -> None:
        """Restore the epoch."""
        super().apply(delta)
        self._previous = self.state["epoch"]
        self._answered = self.state.get(ANSWERED) if self._keeps_answers else None
        self.silence = None if self.idle_after is None else self.state.get(SILENCE)
        past = self.state.get("past")
        self._floors = None if past is None or self.context.placement is None else Floors(self.context.placement, past)


def _move_often(low: Any, stamps: Iterable[tuple[int, Any]], bound: Any, late: Late, epochs: Marks) -> Any:
    """Find the records that are late or move the epoch, as most do here; return the last epoch."""
    newest = low
    for position, stamp in stamps:
        if stamp > newest:
            newest = stamp
            epoch = stamp - bound
            if epoch > low:
                low = epoch
                epochs.append((position, epoch))
        elif not stamp > low:
            late[position - 1] = low
    return low
