"""A columnar batch of records on one edge, with the epochs (watermarks) between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, compress, repeat
from operator import itemgetter
from typing import Any

from malflow.message import DataMessage, NoKey
from malflow.records.columnar import is_columnar, joined

__all__ = ["BATCH_SIZE", "Batch", "concat", "interleave"]

BATCH_SIZE = 8192
"""The maximum number of records per poll: larger batches overflow the CPU cache, smaller ones cost overhead."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Parallel columns of equal length. Batches are immutable: operators create new ones.

    Attributes:
        keys: the key of each record, or None if no record has one.
        values: the value of each record.
        timestamps: the timestamp of each record.
        epochs: ``(position, epoch)`` pairs in ascending order of position: the epoch follows `position` records.
    """

    keys: Sequence[Any] | None
    values: Sequence[Any]
    timestamps: Sequence[Any]
    epochs: Sequence[tuple[int, Any]] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        """Whether the batch holds a record or an epoch."""
        return bool(len(self.values) or self.epochs)

    def key_column(self) -> Iterable[Any]:
        """Iterate over the keys; `NoKey` for records without one."""
        return repeat(NoKey, len(self.values)) if self.keys is None else self.keys

    def messages(self) -> Iterator[DataMessage[Any, Any, Any]]:
        """Iterate over the records as messages that may be kept."""
        return map(DataMessage, self.key_column(), self.values, self.timestamps)

    def with_values(self, values: Sequence[Any]) -> Batch:
        """Return a copy with another value column."""
        return Batch(self.keys, values, self.timestamps, self.epochs)

    def select(self, mask: Sequence[Any]) -> Batch:
        """Return the records with a true flag in `mask`, and all epochs."""
        values = self.values.select(mask) if is_columnar(self.values) else list(compress(self.values, mask))
        if len(values) == len(mask):
            return self
        keys = None if self.keys is None else list(compress(self.keys, mask))
        epochs: Sequence[tuple[int, Any]] = ()
        if self.epochs:
            kept = [0, *accumulate(map(bool, mask))]
            epochs = [(kept[position], epoch) for position, epoch in self.epochs]
        return Batch(keys, values, list(compress(self.timestamps, mask)), epochs)

    def take(self, indices: Sequence[int]) -> Batch:
        """Return the records at `indices`, in ascending order, without epochs."""
        if len(indices) <= 1:  # an itemgetter of one index does not return a tuple
            return self.part(indices[0], indices[0] + 1) if indices else Batch(None, (), ())
        pick = itemgetter(*indices)
        values = self.values.take(pick) if is_columnar(self.values) else pick(self.values)
        return Batch(None if self.keys is None else pick(self.keys), values, pick(self.timestamps))

    def part(self, start: int, stop: int) -> Batch:
        """Return the records from `start` up to `stop`, without epochs."""
        keys = None if self.keys is None else self.keys[start:stop]
        return Batch(keys, self.values[start:stop], self.timestamps[start:stop])

    def runs(self) -> Iterator[tuple[int, Any]]:
        """Yield the length of each run of records with the epoch that ends it; None ends the last run."""
        done = 0
        for position, epoch in self.epochs:
            yield position - done, epoch
            done = position
        yield len(self.values) - done, None

    def segments(self) -> Iterator[tuple[Batch, Sequence[Any]]]:
        """Split at the epochs: yield runs of records, each with the epoch that ends it, if any, in a sequence."""
        start = 0
        for position, epoch in self.epochs:
            yield self.part(start, position), (epoch,)
            start = position
        if start < len(self.values):
            yield self.part(start, len(self.values)), ()


def concat(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    epochs: list[tuple[int, Any]] = []
    length = 0
    for batch in batches:
        epochs.extend((length + position, epoch) for position, epoch in batch.epochs)
        length += len(batch)
    return _join(batches, chain.from_iterable, epochs)


def interleave(batches: Sequence[Batch]) -> Batch:
    """Merge batches without epochs by taking one record from each in turn."""
    batches = [batch for batch in batches if len(batch)]
    if not batches:
        return Batch(None, (), ())
    if len(batches) == 1:
        return batches[0]
    shortest = min(map(len, batches))
    even = _join([batch.part(0, shortest) for batch in batches], _alternate, ())
    return concat([even, interleave([batch.part(shortest, len(batch)) for batch in batches])])


def _alternate(columns: Iterable[Iterable[Any]]) -> Iterable[Any]:
    return chain.from_iterable(zip(*columns, strict=True))


def _join(batches: Sequence[Batch], join: Any, epochs: Sequence[tuple[int, Any]]) -> Batch:
    keyless = all(batch.keys is None for batch in batches if len(batch))
    columnar = joined([batch.values for batch in batches if len(batch)], join)
    return Batch(
        None if keyless else list(join(batch.key_column() for batch in batches)),
        list(join(batch.values for batch in batches)) if columnar is None else columnar,
        list(join(batch.timestamps for batch in batches)),
        epochs,
    )
