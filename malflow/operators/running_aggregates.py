"""Aggregation without windows: a result for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.errors import failures
from malflow.operators.contract import Operator, OperatorContext
from malflow.records.batch import Batch
from malflow.states.keyed import KeyedState

__all__ = ["RunningAggregate"]


class RunningAggregate(Operator):
    """Replace each value with the aggregate of all values of its key so far.

    Args:
        context: the operator's context.
        aggregators: the aggregators of each key's records.
    """

    state: KeyedState

    def __init__(self, context: OperatorContext, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        super().__init__(context)
        self.state = KeyedState(tracked=context.tracked, admit=context.admit)
        self._kernel = compile_kernel(aggregators, debug=context.debug)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records one by one."""
        states = self.state
        records, rest = self._kernel.begin(batch.values)
        try:
            values = self._kernel.each(states, batch.key_column(), records, batch.timestamps, states.admit)
        except failures() as error:
            raise self.fail(error, batch, rest) from error
        states.touch(batch.key_column())
        return (batch.with_values(values),)
