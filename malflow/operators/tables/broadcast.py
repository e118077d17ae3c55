"""Rows that all workers have, and the join of records with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

from malflow.errors import failures
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.failures.guard import Guard
from malflow.operators.failures.surviving import attempt, without
from malflow.operators.tables.table import Unsent
from malflow.partitioners import check_key
from malflow.records.batch import Batch
from malflow.states.keyed import KeyedState, copied
from malflow.states.read_only import ReadOnlyDict, read_only
from malflow.words import short_repr

__all__ = ["BroadcastJoin", "Replicate"]


class Replicate(Operator):
    """Send each row to all workers: the key is the number of the worker, and the value a pair of key and row."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Repeat each record for each worker."""
        workers = self.context.workers
        each = len(workers)

        def repeated(column: Iterable[Any]) -> list[Any]:
            return list(chain.from_iterable(repeat(it, each) for it in column))

        pairs = zip(batch.key_column(), batch.values, strict=True)
        epochs = [(each * position, epoch) for position, epoch in batch.epochs]
        return (Batch([*workers] * len(batch), repeated(pairs), repeated(batch.timestamps), epochs),)


class BroadcastJoin(Operator):
    """Join each record with all rows that are known when it arrives.

    In a tick, the rows come first, then the records. The output has the epochs of the records alone. The state is the
    same on all workers. They receive the same rows in the same order.

    Args:
        context: the operator's context.
        joiner: returns the result for a value and a mapping of the rows by key.
    """

    takes_pieces = False
    state: KeyedState

    def __init__(self, context: OperatorContext, joiner: Callable[[Any, Mapping[Any, Any]], Any]) -> None:
        super().__init__(context, joiner)
        self.state = KeyedState(tracked=context.tracked, admit=check_key)
        self._rows: ReadOnlyDict | None = None  # None: to be made from the state

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Learn the rows of the tick, then join its records."""
        for batch in edges[1]:
            self._learn(batch)
        for batch in edges[0]:
            yield self.process(batch)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Join the records of a batch."""
        if self.guard is not None:
            return self._guarded(batch, self.guard)
        rest = iter(batch.values)
        try:
            values = list(map(self.callback, rest, repeat(self.rows)))
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.with_values(values),)

    def _guarded(self, batch: Batch, guard: Guard) -> Sequence[Batch]:
        joiner, rows, turns = self.callback, self.rows, guard.turns(batch.values, batch)
        values, failed = attempt(guard, lambda rest: (joiner(value, rows) for value in rest), turns, batch)
        return (without(failed, batch.with_values(values)),)

    @property
    def rows(self) -> ReadOnlyDict:
        """The rows by key: a mapping that never changes, since a new one is made of new rows."""
        if self._rows is None:
            self._rows = ReadOnlyDict({key: self._shown(row) for key, row in self.state.items()})
        return self._rows

    def flush(self) -> None:
        """Check, in debug, that functions have not changed the rows."""
        if not self.context.debug or self._rows is None:
            return
        for key, row in self.state.items():
            if not self._rows[key] == row:
                raise self.error(
                    f"the row of key {short_repr(key)} was changed by a function that reads it: it was "
                    f"{short_repr(row)}, and is {short_repr(self._rows[key])}; only the stream or table of rows may "
                    "change rows: make a copy, such as copy.copy(row)"
                )

    def apply(self, delta: Any) -> None:
        """Apply a delta to the rows."""
        super().apply(delta)
        self._rows = None

    def _learn(self, batch: Batch) -> None:
        states, unsent = self.state, Unsent.known()
        known = None if self._rows is None else dict(self._rows)
        key = row = None
        try:
            for key, row in batch.values:
                present = states[key]  # a new key is checked
                if unsent is not None:
                    unsent.check_not_change(row)
                    row = unsent.completed(row, present)  # noqa: PLW2901 - the row as it is known
                if row is None:
                    states.pop(key, None)
                else:
                    states[key] = row
                if known is not None:
                    known[key] = self._shown(row)
        except failures() as error:
            raise self.error(error, (key, row, None)) from error
        states.touch(key for key, _ in batch.values)
        if known is not None:
            self._rows = ReadOnlyDict({key: row for key, row in known.items() if row is not None})

    def _shown(self, row: Any) -> Any:
        """Return a row as functions get it: in debug a copy. A change of it then shows."""
        return read_only(copied(row) if self.context.debug else row)
