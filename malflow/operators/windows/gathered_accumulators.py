"""Accumulators of a run of records, gathered in one dict so that one loop adds all records."""

from __future__ import annotations

from itertools import count
from typing import Any

__all__ = ["NumberedAccumulators"]


class NumberedAccumulators:
    """The accumulators of a run's keys, each replaced in its state by a number.

    Args:
        first: the index of the first accumulator in a state, a list.
        step: the distance between the indices of two accumulators.

    Attributes:
        accs: the accumulators by number; a new one is inserted with its first record.
        loaded: the states by key.
        new_number: returns the number of a new accumulator.
    """

    def __init__(self, first: int, step: int) -> None:
        self.accs: dict[int, Any] = {}
        self.loaded: dict[Any, list[Any]] = {}
        self.new_number = count().__next__
        self._first = first
        self._step = step

    def load(self, key: Any, state: list[Any]) -> list[Any]:
        """Replace the accumulators of a key by numbers; return its state."""
        accs = self.accs
        for at in range(self._first, len(state), self._step):
            number = self.new_number()
            accs[number] = state[at]
            state[at] = number
        self.loaded[key] = state
        return state

    def store(self) -> None:
        """Put the accumulators back into the states."""
        accs, first, step = self.accs, self._first, self._step
        for state in self.loaded.values():
            for at in range(first, len(state), step):
                state[at] = accs[state[at]]
