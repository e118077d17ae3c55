"""Operators that drop repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from malflow.errors import failures
from malflow.event_time.panes import Panes, RegularPanes, fitted
from malflow.message import MAX, MIN
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.keyed.throttle import misfit
from malflow.records.batch import Batch
from malflow.states.keyed import KeyedState, copied
from malflow.states.paned import PanedState
from malflow.windows import FOREVER

__all__ = ["Changes", "Distinct"]

_ABSENT = object()
_NOTHING: dict[Any, Any] = {}


class Distinct(Operator):
    """Drop a record if one with its key and id, less than `within` away, has passed.

    Panes have the length `within`, so a pane has at most one record of an id, and only its neighbours can have another
    within reach. A pane is dropped at the first epoch after which no record can be in reach of its own.

    Args:
        context: the operator's context.
        by: returns the id of a value; None for the value itself.
        within: a number or timedelta, or `FOREVER`.
    """

    state: PanedState

    def __init__(self, context: OperatorContext, by: Callable[[Any], Any] | None, within: Any) -> None:
        super().__init__(context, by)
        self.state = PanedState(tracked=context.tracked)
        self._within = within
        self._panes: Panes | None = _OnePane() if within is FOREVER else None
        self._admit = admission_of(context)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Select the records that pass, run by run."""
        by, rest = self.callback, iter(batch.values)
        mask: list[bool] = []
        ids = rest if by is None else map(by, rest)
        rows = zip(batch.key_column(), ids, batch.timestamps, strict=True)
        try:
            if self._panes is None:
                self._fit(batch.timestamps[:1] or list(islice(self.state.values(), 1)))
            for count, epoch in batch.runs():
                self._select(islice(rows, count), mask)
                if epoch is not None:
                    self._advance(epoch)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        return (batch.select(mask),)

    def _fit(self, timestamps: Sequence[Any]) -> None:
        """Create panes that fit the type of the timestamps, if there are any."""
        for timestamp in timestamps:
            try:
                self._panes = fitted(RegularPanes(self._within, self._within - self._within), timestamp)
            except TypeError as error:
                raise misfit("within", self._within, timestamp) from error

    def _select(self, rows: Iterable[tuple[Any, Any, Any]], mask: list[bool]) -> None:
        panes, state, within, admit = self._panes, self.state, self._within, self._admit
        start, end = MAX, MIN
        for key, name, timestamp in rows:
            if not start <= timestamp < end:
                number = panes.number(timestamp)  # type: ignore[union-attr] # there are panes, since there is a record
                start, end = panes.start(number), panes.start(number + 1)  # type: ignore[union-attr]
                before, after = (state.panes.get(near, _NOTHING) for near in (number - 1, number + 1))
                here = state.pane(number)
            entry = (key, name)
            passes = (
                entry not in here
                and (entry not in before or timestamp - before[entry] >= within)
                and (entry not in after or after[entry] - timestamp >= within)
            )
            mask.append(passes)
            if passes:
                if admit is not None:
                    admit(key)
                here[entry] = timestamp
                state.touch(number, (entry,))

    def _advance(self, epoch: Any) -> None:
        """Drop the panes that no record after an epoch can reach."""
        panes, numbers = self._panes, self.state.panes
        while panes is not None and epoch is not MAX and numbers and panes.start(min(numbers) + 2) <= epoch:
            self.state.drop(min(numbers))


class _OnePane:
    """All of time as one pane."""

    def number(self, _timestamp: Any) -> int:
        """Return the number of the pane."""
        return 0

    def start(self, number: int) -> Any:
        """Return the start of time, or its end."""
        return MIN if number == 0 else MAX

    def last(self, _number: int) -> Any:
        """Return the end of time."""
        return MAX


class Changes(Operator):
    """Drop a record if its value, or the result of `by`, equals that of its key's previous record."""

    state: KeyedState

    def __init__(self, context: OperatorContext, by: Callable[[Any], Any] | None) -> None:
        super().__init__(context, by)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Select the records that differ."""
        by, states, rest = self.callback, self.state, iter(batch.values)
        facts = rest if by is None else map(by, rest)
        mask: list[bool] = []
        changed: list[Any] = []
        try:
            for key, fact in zip(batch.key_column(), facts, strict=True):
                before = states.get(key, _ABSENT)
                differs = before is _ABSENT or bool(before != fact)
                mask.append(differs)
                if differs:
                    if before is _ABSENT:
                        states.admit(key)
                    states[key] = copied(fact)
                    changed.append(key)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        states.touch(changed)
        return (batch.select(mask),)
