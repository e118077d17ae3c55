"""The common base of joins of two streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from malflow.errors import OperatorError
from malflow.message import MIN, Timing
from malflow.operators.columns import Results
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import INPUTS, Frontiers
from malflow.operators.waiting import Waiting
from malflow.records.batch import BATCH_SIZE, Batch
from malflow.words import short_repr

__all__ = ["LEFT", "RIGHT", "EndPair", "JoinOperator", "migrated_values"]

LEFT, RIGHT = 0, 1
"""The edges of a join."""


class EndPair(tuple[Any, Any]):
    """A pair emitted at the end of the input: a partner, or a newer one, might still have arrived."""

    __slots__ = ()

    @property
    def timing(self) -> Timing:
        """``Timing.END``."""
        return Timing.END


class JoinOperator(Operator):
    """An operator that joins the records of two edges by key and time.

    Args:
        context: the operator's context.
    """

    takes_pieces = False

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self.inputs = Frontiers(context, 2, ends_at_once=True)
        self.hidden = {INPUTS: self.inputs}
        self._reached: Any = MIN

    def take(self, edge: int, run: Batch, results: Results) -> None:
        """Process records of one edge, and add the results that they complete."""
        raise NotImplementedError

    def advance(self, epoch: Any, results: Results) -> None:
        """Add the results complete at an epoch (may be `MAX`), and drop records that are no longer needed."""
        raise NotImplementedError

    def check_timestamp(self, timestamp: Any) -> None:
        """Check that a timestamp is of a type that the join can handle.

        Raises:
            Exception: if it is not.
        """
        raise NotImplementedError

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        self.inputs.set_idle(edges)

    def waiting(self) -> Waiting | None:
        """Return the number of lists of records kept until no partner can arrive."""
        held = self.state
        return Waiting("entries", len(held)) if held else None

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the streams that count."""
        return self.inputs.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Join the records of both edges in the order of their epochs."""
        results = Results()
        self._reached = self.inputs.merged
        for edge, batch in self.inputs.merge_by_edge(edges):
            done = 0
            for position, epoch in batch.epochs:
                self._take(edge, batch, done, position, results)
                done = position
                self.advance(epoch, results)
                self._reached = epoch
                results.mark(((position, epoch),))
            self._take(edge, batch, done, len(batch), results)
            if len(results.keys) >= BATCH_SIZE:
                yield (results.batch(),)
                results = Results()
        yield (results.batch(),)

    def _take(self, edge: int, batch: Batch, start: int, stop: int, results: Results) -> None:
        if start == stop:
            return
        run = batch if stop - start == len(batch) else batch.part(start, stop)
        try:
            if not min(run.timestamps) > self._reached:
                self._check_timely(run)
            self.take(edge, run, results)
        except OperatorError:
            raise
        except Exception as error:
            raise self._misfit(error, run) from error

    def _check_timely(self, run: Batch) -> None:
        epoch = self._reached
        for record in zip(run.key_column(), run.values, run.timestamps, strict=True):
            if not record[2] > epoch:
                raise self.error(
                    f"the record is late: epoch {short_repr(epoch)} has already passed. An upstream operator emitted "
                    "it with an older timestamp; call .assign_timestamps() and .generate_epochs() after that operator",
                    record,
                )

    def _misfit(self, error: Exception, run: Batch) -> Exception:
        """Return the error of the first record with a timestamp that doesn't fit, or else of the first one."""
        epoch = self._reached
        records = list(zip(run.key_column(), run.values, run.timestamps, strict=True))
        for record in records:
            try:
                self.check_timestamp(record[2])
                if epoch is not MIN:
                    bool(record[2] > epoch)
            except Exception as own:  # noqa: BLE001 - any error is about the record
                return self.error(own, record)
        return self.error(error, records[0])


def migrated_values(rows: Sequence[Sequence[Any]], version: int, *, migrate: Callable[[Any, int], Any]) -> Any:
    """Return the records of a key, as lists of timestamps, values and further data, with migrated values."""
    timestamps, values, *rest = rows
    return [timestamps, [migrate(value, version) for value in values], *rest]
