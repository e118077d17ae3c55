"""The records of several edges in the order of their epochs: one join, one order, and one cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from malflow.records.batch import Batch, concat

__all__ = ["merged"]

_MOST_ROWS = 65_536
"""The most rows of a batch: larger ones leave the processor's cache, and smaller ones cost overhead."""


def merged(batches: Sequence[Batch], runs: Iterable[tuple[int, int, int, Any]]) -> Iterator[Batch]:
    """Yield records in the order of runs, with the epochs between them.

    Args:
        batches: the batches.
        runs: the number of a batch, the first and the last but one of its records, and the epoch after them, or None.
    """
    starts = np.cumsum([0, *map(len, batches)])
    pieces: list[np.ndarray[Any, Any]] = []
    epochs: list[tuple[int, Any]] = []
    done = 0
    for number, start, stop, epoch in runs:
        if stop > start:
            pieces.append(np.arange(start, stop) + starts[number])
            done += stop - start
        if epoch is not None:
            epochs.append((done, epoch))
    whole = concat([batch.without_epochs() for batch in batches])
    order = np.concatenate(pieces) if pieces else np.empty(0, np.int64)
    if len(order) > 1 and (np.diff(order) != 1).any():
        whole = whole.take(order)  # type: ignore[arg-type] # indices
    yield from _cut(whole, epochs)


def _cut(whole: Batch, epochs: Sequence[tuple[int, Any]]) -> Iterator[Batch]:
    if len(whole) <= _MOST_ROWS:
        yield Batch(whole.keys, whole.values, whole.timestamps, epochs)
        return
    for start in range(0, len(whole), _MOST_ROWS):
        stop = min(start + _MOST_ROWS, len(whole))
        part = whole.part(start, stop)
        own = [(at - start, it) for at, it in epochs if start < at <= stop or (at == 0 == start)]
        yield Batch(part.keys, part.values, part.timestamps, own)
