"""Operators that process one record at a time, without state; with a guard, they drop failed records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, islice, repeat
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from malflow.errors import OperatorError, failures, settled_failures
from malflow.message import MAX, DataMessage, Timing
from malflow.operators.contract import Operator, OperatorContext, Output, StatelessLogic, overridden
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import attempt, without
from malflow.operators.waiting import Waiting
from malflow.partitioners import stable_hash
from malflow.records.batch import Batch
from malflow.words import short_repr

__all__ = [
    "Filter",
    "FilterMap",
    "FlatMap",
    "Flatten",
    "Inspect",
    "InspectFrontier",
    "Map",
    "MapWithKey",
    "Sample",
    "StatelessOp",
    "check_answer",
]


_log = logging.getLogger("malflow.runtime")


class Map(Operator):
    """Replace each value with the mapper's result."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        mapper, rest = self.callback, iter(batch.values)
        try:
            values = [mapper(value) for value in rest]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.with_values(values),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        mapper, turns = self.callback, guard.turns(batch.values, batch)
        values, failed = attempt(guard, lambda rest: (mapper(value) for value in rest), turns, batch)
        return (without(failed, batch.with_values(values)),)


class MapWithKey(Operator):
    """Replace each value with the mapper's result for key and value."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the columns of keys and values to one of values."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        mapper, rest = self.callback, iter(batch.values)
        try:
            values = [mapper(key, value) for key, value in zip(batch.key_column(), rest, strict=True)]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.with_values(values),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        mapper = self.callback
        pairs = guard.turns(zip(batch.key_column(), batch.values, strict=True), batch, _pair)
        values, failed = attempt(guard, lambda rest: (mapper(key, value) for key, value in rest), pairs, batch)
        return (without(failed, batch.with_values(values)),)


class Filter(Operator):
    """Keep records with values that satisfy the predicate."""

    _has_begun = False

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute a mask and compress the columns."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        predicate, rest = self.callback, iter(batch.values)
        if not self._has_begun and len(batch):
            predicate, self._has_begun = self._first(predicate), True
        try:
            mask = [True if predicate(value) else False for value in rest]  # noqa: SIM210 - cheaper than bool()
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.select(mask),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        predicate, turns = self.callback, guard.turns(batch.values, batch)
        mask, _ = attempt(guard, lambda rest: (bool(predicate(value)) for value in rest), turns, batch, False)
        return (guard.renewed(batch).select(mask),)

    def _first(self, predicate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a predicate for one batch. It warns of an answer that is a function: it would count as true."""
        is_told = False

        def asked(value: Any) -> Any:
            nonlocal is_told
            answer = predicate(value)
            if not is_told and isinstance(answer, (FunctionType, MethodType, BuiltinFunctionType)):
                is_told = True
                _log.warning(
                    "operator '%s': its predicate returned %s, a function, which counts as true, so that no record is "
                    "dropped; call it, as in value.isdigit()",
                    self.context.operator_name,
                    short_repr(answer),
                )
            return answer

        return asked


class FilterMap(Operator):
    """Replace each value with the mapper's result, and drop the record if that is None."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, then compress the columns."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        mapper, rest = self.callback, iter(batch.values)
        try:
            values = [mapper(value) for value in rest]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.with_values(values).select([value is not None for value in values]),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        mapper, turns = self.callback, guard.turns(batch.values, batch)
        values, _ = attempt(guard, lambda rest: (mapper(value) for value in rest), turns, batch)
        return (batch.with_values(values).select([value is not None for value in values]),)


class Sample(Operator):
    """Keep records with a stable hash of the id below a limit."""

    def __init__(self, context: OperatorContext, by: Callable[[Any], Any] | None, limit: int) -> None:
        super().__init__(context, by)
        self._limit = limit

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Hash the ids."""
        by, limit, rest = self.callback, self._limit, iter(batch.values)
        try:
            mask = [stable_hash(name) < limit for name in (rest if by is None else map(by, rest))]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.select(mask),)


class Flatten(Operator):
    """Emit each element of each value as a separate record, with the key and the timestamp of the value."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Chain the values."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        rest = iter(batch.values)
        try:
            elements = [value if type(value) in _AT_HAND else _elements_of(value) for value in rest]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (_chained(batch, elements),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        turns = guard.turns(batch.values, batch)
        elements, _ = attempt(guard, lambda rest: (_elements_of(value) for value in rest), turns, batch, ())
        return (_chained(batch, elements),)


class FlatMap(Operator):
    """Emit each element of the function's result for each value as a separate record."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Map the value column, and chain the results."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        function, rest = self.callback, iter(batch.values)
        try:
            elements = [  # taken at once: a function may reuse one list
                [*answer]
                if type(answer) is list
                else answer
                if type(answer) is tuple
                else _elements_of(answer, of="the function returned")
                for value in rest
                for answer in (function(value),)
            ]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (_chained(batch, elements),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Drop all elements of a failed record, even those before the failure."""
        function, turns = self.callback, guard.turns(batch.values, batch)
        elements, _ = attempt(guard, lambda rest: (_elements_returned(function(it)) for it in rest), turns, batch, ())
        return (_chained(batch, elements),)


class Inspect(Operator):
    """Show each message to the inspector."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the inspector and pass the batch on."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        inspector, context, rest = self.callback, self.context, iter(batch.values)
        try:
            for message in map(DataMessage, batch.key_column(), rest, batch.timestamps):
                inspector(message, context)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch,)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        messages = map(DataMessage, batch.key_column(), batch.values, batch.timestamps)
        inspector, context, turns = self.callback, self.context, guard.turns(messages, batch, _message)
        _, failed = attempt(guard, lambda rest: (inspector(message, context) for message in rest), turns, batch)
        return (without(failed, guard.renewed(batch)),)


