"""Loops with a guard: they continue after a record at which the user's function fails. A failed record has no output.

An operator without a guard never enters them, and its own loop has no step for failures. Of a batch of columns, only
failed rows become Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from malflow.diagnostics import is_of_malflow
from malflow.errors import settled_failures
from malflow.failures import OnError
from malflow.message import DataMessage, NoKey
from malflow.operators.contract import Logic, Operator, OperatorContext, check_not_kept
from malflow.operators.failures.dead_letters import Letters, Record
from malflow.operators.failures.guard import Guard
from malflow.records.batch import Batch
from malflow.records.column import BaseColumn, positions_of
from malflow.states.keyed import ATOMIC_TYPES, KeyedState, copied
from malflow.words import error_text, short_repr

__all__ = [
    "Calls",
    "MessageView",
    "SparesStates",
    "attempt",
    "completed",
    "faults_of",
    "guarded",
    "record_of",
    "rows_parked",
    "same_item",
    "settled",
    "without",
]


Calls = Callable[[Iterator[Any]], Iterable[Any]]
"""Makes the answers of the user's function for the items of an iterator."""


def guarded(logic: Logic, context: OperatorContext, policy: OnError, letters: Letters) -> Operator:
    """Return the operator that a logic makes, with a guard.

    Args:
        logic: makes the operator.
        context: the operator's context.
        policy: its policy.
        letters: its dead letters.
    """
    operator = logic(context)
    operator.guard = Guard(operator, policy, letters)
    if policy.retry is not None:
        operator.is_repeatable = False  # which attempt succeeds may depend on systems outside
    return operator


def attempt(
    guard: Guard,
    calls: Calls,
    turns: Iterable[Any],
    batch: Batch,
    instead: Any = None,
) -> tuple[list[Any], list[int]]:
    """Return the answer for each record, and the positions of those at which the function failed.

    ``list.extend`` keeps the answers before an exception, and new calls continue after the record that raised it. So
    each record is passed to the function once, and a loop over failures costs nothing where there are none.

    Args:
        guard: the guard of the operator.
        calls: returns the answers of the user's function for the items of an iterator. Write a generator expression,
            which tells a function that raises StopIteration from the end of the items.
        turns: the items of `Guard.turns`.
        batch: the records.
        instead: the answer for a record that failed.

    Raises:
        OperatorError: if the policy is to fail.
    """
    found: list[Any] = []
    failed: list[int] = []
    rest = iter(turns)
    while True:
        try:
            found.extend(calls(rest))
            break
        except settled_failures() as error:
            ended = _raised_by_user(error)
        if guard.repeats(ended):
            continue
        at = len(found) + len(guard.passed)
        guard.take(ended, record_of(batch, at))
        failed.append(at)
        found.append(instead)
    return completed(guard, found, failed, instead)


def completed(guard: Guard, found: list[Any], failed: list[int], instead: Any = None) -> tuple[list[Any], list[int]]:
    """Return answers and positions of failures, like `attempt`, including the records of parked keys.

    Args:
        guard: the guard of the operator.
        found: the answer for each other record.
        failed: the positions of the failures.
        instead: the answer for a record of a parked key.
    """
    passed, guard.passed = guard.passed, []
    if not passed:
        return found, failed
    rest, positions = iter(found), frozenset(passed)
    whole = [instead if at in positions else next(rest) for at in range(len(found) + len(passed))]
    return whole, sorted([*failed, *passed])


def _raised_by_user(error: BaseException) -> BaseException:
    """Return the exception of the user's function: a generator replaces a StopIteration by an error of its own."""
    cause, last = error.__cause__, error.__traceback__
    if type(error) is not RuntimeError or type(cause) is not StopIteration:
        return error
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return cause if last is not None and is_of_malflow(last.tb_frame.f_code.co_filename) else error


def record_of(batch: Batch, at: int) -> Record:
    """Return the key, the value and the timestamp of a record, by its position."""
    return NoKey if batch.keys is None else batch.keys[at], batch.values[at], batch.timestamps[at]


def without(failed: Sequence[int], batch: Batch) -> Batch:
    """Return the batch without the records at these positions."""
    if not failed:
        return batch
    mask = [True] * len(batch)
    for at in failed:
        mask[at] = False
    return batch.select(mask)


def same_item(item: Any, _value: Any) -> Any:
    """Return the item of a column for another attempt; a new copy of the value does not change it."""
    return item


def faults_of(
    column: BaseColumn, check: Callable[[Any], object], rows: Sequence[int] | None = None
) -> dict[int, BaseException]:
    """Return the exceptions of a check of items of a column, by row.

    Args:
        column: the keys or timestamps.
        check: raises an exception for an item that can't be one.
        rows: the rows to check; None for those without an item, and with NaN.
    """
    faults: dict[int, BaseException] = {}
    for at in column.unusable() if rows is None else rows:
        try:
            check(column[at])
        except settled_failures() as error:
            faults[at] = error
    return faults


