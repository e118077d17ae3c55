"""The operator of logics that set timers, which a hidden state keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, timedelta
from typing import Any, Protocol

from malflow.checks import checked_duration
from malflow.durations import Duration
from malflow.errors import failures, settled_failures
from malflow.event_time.tick import Tick
from malflow.event_time.timers import Timers
from malflow.message import MAX, DataMessage, Timing
from malflow.operators.contract import OperatorContext, StatefulLogic, overridden
from malflow.operators.epochs.frontiers import REACHED, ReachedEpoch
from malflow.operators.epochs.timestamps import is_fixed, is_moment
from malflow.operators.failures.guard import Guard
from malflow.operators.keyed.stateful import StatefulOp, StateOutput
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta, KeyedState, StatesView
from malflow.words import short_repr

__all__ = [
    "CLOCK_TIMERS",
    "TIMERS",
    "LogicTimers",
    "TimedOp",
]

TIMERS = "timers"
"""The role of the hidden state with event-time timers."""

CLOCK_TIMERS = "clock-timers"
"""The role of the hidden state with tick-time timers."""

_NONE = object()


class LogicTimers:
    """The timers that a logic has set, kept in a hidden state in that order.

    Attributes:
        state: the time of each key's timer, as of the last delta.
        pending: the timers.
    """

    def __init__(self, context: OperatorContext) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self.pending = Timers()
        self._tracked = context.tracked
        self._changed: dict[Any, None] = {}  # in the order of the changes

    def set(self, key: Any, at: Any) -> None:
        """Set the timer of a key, replacing any other."""
        if self.pending.at.get(key, _NONE) != at:
            self.pending.set(key, at)
            self._note(key)

    def cancel(self, key: Any) -> None:
        """Drop the timer of a key, if it has one."""
        if key in self.pending.at:
            self.pending.cancel(key)
            self._note(key)

    def take(self, at: Any) -> list[Any]:
        """Drop the timers of one time; return their keys in the order in which the timers were set."""
        keys = self.pending.take(at)
        for key in keys:
            self._note(key)
        return keys

    def retain(self, states: KeyedState) -> None:
        """Drop the timers of keys without a state."""
        for key in [key for key in self.pending.at if key not in states]:
            self.cancel(key)

    def _note(self, key: Any) -> None:
        if self._tracked:
            self._changed.pop(key, None)
            self._changed[key] = None

    def sync_state(self) -> None:
        """Write the timers to the state."""
        at = self.pending.at
        changed: Iterable[Any] = self._changed if self._tracked else [*self.state, *at]
        self.state.touch(changed)
        for key in changed:
            self.state.pop(key, None)
            if key in at:
                self.state[key] = at[key]
        self._changed = {}

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the timers."""
        self.state.apply(delta)
        if delta.whole:
            self.pending.clear()
        for key in delta.deleted:
            self.pending.cancel(key)
        for key, at in delta.changed.items():
            self.pending.set(key, at)

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()


NO_KEY = object()
"""The current key of an output when there is none."""


