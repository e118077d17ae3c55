"""The records of several edges in the order of their epochs: one join, one order, and one cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from malflow.records.batch import Batch, concat
from malflow.records.columnar import is_accumulated

__all__ = ["merged"]

_MOST_ROWS = 65_536
"""The most rows of a batch: larger ones leave the processor's cache, and smaller ones cost overhead."""


def merged(batches: Sequence[Batch], runs: Iterable[tuple[int, int, int, Any]]) -> Iterator[Batch]:
    """Yield records or accumulators in the order of runs, with the epochs between them.

    Args:
        batches: the batches.
        runs: the number of a batch, the first and the last but one of its records, and the epoch after them, or None.
    """
    kinds = [is_accumulated(batch.values) for batch in batches]
    parts = {kind: _Part([it for it, own in zip(batches, kinds, strict=True) if own is kind]) for kind in set(kinds)}
    starts = [parts[kind].next_start(len(batch)) for kind, batch in zip(kinds, batches, strict=True)]
    part: _Part | None = None
    epochs: list[tuple[int, Any]] = []
    for number, start, stop, epoch in runs:
        if stop > start:
            own = parts[kinds[number]]
            if part is not None and part is not own:  # records and accumulators do not become columns together
                yield from _cut(part.taken(), epochs)
                epochs = []
            part = own
            part.add(start + starts[number], stop + starts[number])
        if epoch is not None:
            epochs.append((0 if part is None else part.count, epoch))
    yield from _cut(Batch(None, (), ()) if part is None else part.taken(), epochs)


class _Part:
    """Batches of one kind, joined, of which runs are taken in their order.

    Args:
        batches: the batches.

    Attributes:
        count: the number of records in the runs since the last take.
    """

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.count = 0
        self._whole = concat([batch.without_epochs() for batch in batches])
        self._pieces: list[np.ndarray[Any, Any]] = []
        self._joined = 0

    def next_start(self, length: int) -> int:
        """Return where the next batch begins; it has some length."""
        self._joined += length
        return self._joined - length

    def add(self, start: int, stop: int) -> None:
        """Add a run."""
        self._pieces.append(np.arange(start, stop))
        self.count += stop - start

    def taken(self) -> Batch:
        """Return the runs since the last call as one batch, without epochs."""
        order = np.concatenate(self._pieces)
        self._pieces, self.count = [], 0
        if (np.diff(order) != 1).any():
            return self._whole.take(order)  # type: ignore[arg-type] # indices
        return self._whole if len(order) == len(self._whole) else self._whole.part(int(order[0]), int(order[-1]) + 1)


def _cut(whole: Batch, epochs: Sequence[tuple[int, Any]]) -> Iterator[Batch]:
    if len(whole) <= _MOST_ROWS:
        yield Batch(whole.keys, whole.values, whole.timestamps, epochs)
        return
    for start in range(0, len(whole), _MOST_ROWS):
        stop = min(start + _MOST_ROWS, len(whole))
        part = whole.part(start, stop)
        own = [(at - start, it) for at, it in epochs if start < at <= stop or (at == 0 == start)]
        yield Batch(part.keys, part.values, part.timestamps, own)
