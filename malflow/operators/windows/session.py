"""Session windows: a key's records whose gaps are all shorter than `gap`.

A key has a list of open sessions, each with its first and last timestamp and an accumulator. A record begins a session,
is added to one, or joins two neighbours into one, whose accumulators are merged. Most records belong to the newest
session of their key, so this one is tried first. A session closes when the epoch reaches its last timestamp plus `gap`;
one timer per key finds those. The merging of windows is that of the Dataflow model (Akidau et al., 2015).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from operator import itemgetter
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.errors import OperatorError, failures
from malflow.event_time.panes import Panes, RegularPanes, instant_before
from malflow.event_time.timers import Timers
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import OperatorContext
from malflow.operators.waiting import Waiting
from malflow.operators.windows.counting import NumberedAccumulators
from malflow.operators.windows.window_operator import WindowOperator
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState
from malflow.windows import SessionWindows, Timing, WindowResult
from malflow.words import short_repr

__all__ = ["SessionAggregate"]

_Sessions = list[Any]
"""A key's open sessions in ascending order; each has three entries: its first and last timestamp, its accumulator."""

_WIDTH = 3
"""The entries of a session: its first timestamp, its last timestamp, its accumulator."""

_Over = tuple[Any, int, Any, Any, Any, Any]
"""A closed session: its last instant, its key's rank, the key, its start, its end, and the accumulator."""


