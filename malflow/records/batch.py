"""A columnar batch of records on one edge, with the epochs (watermarks) between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress, repeat
from operator import itemgetter
from typing import Any

from malflow.message import DataMessage, NoKey
from malflow.records.column import is_column, join_lists, listed, picked, selected
from malflow.records.columnar import Columnar, is_columnar, joined, made

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

    @property
    def has_arrays(self) -> bool:
        """Whether there are values, and these are arrays of Arrow."""
        return len(self.values) > 0 and is_columnar(self.values) and self.values.has_arrays

    def key_column(self) -> Iterable[Any]:
        """Iterate over the keys; `NoKey` for records without one."""
        return repeat(NoKey, len(self.values)) if self.keys is None else self.keys

    def messages(self) -> Iterator[DataMessage[Any, Any, Any]]:
        """Iterate over the records as messages that may be kept."""
        return map(DataMessage, self.key_column(), self.values, self.timestamps)

    def listed(self) -> Batch:
        """Return the same records, to be read one by one: nothing of them is a column."""
        if not (is_columnar(self.values) or is_column(self.keys) or is_column(self.timestamps)):
            return self
        keys = None if self.keys is None else listed(self.keys)
        return Batch(keys, made(self.values), listed(self.timestamps), self.epochs)

    def with_values(self, values: Sequence[Any]) -> Batch:
        """Return a copy with another value column."""
        return Batch(self.keys, values, self.timestamps, self.epochs)

    def with_timestamps(self, timestamps: Sequence[Any]) -> Batch:
        """Return a copy with other timestamps."""
        return Batch(self.keys, self.values, timestamps, self.epochs)

    def select(self, mask: Sequence[Any]) -> Batch:
        """Return the records with a true flag in `mask`, and all epochs."""
        values = self.values.select(mask) if is_columnar(self.values) else list(compress(self.values, mask))
        if len(values) == len(mask):
            return self
        keys = None if self.keys is None else selected(self.keys, mask)
        epochs: Sequence[tuple[int, Any]] = ()
        if self.epochs:
            kept = _kept_before(self.epochs, mask)
            epochs = [(before, epoch) for before, (_, epoch) in zip(kept, self.epochs, strict=True)]
        return Batch(keys, values, selected(self.timestamps, mask), epochs)

    def take(self, indices: Sequence[int]) -> Batch:
        """Return the records at `indices`, in ascending order, without epochs."""
        if len(indices) <= 1:  # an itemgetter of one index does not return a tuple
            return self.part(indices[0], indices[0] + 1) if indices else Batch(None, (), ())
        values = self.values.take(indices) if is_columnar(self.values) else itemgetter(*indices)(self.values)
        keys = None if self.keys is None else picked(self.keys, indices)
        return Batch(keys, values, picked(self.timestamps, indices))

    def without_epochs(self) -> Batch:
        """Return the records alone."""
        return Batch(self.keys, self.values, self.timestamps) if self.epochs else self

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


_RARE = 4
"""The records for each epoch from which a call for each epoch is cheaper than a look at each flag."""


def _kept_before(epochs: Sequence[tuple[int, Any]], mask: Sequence[Any]) -> Iterable[int]:
    """Return the number of true flags before each epoch; the flags of a mask of bytes are zeros and ones."""
    positions = [position for position, _ in epochs]
    if type(mask) is bytes and _RARE * len(positions) < len(mask):
        return accumulate(map(mask.count, repeat(1), [0, *positions], positions))
    counted = [0, *accumulate(map(bool, mask))]
    return map(counted.__getitem__, positions)


def concat(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches."""
    if len(batches) == 1:
        return batches[0]
    epochs: list[tuple[int, Any]] = []
    length = 0
    for batch in batches:
        epochs.extend((length + position, epoch) for position, epoch in batch.epochs)
        length += len(batch)
    return _join(batches, epochs)


def interleave(batches: Sequence[Batch]) -> Batch:
    """Merge batches without epochs by taking one record from each in turn."""
    batches = [batch for batch in batches if len(batch)]
    if not batches:
        return Batch(None, (), ())
    if len(batches) == 1:
        return batches[0]
    if all(is_columnar(batch.values) and batch.values.joins_uneven for batch in batches):
        values = joined([batch.values for batch in batches], in_turn=True)
        if values is not None:
            return _beside(values, batches, in_turn=True)
    shortest = min(map(len, batches))
    even = _join([batch.part(0, shortest) for batch in batches], in_turn=True)
    return concat([even, interleave([batch.part(shortest, len(batch)) for batch in batches])])


def _join(batches: Sequence[Batch], epochs: Sequence[tuple[int, Any]] = (), *, in_turn: bool = False) -> Batch:
    full = [batch for batch in batches if len(batch)]
    values = joined([batch.values for batch in full], in_turn=in_turn)
    if values is not None:
        return _beside(values, full, epochs, in_turn=in_turn)
    return Batch(
        None if all(batch.keys is None for batch in full) else join_lists(_keys(full), in_turn=in_turn),
        join_lists([batch.values for batch in full], in_turn=in_turn),
        join_lists([batch.timestamps for batch in full], in_turn=in_turn),
        epochs,
    )


def _beside(
    values: Columnar[Any], batches: Sequence[Batch], epochs: Sequence[tuple[int, Any]] = (), *, in_turn: bool
) -> Batch:
    """Return joined values with the keys and timestamps of their batches."""
    keyless = all(batch.keys is None for batch in batches)
    keys = None if keyless else values.join_beside(_keys(batches), in_turn=in_turn)
    return Batch(keys, values, values.join_beside([batch.timestamps for batch in batches], in_turn=in_turn), epochs)


def _keys(batches: Sequence[Batch]) -> list[Sequence[Any]]:
    return [[NoKey] * len(batch) if batch.keys is None else batch.keys for batch in batches]
