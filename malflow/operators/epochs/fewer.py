"""Fewer epochs (watermarks) on their way to other workers: no operator there tells the others from the next one.

An epoch goes to every worker, and each of them merges the epochs of all. A program with an epoch for each record would
pay for that more than for its records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from malflow.event_time.panes import Fitting, Panes, fitted, horizon
from malflow.message import MAX
from malflow.records.batch import Batch

__all__ = ["FewerEpochs"]

_NEAR: Final = 256
"""Records after which an epoch is kept in any case. The receiver takes records from the sender with the lowest epoch:
with fewer epochs they are less in the order of time, with more each one costs more than its records."""

_NEAR_IN_COLUMNS: Final = 4096
"""The same for columns. A batch has eight times as many, and a run of them costs as much as 200 records."""

_TIMES = frozenset({int, float, datetime, date, timedelta})
"""Types of epochs with panes that depend on the type alone."""

_position, _epoch = itemgetter(0), itemgetter(1)


# Invariant: the epochs that are left close the same panes after the same records. The last epoch of a batch is left,
# also the last one before `MAX`: what is known at the end of a tick stays the same, too.
#
# Example: panes of 10, and the epochs 8, 9, 11, 12, 19, 21, 22 after one record each. An epoch closes a pane from its
# last instant on, so 9 closes one, 19 the next. Left are 8 (the first one), 9, 19 and 22.
class FewerEpochs:
    """Drops the epochs of a batch that are the same to all operators that they reach.

    Each batch is seen by itself, so a task that is repeated sends the same.

    Args:
        partitions: the partitions of time by which these operators tell epochs apart: see `nodes.TellsBy`.
    """

    def __init__(self, partitions: Sequence[Panes | Fitting]) -> None:
        self._partitions = partitions

    def of(self, batch: Batch) -> Batch:
        """Return the batch with fewer epochs."""
        epochs = batch.epochs
        last = len(epochs) - 1
        if last > 0 and epochs[last][1] is MAX:
            last -= 1
        if last < 2:  # noqa: PLR2004 - the first and the last one stay
            return batch
        panes = self._panes(batch)
        if panes is None:
            return batch
        try:
            near = _NEAR_IN_COLUMNS if batch.has_arrays else _NEAR
            kept = [epochs[at] for at in self._kept(panes, epochs, last, near)]
        except Exception:  # noqa: BLE001 - of epochs that do not fit; the receiver raises it for its record
            return batch
        kept += epochs[last:]
        return Batch(batch.keys, batch.values, batch.timestamps, kept)

    def _panes(self, batch: Batch) -> Sequence[Panes] | None:
        """Return the panes for the type of the batch's timestamps and epochs; None if it is not known."""
        if not self._partitions:
            return ()
        if not len(batch):
            return None
        timestamp, kind = batch.timestamps[0], type(batch.epochs[0][1])
        if type(timestamp) is not kind or kind not in _TIMES:
            return None
        try:
            return [fitted(panes, timestamp) for panes in self._partitions]
        except Exception:  # noqa: BLE001 - as above
            return None

    @staticmethod
    def _kept(panes: Sequence[Panes], epochs: Sequence[tuple[int, Any]], last: int, near: int) -> Iterable[int]:
        """Yield the indices of the epochs before the last one that stay."""
        horizons = [horizon(it, epochs[0][1]) for it in panes]
        at = 0
        while at < last:
            yield at
            position, epoch = epochs[at]
            following = bisect_left(epochs, position + near, at + 1, last, key=_position)
            for index, it in enumerate(panes):
                if horizons[index] <= epoch:
                    horizons[index] = horizon(it, epoch)
                if epochs[following][1] >= horizons[index]:
                    following = bisect_left(epochs, horizons[index], at + 1, following, key=_epoch)
            at = following
