"""Operators that keep a state for each key, and aggregation without windows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.callables import may_end_without_return
from malflow.diagnostics import describe, shape_error
from malflow.errors import OperatorError, failures, settled_failures
from malflow.message import MAX, DataMessage, Timing
from malflow.operators.columns import Arrays, KeepsArrays
from malflow.operators.contract import OperatorContext, Output, StatefulLogic, overridden
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import SparesStates, completed, without
from malflow.operators.stateless import check_answer
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.apart import UNCHANGING, apart
from malflow.states.keyed import ATOMIC_TYPES, KeyedState, StatesView
from malflow.words import error_text, short_repr

if TYPE_CHECKING:
    from malflow.columns.aggregates.running import RunningArrays

__all__ = [
    "Admission",
    "RunningAggregate",
    "StateOutput",
    "StatefulMap",
    "StatefulOp",
    "admission_of",
]

_log = logging.getLogger("malflow.runtime")


class StatefulMap(SparesStates):
    """Replace each value with the mapper's result for it and the state of its key."""

    def __init__(self, context: OperatorContext, mapper: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, mapper)
        self.state = KeyedState(default, tracked=context.tracked, admit=context.admit)
        self._mapper = partial(_pair, mapper) if context.debug else mapper
        self._has_default = default is not None

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column; the second and third `for` bind the mapper's result and store the state."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        mapper, states, settle, rest = self._mapper, self.state, self._settle, iter(batch.values)
        unchanging, atomic = UNCHANGING, ATOMIC_TYPES
        try:
            values = [
                emitted
                if type(state) in unchanging or (type(emitted) in atomic and state is not None)
                else settle(key, emitted, state)
                for key, value in zip(batch.key_column(), rest, strict=True)
                for emitted, state in (mapper(key, value, states[key]),)
                for states[key] in (state,)
            ]
        except failures() as error:
            raise self.fail(self._explained(error), batch, rest) from error
        states.touch(batch.key_column())
        return (batch.with_values(values),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        mapper, states, spare = self._mapper, self.state, self.spare
        values: list[Any] = []
        failed: list[int] = []
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        for key, value, timestamp in guard.turns(records):
            try:
                held = states[key]
                emitted, state = mapper(key, value, held if type(held) in ATOMIC_TYPES else spare(key, held))
                if type(emitted) not in ATOMIC_TYPES:
                    emitted = apart(emitted, state)
            except settled_failures() as error:
                if guard.repeats(error):
                    continue
                self.lose(guard, error, (key, value, timestamp), self._explained(error))
                failed.append(len(values) + len(guard.passed))
                values.append(None)
                continue
            values.append(emitted)
            if state is None:
                states.pop(key, None)
            else:
                states[key] = state
        values, failed = completed(guard, values, failed)
        states.touch(batch.key_column())
        return (without(failed, batch.with_values(values)),)

    def _explained(self, error: BaseException) -> BaseException | str:
        if type(error) in (TypeError, AttributeError) and "NoneType" in error_text(error) and not self._has_default:
            hint = "the state of a new key is None; set another by default=, such as default=int"
            error.add_note(hint)
        return shape_error(error, "(value, state)")

    def _settle(self, key: Any, emitted: Any, state: Any) -> Any:
        """Handle the other cases: the state is dropped, or the emitted value may hold it, and would change with it."""
        if state is None:
            del self.state[key]
            return emitted
        return apart(emitted, state)


class StatefulOp(SparesStates):
    """Pass each message with the state of its key to the user's logic, and emit the messages that it sends."""

    def __init__(self, context: OperatorContext, logic: Any, default: Callable[[], Any] | None) -> None:
        super().__init__(context, logic)
        self.state = KeyedState(default, tracked=context.tracked, admit=context.admit)
        self._states = StatesView(self.state)
        self._output = StateOutput(self.state)
        self._on_data = getattr(logic, "on_data", logic)
        self.warn_of_missing_returns(self._on_data)
        self._on_epoch = overridden(logic, "on_epoch", StatefulLogic)
        self._on_schedule = overridden(logic, "on_schedule", StatefulLogic)
        self._heeds_epochs = self._on_epoch is not None
        self.takes_pieces = self._on_schedule is None

    def warn_of_missing_returns(self, *functions: Callable[..., Any]) -> None:
        """Log a warning, in debug, for functions with a path that drops the state by a missing return."""
        for function in functions if self.context.debug else ():
            if may_end_without_return(function):
                _log.warning(
                    "operator '%s': %s has a path that ends without a 'return', which drops the state of the key; "
                    "write 'return None' if that is intended",
                    self.context.operator_name,
                    describe(function),
                )

    def held(self) -> Waiting | None:
        """Return the number of states that `on_epoch` would see at the end."""
        return Waiting("on_epoch states", len(self.state)) if self._on_epoch is not None and self.state else None

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Call the logic's `on_schedule`, then process the tick's input."""
        if self._on_schedule is not None:
            self._call(self._on_schedule, self._states, self._output, about="the start of a tick")
            yield (self._output.take(),)
        yield from super().run(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process records and epochs in order."""
        take_data = self._take_data if self.guard is None else partial(self._take_guarded, self.guard)
        output, rest = self._output, iter(batch.values)
        messages = map(DataMessage, batch.key_column(), rest, batch.timestamps)
        epochs = []
        done = 0
        try:
            for position, epoch in batch.epochs:
                take_data(islice(messages, position - done))
                done = position
                if self._heeds_epochs:
                    self._take_epoch(epoch)
                epochs.append((len(output), epoch))
            take_data(messages)
        except OperatorError:
            raise
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        self.state.touch(batch.key_column())
        return (output.take(epochs),)

    def _take_data(self, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, states, output = self._on_data, self.state, self._output
        for message in messages:
            key, start = message.key, len(output)
            output.held = held = states[key]
            state = on_data(message, held, output)
            if state is None:
                states.pop(key, None)
                continue
            states[key] = state
            if state is not held:
                output.detach(state, start)

    def _take_guarded(self, guard: Guard, messages: Iterable[DataMessage[Any, Any, Any]]) -> None:
        on_data, states, output, spare = self._on_data, self.state, self._output, self.spare
        for message in guard.turns(messages):
            key, start, record = message.key, len(output), (message.key, message.value, message.timestamp)
            try:
                output.held = held = spare(key, states[key])
                state = on_data(message, held, output)
            except settled_failures() as error:
                output.cut(start)
                if not guard.repeats(error):
                    self.lose(guard, error, record)
                continue
            if state is None:
                states.pop(key, None)
                continue
            states[key] = state
            if state is not held:
                output.detach(state, start)

    def _take_epoch(self, epoch: Any) -> None:
        if epoch is MAX:
            self._output.timing = Timing.END
        if self._on_epoch is not None:
            self._call(self._on_epoch, epoch, self._states, self._output, about=f"epoch {short_repr(epoch)}")

    def _call(self, hook: Callable[..., Any], *arguments: Any, about: str) -> None:
        self._output.held = None
        try:
            check_answer(hook(*arguments))
        except failures() as error:
            raise self.error(error, about=about) from error


class StateOutput(Output[Any, Any, Any]):
    """An output that copies a state that is sent, or in what is sent: emitted values must not change afterwards."""

    __slots__ = ("_states", "held")

    def __init__(self, states: KeyedState) -> None:
        super().__init__()
        self._states = states
        self.held: Any = None

    def send(self, message: DataMessage[Any, Any, Any]) -> None:
        """Emit a message."""
        super().send(message)
        value = message.value
        if type(value) in ATOMIC_TYPES:
            return
        held, stored = self.held, self._stored(message.key)
        sent = apart(value, held)
        self._values[-1] = sent if sent is not value or stored is held else apart(value, stored)

    def _stored(self, key: Any) -> Any:
        try:
            return self._states.get(key)
        except TypeError:  # an unhashable key has no state; code that needs its hash rejects it
            return None

    def detach(self, state: Any, start: int) -> None:
        """Copy a state that was sent, in messages from index `start`, before it became a state."""
        if type(state) in ATOMIC_TYPES:
            return
        values = self._values
        for index in range(start, len(values)):
            values[index] = apart(values[index], state)


def _pair(mapper: Callable[..., Any], key: Any, value: Any, state: Any) -> tuple[Any, Any]:
    """Call a mapper, and reject results other than pairs, such as a string of two letters. That would unpack too."""
    answer = mapper(key, value, state)
    if not isinstance(answer, tuple):
        raise TypeError(f"the mapper must return (value, state); got {short_repr(answer)}")
    return answer


_KNOWN_KEYS = 1 << 20
"""Checked keys until the set is emptied: double takes twice the memory, half checks keys again more often."""


class Admission:
    """Checks the keys of new states, each only once unless there are too many."""

    def __init__(self, check: Callable[[Any], None]) -> None:
        self._check = check
        self._known: set[Any] = set()

    def __call__(self, key: Any) -> None:
        """Check a key, unless it was checked before."""
        if key not in self._known:
            self._check(key)
            if len(self._known) >= _KNOWN_KEYS:
                self._known.clear()
            self._known.add(key)


def admission_of(context: OperatorContext) -> Admission | None:
    """Return the check of an operator's keys; None if there is one worker, to which all keys belong."""
    return None if len(context.workers) == 1 else Admission(context.admit)


class RunningAggregate(KeepsArrays):
    """Replace each value with the aggregate of all values of its key so far.

    Args:
        context: the operator's context.
        aggregators: the aggregators of each key's records.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._kernel = compile_kernel(aggregators, debug=context.debug, workers=len(context.workers))
        self._arrays = Arrays(self, self._begin_arrays)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records one by one, or as arrays."""
        results = self._arrays.take(batch, _each)
        if results is not None:
            return (batch.with_values(results),)
        states = self.state
        records, rest = self._kernel.begin(batch.values)
        try:
            values = self._kernel.each(states, batch.key_column(), records, batch.timestamps, states.admit)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        states.touch(batch.key_column())
        return (batch.with_values(values),)

    def _begin_arrays(self) -> RunningArrays:
        from malflow.columns.aggregates.running import RunningArrays  # noqa: PLC0415 - only the extra has it

        return RunningArrays(self.state, self._kernel.aggregators, self._kernel.slots)

    def sync_state(self) -> None:
        """Write the arrays to the state."""
        if self._arrays.held is not None:
            self._arrays.held.sync(self.state)

    def look(self, keys: Iterable[Any] | None, limit: int) -> KeyedState:
        """Return the state, or a copy of a part of it."""
        arrays = self._arrays.held
        if arrays is None:
            return self.state
        found = KeyedState()
        found.update(arrays.look(keys, limit))
        return found


def _each(arrays: RunningArrays, batch: Batch) -> Sequence[Any]:
    return arrays.each(batch)
