"""The results of windows that arrays hold, as one frame."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.aggregates.outcomes import Outcomes, ResultRows
from malflow.columns.aggregates.panes import Cells, PaneArrays
from malflow.columns.column import Column
from malflow.columns.frame import Frame
from malflow.message import Timing
from malflow.records.batch import Batch

__all__ = ["WindowFrames"]


class WindowFrames:
    """The results of the windows that close with a batch, with the epochs between them.

    Args:
        arrays: the arrays of the accumulators.
        outcomes: the results as columns.
        kind: the type of the timestamps.
    """

    def __init__(self, arrays: PaneArrays, outcomes: Outcomes, kind: pa.DataType) -> None:
        self._arrays = arrays
        self._outcomes = outcomes
        self._kind = kind
        self._windows: list[tuple[Any, Any, Any, Timing, Cells]] = []
        self._count = 0
        self._epochs: list[tuple[int, Any]] = []

    def add_window(self, bounds: tuple[Any, Any], timestamp: Any, timing: Timing, cells: Cells) -> None:
        """Append the results of a window, one for each key, with one timestamp."""
        if len(cells):
            self._windows.append((*bounds, timestamp, timing, cells))
            self._count += len(cells)

    def mark(self, epochs: Iterable[tuple[int, Any]]) -> None:
        """Append epochs after the results so far."""
        self._epochs.extend([(self._count, epoch) for _, epoch in epochs])

    def batch(self) -> Batch:
        """Return results and epochs as one batch."""
        if not self._windows:
            return Batch([], [], [], self._epochs)
        starts, ends, timestamps, timings, cells = zip(*self._windows, strict=True)
        sizes = np.array(list(map(len, cells)))
        codes = np.concatenate([it.codes for it in cells])
        slots = zip(*[it.fields for it in cells], strict=True)
        fields = [[np.concatenate(pieces) for pieces in zip(*slot, strict=True)] for slot in slots]
        names = ["start", "end", *self._outcomes.names]
        columns = [self._repeated(starts, sizes).array, self._repeated(ends, sizes).array]
        table = pa.record_batch([*columns, *self._outcomes.columns(fields)], names=names)
        if self._is_zoned:  # the zone of windows is another object than Arrow's
            stamps: Any = list(
                chain.from_iterable([it] * len(part) for it, part in zip(timestamps, cells, strict=True))
            )
        else:
            stamps = self._repeated(timestamps, sizes)
        return Batch(self._arrays.key_column(codes), self._rows(table, timings, sizes), stamps, self._epochs)

    def _rows(self, table: pa.RecordBatch, timings: tuple[Timing, ...], sizes: Any) -> Any:
        """Return the results. Those at the end of the input have another timing, and so are another kind of rows."""
        if len(set(timings)) == 1:
            return Frame(table, ResultRows(self._outcomes, timings[0], self._is_zoned))
        rows: list[Any] = []
        for timing, size in zip(timings, sizes.tolist(), strict=True):
            part = table.slice(len(rows), size)
            rows.extend(Frame(part, ResultRows(self._outcomes, timing, self._is_zoned)))
        return rows

    @property
    def _is_zoned(self) -> bool:
        return pa.types.is_timestamp(self._kind) and self._kind.tz is not None

    def _repeated(self, items: tuple[Any, ...], sizes: Any) -> Column:
        """Return an item of each window once for each of its results."""
        numbers = pa.array(items, self._kind).view(pa.int64()).to_numpy()
        return Column(np.repeat(numbers, sizes), self._kind)