def settled(
    guard: Guard,
    batch: Batch,
    failed: Mapping[int, BaseException],
    again: Callable[[int], Any] | None = None,
    parked: Sequence[int] | None = None,
) -> tuple[list[int], dict[int, Any]]:
    """Decide about failed rows, and the rows that follow one of their key, in their order.

    Args:
        guard: the guard of the operator.
        batch: the records.
        failed: the exceptions, by row.
        again: calls the function with one row again, and returns its answer; None if that fails in the same way.
        parked: the rows of keys that were parked before; None to find them.

    Returns:
        The rows that leave the batch, and the answers of those at which the function has not failed again.

    Raises:
        OperatorError: if the policy is to fail.
    """
    left: list[int] = []
    answers: dict[int, Any] = {}
    rows = _rows_concerned(guard, batch, failed, rows_parked(guard, batch) if parked is None else parked)
    try:
        for at, record in zip(rows, _records(batch, rows), strict=True):
            if guard.follows(record):
                left.append(at)
                continue
            error = failed.get(at)
            if error is None:
                continue
            guard.begin_record()
            while error is not None and guard.repeats(error):
                error = _tried(at, error, again, answers)
            if error is not None:
                guard.take(error, record, at=at)
                left.append(at)
    finally:
        guard.begin_record()
    return left, answers


def rows_parked(guard: Guard, batch: Batch) -> Sequence[int]:
    """Return the rows of a batch whose keys are parked."""
    keys = guard.may_follow()
    return positions_of(batch.keys, keys) if keys and batch.keys is not None else ()


def _tried(
    at: int, error: BaseException, again: Callable[[int], Any] | None, answers: dict[int, Any]
) -> BaseException | None:
    if again is None:
        return error
    try:
        answers[at] = again(at)
    except settled_failures() as found:
        return found
    return None


def _rows_concerned(
    guard: Guard, batch: Batch, failed: Mapping[int, BaseException], parked: Sequence[int]
) -> Sequence[int]:
    """Return the failed rows, and those that may follow one."""
    if batch.keys is None or not failed or not guard.parks:
        return sorted({*failed, *parked})
    keys = guard.may_follow(batch.keys[at] for at in failed)
    return sorted({*failed, *parked, *positions_of(batch.keys, keys)})


def _records(batch: Batch, rows: Sequence[int]) -> list[Record]:
    chosen = batch.take(rows).listed()
    return [record_of(chosen, at) for at in range(len(rows))]


class MessageView:
    """The messages of a batch, as one view object; the checks of a debug run find a function that keeps it.

    Args:
        guard: the guard of the operator.
        context: the operator's context.
        batch: the batch.
    """

    def __init__(self, guard: Guard, context: OperatorContext, batch: Batch) -> None:
        self._debug = context.debug
        self._guard = guard
        self._batch = batch
        self._message: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)

    def __enter__(self) -> Iterator[DataMessage[Any, Any, Any]]:
        view, batch = self._message, self._batch
        columns = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        turns = self._guard.turns(columns)
        self._messages = (view for view.key, view.value, view.timestamp in turns)
        return self._messages

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(GeneratorExit):
            self._messages.throw(GeneratorExit)  # from Python 3.13 on, `close` lets a generator keep its variables
        view = self._message
        del self._message
        if self._debug and kind is None:
            check_not_kept(view)


class SparesStates(Operator):
    """The base of operators with a state for each key: with a guard, a failed call leaves no trace in it.

    The user's function receives a copy of a state that it could change, and the old state stays until the call returns.
    So a failed call has changed nothing, not even an emitted value that holds the state. Messages that it sent are
    taken back; timers that it set take effect only if it returns.
    """

    state: KeyedState

    def spare(self, key: Any, state: Any) -> Any:
        """Return a state that a function may change while the old one stays: the state itself if it is immutable.

        Raises:
            OperatorError: if it can't be copied.
        """
        if type(state) in ATOMIC_TYPES or _is_frozen(state):
            return state
        try:
            return self.copy_of(state)
        except Exception as error:
            reason = (
                f"its state {short_repr(state)} can't be copied: {error_text(error)}; an on_error= other than 'fail' "
                "copies the state before each call"
            )
            raise self.error(reason, about=f"key {short_repr(key)}") from error

    def copy_of(self, state: Any) -> Any:
        """Return a copy of a state."""
        return copied(state)

    def lose(
        self, guard: Guard, error: BaseException, record: Record, reason: BaseException | str | None = None
    ) -> None:
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
        guard.take(error, record, reason)


def _is_frozen(state: Any) -> bool:
    """Whether a state is a frozen dataclass with immutable fields."""
    parameters = getattr(type(state), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return False
    return ATOMIC_TYPES.issuperset(type(getattr(state, it.name)) for it in fields(state))
