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
"""Types whose elements come without waiting, so that a whole batch can be taken at once."""

_WAITED_SECONDS = 0.005
"""An item that took longer had to be waited for."""

_SILENT_SECONDS = 0.05
"""An item that took longer came after a silence; one that took less may have been kept waiting by a busy machine."""

_TRUSTED = 256
"""So many items in a row must have come without waiting before more than one is taken at once.

An iterator that blocks in the middle of a batch holds back the items before it; this keeps short bursts from that.
"""


class SingleIteratorSource(StatelessSourceImpl[NoKeyType, V, int]):
    """Emit the items of an iterable, in order, with their index from 0 as timestamp and without a key.

    It has one part, on one worker. It can't resume: a list is read from its beginning when the run starts again,
    and what a generator has already given is gone.

    Args:
        iterable: anything `iter` takes. Items of an iterator that waits flow on before it waits for the next one,
            unless many came at once; a source that should never hold back any is a partition with ``poll``.

    Raises:
        GraphError: if `iterable` is not iterable.
    """

    keyed = False

    def __init__(self, iterable: Iterable[V]) -> None:
        try:
            iter(iterable)
        except TypeError:
            raise GraphError(f"SingleIteratorSource needs an iterable; got {iterable!r}") from None
        self._iterable = iterable

    def list_parts(self) -> Iterable[NoKeyType]:
        """List the one part."""
        return [NoKey]

    def build_part(self, part: NoKeyType) -> IteratorPartition[V]:
        """Begin to iterate."""
        del part
        return IteratorPartition(iter(self._iterable), at_hand=type(self._iterable) in _AT_HAND)

    def resume_part(self, part: NoKeyType, position: int) -> IteratorPartition[V]:
        """Iterate again, from the item that has this index on."""
        del part
        iterator: Any = iter(self._iterable)
        at_hand = type(self._iterable) in _AT_HAND
        if at_hand:
            iterator.__setstate__(position)
        else:
            deque(islice(iterator, position), maxlen=0)
        return IteratorPartition(iterator, at_hand=at_hand, position=position)


class IteratorPartition(StatelessSourcePartition[V, int]):
    """The iteration, and how far it has come."""

    def __init__(self, iterator: Iterator[V], *, at_hand: bool, position: int = 0) -> None:
        self._iterator = iterator
        self._at_hand = at_hand
        self._position = position
        self._prompt = 0
        self._finished = False

    def poll(self) -> tuple[V, int] | None:
        """Give the next item and its index."""
        for value in self._iterator:
            self._position += 1
            return value, self._position - 1
        self._finished = True
        return None

    def poll_batch(self, limit: int) -> tuple[Sequence[V], Sequence[int]]:
        """Give the next items at once; where they may have to be waited for, fewer."""
        start = self._position
        values = self._take(limit) if self._at_hand else self._collect(limit)
        self._position += len(values)
        return values, range(start, self._position)

    def _take(self, limit: int) -> list[V]:
        values = list(islice(self._iterator, limit))
        self._finished = len(values) < limit
        return values

    def _collect(self, limit: int) -> list[V]:
        """Take items that may have to be waited for: one at a time, and more only once they have kept coming."""
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
        """Tell how many items were given."""
        return self._position

    def is_finished(self) -> bool:
        """Tell whether the iterable has ended."""
        return self._finished
