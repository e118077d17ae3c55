"""The fates of the rows of a batch of columns at which a function has failed: only these become Python objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from malflow.errors import settled_failures
from malflow.operators.failures.dead_letters import Record
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import record_of
from malflow.records.batch import Batch
from malflow.records.column import positions_of

__all__ = ["settled"]


def settled(
    guard: Guard,
    batch: Batch,
    failed: Mapping[int, BaseException],
    again: Callable[[int], Any] | None = None,
    parked: Sequence[int] = (),
) -> tuple[list[int], dict[int, Any]]:
    """Decide about failed rows, and the rows that follow one of their key, in their order.

    Args:
        guard: the guard of the operator.
        batch: the records.
        failed: the exceptions, by row.
        again: calls the function with one row again, and returns its answer; None if that fails in the same way.
        parked: rows of keys that were parked before.

    Returns:
        The rows that leave the batch, and the answers of those at which the function has not failed again.

    Raises:
        OperatorError: if the policy is to fail.
    """
    left: list[int] = []
    answers: dict[int, Any] = {}
    rows = _rows_concerned(guard, batch, failed, parked)
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
