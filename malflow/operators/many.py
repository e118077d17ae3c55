"""An operator with a function of many values at once: one call a batch instead of one a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from malflow.errors import failures, settled_failures
from malflow.operators.contract import Operator
from malflow.operators.failures.guard import Guard, is_fatal
from malflow.operators.failures.halves import Answered, DependsOnNeighbours, by_halves, first_failure
from malflow.operators.failures.surviving import record_of, rows_parked, settled, without
from malflow.records.batch import Batch
from malflow.words import plural, short_repr

__all__ = ["FilterMapMany"]


class FilterMapMany(Operator):
    """Replace the values of a batch with as many, and drop the records for which the function answers None."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the function, unless there is no record."""
        values: Sequence[Any] = [*batch.values]
        if not values:
            return (batch,)
        if self.guard is not None:
            return (self._guarded(batch, values, self.guard),)
        try:
            answers = self._answers(values)
        except failures() as error:
            raise self._first_failure(batch, values, error) from error
        return (batch.with_values(answers).select([it is not None for it in answers]),)

    def _answers(self, values: Sequence[Any]) -> Sequence[Any]:
        """Call the function.

        Raises:
            TypeError: if it does not answer a list.
            ValueError: if it answers more or fewer values.
        """
        answers = self.callback(values)
        if not isinstance(answers, list):
            raise TypeError(f"the function must return a list with a value for each; it returned {short_repr(answers)}")
        if len(answers) != len(values):
            answered = plural(len(answers), "value")
            raise ValueError(f"the function must return a value for each; it returned {answered} for {len(values)}")
        return answers

    def _part_of(self, values: Sequence[Any]) -> Callable[[int, int], Sequence[Any]]:
        return lambda start, stop: self._answers(values[start:stop])

    def _first_failure(self, batch: Batch, values: Sequence[Any], error: BaseException) -> Exception:
        """Return the error for the first value at which the function fails."""
        if is_fatal(error) or not isinstance(error, settled_failures()):
            return self.error(error, about=f"a batch of {plural(len(batch), 'record')}")
        try:
            at, found = first_failure(self._part_of(values), len(values), error)
        except DependsOnNeighbours as broken:
            return self.error(f"{broken}", record_of(batch, broken.start))
        return self.fail_at(found, batch, at, self.callback)

    def _guarded(self, batch: Batch, values: Sequence[Any], guard: Guard) -> Batch:
        """Drop the records at which the function fails alone, and those that follow a parked one."""
        parked = rows_parked(guard, batch)
        places = sorted({*range(len(values))}.difference(parked)) if parked else range(len(values))
        answered, failed = self._settled(batch, [values[at] for at in places], places, guard)
        errors = {places[at]: error for at, error in failed.items()}
        call = self._part_of(values)
        left, again = settled(guard, batch, errors, lambda at: call(at, at + 1), parked)
        answers: list[Any] = [None] * len(values)
        for it in answered:
            for at, answer in zip(range(it.start, it.stop), it.answer, strict=True):
                answers[places[at]] = answer
        for place, found in again.items():
            answers[place] = found[0]
        gone = frozenset(left)
        staying = [at for at in range(len(values)) if at not in gone]
        kept = [answers[at] for at in staying]
        return without(left, batch).with_values(kept).select([it is not None for it in kept])

    def _settled(
        self, batch: Batch, values: Sequence[Any], places: Sequence[int], guard: Guard
    ) -> tuple[list[Answered], dict[int, BaseException]]:
        """Return the answers for all values but those at which the function fails, and its exceptions at these."""
        if not values:
            return [], {}
        part = self._part_of(values)
        try:
            return [Answered(0, len(values), part(0, len(values)))], {}
        except settled_failures() as error:
            if is_fatal(error):
                raise self.error(error, about=f"a batch of {plural(len(batch), 'record')}") from error
            found = error
        guard.begin_record()
        try:
            return by_halves(part, len(values), found, guard.repeats)
        except DependsOnNeighbours as broken:
            raise self.error(f"{broken}", record_of(batch, places[broken.start])) from found
        finally:
            guard.begin_record()
