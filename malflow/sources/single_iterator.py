"""A source over any Python iterable."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

from malflow.errors import GraphError
from malflow.message import NoKey, NoKeyType
from malflow.sources.contract import POLL_SECONDS, StatelessSourceImpl, StatelessSourcePartition

__all__ = ["SingleIteratorSource"]

V = TypeVar("V")

_AT_HAND = (list, tuple, range, str, bytes)
"""Types whose iteration never blocks, so whole batches can be taken at once."""

_WAITED_SECONDS = 0.005
"""Seconds; an item that took longer blocked the iteration."""

_SILENT_SECONDS = 0.05
"""Seconds; an item that took longer followed a pause in the input, one that took less may be due to a busy machine."""

_TRUSTED = 256
"""How many items in a row must not block before several are taken at once.

An iterator that blocks in the middle of a batch delays the batch's first items; this protects short bursts.
"""


class SingleIteratorSource(StatelessSourceImpl[NoKeyType, V, int]):
    """Emit the items of an iterable in order, without a key; the timestamp is the index, from 0.

    It has one part, on one worker. It cannot resume: a restarted run reads a list from the beginning, and items that
    a generator has already produced are lost.

    Args:
        iterable: anything that `iter` accepts. Items of a blocking iterator are usually processed before it blocks
            again; a burst may be delayed. If no item may be delayed, implement a partition with ``poll``.

    Raises:
        GraphError: if `iterable` is not iterable, or a DataFrame; it would iterate over the names of its columns.
    """

    keyed = False

    def __init__(self, iterable: Iterable[V]) -> None:
        try:
            iter(iterable)
        except TypeError:
            raise GraphError(f"SingleIteratorSource needs an iterable; got {iterable!r}") from None
        if callable(getattr(iterable, "itertuples", None)):
            raise GraphError(
                "SingleIteratorSource needs records; a DataFrame iterates over the names of its columns; pass "
                "df.to_dict('records'), or df.itertuples(index=False)"
            )
        self._iterable = iterable

    def list_parts(self) -> Iterable[NoKeyType]:
        """Return the only part, `NoKey`."""
        return [NoKey]

    def build_part(self, part: NoKeyType) -> IteratorPartition[V]:
        """Start iterating."""
        del part
        return IteratorPartition(iter(self._iterable), at_hand=type(self._iterable) in _AT_HAND, length=self._length)

    def resume_part(self, part: NoKeyType, position: int) -> IteratorPartition[V]:
        """Start iterating at the item with this index."""
        del part
        iterator: Any = iter(self._iterable)
        at_hand = type(self._iterable) in _AT_HAND
        if at_hand:
            iterator.__setstate__(position)
        else:
            deque(islice(iterator, position), maxlen=0)
        return IteratorPartition(iterator, at_hand=at_hand, position=position, length=self._length)

    @property
    def _length(self) -> int | None:
        """Return the number of items; None if unknown."""
        return len(self._iterable) if isinstance(self._iterable, _AT_HAND) else None


class IteratorPartition(StatelessSourcePartition[V, int]):
    """An iterator with its position."""

    def __init__(self, iterator: Iterator[V], *, at_hand: bool, position: int = 0, length: int | None = None) -> None:
        self._iterator = iterator
        self._at_hand = at_hand
        self._length = length
        self._position = position
        self._prompt = 0
        self._finished = False

    def poll(self) -> tuple[V, int] | None:
        """Return the next item and its index."""
        for value in self._iterator:
            self._position += 1
            return value, self._position - 1
        self._finished = True
        return None

    def poll_batch(self, limit: int) -> tuple[Sequence[V], Sequence[int]]:
        """Return the next items; fewer than `limit` if the iterator may block."""
        start = self._position
        values = self._take(limit) if self._at_hand else self._collect(limit)
        self._position += len(values)
        return values, range(start, self._position)

    def _take(self, limit: int) -> list[V]:
        values = list(islice(self._iterator, limit))
        self._finished = len(values) < limit
        return values

    def _collect(self, limit: int) -> list[V]:
        """Take items from an iterator that may block: one at a time, or several after a run of prompt ones."""
        values: list[V] = []
        started = before = time.monotonic()
        wanted = min(limit, max(1, self._prompt - _TRUSTED))
        for value in islice(self._iterator, wanted):
            values.append(value)
            now = time.monotonic()
            if now - before >= _WAITED_SECONDS:
                self._prompt = self._prompt // 2 if now - before < _SILENT_SECONDS else 0
                return values
            self._prompt += 1
            if now - started >= POLL_SECONDS:
                return values
            before = now
        self._finished = len(values) < wanted
        return values

    def position(self) -> int:
        """Return the number of items emitted."""
        return self._position

    def share(self) -> tuple[int, int] | None:
        """Return the number of items emitted and the total; None if the iterable has no length."""
        return None if self._length is None else (self._position, self._length)

    def is_finished(self) -> bool:
        """Whether the iterable is exhausted."""
        return self._finished
