"""Running aggregates as arrays beside the state of keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.slots import Slot
from malflow.columns.aggregates.accumulators import Accumulators, grown, times_of
from malflow.columns.aggregates.codes import Codes
from malflow.columns.aggregates.kernels import Ints, Lot
from malflow.columns.aggregates.outcomes import outcomes_of
from malflow.columns.frame import Frame
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.states.keyed import KeyedState

__all__ = ["RunningArrays"]


class RunningArrays:
    """The accumulators of a running aggregate, by the codes of keys.

    The codes are in the order of the state: that of the first records. So whatever is written back is in this order.

    Args:
        state: the state, of which the arrays begin as a copy.
        aggregators: the aggregators.
        slots: the slots of their common accumulator.

    Raises:
        Unfit: if arrays can't hold the state, or the aggregators have no form for them.
    """

    def __init__(
        self, state: KeyedState, aggregators: Sequence[Aggregator[Any, Any, Any]], slots: Sequence[Slot]
    ) -> None:
        outcomes = outcomes_of(aggregators, slots)
        if outcomes is None:
            raise Unfit("the results of an aggregator are no columns")
        self._outcomes = outcomes
        self._accumulators = Accumulators(slots)
        self._codes = Codes(state.admit)
        self._known = 0
        self._dirty = np.zeros(0, np.bool_)
        if state:
            loaded = self._accumulators.load(list(state.values()))
            self._codes.add(state)
            self._grow()
            self._accumulators.put(np.arange(len(state)), loaded)
            self._known = len(state)

    def each(self, batch: Batch) -> Frame:
        """Add the records of a batch, one or more; return the result of each record's key after it.

        Raises:
            Unfit: if the arrays can't hold a record, or its result; they have not changed then.
        """
        with np.errstate(all="ignore"):
            accumulators = self._accumulators
            times = times_of(batch.timestamps) if accumulators.is_timed else None
            read = accumulators.read(batch.values, times)
            codes = self._codes.encode(batch.keys)
            self._grow()
            lot = Lot(codes, len(self._codes), self._is_new)
            accumulators.check(lot, read)
            after = accumulators.each(lot, read)
            self._dirty[codes] = True
            self._known = len(self._codes)
        outcomes = self._outcomes
        return Frame(pa.record_batch(outcomes.columns(after), names=list(outcomes.names)), outcomes.row)

    def sync(self, state: KeyedState) -> None:
        """Write the accumulators that have changed since the last call to the state, as objects of Python."""
        codes = np.flatnonzero(self._dirty[: self._known])
        if not len(codes):
            return
        keys = self._codes.keys_of(codes)
        state.update(zip(keys, self._states(codes), strict=True))
        state.touch(keys)
        self._dirty[codes] = False

    def look(self, keys: Iterable[Any] | None, limit: int) -> dict[Any, Any]:
        """Return the accumulators of some keys, or of the first ones if they are None, as objects of Python."""
        codes = np.arange(min(limit, self._known)) if keys is None else self._codes.find(keys)
        return dict(zip(self._codes.keys_of(codes), self._states(codes), strict=True))

    def __len__(self) -> int:
        return self._known

    def _states(self, codes: Ints) -> list[Any]:
        return self._accumulators.states(self._accumulators.at(codes))

    def _is_new(self, codes: Ints) -> Any:
        return codes >= self._known

    def _grow(self) -> None:
        accumulators, needed = self._accumulators, len(self._codes)
        size = grown(accumulators.size, needed)
        if size > accumulators.size:
            accumulators.resize(size)
            dirty = np.zeros(size, np.bool_)
            dirty[: len(self._dirty)] = self._dirty
            self._dirty = dirty
