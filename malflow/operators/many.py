"""An operator with a function of many values at once: one call a batch instead of one a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from malflow.errors import failures, settled_failures
from malflow.operators.contract import Operator
from malflow.operators.failures.guard import Guard, is_fatal
from malflow.operators.failures.halves import Answered, Call, DependsOnNeighbours, by_halves, first_failure
from malflow.operators.failures.surviving import record_of, rows_parked, settled, without
from malflow.records.batch import Batch
from malflow.records.columnar import is_columnar
from malflow.words import plural, short_repr

__all__ = ["CallsTogether", "FilterMapMany"]


class CallsTogether(Operator):
    """The base of operators with a function of many records. Where it fails, bad records are found by halves."""

    def fault(self, batch: Batch, error: BaseException) -> Exception:
        """Return the error for a failure that no record is to blame for."""
        return self.error(error, about=f"a batch of {plural(len(batch), 'record')}")

    def first_failure(
        self,
        batch: Batch,
        call: Call,
        error: BaseException,
        note: Callable[[BaseException, int], None] | None = None,
    ) -> Exception:
        """Return the error for the first record at which the function fails.

        Args:
            batch: the records; the function has failed at all of them together.
            call: calls the function for a part of them.
            error: its exception.
            note: adds notes to the exception for a record.
        """
        if is_fatal(error) or not isinstance(error, settled_failures()):
            return self.fault(batch, error)
        try:
            at, found = first_failure(call, len(batch), error)
        except DependsOnNeighbours as broken:
            return self.error(f"{broken}", record_of(batch, broken.start))
        except failures() as worse:
            return self.fault(batch, worse)
        if note is not None:
            note(found, at)
        return self.fail_at(found, batch, at, self.callback)

    def answers_of(
        self, batch: Batch, call: Call, places: Sequence[int], guard: Guard
    ) -> tuple[list[Answered], dict[int, BaseException]]:
        """Return the answers for some records but those at which the function fails, and its exceptions at these.

        Args:
            batch: all records.
            call: calls the function for a part of the ones that count.
            places: their places in the batch.
            guard: decides about failures.

        Raises:
            OperatorError: if no record is to blame for a failure.
        """
        if not places:
            return [], {}
        try:
            return [Answered(0, len(places), call(0, len(places)))], {}
        except settled_failures() as error:
            if is_fatal(error):
                raise self.fault(batch, error) from error
            found = error
        guard.begin_record()
        try:
            return by_halves(call, len(places), found, guard.repeats)
        except DependsOnNeighbours as broken:
            raise self.error(f"{broken}", record_of(batch, places[broken.start])) from found
        except settled_failures() as error:
            raise self.fault(batch, error) from error
        finally:
            guard.begin_record()


class FilterMapMany(CallsTogether):
    """Replace the values of a batch with as many, and drop the records for which the function answers None.

    A function with a true attribute `reads_columns` gets values that are columns as they are.
    """

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Call the function, unless there is no record."""
        values = batch.values
        if not (is_columnar(values) and getattr(self.callback, "reads_columns", False)):
            values = [*values]
        if not values:
            return (batch,)
        if self.guard is not None:
            return (self._guarded(batch, values, self.guard),)
        try:
            answers = self._answers(values)
        except failures() as error:
            raise self.first_failure(batch, self._part_of(values), error) from error
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

    def _guarded(self, batch: Batch, values: Sequence[Any], guard: Guard) -> Batch:
        """Drop the records at which the function fails alone, and those that follow a parked one."""
        parked = rows_parked(guard, batch)
        places = sorted({*range(len(values))}.difference(parked)) if parked else range(len(values))
        left_in = [values[at] for at in places] if parked else values
        answered, failed = self.answers_of(batch, self._part_of(left_in), places, guard)
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
