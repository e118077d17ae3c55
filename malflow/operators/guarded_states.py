"""The keyed operators with a policy other than to fail: a failed call leaves no trace in state, output or timers.

The user's function receives a copy of a state that it could change, and the old state stays until the call returns.
So a failed call has changed nothing, not even an emitted value that holds the state. Messages that it sent are taken
back; timers that it set take effect only if it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from malflow.diagnostics import shape_error
from malflow.errors import settled_failures
from malflow.message import DataMessage
from malflow.operators.connected import ConnectOp, TimedConnectOp, TwoEdges
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import Record
from malflow.operators.failures.guarded_operator import Guarded, without
from malflow.operators.keyed.stateful import StatefulMap, StatefulOp
from malflow.operators.keyed.timed_op import NO_KEY, LogicTimers, TimedOp, TimedOutput
from malflow.operators.ttl import ExpireMap, TtlMap
from malflow.records.batch import Batch
from malflow.states.apart import apart
from malflow.states.keyed import ATOMIC_TYPES, KeyedState, copied
from malflow.words import error_text, short_repr

__all__ = ["GUARDED_STATES"]


class GuardedStates(Guarded):
    """The base of guarded operators with a keyed state."""

    state: KeyedState

    def spare(self, key: Any, state: Any) -> Any:
        """Return a state that a function may change while the old one stays: the state itself if it is immutable.

        Raises:
            OperatorError: if it can't be copied.
        """
        if type(state) in ATOMIC_TYPES or _is_frozen(state):
            return state
        try:
            return state.spare() if type(state) is ExpireMap else copied(state)
        except Exception as error:
            reason = (
                f"its state {short_repr(state)} can't be copied: {error_text(error)}; an on_error= other than 'fail' "
                "copies the state before each call"
            )
            raise self.error(reason, about=f"key {short_repr(key)}") from error

    def lose(self, error: BaseException, record: Record, reason: BaseException | str | None = None) -> None:
        """Pass a failed call to the guard. The guard decides about it.

        Raises:
            OperatorError: as the guard does; or if the key can't be used here; that is not a fault of the record.
        """
        key = record[0]
        try:
            if key not in self.state:
                self.state.admit(key)
        except Exception as unusable:
            raise self.error(unusable, record) from unusable
        self.guard.take(error, record, reason)


class GuardedStatefulMap(GuardedStates, StatefulMap):
    """A `StatefulMap` that continues after a record at which its mapper fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, one call at a time."""
        mapper, states, spare = self._mapper, self.state, self.spare
        values: list[Any] = []
        failed: list[int] = []
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        for key, value, timestamp in self.guard.turns(records):
            try:
                held = states[key]
                emitted, state = mapper(key, value, held if type(held) in ATOMIC_TYPES else spare(key, held))
                if type(emitted) not in ATOMIC_TYPES:
                    emitted = apart(emitted, state)
            except settled_failures() as error:
                if self.guard.repeats(error):
                    continue
                self.lose(error, (key, value, timestamp), self._explained(error))
                failed.append(len(values) + len(self.guard.passed))
                values.append(None)
                continue
            values.append(emitted)
            if state is None:
                states.pop(key, None)
            else:
                states[key] = state
        values, failed = self.completed(values, failed)
        states.touch(batch.key_column())
        return (without(failed, batch.with_values(values)),)


class GuardedStatefulOp(GuardedStates, StatefulOp):
    """A `StatefulOp` that continues after a message at which its logic fails."""

    def _take_data(self, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, states, output, spare = self._on_data, self.state, self._output, self.spare
        for message in self.guard.turns(messages):
            key, start, record = message.key, len(output), (message.key, message.value, message.timestamp)
            try:
                output.held = held = spare(key, states[key])
                state = on_data(message, held, output)
            except settled_failures() as error:
                output.cut(start)
                if not self.guard.repeats(error):
                    self.lose(error, record)
                continue
            if state is None:
                states.pop(key, None)
                continue
            states[key] = state
            if state is not held:
                output.detach(state, start)


class GuardedTimedOp(GuardedStates, TimedOp):
    """A `TimedOp` that continues after a message at which its logic fails."""

    def __init__(self, context: OperatorContext, logic: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, logic, default)
        self._set = _HeldTimers(self.timers), _HeldTimers(self.clock_timers)
        self._output: TimedOutput = TimedOutput(self.state, *self._set)

    def _take_data(self, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, output = self._on_data, self._output
        for message in self.guard.turns(messages):
            key, start, record = message.key, len(output), (message.key, message.value, message.timestamp)
            output.key = key
            try:
                output.held = held = self.spare(key, self.state[key])
                state = on_data(message, held, output)
            except settled_failures() as error:
                output.cut(start)
                for timers in self._set:
                    timers.drop()
                if not self.guard.repeats(error):
                    self.lose(error, record)
                continue
            self._keep(key, start, state)
        output.key = NO_KEY

    def _keep(self, key: Any, start: int, state: Any) -> None:
        for timers in self._set:
            timers.keep()
        super()._keep(key, start, state)


class GuardedTwoEdges(Guarded, TwoEdges):
    """Two edges, of which the guard knows the one that the records come from."""

    def turn_to(self, edge: int) -> None:
        """Call the function of an edge from now on."""
        super().turn_to(edge)
        self.guard.input = edge


class GuardedConnectOp(GuardedTwoEdges, GuardedStatefulOp, ConnectOp):
    """A `ConnectOp` that continues after a message at which its logic fails."""


class GuardedTimedConnectOp(GuardedTwoEdges, GuardedTimedOp, TimedConnectOp):
    """A `TimedConnectOp` that continues after a message at which its logic fails."""


class GuardedTtlMap(GuardedStates, TtlMap):
    """A `TtlMap` that continues after a record at which its mapper fails."""

    def __init__(self, context: OperatorContext, mapper: Any) -> None:
        super().__init__(context, mapper)
        self._failed: list[int] = []

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, one call at a time, then expire due entries."""
        (mapped,) = super().process(batch)
        failed, self._failed = self._failed, []
        return (without(failed, mapped),)

    def _map(self, records: Iterator[Record], values: list[Any]) -> None:
        mapper, states = self.callback, self.state
        mapped: list[Any] = []
        failed: list[int] = []
        for record in self.guard.turns(records):
            key, value, timestamp = record
            try:
                held = self.read(key)
                emitted, entries = mapper(key, value, timestamp, self.spare(key, held))
                emitted = self.set_apart(emitted, entries)
                if entries is not None:
                    self.note_read(entries)
            except settled_failures() as error:
                if self.guard.repeats(error):
                    continue
                self.lose(error, record, shape_error(error, "(value, ExpireMap | None)"))
                failed.append(len(mapped) + len(self.guard.passed))
                mapped.append(None)
                continue
            mapped.append(emitted)
            if entries is None:
                self.drop(key)
            else:
                states[key] = entries
        mapped, failed = self.completed(mapped, failed)
        self._failed += [len(values) + at for at in failed]
        values += mapped


GUARDED_STATES: Mapping[type[Operator], type[Guarded]] = {
    StatefulMap: GuardedStatefulMap,
    StatefulOp: GuardedStatefulOp,
    TimedOp: GuardedTimedOp,
    ConnectOp: GuardedConnectOp,
    TimedConnectOp: GuardedTimedConnectOp,
    TtlMap: GuardedTtlMap,
}
"""The guarded operator for each one with a keyed state that has a guarded form."""


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


_NONE = object()


def _is_frozen(state: Any) -> bool:
    """Whether a state is a frozen dataclass with immutable fields."""
    parameters = getattr(type(state), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return False
    return ATOMIC_TYPES.issuperset(type(getattr(state, it.name)) for it in fields(state))
