"""Joins with tables by arrival: of records with the row that is known, and of two tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from malflow.errors import failures
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import INPUTS, Frontiers
from malflow.operators.tables.table import Unsent, incomparable
from malflow.records.batch import Batch
from malflow.records.changes import rows_after, with_changes
from malflow.states.keyed import KeyedState
from malflow.words import short_repr

__all__ = ["ArrivalJoin", "JoinedRows", "TableJoin"]

_LEFT, _RIGHT = 0, 1


class ArrivalJoin(Operator):
    """Join each record with the row of its key that is known when it arrives.

    In a tick, the rows come first, then the records. The output has the epochs of the records alone.

    Args:
        context: the operator's context.
        joiner: returns the result for a value and a row (may be None).
        keeps_left: whether to emit records without a row.
    """

    takes_pieces = False
    state: KeyedState

    def __init__(self, context: OperatorContext, joiner: Callable[[Any, Any], Any], *, keeps_left: bool) -> None:
        super().__init__(context, joiner)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._keeps_left = keeps_left

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Learn the rows of the tick, then join its records."""
        for batch in edges[_RIGHT]:
            self._learn(batch)
        for batch in edges[_LEFT]:
            yield (self._joined(batch),)

    def _learn(self, batch: Batch) -> None:
        states, unsent, rest = self.state, Unsent.known(), iter(batch.values)
        try:
            for key, row in zip(batch.key_column(), rest, strict=True):
                present = states[key]  # a new key is checked
                if unsent is not None:
                    unsent.check_not_change(row)
                    states[key] = unsent.completed(row, present)
                else:
                    states[key] = row
                if row is None:
                    del states[key]
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        states.touch(batch.key_column())

    def _joined(self, batch: Batch) -> Batch:
        rows: list[Any] = list(map(self.state.get, batch.key_column()))
        if not self._keeps_left:
            mask = [row is not None for row in rows]
            if not all(mask):
                batch, rows = batch.select(mask), list(compress(rows, mask))
        rest = iter(batch.values)
        try:
            return batch.with_values(list(map(self.callback, rest, rows)))
        except failures() as error:
            raise self.fail(error, batch, rest) from error


class JoinedRows(Operator):
    """The base of joins of tables. The state of a side and key is its row.

    The joined rows before and after a change are both computed from the rows.

    Args:
        context: the operator's context.
        joiner: returns the joined row of a left and a right row; one may be None in outer joins.
        keeps: whether left rows, and right rows, without a partner are joined with None.
    """

    takes_pieces = False
    state: KeyedState

    def __init__(
        self, context: OperatorContext, joiner: Callable[[Any, Any], Any], *, keeps: tuple[bool, bool]
    ) -> None:
        super().__init__(context, joiner)
        self.state = KeyedState(tracked=context.tracked, admit=lambda slot: context.admit(slot[1]))
        self._keeps = keeps

    def joined(self, left: Any, right: Any) -> Any:
        """Return the joined row of a left and a right row (one may be None); None without one."""
        if (left is None and not (self._keeps[_RIGHT] and right is not None)) or (
            right is None and not (self._keeps[_LEFT] and left is not None)
        ):
            return None
        joined = self.callback(left, right)
        if joined is None:
            raise TypeError(
                "the joiner returned None, which is not a row; call .filter() on the joined table to drop rows"
            )
        if self.context.debug and not joined == self.callback(left, right):
            raise ValueError(
                f"the joiner returned two different rows for the same ones: {short_repr(joined)} and another; the row "
                "before a change is computed again, so it must be a function of the two rows alone"
            )
        return joined


class TableJoin(JoinedRows):
    """Join the rows of two tables by key; emit at most one change of the joined row for each change of either."""

    def __init__(
        self, context: OperatorContext, joiner: Callable[[Any, Any], Any], *, keeps: tuple[bool, bool]
    ) -> None:
        super().__init__(context, joiner, keeps=keeps)
        self.inputs = Frontiers(context, 2)
        self.hidden = {INPUTS: self.inputs}

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        self.inputs.set_idle(edges)

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the tables that count."""
        return self.inputs.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Join the changes of both tables."""
        for edge, batch in self.inputs.merge_by_edge(edges):
            yield (self._changed(edge, batch),)

    def _changed(self, edge: int, batch: Batch) -> Batch:
        states, rest, olds, news, mask = self.state, iter(rows_after(batch.values)), [], [], []
        old: Any = None
        new: Any = None
        try:
            for key, row in zip(batch.key_column(), rest, strict=True):
                old, new = None, None  # so that a failing joiner is not taken for a failing comparison
                slot = (edge, key)
                before, other = states[slot], states.get((1 - edge, key))
                old, new = self._joined(edge, before, other), self._joined(edge, row, other)
                mask.append(not old == new)  # noqa: SIM201 - rows are compared by ==
                olds.append(old)
                news.append(new)
                if row is not None:
                    states[slot] = row
                elif before is not None:
                    del states[slot]
        except Exception as error:
            raise self.fail(incomparable(error, old, new), batch, rest) from error
        states.touch([(edge, key) for key in batch.key_column()])
        return with_changes(batch, olds, news, mask)

    def _joined(self, edge: int, row: Any, other: Any) -> Any:
        """Return the joined row of a row of one side and a row of the other; None without one."""
        return self.joined(row, other) if edge == _LEFT else self.joined(other, row)
