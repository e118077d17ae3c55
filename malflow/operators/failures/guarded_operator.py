"""The base of operators that survive failures of the user's function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from malflow.diagnostics import is_of_malflow
from malflow.errors import settled_failures
from malflow.event_time.tick import Tick
from malflow.message import NoKey
from malflow.operators.contract import Operator
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.letters import Record
from malflow.records.batch import Batch

__all__ = ["Calls", "Guarded", "record_of", "without"]

Calls = Callable[[Iterator[Any]], Iterable[Any]]
"""Makes the answers of the user's function for the items of an iterator."""


class Guarded(Operator):
    """The base of operators that survive failures of the user's function, as their `Guard` decides.

    Attributes:
        guard: the guard, set before the first tick.
    """

    guard: Guard

    def begin_tick(self, tick: Tick) -> None:
        """Receive the tick's facts about the run."""
        self.guard.begin_tick(tick)
        super().begin_tick(tick)

    def take_counts(self) -> Mapping[str, int]:
        """Return the counters of the guard."""
        return self.guard.take_counts()

    def gauges(self) -> Mapping[str, int]:
        """Return the gauges of the guard."""
        return self.guard.gauges()

    def attempt(
        self, calls: Calls, turns: Iterable[Any], batch: Batch, instead: Any = None
    ) -> tuple[list[Any], list[int]]:
        """Return the answer for each record, and the positions of those at which the function failed.

        ``list.extend`` keeps the answers before an exception, and new calls continue after the record that raised it.
        So each record is passed to the function once, and a loop over failures costs nothing where there are none.

        Args:
            calls: returns the answers of the user's function for the items of an iterator. Write a generator
                expression, which tells a function that raises StopIteration from the end of the items.
            turns: the items of `Guard.turns`.
            batch: the records.
            instead: the answer for a record that failed.

        Raises:
            OperatorError: if the policy is to fail.
        """
        found: list[Any] = []
        failed: list[int] = []
        guard, rest = self.guard, iter(turns)
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
        return self.completed(found, failed, instead)

    def completed(self, found: list[Any], failed: list[int], instead: Any = None) -> tuple[list[Any], list[int]]:
        """Return answers and positions of failures, like `attempt`, including the records of parked keys.

        Args:
            found: the answer for each other record.
            failed: the positions of the failures.
            instead: the answer for a record of a parked key.
        """
        passed, self.guard.passed = self.guard.passed, []
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
