"""The common base of the operators that host a user's readers and writers of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.hosting.saved_positions import Positions
from malflow.states.keyed import Delta, KeyedState
from malflow.words import short_repr

__all__ = ["PartOperator"]


class PartOperator(Operator):
    """An operator that hosts user objects, one for each part; its state holds their positions."""

    state: KeyedState

    def __init__(self, context: OperatorContext, callback: Any) -> None:
        super().__init__(context, callback)
        self.state = KeyedState(tracked=context.tracked)
        self._positions = Positions(self.state)

    def delta(self) -> Delta:
        """Save the positions of the parts, and return the changes since the last call."""
        self.note_positions()
        return super().delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the positions."""
        super().apply(delta)
        self._positions.apply(delta)

    def note_positions(self) -> None:
        """Write changed positions to the state.

        This asks every part, even one without records: a reader may have skipped records, and a writer may change with
        every flush.
        """
        raise NotImplementedError

    def _snapshot(self, part: Any, partition: Any) -> Any:
        return self._call(part, _snapshot, partition)

    def _collect(self, part: Any, partition: Any) -> Any:
        return self._call(part, _collect, partition)

    def _call(self, part: Any, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            raise self.error(error, about=f"part {short_repr(part)}") from error


def _snapshot(partition: Any) -> Any:
    return partition.snapshot()


def _collect(partition: Any) -> Any:
    return partition.collect() if hasattr(partition, "collect") else partition.snapshot()
