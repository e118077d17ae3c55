"""The stateless operators with a policy other than to fail: each continues after a record at which its function fails.

A failed record has no output. A default policy keeps the unguarded operators, whose loops have no step for failures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from malflow.diagnostics import note_missing_field
from malflow.errors import settled_failures
from malflow.failures import OnError
from malflow.message import MAX, DataMessage, NoKey
from malflow.operators.calls.calling_out import CallingOut
from malflow.operators.columns import column_of
from malflow.operators.contract import Logic, Operator, OperatorContext, check_not_kept
from malflow.operators.epochs.timestamps import AssignTimestamps, AssignTimestampsByField, checked_timestamps, is_moment
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.guarded_operator import Calls, Guarded, without
from malflow.operators.failures.letters import Letters
from malflow.operators.guarded_states import GUARDED_STATES
from malflow.operators.routing import KeyBy, KeyByField, Split
from malflow.operators.stateless import (
    Filter,
    FilterMap,
    FlatMap,
    Flatten,
    Inspect,
    Map,
    MapWithKey,
    StatelessOp,
    chained,
    check_answer,
    elements_of,
    elements_returned,
)
from malflow.operators.tables.broadcast import BroadcastJoin
from malflow.partitioners import PLAIN_TYPES, check_key
from malflow.records.batch import Batch

__all__ = ["guarded"]


class GuardedMap(Guarded, Map):
    """A `Map` that drops the records at which its mapper fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, without the failed records."""
        mapper, turns = self.callback, self.guard.turns(batch.values, batch)
        values, failed = self.attempt(lambda rest: (mapper(value) for value in rest), turns, batch)
        return (without(failed, batch.with_values(values)),)


class GuardedMapWithKey(Guarded, MapWithKey):
    """A `MapWithKey` that drops the records at which its mapper fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the columns of keys and values, without the failed records."""
        mapper = self.callback
        pairs = self.guard.turns(zip(batch.key_column(), batch.values, strict=True), batch, _pair)
        values, failed = self.attempt(lambda rest: (mapper(key, value) for key, value in rest), pairs, batch)
        return (without(failed, batch.with_values(values)),)


class GuardedFilter(Guarded, Filter):
    """A `Filter` that drops the records at which its predicate fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute a mask and compress the columns."""
        predicate, turns = self.callback, self.guard.turns(batch.values, batch)
        mask, _ = self.attempt(lambda rest: (bool(predicate(value)) for value in rest), turns, batch, False)
        return (self.guard.renewed(batch).select(mask),)


class GuardedFilterMap(Guarded, FilterMap):
    """A `FilterMap` that drops the records at which its mapper fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, then compress the columns."""
        mapper, turns = self.callback, self.guard.turns(batch.values, batch)
        values, _ = self.attempt(lambda rest: (mapper(value) for value in rest), turns, batch)
        return (batch.with_values(values).select([value is not None for value in values]),)


class GuardedFlatten(Guarded, Flatten):
    """A `Flatten` that drops the values without elements to take."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Chain the values."""
        turns = self.guard.turns(batch.values, batch)
        elements, _ = self.attempt(lambda rest: (elements_of(value) for value in rest), turns, batch, ())
        return (chained(batch, elements),)


class GuardedFlatMap(Guarded, FlatMap):
    """A `FlatMap` that drops all elements of a value at which its function fails, even those before the failure."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, and chain the results."""
        function, turns = self.callback, self.guard.turns(batch.values, batch)
        elements, _ = self.attempt(lambda rest: (elements_returned(function(it)) for it in rest), turns, batch, ())
        return (chained(batch, elements),)


class GuardedInspect(Guarded, Inspect):
    """An `Inspect` that drops the records at which its inspector fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the inspector and pass the batch on."""
        messages = map(DataMessage, batch.key_column(), batch.values, batch.timestamps)
        inspector, context, turns = self.callback, self.context, self.guard.turns(messages, batch, _message)
        _, failed = self.attempt(lambda rest: (inspector(message, context) for message in rest), turns, batch)
        return (without(failed, self.guard.renewed(batch)),)


