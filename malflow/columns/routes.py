"""Rows to workers: one look-up for each distinct key, one order by worker, and one cut for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from malflow.columns.arrays import to_python
from malflow.columns.column import Column, Constant
from malflow.records.batch import Batch

__all__ = ["Routes", "Unroutable", "split"]


class Routes:
    """The workers of the keys of one sender. It remembers the workers of the last dictionary of keys."""

    def __init__(self) -> None:
        self._dictionary: pa.Array | None = None
        self._workers: np.ndarray[Any, Any] = np.empty(0, np.int64)

    def of(self, keys: Column | Constant, find: Callable[[Any], int]) -> np.ndarray[Any, Any]:
        """Return the worker of each record.

        Args:
            keys: the keys.
            find: returns the worker of a key.

        Raises:
            Unroutable: if it fails for a key, with the place of the first record with it.
        """
        if isinstance(keys, Constant):
            return np.full(len(keys), _found(find, keys.value, lambda: 0) if len(keys) else 0, np.int64)
        array = keys.encoded()
        dictionary, codes = array.dictionary, array.indices.to_numpy()
        if self._dictionary is None or not self._dictionary.equals(dictionary):
            used = np.zeros(len(dictionary), np.bool_)
            used[codes] = True
            workers = np.zeros(len(dictionary), np.int64)
            places = np.flatnonzero(used)
            for code, key in zip(places.tolist(), to_python(dictionary.take(pa.array(places))), strict=True):
                workers[code] = _found(find, key, lambda code=code: int(np.flatnonzero(codes == code)[0]))  # type: ignore[misc]
            self._dictionary, self._workers = (dictionary, workers) if used.all() else (None, workers)
        workers_of_rows: np.ndarray[Any, Any] = self._workers[codes]
        return workers_of_rows


class Unroutable(Exception):
    """The worker of a key can't be found; the cause is the error.

    Attributes:
        at: the place of the first record with the key.
    """

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _found(find: Callable[[Any], int], key: Any, place: Callable[[], int]) -> int:
    try:
        return find(key)
    except Exception as error:
        raise Unroutable(place()) from error


def split(batch: Batch, chosen: np.ndarray[Any, Any], workers: Sequence[int]) -> list[tuple[int, Batch]]:
    """Return each worker's records with all epochs, without workers that receive nothing.

    Args:
        batch: the records; at least one.
        chosen: the worker of each record.
        workers: the workers, from 0.
    """
    narrow = chosen.astype(np.uint8 if len(workers) <= 1 << 8 else np.uint16)
    order = np.argsort(narrow, kind="stable")  # by radix, as the type is narrow
    counts = np.bincount(narrow, minlength=len(workers))
    if counts.max() == len(batch):
        marks = Batch(None, (), (), [(0, epoch) for _, epoch in batch.epochs])
        return [(worker, part) for worker in workers if (part := batch if counts[worker] else marks)]
    ends = np.cumsum(counts)
    whole = batch.take(order)  # type: ignore[arg-type] # indices
    parts = []
    start = 0
    for worker, end in zip(workers, ends.tolist(), strict=True):
        part = whole.part(start, end)
        if batch.epochs:
            at = np.searchsorted(order[start:end], [position for position, _ in batch.epochs])
            epochs = [(place, epoch) for place, (_, epoch) in zip(at.tolist(), batch.epochs, strict=True)]
            part = Batch(part.keys, part.values, part.timestamps, epochs)
        if part:
            parts.append((worker, part))
        start = end
    return parts
