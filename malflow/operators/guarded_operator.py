"""The base of operators that survive failures of the user's function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from malflow.event_time.tick import Tick
from malflow.message import NoKey
from malflow.operators.contract import Operator
from malflow.operators.guarding import Guard
from malflow.operators.letters import Record
from malflow.records.batch import Batch

__all__ = ["Guarded", "record_of", "without"]


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

    def attempt(self, answers: Iterator[Any], batch: Batch, instead: Any = None) -> tuple[list[Any], list[int]]:
        """Return the answer for each record, and the positions of those at which the function failed.

        ``list.extend`` keeps the answers before an exception, and a `map` continues after the record that raised it. So
        there is no step between two calls of the user's function, and each record is passed to it once.

        Args:
            answers: a `map` that calls the function with each record, in order, using the items of `Guard.turns`.
            batch: the records.
            instead: the answer for a record that failed.

        Raises:
            OperatorError: if the policy is to fail.
        """
        found: list[Any] = []
        failed: list[int] = []
        guard = self.guard
        while True:
            ended: Exception = StopIteration()  # the function raised it, unless all records have had their turn
            try:
                found.extend(answers)
            except Exception as error:  # noqa: BLE001 - the guard raises it again, unless the policy settles it
                ended = error
            else:
                if len(found) + len(guard.passed) == len(batch):
                    break
            if guard.repeats(ended):
                continue
            at = len(found) + len(guard.passed)
            guard.take(ended, record_of(batch, at))
            failed.append(at)
            found.append(instead)
        return self.completed(found, failed, instead)

    def completed(self, found: list[Any], failed: list[int], instead: Any = None) -> tuple[list[Any], list[int]]:
        """Return answers and positions of failures, like `attempt`, including the records whose keys are parked.

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