class GuardedStatelessOp(Guarded, StatelessOp):
    """A `StatelessOp` that takes back what its logic sent for a record before it failed."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process records and epochs in order."""
        on_data, output = self._on_data, self._output
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        epochs = []
        for count, epoch in batch.runs():
            for record in self.guard.turns(islice(records, count)):
                start = len(output)
                try:
                    if (answer := on_data(DataMessage(*record), output)) is not None:
                        check_answer(answer)
                except settled_failures() as error:
                    output.cut(start)
                    if not self.guard.repeats(error):
                        self.guard.take(error, record)
            if epoch is not None:
                self._take_epoch(epoch)
                epochs.append((len(output), epoch))
        return (output.take(epochs),)


class GuardedSplit(Guarded, Split):
    """A `Split` that drops the records at which its partitioner fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the partitioner for each record's flags."""
        with _View(self, batch) as view:
            flags_of, none = self.flags_of, [False] * self._outputs
            flags, _ = self.attempt(lambda rest: (flags_of(message) for message in rest), view, batch, none)
        return self.split(self.guard.renewed(batch), flags)


class GuardedKeyBy(Guarded, KeyBy):
    """A `KeyBy` that drops the records without a valid key."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the key column, without the failed records."""
        with _View(self, batch) as view:
            keys, failed = self.attempt(*self._keys(batch, view), batch)
        batch = self.guard.renewed(batch)
        keyed = without(failed, Batch(keys, batch.values, batch.timestamps, batch.epochs))
        if self.context.debug:
            self.check_again(keyed.keys or (), without(failed, batch))
        return (keyed,)

    def _keys(self, batch: Batch, view: Iterator[Any]) -> tuple[Calls, Iterable[Any]]:
        """Return a function that makes keys of items, and the items."""
        del batch
        key_fn = self.callback
        return lambda rest: (_valid(key_fn(message)) for message in rest), view


class GuardedKeyByField(GuardedKeyBy, KeyByField):
    """A `KeyByField` that drops the records without a valid key."""

    def _keys(self, batch: Batch, view: Iterator[Any]) -> tuple[Calls, Iterable[Any]]:
        column, field = column_of(batch, self._field), self._field
        if column is not None:
            return partial(map, _valid), self.guard.turns(column, batch, _same)
        return lambda rest: (_valid(_read(field, value)) for value in rest), self.guard.turns(batch.values, batch)


class GuardedTimestamps(Guarded, AssignTimestamps):
    """An `AssignTimestamps` that drops the records without a timestamp that can be compared with others."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the timestamp column, without the failed records."""
        checked: Callable[[Any], Any] = _comparable
        if self.guard.takes_turns:  # a record that can't be compared fails at its turn, before later ones
            checked = _compared(_FaultFinder())
        with _View(self, batch) as view:
            stamps, failed = self.attempt(*self._stamps(batch, view, checked), batch)
        batch = self.guard.renewed(batch)
        epochs = [(position, epoch) for position, epoch in batch.epochs if epoch is MAX]
        before = without(failed, Batch(batch.keys, batch.values, batch.timestamps, epochs))
        kept = stamps if not failed else without(failed, Batch(None, stamps, stamps)).values
        return (self._stamped(before, kept),)

    def _stamps(self, batch: Batch, view: Iterator[Any], checked: Any) -> tuple[Calls, Iterable[Any]]:
        """Return a function that makes timestamps of items, and the items."""
        del batch
        assigner = self.callback
        return lambda rest: (checked(assigner(message)) for message in rest), view

    def _stamped(self, batch: Batch, stamps: Sequence[Any]) -> Batch:
        """Return the batch with its timestamps, without those that can't be compared with the first."""
        finder = _FaultFinder()
        try:
            return Batch(batch.keys, batch.values, checked_timestamps(finder, batch, stamps), batch.epochs)  # type: ignore[arg-type] # it stands for one
        except _Fault:
            pass
        checked, failed = self.attempt(partial(map, _compared(finder)), stamps, batch)
        return without(failed, Batch(batch.keys, batch.values, checked, batch.epochs))


class GuardedTimestampsByField(GuardedTimestamps, AssignTimestampsByField):
    """An `AssignTimestampsByField` that drops the records without a timestamp that can be compared with others."""

    def _stamps(self, batch: Batch, view: Iterator[Any], checked: Any) -> tuple[Calls, Iterable[Any]]:
        column, field = column_of(batch, self._field), self._field
        if column is not None:
            return partial(map, checked), self.guard.turns(column, batch, _same)
        return lambda rest: (checked(_read(field, value)) for value in rest), self.guard.turns(batch.values, batch)