class InspectFrontier(Operator):
    """Show each epoch to the inspector."""

    keeps_columns = True

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the inspector and pass the batch on."""
        for _, epoch in batch.epochs:
            try:
                self.callback(epoch, self.context)
            except failures() as error:
                raise self.error(error, about=f"epoch {short_repr(epoch)}") from error
        return (batch,)


class StatelessOp(Operator):
    """Pass each message and each epoch to the user's logic, and emit the messages that it sends."""

    def __init__(self, context: OperatorContext, logic: Any) -> None:
        super().__init__(context, logic)
        self._on_data = getattr(logic, "on_data", logic)
        self._on_epoch = overridden(logic, "on_epoch", StatelessLogic)
        self._output: Output[Any, Any, Any] = Output()

    def held(self) -> Waiting | None:
        """Report one more call of `on_epoch`."""
        return None if self._on_epoch is None else Waiting("on_epoch calls", 1)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Process records and epochs in order."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        on_data, output, rest = self._on_data, self._output, iter(batch.values)
        messages = map(DataMessage, batch.key_column(), rest, batch.timestamps)
        epochs = []
        done = 0
        try:
            for position, epoch in batch.epochs:
                for message in islice(messages, position - done):
                    if (answer := on_data(message, output)) is not None:
                        check_answer(answer)
                done = position
                self._take_epoch(epoch)
                epochs.append((len(output), epoch))
            for message in messages:
                if (answer := on_data(message, output)) is not None:
                    check_answer(answer)
        except OperatorError:
            raise
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (output.take(epochs),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        """Take back the messages that the logic sent for a record before it failed."""
        on_data, output = self._on_data, self._output
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        epochs = []
        for count, epoch in batch.runs():
            for record in guard.turns(islice(records, count)):
                start = len(output)
                try:
                    if (answer := on_data(DataMessage(*record), output)) is not None:
                        check_answer(answer)
                except settled_failures() as error:
                    output.cut(start)
                    if not guard.repeats(error):
                        guard.take(error, record)
            if epoch is not None:
                self._take_epoch(epoch)
                epochs.append((len(output), epoch))
        return (output.take(epochs),)

    def _take_epoch(self, epoch: Any) -> None:
        if self._on_epoch is None:
            return
        if epoch is MAX:
            self._output.timing = Timing.END
        try:
            check_answer(self._on_epoch(epoch, self._output))
        except failures() as error:
            raise self.error(error, about=f"epoch {short_repr(epoch)}") from error


_AT_HAND = (list, tuple)


def _elements_returned(answer: Any) -> Sequence[Any]:
    """Return the elements of a function's result; taken at once, since a function may reuse one list."""
    if type(answer) is list:
        return answer.copy()
    return answer if type(answer) is tuple else _elements_of(answer, of="the function returned")


def _elements_of(value: Any, of: str = "the value is") -> list[Any]:
    """Return the elements of a value.

    Raises:
        TypeError: if it has none, or is a string or bytes.
    """
    if isinstance(value, (str, bytes, bytearray)):
        letters = "letters" if isinstance(value, str) else "bytes"
        raise TypeError(
            f"{of} {short_repr(value)}, whose elements would be its {letters}; split it first, as by value.split(), or "
            f"use [value] for one record, list(value) for its {letters}"
        )
    if value is None:
        raise TypeError(f"{of} None, which has no elements; an empty list, [], is not a record")
    return list(value)


def _chained(batch: Batch, elements: list[Any]) -> Batch:
    """Chain the elements, and repeat keys and timestamps for each of them."""
    counts = list(map(len, elements))
    keys = None if batch.keys is None else _repeated(batch.keys, counts)
    timestamps = _repeated(batch.timestamps, counts)
    starts = [0, *accumulate(counts)]
    epochs = [(starts[position], epoch) for position, epoch in batch.epochs]
    return Batch(keys, list(chain.from_iterable(elements)), timestamps, epochs)


def check_answer(answer: Any) -> None:
    """Reject a logic's return value: it would be lost; allow the result of ``a and output.send(b)``.

    Raises:
        TypeError: if it is not None, a truth value, or a list of these.
    """
    if not answer or answer is True:
        return
    if type(answer) in _AT_HAND and all(part is None or isinstance(part, bool) for part in answer):
        return
    raise TypeError(
        f"it returned {short_repr(answer)}, which would be lost; emit by output.send(DataMessage(key, value, "
        "timestamp)), and return nothing"
    )


def _repeated(column: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    return list(chain.from_iterable(map(repeat, column, counts)))


def _pair(item: Any, value: Any) -> Any:
    return item[0], value


def _message(item: Any, value: Any) -> Any:
    return DataMessage(item.key, value, item.timestamp)
