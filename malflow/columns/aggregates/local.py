"""Aggregation by senders on arrays: columns of records on their way to windows become columns of accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import Accumulated
from malflow.aggregators.slots import packed, slotted, unique
from malflow.columns.aggregates.kernels import Array, Ints
from malflow.columns.aggregates.pane_times import check_times, numbers_in, pane_numbers, window_times
from malflow.columns.aggregates.panes import PaneArrays
from malflow.columns.column import Column
from malflow.columns.frame import Frame
from malflow.columns.row_classes import MadeRows
from malflow.event_time.panes import Panes, fitted
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.states.paned import PanedState

__all__ = ["LocalArrays"]

_FAR = 1 << 62
"""Numbers of panes below it leave room in 64 bits."""


@dataclass(frozen=True)
class _AccumulatorRows(MadeRows):
    """Accumulators of several records each.

    Attributes:
        sizes: the number of columns of each slot.
    """

    sizes: tuple[int, ...]

    are_accumulators = True

    @property
    def fields(self) -> frozenset[str]:
        """No field: the columns are parts of an accumulator."""
        return frozenset()

    @property
    def is_flat(self) -> bool:
        """No."""
        return False

    def rows(self, columns: Sequence[list[Any]]) -> list[Any]:
        """Make the accumulators."""
        each = iter(columns)
        slots = [
            next(each) if size == 1 else zip(*[next(each) for _ in range(size)], strict=True) for size in self.sizes
        ]
        return [Accumulated((packed(list(states)),)) for states in zip(*slots, strict=True)]


class LocalArrays:
    """The accumulators of records on their way, until they are taken.

    Extremes do not depend on the order of records here, as all have one type, and there is no NaN and no -0.0.

    Args:
        unfitted: the panes, for any type of timestamps.
        aggregators: the aggregators.

    Attributes:
        is_ordered: whether accumulators must be of records that followed each other without an epoch between.

    Raises:
        Unfit: if an aggregator has no form for arrays.
    """

    def __init__(self, unfitted: Any, aggregators: Sequence[Aggregator[Any, Any, Any]]) -> None:
        slots = unique(slot for it in aggregators for slot in slotted(it).slots)
        self._arrays = PaneArrays(PanedState(), aggregators, slots, merges=1, admit=None, tracked=False, sends=True)
        self.is_ordered = self._arrays.is_ordered
        self._unfitted = unfitted
        self._panes: Panes | None = None
        self._kind: pa.DataType | None = None
        self._times: list[Array] = []
        self._epochs: list[tuple[int, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, batch: Batch, reached: Any) -> int:
        """Add records, and keep the epochs between them; return how many more accumulators there are.

        Args:
            batch: the records, one or more.
            reached: the last epoch before them.

        Raises:
            Unfit: if arrays can't hold them, merging them would not be exact, or the receiver must refuse one.
        """
        times = window_times(batch.timestamps)
        panes = self._fitted(times)
        numbers = pane_numbers(panes, times)
        check_times(panes, numbers, batch.epochs, reached)
        if self.is_ordered and batch.epochs:
            numbers = _apart(numbers, [position for position, _ in batch.epochs])
        found = self._arrays.add(batch, times, numbers)
        self._epochs += [(self._count + position, epoch) for position, epoch in batch.epochs]
        self._times.append(numbers_in(times))
        self._count += len(batch)
        return found

    def _fitted(self, times: Column) -> Panes:
        if self._kind not in (None, times.kind):
            raise Unfit("the type of timestamps has changed")
        if self._panes is None:
            try:
                self._panes = fitted(self._unfitted, times[0])
            except TypeError as error:
                raise Unfit("timestamps do not fit the windows") from error
            self._kind = times.kind
        return self._panes

    def take(self) -> Batch:
        """Return the accumulators in the order of their first records, with the epochs between them; hold none."""
        first, keys, slots = self._arrays.take()
        columns = [column.array for slot in slots for column in slot]
        rows = _AccumulatorRows(tuple(map(len, slots)))
        values = Frame(pa.record_batch(columns, names=[f"{at}" for at in range(len(columns))]), rows)
        stamps = np.concatenate(self._times)[first]
        places = np.searchsorted(first, [position for position, _ in self._epochs]).tolist()
        epochs = [(place, epoch) for place, (_, epoch) in zip(places, self._epochs, strict=True)]
        self._times, self._epochs, self._count = [], [], 0
        return Batch(keys, values, Column(stamps, self._kind), epochs)


def _apart(numbers: Ints, positions: Sequence[int]) -> Ints:
    """Return other numbers of panes: no pane then has records before and after one of some positions."""
    least, most = int(numbers.min()), int(numbers.max())
    size = most - least + 1
    if size * (len(positions) + 1) >= _FAR:
        raise Unfit("its panes are too far apart")
    runs = np.repeat(np.arange(len(positions) + 1), np.diff([0, *positions, len(numbers)]))
    return (numbers - least) + runs * size