class GuardedBroadcastJoin(Guarded, BroadcastJoin):
    """A `BroadcastJoin` that drops the records at which its joiner fails."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Join the records, without the failed ones."""
        joiner, rows, turns = self.callback, self.rows, self.guard.turns(batch.values, batch)
        values, failed = self.attempt(lambda rest: (joiner(value, rows) for value in rest), turns, batch)
        return (without(failed, batch.with_values(values)),)


_GUARDED: Mapping[Any, type[Guarded]] = {
    **GUARDED_STATES,
    Map: GuardedMap,
    MapWithKey: GuardedMapWithKey,
    Filter: GuardedFilter,
    FilterMap: GuardedFilterMap,
    Flatten: GuardedFlatten,
    FlatMap: GuardedFlatMap,
    Inspect: GuardedInspect,
    StatelessOp: GuardedStatelessOp,
    Split: GuardedSplit,
    KeyBy: GuardedKeyBy,
    KeyByField: GuardedKeyByField,
    AssignTimestamps: GuardedTimestamps,
    AssignTimestampsByField: GuardedTimestampsByField,
    BroadcastJoin: GuardedBroadcastJoin,
}
"""The guarded operator for each one that has a guarded form."""


def guarded(logic: Logic, context: OperatorContext, policy: OnError, letters: Letters) -> Operator:
    """Return the guarded form of the operator that a logic makes.

    Args:
        logic: the class of the operator, a `partial` of it, or a maker of operators that share a client.
        context: the operator's context.
        policy: its policy.
        letters: its dead letters.
    """
    if isinstance(logic, CallingOut):
        operator = logic.guarded(context)
    else:
        kind, options = (logic.func, logic.keywords) if isinstance(logic, partial) else (logic, {})
        operator = _GUARDED[kind](context, **options)
    operator.guard = Guard(operator, policy, letters)
    if policy.retry is not None:
        operator.is_repeatable = False  # which attempt succeeds may depend on systems outside
    return operator


class _View:
    """The messages of a batch, as one view object; the checks of a debug run find a function that keeps it."""

    def __init__(self, operator: Guarded, batch: Batch) -> None:
        self._debug = operator.context.debug
        self._guard = operator.guard
        self._batch = batch
        self._message: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)

    def __enter__(self) -> Iterator[DataMessage[Any, Any, Any]]:
        view, batch = self._message, self._batch
        columns = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        turns = self._guard.turns(columns)
        self._messages = (view for view.key, view.value, view.timestamp in turns)
        return self._messages

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._messages.close()
        view = self._message
        del self._message
        if self._debug and kind is None:
            check_not_kept(view)


class _Fault(Exception):
    """A timestamp that can't be compared with others; its text is the reason."""


class _FaultFinder:
    """Stands for the operator in a check of timestamps, to catch the fault instead of the error that names a record."""

    def fail(self, error: Exception | str, _batch: Batch, _rest: Iterator[Any]) -> Exception:
        """Return the fault."""
        return _Fault(f"{error}")


def _compared(finder: _FaultFinder) -> Callable[[Any], Any]:
    """Return a check that a timestamp can be compared with the first one that it was called with."""
    first: list[Any] = []

    def checked(stamp: Any) -> Any:
        pair = [*first, _comparable(stamp)]
        found = checked_timestamps(finder, Batch(None, pair, pair), pair)[-1]  # type: ignore[arg-type] # it stands for one
        if not first:
            first.append(stamp)
        return found

    return checked


def _comparable(stamp: Any) -> Any:
    if not is_moment(stamp):
        raise ValueError(f"{stamp!r} is not a timestamp")
    return stamp


def _pair(item: Any, value: Any) -> Any:
    return item[0], value


def _message(item: Any, value: Any) -> Any:
    return DataMessage(item.key, value, item.timestamp)


def _same(item: Any, _value: Any) -> Any:
    return item


def _valid(key: Any) -> Any:
    if type(key) not in PLAIN_TYPES:
        check_key(key)
    return key


def _read(field: str, value: Any) -> Any:
    try:
        return value[field] if isinstance(value, Mapping) else getattr(value, field)
    except (KeyError, AttributeError) as error:
        note_missing_field(error, field, value, "filter such records, or pass a function of the message")
        raise
