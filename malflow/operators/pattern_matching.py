"""The operators that match a pattern in the records of each key."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import chain, compress
from operator import itemgetter
from typing import Any

from malflow.errors import OperatorError, failures
from malflow.event_time.panes import instant_after
from malflow.message import MAX
from malflow.operators.contract import Counts, Operator, OperatorContext
from malflow.operators.epochs.frontiers import REACHED, Floors, ReachedEpoch
from malflow.operators.epochs.generator import Marks
from malflow.operators.epochs.timestamps import checked_timestamps
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.keyed.throttle import check_span
from malflow.operators.waiting import Waiting
from malflow.patterns import Pattern
from malflow.patterns.flat import flatten, load, waiting_in
from malflow.patterns.machine import After, Row
from malflow.patterns.match import EndMatch
from malflow.patterns.positions import Masks
from malflow.patterns.runs import Counters, Emitted, LimitReached
from malflow.patterns.tree import Absence, bounds_of, ends_with_open_loop
from malflow.records.batch import BATCH_SIZE, Batch
from malflow.records.columnar import made
from malflow.states.keyed import Delta, KeyedState

__all__ = ["COUNTS", "MatchByArrival", "MatchByTime"]

COUNTS = Counts(counters=(*(it.name for it in fields(Counters)), "late"), gauges=("partials",))
"""The numbers of outcomes of partial matches, of late records, and of current partial matches."""

_log = logging.getLogger("malflow.patterns")

_TIME = itemgetter(0)
_KEY = itemgetter(1)
_TIME_AND_TIE = itemgetter(0, 4)

_FEW = 32
"""If waiting records outnumber new ones by this factor, the new ones are inserted one by one."""


_PLACES = tuple(range(BATCH_SIZE))
"""The places in a batch: a range would create its numbers each time, which is slower than the search for hits."""


class MatchOperator(Operator):
    """Emit the matches of a pattern, the partial matches that timed out, and late records.

    Predicates are called for whole columns. A record that satisfies no step is skipped, unless the pattern requires
    adjacent events.

    Args:
        context: the operator's context.
        pattern: the pattern.
        kind: returns the kind of a value; None if no step has a kind.
        after: which partial matches a match discards.
        limit: the maximum number of partial matches of a key.
        drops_oldest: whether the oldest ones are dropped at the limit.
        is_on_time: whether no record is late, as long as the number of workers does not change.
    """

    state: KeyedState
    in_order = True

    def __init__(
        self,
        context: OperatorContext,
        pattern: Pattern[Any],
        *,
        kind: Callable[[Any], Any] | None,
        after: After,
        limit: int,
        drops_oldest: bool,
        is_on_time: bool = False,
    ) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self.reached = ReachedEpoch(context)
        self.hidden = {REACHED: self.reached}
        self.machine = pattern.machine(
            after, limit, drops_oldest=drops_oldest, in_order=self.in_order, checks=context.debug
        )
        if context.debug and ends_with_open_loop(pattern.tree):
            _log.warning(
                "operator '%s' finds %s, which ends with an unlimited loop: a match is complete as soon as the loop "
                "has its minimum of events; call .then_not() after it to wait for more events",
                context.operator_name,
                pattern,
            )
        self._durations = _durations_of(pattern)
        self._masks = Masks(pattern.all_steps, kind)
        self._admit = admission_of(context)
        self._late = 0
        self._is_on_time = is_on_time and not context.debug
        self._last_epoch: Any = None  # that arrived here, not from a snapshot
        self._dirty: dict[Any, None] = {}  # in the order of the changes

    def take_counts(self) -> Mapping[str, int]:
        """Return the outcomes of partial matches, and the number of late records, since the last call."""
        counts = {**asdict(self.machine.counters), "late": self._late}
        self.machine.counters, self._late = Counters(), 0
        return counts

    def gauges(self) -> Mapping[str, int]:
        """Return the number of partial matches."""
        return {"partials": self.machine.partials}

    def held(self) -> Waiting | None:
        """Return the number of partial matches with a deadline, or, if there are none, of waiting records."""
        if self.machine.timed_partials:
            return Waiting("partials", self.machine.timed_partials)
        records = sum(1 for _ in self._waiting())
        return Waiting("records", records) if records else None

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records arrive."""
        self.reached.idle = min(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Match the records that are on time, and separate the late ones."""
        if batch.epochs and batch.epochs[-1][1] is MAX:
            self.machine.make = EndMatch
        try:
            if len(batch):
                self._check_durations(batch)
            on_time, late = self._parted(batch)
            marks, timeout_marks = self._match(on_time)
        except OperatorError:
            raise
        except LimitReached as error:
            raise self.error(str(error), self.machine.at) from None
        except failures() as error:
            raise self.error(error, self.machine.at) from error
        matches, self.machine.matches = self.machine.matches, Emitted()
        timeouts, self.machine.timeouts = self.machine.timeouts, Emitted()
        return (
            Batch(matches.keys, matches.values, matches.timestamps, marks),
            Batch(timeouts.keys, timeouts.values, timeouts.timestamps, timeout_marks),
            late,
        )

    def _check_durations(self, batch: Batch) -> None:
        """Check that the durations of the pattern fit the timestamps."""
        try:
            for argument, duration in self._durations:
                check_span(argument, duration, batch.timestamps[0])
        except TypeError as error:
            raise self.fail(error, batch, iter(batch.values)) from error

    def _match(self, batch: Batch) -> tuple[Marks, Marks]:
        """Process records and epochs; return the positions of the epochs among the matches and the timeouts."""
        raise NotImplementedError

    def _parted(self, batch: Batch) -> tuple[Batch, Batch]:
        """Split the records into those on time and late ones."""
        late: list[int] = []
        done, epoch = 0, self.reached.epoch
        if self._is_on_time and self.reached.floors is None and self._last_epoch is epoch:
            return batch, Batch(None, (), (), [(0, it) for _, it in batch.epochs])
        if not self._is_on_time:
            checked_timestamps(self, batch, batch.timestamps)
        for position, after in (*batch.epochs, (len(batch), None)):
            timestamps = batch.timestamps[done:position] if done or position < len(batch) else batch.timestamps
            if self.reached.floors is not None:
                keys = list(batch.key_column())[done:position]
                late += self._late_by_key(self.reached.floors, keys, timestamps, done, epoch)
            elif epoch is not None and timestamps and min(timestamps) <= epoch:
                late += [index for index, it in enumerate(timestamps, done) if it <= epoch]
            done, epoch = position, after
        if not late:
            return batch, Batch(None, (), (), [(0, it) for _, it in batch.epochs])
        self._late += len(late)
        is_late = [False] * len(batch)
        for index in late:
            is_late[index] = True
        return batch.select([not it for it in is_late]), batch.select(is_late)

    def _advance(self, epoch: Any) -> None:
        self.reached.advance(epoch)
        self._last_epoch = epoch

    def _late_by_key(
        self, floors: Floors, keys: Sequence[Any], timestamps: Sequence[Any], start: int, epoch: Any
    ) -> list[int]:
        """Return which records are late, some perhaps only by their key's former worker."""
        late = []
        for index, (key, timestamp) in enumerate(zip(keys, timestamps, strict=True), start):
            floor = floors[key]
            if timestamp <= (floor if epoch is None else max(epoch, floor)):
                late.append(index)
        return late

    def _rows(self, run: Batch) -> list[Row]:
        """Return the records that may matter, with the bits of their steps."""
        values, timestamps = made(run.values), run.timestamps
        try:
            masks = self._masks.of(values)
        except Exception as error:
            raise self._culprit(error, run) from error
        if self.context.debug and self._masks.of(values) != masks:
            raise self.error(
                "its predicates returned another result when called again; they must depend only on their argument"
            )
        keys = run.keys if run.keys is not None else list(run.key_column())
        if self.machine.automaton.is_strict:
            rows = list(zip(timestamps, keys, masks, values, strict=True))
        else:
            places = _PLACES if len(masks) <= len(_PLACES) else range(len(masks))
            rows = [(timestamps[at], keys[at], masks[at], values[at]) for at in compress(places, masks)]
        if self._admit is not None:
            for key in dict.fromkeys(map(_KEY, rows)):
                self._admit(key)
        self._note(rows)
        return rows

    def _culprit(self, error: Exception, run: Batch) -> Exception:
        """Return the error of the first record for which a predicate fails."""
        for record in zip(run.key_column(), run.values, run.timestamps, strict=True):
            try:
                self._masks.of((record[1],))
            except Exception as own:  # noqa: BLE001 - any error is about the record
                return self.error(own, record)
        return self.error(error)

    def _note(self, rows: Iterable[Row]) -> None:
        if self.context.tracked:
            self._dirty.update(dict.fromkeys(map(_KEY, rows)))

    def _expire(self, epoch: Any) -> None:
        """Expire the partial matches that an epoch has reached."""
        machine, tracked = self.machine, self.context.tracked
        for key in machine.timers.due(epoch):
            machine.expire(key, epoch)
            if tracked:
                self._dirty[key] = None

    def _waiting(self) -> Iterable[Row]:
        """Return the waiting records, in the order of time."""
        return ()

    def _wait(self, rows: list[Row], is_replaced: Callable[[Any], bool]) -> None:
        """Restore the waiting records of a snapshot, replacing records of replaced keys."""

    def sync_state(self) -> None:
        """Write the partial matches of changed keys to the state."""
        state, machine = self.state, self.machine
        changed = self._dirty
        if not self.context.tracked:
            changed = dict.fromkeys(chain(state, machine.runs, machine.silent_since, map(_KEY, self._waiting())))
        waiting: dict[Any, list[tuple[Any, Any]]] = {}
        for time, key, _, value in self._waiting():
            if key in changed:
                waiting.setdefault(key, []).append((time, value))
        state.touch(changed)
        for key in changed:
            flat = flatten(machine, key, waiting.get(key, ()))
            if flat is None:
                state.pop(key, None)
            else:
                state[key] = flat
        self._dirty = {}

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and restore its partial matches and waiting records."""
        super().apply(delta)
        gone = list(self.machine.runs) if delta.whole else []
        changed = self.state if delta.whole else delta.changed
        for key in chain(gone, delta.deleted):
            self.machine.drop(key)
        if delta.whole:
            self.machine.silent_since.clear()
            self.machine.timers.clear()
        dropped = sum(load(self.machine, key, flat) for key, flat in changed.items())
        self.machine.counters.dropped += dropped
        if dropped:
            _log.warning(
                "operator '%s' dropped %d partial matches, at places that its pattern no longer has",
                self.context.operator_name,
                dropped,
            )
        values = [(time, key, value) for key, flat in changed.items() for time, value in waiting_in(flat)]
        try:
            masks = self._masks.of([value for _, _, value in values])
        except failures() as error:
            raise self.error(error) from error
        is_strict = self.machine.automaton.is_strict
        rows = [(it[0], it[1], mask, it[2]) for it, mask in zip(values, masks, strict=True) if mask or is_strict]
        self._wait(rows, lambda key: delta.whole or key in delta.changed or key in delta.deleted)
        self._dirty = {}


class MatchByTime(MatchOperator):
    """Match records in the order of time: they wait for an epoch.

    All epochs of a batch act like the last one. Results are in the order of time, so the other epochs can be placed
    among them.

    Args:
        context: the operator's context.
        pattern: the pattern.
        ties: returns the tie of a value for the order of records with equal timestamps; None for order of arrival.
        options: the options of every `MatchOperator`.
    """

    def __init__(
        self,
        context: OperatorContext,
        pattern: Pattern[Any],
        *,
        ties: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(context, pattern, **options)
        self._ties = ties
        self._order = _TIME if ties is None else _TIME_AND_TIE
        self._sorted: list[Any] = []
        self._new: list[Any] = []

    def _match(self, batch: Batch) -> tuple[Marks, Marks]:
        """Take records up to the last epoch, release those that it has reached, and take the others."""
        if not batch.epochs:
            self._new += self._tied(self._rows(batch))
            return [], []
        position, epoch = batch.epochs[-1]
        is_all = position == len(batch)
        self._new += self._tied(self._rows(batch if is_all else batch.part(0, position)))
        self._release(epoch)
        if not is_all:
            self._new += self._tied(self._rows(batch.part(position, len(batch))))
        matches, timeouts = self.machine.matches, self.machine.timeouts
        self._put_in_order(matches)
        self._put_in_order(timeouts)
        self._advance(epoch)
        return _marks(matches.timestamps, batch.epochs), _marks(timeouts.timestamps, batch.epochs)

    def _tied(self, rows: list[Row]) -> Sequence[Any]:
        """Return records with their ties, if the operator has any."""
        if self._ties is None:
            return rows
        tied = []
        for row in rows:
            try:
                tied.append((*row, self._ties(row[3])))
            except failures() as error:
                raise self.error(error, (row[1], row[3], row[0])) from error
        return tied

    def _release(self, epoch: Any) -> None:
        """Match the records that an epoch has reached, and expire partial matches."""
        rows = self._in_order()
        at = len(rows) if epoch is MAX or not rows or rows[-1][0] <= epoch else bisect_right(rows, epoch, key=_TIME)
        if at:
            ready = rows if at == len(rows) else rows[:at]
            self._sorted = [] if at == len(rows) else rows[at:]
            self._note(ready)
            self.machine.walk(ready if self._ties is None else [row[:4] for row in ready])
        self._expire(epoch)

    def _in_order(self) -> list[Row]:
        """Return the waiting records in order."""
        new, order = self._new, self._order
        if new:
            if len(new) * _FEW < len(self._sorted):
                for row in new:
                    insort(self._sorted, row, key=order)
            else:
                self._sorted += new
                self._sorted.sort(key=order)
            self._new = []
        return self._sorted

    def _put_in_order(self, emitted: Emitted) -> None:
        """Sort the emitted matches by time; all are after the last epoch."""
        emitted.sort()
        floor = self.reached.epoch
        if floor is not None and emitted.timestamps and emitted.timestamps[0] <= floor:
            soonest = instant_after(floor)  # a duration was shortened between two runs
            emitted.timestamps = [max(it, soonest) for it in emitted.timestamps]

    def _waiting(self) -> Iterable[Row]:
        """Return the waiting records, in the order of time."""
        rows = self._in_order()
        return rows if self._ties is None else [row[:4] for row in rows]

    def _wait(self, rows: list[Row], is_replaced: Callable[[Any], bool]) -> None:
        """Restore the waiting records of a snapshot, replacing records of replaced keys."""
        self._sorted = [row for row in self._in_order() if not is_replaced(row[1])]
        self._new = list(self._tied(rows))


class MatchByArrival(MatchOperator):
    """Match records as they arrive; epochs expire partial matches."""

    in_order = False

    def _match(self, batch: Batch) -> tuple[Marks, Marks]:
        """Process records and epochs in order."""
        machine = self.machine
        marks: Marks = []
        timeout_marks: Marks = []
        done = 0
        for position, epoch in batch.epochs:
            machine.walk(self._rows(batch.part(done, position)))
            self._expire(epoch)
            self._advance(epoch)
            marks.append((len(machine.matches.keys), epoch))
            timeout_marks.append((len(machine.timeouts.keys), epoch))
            done = position
        machine.walk(self._rows(batch.part(done, len(batch)) if done else batch))
        return marks, timeout_marks


def _marks(timestamps: Sequence[Any], epochs: Sequence[tuple[int, Any]]) -> Marks:
    """Return each epoch with its position among the results. These are in time order."""
    marks = [(bisect_right(timestamps, epoch), epoch) for _, epoch in epochs[:-1]]
    return [*marks, (len(timestamps), epochs[-1][1])]


def _durations_of(pattern: Pattern[Any]) -> list[tuple[str, Any]]:
    """Return the durations of a pattern, each with the name of its argument."""
    bounds = [*bounds_of(pattern.tree), *([] if pattern.lead is None else [pattern.lead])]
    given = [("during", it.during) if isinstance(it, Absence) else ("within", it.within) for it in bounds]
    return [(argument, span) for argument, span in (("within", pattern.span), *given) if span is not None]
