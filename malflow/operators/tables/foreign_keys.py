"""The join of two tables by a key that the rows of the left one have: a foreign key of the right one.

A change of a left row whose foreign key moves tells the workers of the old and the new right key who refers to it. They
keep the right rows and who refers to them. They answer each new reference with the right row, and each change of a
right row with the new one, for all who refer to it. The answers go to the worker of the left key, which joins the rows.
Left rows do not travel, and a left row that keeps its foreign key sends nothing.

All of that happens within one tick, but answers from several workers may arrive in another order than that of the
changes. So each change of a left row has a number in its tick, and answers have the number of the reference that they
answer. The last worker takes the events of a left key in the order of their numbers: an answer to an earlier reference
comes before the later change, and never replaces its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from malflow.errors import failures
from malflow.operators.columns import Results
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import INPUTS, Frontiers
from malflow.operators.tables.joins import JoinedRows
from malflow.operators.tables.table import incomparable
from malflow.partitioners import check_key
from malflow.records.batch import Batch
from malflow.records.changes import make_change, rows_after, rows_of
from malflow.states.keyed import Delta, KeyedState

__all__ = ["REFERENCES", "ByReference", "ForeignJoin", "Refer", "Referred"]

REFERENCES = "references"
"""The role of the hidden state with the left keys that refer to each right key."""

_STAYS, _MOVES, _ENDS = range(3)
"""Whether the reference of a left row stays, moves to another key, or ends."""


class Refer(Operator):
    """Find the references of left rows: output 0 has those that move, output 1 the new row of each change.

    Args:
        context: the operator's context.
        on: returns the foreign key of a left row; None if it refers to no row.
    """

    takes_pieces = False

    def __init__(self, context: OperatorContext, on: Callable[[Any], Any]) -> None:
        super().__init__(context, on)
        self._number = 0

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Number the changes of a tick."""
        self._number = 0
        for batch in edges[0]:
            yield self.process(batch)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Compute the foreign keys of both rows of each change."""
        befores, afters = rows_of(batch.values)
        rest, moved, rows = iter(befores), Results(), []
        marks = [*batch.epochs]
        try:
            for at, (key, before, after) in enumerate(zip(batch.key_column(), rest, afters, strict=True)):
                while marks and marks[0][0] <= at:
                    moved.mark((marks.pop(0),))
                self._number += 1
                was, now = self._reference(before), self._reference(after)
                if was == now:
                    rows.append((self._number, after, _STAYS))
                    continue
                moved.add((key,), ((was, now, self._number),), batch.timestamps[at])
                rows.append((self._number, after, _ENDS if now is None else _MOVES))
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        moved.mark(marks)
        return moved.batch(), batch.with_values(rows)

    def _reference(self, row: Any) -> Any:
        if row is None:
            return None
        reference = self.callback(row)
        if reference is not None:
            check_key(reference)
        return reference


class ByReference(Operator):
    """Set the key of each reference to that of the right row: the end of the old one, then the new one."""

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Split references that move."""
        results = Results()
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        for count, epoch in batch.runs():
            for _ in range(count):
                key, (was, now, number), timestamp = next(records)
                if was is not None:
                    results.add((was,), ((key, number, False),), timestamp)
                if now is not None:
                    results.add((now,), ((key, number, True),), timestamp)
            if epoch is not None:
                results.mark(((0, epoch),))
        return (results.batch(),)


class Referred(Operator):
    """Keep right rows and who refers to them; answer references, and changes of right rows, by left key.

    The state of slot ``(1, key)`` is the row of a right key.
    """

    takes_pieces = False
    state: KeyedState

    def __init__(self, context: OperatorContext) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=lambda slot: context.admit(slot[1]))
        self.inputs = Frontiers(context, 2)
        self.references = _References(context)
        self.hidden = {INPUTS: self.inputs, REFERENCES: self.references}
        self._numbers: dict[Any, int] = {}  # the number of each reference of this tick, by left key and right key

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set which edges are idle."""
        self.inputs.set_idle(edges)

    def edges_reached(self) -> Mapping[int, Any]:
        """Return the epochs of the tables that count."""
        return self.inputs.reached()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Answer references and changes of right rows."""
        self._numbers.clear()
        for edge, batch in self.inputs.merge_by_edge(edges):
            values = rows_after(batch.values) if edge else batch.values
            records = zip(batch.key_column(), values, batch.timestamps, strict=True)
            answer, results = self._answer_row if edge else self._answer_reference, Results()
            for count, epoch in batch.runs():
                for _ in range(count):
                    answer(*next(records), results)
                if epoch is not None:
                    results.mark(((0, epoch),))
            yield (results.batch(),)

    def _answer_reference(self, key: Any, reference: tuple[Any, int, bool], timestamp: Any, results: Results) -> None:
        left, number, begins = reference
        if not begins:
            self.references.drop(key, left)
            self._numbers.pop((left, key), None)
            return
        if not self.references.of(key) and (1, key) not in self.state:
            self.state.admit((1, key))
        self.references.add(key, left)
        self._numbers[left, key] = number
        results.add((left,), ((number, self.state.get((1, key))),), timestamp)

    def _answer_row(self, key: Any, row: Any, timestamp: Any, results: Results) -> None:
        slot = (1, key)
        self.state.touch((slot,))
        if row is None:
            self.state.pop(slot, None)
        else:
            if slot not in self.state:
                self.state.admit(slot)
            self.state[slot] = row
        lefts, numbers = self.references.of(key), self._numbers
        results.add(lefts, [(numbers.get((left, key), 0), row) for left in lefts], timestamp)