class TimedOp(StatefulOp):
    """A `StatefulOp` with logic that sets timers, at most one per key; an epoch fires those that it has reached.

    They fire in the order of their times; timers with equal times, in the order in which they were set. A timer set
    while others fire also fires at this epoch if the epoch has reached it, but not at `MAX`, where a periodic timer
    would never end. A dropped key loses its timer.

    A timer is in event time or in tick time; tick-time timers fire at the start of a tick.
    """

    def __init__(self, context: OperatorContext, logic: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, logic, default)
        self.timers, self.clock_timers = LogicTimers(context), LogicTimers(context)
        self.reached = ReachedEpoch(context)
        self.hidden = {TIMERS: self.timers, CLOCK_TIMERS: self.clock_timers, REACHED: self.reached}
        self._output: TimedOutput = TimedOutput(self.state, self.timers, self.clock_timers)
        self._states = _TimedStates(self.state, self.timers, self.clock_timers)
        self._on_timer: Any = overridden(logic, "on_timer", StatefulLogic)
        self._heeds_epochs = True

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records can arrive."""
        super().set_idle_inputs(edges)
        self.reached.idle = min(edges)

    def waiting(self) -> Waiting | None:
        """Return the number of event-time timers, and the first one."""
        pending = self.timers.pending
        return Waiting("timers", len(pending.at), pending.earliest) if pending.at else None

    def held(self) -> Waiting | None:
        """Return the number of timers, in event time or tick time; or of states that `on_epoch` would see."""
        count = len(self.timers.pending.at) + len(self.clock_timers.pending.at)
        return Waiting("timers", count) if count else super().held()

    def open(self) -> None:
        """Drop the timers of keys with states that a migration has dropped."""
        self.timers.retain(self.state)
        self.clock_timers.retain(self.state)

    def begin_tick(self, tick: Tick) -> None:
        """Fire the due tick-time timers; `run` emits their messages."""
        output, pending = self._output, self.clock_timers.pending
        output.now, output.floor = tick.now, self.reached.epoch
        while (at := pending.earliest) is not None and at <= tick.now:
            self._call_timers(at, self.clock_timers.take(at))

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Emit the messages of tick-time timers, then process the tick's input."""
        if len(self._output):
            yield (self._output.take(),)
        yield from super().run(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process records and epochs in order."""
        self._output.floor = self.reached.epoch
        return super().process(batch)

    def _take_data(self, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, output = self._on_data, self._output
        for message in messages:
            self._keep(message.key, len(output), on_data(message, self._hold(message.key), output))
        output.key = NO_KEY

    def _take_guarded(self, guard: Guard, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, output = self._on_data, self._output
        held_timers = _HeldTimers(self.timers), _HeldTimers(self.clock_timers)
        output.set_timers(*held_timers)
        for message in guard.turns(messages):
            key, start, record = message.key, len(output), (message.key, message.value, message.timestamp)
            output.key = key
            try:
                output.held = held = self.spare(key, self.state[key])
                state = on_data(message, held, output)
            except settled_failures() as error:
                output.cut(start)
                for timers in held_timers:
                    timers.drop()
                if not guard.repeats(error):
                    self.lose(guard, error, record)
                continue
            for timers in held_timers:
                timers.keep()
            self._keep(key, start, state)
        output.set_timers(self.timers, self.clock_timers)
        output.key = NO_KEY

    def _hold(self, key: Any) -> Any:
        """Return the state of a key, and make it the current key."""
        self._output.key = key
        self._output.held = held = self.state[key]
        return held

    def _keep(self, key: Any, start: int, state: Any) -> None:
        """Store the state that the logic returned after sending the messages from index `start`."""
        if state is None:
            self.state.pop(key, None)
            self.timers.cancel(key)
            self.clock_timers.cancel(key)
            return
        self.state[key] = state
        if state is not self._output.held:
            self._output.detach(state, start)

    def _take_epoch(self, epoch: Any) -> None:
        if epoch is MAX:
            self._output.timing = Timing.END
        self._fire(epoch)
        if self._on_epoch is not None:
            super()._take_epoch(epoch)
        self.reached.advance(epoch)
        self._output.floor = epoch

    def _fire(self, epoch: Any) -> None:
        timers, clock_timers, output = self.timers, self.clock_timers, self._output
        if epoch is not MAX:
            while (at := timers.pending.earliest) is not None and at <= epoch:
                output.floor = at
                self._call_timers(at, timers.take(at))
            return
        last = [(at, timers.take(at)) for at in timers.pending.times()]
        last_of_clock = [(at, clock_timers.take(at)) for at in clock_timers.pending.times()]
        for at, keys in last:
            output.floor = at
            self._call_timers(at, keys)
        output.floor = self.reached.epoch
        for at, keys in last_of_clock:
            self._call_timers(at, keys)

    def _call_timers(self, at: Any, keys: Sequence[Any]) -> None:
        output = self._output
        for key in keys:
            start = len(output)
            try:
                self._keep(key, start, self._on_timer(key, at, self._hold(key), output))
            except failures() as error:
                raise self.error(error, about=f"the timer of key {short_repr(key)} at {short_repr(at)}") from error
        output.key = NO_KEY
        self.state.touch(keys)


_ZERO = timedelta(0)


class _SetsTimers(Protocol):
    def set(self, key: Any, at: Any, /) -> None: ...
    def cancel(self, key: Any, /) -> None: ...


class _HeldTimers:
    """The timers that a call sets. They take effect if it returns."""

    def __init__(self, timers: LogicTimers) -> None:
        self._timers = timers
        self._changes: list[tuple[Any, Any]] = []

    def set(self, key: Any, at: Any) -> None:
        """Set the timer of a key, replacing any other."""
        self._timers.pending.check(at)
        self._changes.append((key, at))

    def cancel(self, key: Any) -> None:
        """Drop the timer of a key, if it has one."""
        self._changes.append((key, _NONE))

    def keep(self) -> None:
        """Make the changes, in their order."""
        for key, at in self._changes:
            if at is _NONE:
                self._timers.cancel(key)
            else:
                self._timers.set(key, at)
        self._changes.clear()

    def drop(self) -> None:
        """Forget the changes."""
        self._changes.clear()


class TimedOutput(StateOutput):
    """An output through which the logic sets the timer of the current key.

    Attributes:
        key: the current key.
        floor: the time after which timers may be set: that of the current timer, or the last epoch; None before any
            epoch.
        now: when the tick began.
    """

    __slots__ = ("_clock_timers", "_timers", "floor", "key", "now")

    def __init__(self, states: KeyedState, timers: _SetsTimers, clock_timers: _SetsTimers) -> None:
        super().__init__(states)
        self.set_timers(timers, clock_timers)
        self.now = Tick().now
        self.key: Any = NO_KEY
        self.floor: Any = None

    def set_timers(self, timers: _SetsTimers, clock_timers: _SetsTimers) -> None:
        """Set where timers are set from now on."""
        self._timers = timers
        self._clock_timers = clock_timers

    def wake(self, at: Any) -> None:
        """Set the timer of the current key, replacing any other."""
        self._check_key()
        if not is_moment(at):
            raise TypeError(f"output.wake takes a time; got {short_repr(at)}; call output.sleep() to drop the timer")
        zone = getattr(at, "tzinfo", None)
        if zone is not None and zone is not UTC and not is_fixed(zone):
            raise TypeError(
                f"output.wake takes an instant; got {at} in zone {zone}, whose offset changes; convert it by "
                ".astimezone(UTC)"
            )
        if self.floor is not None and at <= self.floor:
            raise ValueError(
                f"output.wake takes a time in the future; got {short_repr(at)}, which is not after "
                f"{short_repr(self.floor)}: the last "
                "epoch, or in on_timer the timer's own time"
            )
        self._clock_timers.cancel(self.key)
        self._timers.set(self.key, at)

    def wake_after(self, delay: Duration) -> None:
        """Set a tick-time timer of the current key, replacing any other."""
        self._check_key()
        span = delay if isinstance(delay, timedelta) and delay > _ZERO else checked_duration(_no_delay, "delay", delay)
        self._timers.cancel(self.key)
        self._clock_timers.set(self.key, self.now + span)

    def sleep(self) -> None:
        """Drop the timer of the current key."""
        self._check_key()
        self._timers.cancel(self.key)
        self._clock_timers.cancel(self.key)

    def _check_key(self) -> None:
        if self.key is NO_KEY:
            raise TypeError("timers belong to keys: set them in on_data or on_timer, which have a current key")


def _no_delay(what: str) -> TypeError:
    return TypeError(f"output.wake_after {what}")


class _TimedStates(StatesView):
    """All states of a worker; a dropped key loses its timer."""

    __slots__ = ("_timers",)

    def __init__(self, states: KeyedState, *timers: LogicTimers) -> None:
        super().__init__(states)
        self._timers = timers

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        for timers in self._timers:
            timers.cancel(key)

    def clear(self) -> None:
        """Drop every state."""
        super().clear()
        for timers in self._timers:
            timers.retain(self._states)