# Invariant: the sessions of a key are in ascending order, and each begins at least `gap` after the last record of
# the one before.
#
# Example: a gap of 10. Each line shows the open sessions, as first and last timestamp, after a record.
#   1     1-1
#   20    1-1, 20-20
#   11    1-1, 11-20     11 is less than 10 before 20, and not less than 10 after 1
#   10    1-20           10 is close to both sessions: they are joined, and their accumulators merged
class SessionAggregate(WindowOperator):
    """Aggregate the records of each key in each session.

    A session ends `gap` after its last record. The timer of a key is set when its first session begins, and again if it
    fires before that session has ended. While a run of records is added, a dict holds the accumulators, and the
    sessions hold their numbers; so one loop adds all records, interrupted only when a record joins two sessions.

    Args:
        context: the operator's context.
        windows: the sessions.
        aggregators: the aggregators of each session's records; they must support merging.
        late: whether it also receives late records.
    """

    state: KeyedState

    def __init__(
        self,
        context: OperatorContext,
        windows: SessionWindows,
        aggregators: Sequence[Aggregator[Any, Any, Any]],
        *,
        late: bool = False,
    ) -> None:
        super().__init__(context, RegularPanes(windows.gap, windows.gap - windows.gap), late=late)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._gap = windows.gap
        self._within = windows.gap if not windows.touch else windows.gap + _unit_of(windows.gap)
        self._kernel = compile_kernel(aggregators, debug=context.debug)
        self._timers = Timers()  # of the first session of each key, at or before its last instant
        self._ranks: dict[Any, int] = {}  # the order of keys in the state
        self._next_rank = count().__next__
        self._run = _Run(Batch(None, (), ()))

    def take(self, panes: Panes, run: Batch, low: Any, high: Any) -> None:
        """Add records to their sessions, one by one."""
        while (closed := self._take_until_closed(run)) is not None:
            self.refuse(run.part(closed, closed + 1))
            run = run.part(closed + 1, len(run))

    def _take_until_closed(self, run: Batch) -> int | None:
        """Add records up to the first one with a closed session; return its index, or None."""
        closed = None
        self._run = _Run(run)
        find, numbers = self._run.newest.get, self._run.numbers
        add = numbers.append
        try:
            for key, timestamp in zip(run.key_column(), run.timestamps, strict=True):
                newest = find(key)
                if newest is None:
                    newest = self._load(key)
                if newest.last < timestamp < newest.until:
                    newest.last = timestamp
                    add(newest.number)
                elif newest.first <= timestamp <= newest.last:
                    add(newest.number)
                else:
                    add(self._place(key, newest, timestamp))
        except OperatorError:
            raise
        except _Closed:
            closed = len(numbers)
            if not self._run.loaded[key]:
                self._run.drop(key)
                del self.state[key], self._ranks[key]
        except failures() as error:
            raise self.error(error, _record(run, len(numbers))) from error
        self._add_pending()
        self._run.store()
        self.state.touch(self._run.loaded)
        return closed

    def _load(self, key: Any) -> _Newest:
        """Return a key's newest session, with accumulators replaced by numbers."""
        sessions: _Sessions | None = self.state.get(key)
        if sessions is None:
            self.state.admit(key)
            sessions = self.state[key] = []
            self._ranks[key] = self._next_rank()
        newest = self._run.newest[key] = _Newest(self._run.load(key, sessions))
        newest.read(self._within)
        return newest

    def _place(self, key: Any, newest: _Newest, timestamp: Any) -> int:
        """Place a record that may not be in the newest session; return the number of its accumulator."""
        newest.write()
        number = self._find_or_begin(key, newest.sessions, timestamp)
        newest.read(self._within)
        return number

    def _find_or_begin(self, key: Any, sessions: _Sessions, timestamp: Any) -> int:
        """Find or start the session of a record; return the number of its accumulator."""
        reach, at = self._within, len(sessions)
        until = timestamp + reach
        while at and sessions[at - 2] + reach > timestamp:
            at -= _WIDTH
        if at == len(sessions) or until <= sessions[at]:
            self._begin(key, sessions, at, timestamp, timestamp + self._gap)
            return int(sessions[at + 2])
        if timestamp < sessions[at]:
            sessions[at] = timestamp
        elif timestamp > sessions[at + 1]:
            sessions[at + 1] = timestamp
            after = at + _WIDTH
            if after < len(sessions) and sessions[after] < until:
                self._join(sessions, at)
        return int(sessions[at + 2])

    def _begin(self, key: Any, sessions: _Sessions, at: int, timestamp: Any, end: Any) -> None:
        if self._is_closed(key, timestamp, end):
            raise _Closed
        if not timestamp < end:
            raise ValueError(
                f"timestamp {short_repr(timestamp)} plus the gap of {self._gap} is no later; filter such records"
            )
        sessions[at:at] = (timestamp, timestamp, self._run.new_number())
        if at == 0:
            self._timers.set(key, instant_before(end))

    def _is_closed(self, key: Any, timestamp: Any, end: Any) -> bool:
        """Whether a record is behind the epoch and, if late records are allowed, its session is over too."""
        epoch, floors = self.reached.epoch, self.reached.floors
        if floors is not None and self.allows_late:
            epoch = floors[key] if epoch is None else max(epoch, floors[key])
        if epoch is None or timestamp > epoch:
            return False
        return not self.allows_late or bool(instant_before(end) <= epoch)

    def _join(self, sessions: _Sessions, at: int) -> None:
        """Merge two neighbouring sessions."""
        self._add_pending()
        accs, after = self._run.accs, at + _WIDTH
        accs[sessions[at + 2]] = self._kernel.merge(accs[sessions[at + 2]], accs.pop(sessions[after + 2]))
        sessions[at + 1] = sessions[after + 1]
        del sessions[after : after + _WIDTH]

    def _add_pending(self) -> None:
        """Add the records with known sessions to their accumulators."""
        pending, numbers = self._run.pending()
        records, rest = self._kernel.begin(pending.values)
        try:
            self._kernel.add(self._run.accs, numbers, records, pending.timestamps)
        except failures() as error:
            raise self.fail(error, pending, rest) from error

    def advance(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the sessions that are over."""
        closed: list[_Over] = []
        touched = []
        for key in self._timers.due(epoch):
            sessions = self.state[key]
            over = [*self._over(key, sessions, epoch)]
            if over:
                closed += over
                touched.append(key)
                del sessions[: len(over) * _WIDTH]
            if sessions:
                self._timers.set(key, instant_before(sessions[1] + self._gap))
            else:
                del self.state[key], self._ranks[key]
        self.state.touch(touched)
        self._emit(sorted(closed, key=itemgetter(0, 1)), Timing.END if epoch is MAX else Timing.FINAL, results)

    def _over(self, key: Any, sessions: _Sessions, epoch: Any) -> Iterable[_Over]:
        for at in range(0, len(sessions), _WIDTH):
            first, last, acc = sessions[at : at + _WIDTH]
            end = last + self._gap
            instant = instant_before(end)
            if not instant <= epoch:
                return
            yield instant, self._ranks[key], key, first, end, acc

    def _emit(self, closed: Sequence[_Over], timing: Timing, results: Results) -> None:
        results.add_each([it[2] for it in closed], self._made(closed, timing), [it[0] for it in closed])

    def _made(self, closed: Sequence[_Over], timing: Timing) -> list[WindowResult[Any, Any]]:
        try:
            values = self._kernel.results([acc for *_, acc in closed])
        except Exception as error:
            raise self._unfinished(error, closed) from error
        return [WindowResult(it[3], it[4], value, timing) for it, value in zip(closed, values, strict=True)]

    def _unfinished(self, error: Exception, closed: Sequence[_Over]) -> Exception:
        """Return the error of the first session with a result that fails."""
        for _, _, key, start, end, acc in closed:
            try:
                self._kernel.result(acc)
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                about = (
                    f"the result of key {short_repr(key)}, the session from {short_repr(start)} to {short_repr(end)}"
                )
                return self.error(own, about=about)
        return self.error(error)

    def results_so_far(self) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of open sessions, in order of time, as if no record followed."""
        for key, sessions in self.state.items():
            found = [(None, 0, key, *sessions[at : at + _WIDTH]) for at in range(0, len(sessions), _WIDTH)]
            over = [(*it[:4], it[4] + self._gap, it[5]) for it in found]
            for made in self._made(over, Timing.EARLY):
                yield key, made

    def waiting(self) -> Waiting | None:
        """Return the number of keys with open sessions; timers may be earlier than the first end."""
        return Waiting("keys with sessions", len(self.state)) if self.state else None

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the first timer, or the last instant of a session that would begin after the epoch."""
        if self.allows_late:  # a record may be too late by any epoch
            return None
        if type(epoch) is not type(self.reached.like):  # it may lie between two timestamps, as a float between integers
            return None
        soonest = instant_before(epoch + self._gap)
        earliest = self._timers.earliest
        return soonest if earliest is None else min(earliest, soonest)

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state, and set the timers of its keys."""
        super().apply(delta)
        self._horizon = None
        if delta.whole:
            self._timers.clear()
            self._ranks.clear()
        for key in delta.deleted:
            self._timers.cancel(key)
            self._ranks.pop(key, None)
        kept = len(delta.changed) - delta.appended
        for index, (key, sessions) in enumerate(delta.changed.items()):
            self._timers.set(key, instant_before(sessions[1] + self._gap))
            if index >= kept or key not in self._ranks:
                self._ranks[key] = self._next_rank()


class _Closed(Exception):
    """The session that a record would start is closed."""


class _Newest:
    """The newest session of a key, while the records of a run are added.

    Attributes:
        sessions: all open sessions of the key.
        first: the timestamp of its first record; `MAX` without a session.
        last: that of its last record; the one in `sessions` may be outdated.
        until: the first instant at which a record begins another session, or an earlier time: it is not recomputed for
            each record.
        number: the number of its accumulator.
    """

    __slots__ = ("first", "last", "number", "sessions", "until")

    def __init__(self, sessions: _Sessions) -> None:
        self.sessions = sessions
        self.first: Any = MAX
        self.last: Any = MAX
        self.until: Any = MAX
        self.number = -1

    def read(self, reach: Any) -> None:
        """Read the session from `sessions`; a record less than `reach` after its last one belongs to it."""
        if self.sessions:
            self.first, self.last, self.number = self.sessions[-_WIDTH:]
            self.until = self.last + reach

    def write(self) -> None:
        """Write the timestamp of the last record to `sessions`."""
        if self.sessions:
            self.sessions[-2] = self.last


class _Run(NumberedAccumulators):
    """A run of records while they are added to sessions.

    Attributes:
        batch: the records.
        newest: the newest session of each key.
        numbers: the number of the accumulator of each record that was placed so far.
    """

    def __init__(self, batch: Batch) -> None:
        super().__init__(_WIDTH - 1, _WIDTH)
        self.batch = batch
        self.newest: dict[Any, _Newest] = {}
        self.numbers: list[int] = []
        self._added = 0

    def drop(self, key: Any) -> None:
        """Drop a key."""
        del self.loaded[key], self.newest[key]

    def store(self) -> None:
        """Put the newest sessions' last timestamps and the accumulators into the states."""
        for newest in self.newest.values():
            newest.write()
        super().store()

    def pending(self) -> tuple[Batch, Sequence[int]]:
        """Return the records that were placed since the last call, and their numbers."""
        start, stop = self._added, len(self.numbers)
        self._added = stop
        if stop - start == len(self.batch):
            return self.batch, self.numbers
        return self.batch.part(start, stop), self.numbers[start:stop]


def _unit_of(gap: Any) -> Any:
    """Return the distance of two instants that follow each other, for a gap of whole numbers or a timedelta."""
    return timedelta(microseconds=1) if isinstance(gap, timedelta) else 1


def _record(run: Batch, index: int) -> tuple[Any, Any, Any]:
    record = run.part(index, index + 1)
    return next(iter(zip(record.key_column(), record.values, record.timestamps, strict=True)))