class _References:
    """The left keys that refer to each right key, as a hidden state with an entry for each pair."""

    def __init__(self, context: OperatorContext) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self._lefts: dict[Any, dict[Any, None]] = {}

    def of(self, key: Any) -> Sequence[Any]:
        """Return the left keys that refer to a right key, in the order in which they began to."""
        return list(self._lefts.get(key, ()))

    def add(self, key: Any, left: Any) -> None:
        """Add a reference."""
        entry = (0, (key, left))
        self._lefts.setdefault(key, {})[left] = None
        self.state[entry] = True
        self.state.touch((entry,))

    def drop(self, key: Any, left: Any) -> None:
        """Drop a reference."""
        entry = (0, (key, left))
        lefts = self._lefts.get(key, {})
        lefts.pop(left, None)
        if not lefts:
            self._lefts.pop(key, None)
        self.state.pop(entry, None)
        self.state.touch((entry,))

    def sync_state(self) -> None:
        """Do nothing: the state is always up to date."""

    def delta(self) -> Delta:
        """Return the changes since the last call."""
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta."""
        self.state.apply(delta)
        self._lefts = {}
        for _, (key, left) in self.state:
            self._lefts.setdefault(key, {})[left] = None

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()


class _Event(NamedTuple):
    """A change of a left row, or an answer with a right row; `number` is that of the change in its tick."""

    number: int
    is_answer: bool
    row: Any
    timestamp: Any
    moves: int = _STAYS


class ForeignJoin(JoinedRows):
    """Join the left rows of this worker with the right rows that answers bring; emit changes of the joined rows.

    Edge 0 has the answers, edge 1 the left rows. The output has the epochs of the answers, the least of both tables.
    The state of a side and key is its row: of the right side, the row that the left one refers to.
    """

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Join the rows of a tick: first the rows of left keys that have changed, in the order of their numbers."""
        answers, events = edges[0], self._changed_rows(edges[1])
        if events:
            for batch in answers:
                for key, (number, row), timestamp in zip(
                    batch.key_column(), batch.values, batch.timestamps, strict=True
                ):
                    if key in events:
                        events[key].append(_Event(number, True, row, timestamp))
            results = Results()
            for key, them in events.items():
                self._take(key, sorted(them, key=_order), results)
            yield (results.batch(),)
        for batch in answers:
            yield (self._answered(batch, events),)

    @staticmethod
    def _changed_rows(batches: Sequence[Batch]) -> dict[Any, list[_Event]]:
        events: dict[Any, list[_Event]] = {}
        for batch in batches:
            for key, (number, row, moves), timestamp in zip(
                batch.key_column(), batch.values, batch.timestamps, strict=True
            ):
                events.setdefault(key, []).append(_Event(number, False, row, timestamp, moves))
        return events

    def _take(self, key: Any, events: Iterable[_Event], results: Results) -> None:
        """Take the events of a left key; a row with a moved reference waits for the answer. That is next."""
        waiting: Any = None
        for event in events:
            left, right = self.state.get((0, key)), self.state.get((1, key))
            if event.is_answer:
                self._change(key, left if waiting is None else waiting, event.row, event.timestamp, results)
                waiting = None
            elif event.moves == _MOVES:
                waiting = event.row
            else:
                self._change(key, event.row, None if event.moves == _ENDS else right, event.timestamp, results)

    def _answered(self, batch: Batch, taken: Mapping[Any, Any]) -> Batch:
        """Take the answers to left keys that have not changed in this tick."""
        results = Results()
        records = zip(batch.key_column(), batch.values, batch.timestamps, strict=True)
        for count, epoch in batch.runs():
            for _ in range(count):
                key, (_number, row), timestamp = next(records)
                if key not in taken:
                    self._change(key, self.state.get((0, key)), row, timestamp, results)
            if epoch is not None:
                results.mark(((0, epoch),))
        return results.batch()

    def _change(self, key: Any, left: Any, right: Any, timestamp: Any, results: Results) -> None:
        """Set both rows of a left key, and add the change of the joined row, unless that stays."""
        states = self.state
        old = new = None
        try:
            old = self.joined(states[0, key], states.get((1, key)))
            new = self.joined(left, right)
            is_same = bool(old == new)
        except Exception as error:
            raise self.error(incomparable(error, old, new), (key, (left, right), timestamp)) from error
        if not is_same:
            results.add((key,), (make_change((old, new)),), timestamp)
        for slot, row in (((0, key), left), ((1, key), None if left is None else right)):
            states.touch((slot,))
            if row is None:
                states.pop(slot, None)
            else:
                states[slot] = row


def _order(event: _Event) -> tuple[int, bool]:
    return event.number, event.is_answer
