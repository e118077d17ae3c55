"""Epochs of a stream whose keys are the parts of its source: an epoch for each part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from itertools import islice
from typing import Any

from malflow.batch import Batch
from malflow.message import DataMessage, NoKey
from malflow.operators.contract import OperatorContext, refuse_kept
from malflow.operators.event_time import GenerateEpochs
from malflow.operators.moments import check_epoch
from malflow.operators.source import Source
from malflow.state import Delta

__all__ = ["PART", "GeneratePartEpochs"]

PART = "part"
"""What the key of a part's epoch begins with, in the state: ``(PART, part)``."""


class GeneratePartEpochs(GenerateEpochs):
    """Keep an epoch for each part, and issue the least of those of the parts that may still give records.

    The generator is given the epoch of the record's part, and a record is late by that one; so what is late does not
    depend on how the records of the parts interleave. A part without an epoch holds the stream's back, one that has
    ended does not; where all have ended, the stream's epoch stays. Epochs that come in pass, if they are greater.

    What was issued counts too: a record at or before the stream's epoch is late. That makes a difference only for
    records that their part should not have: where a file that had ended has grown, or where the stream that comes in
    does not keep to its epochs.

    Attributes:
        parts_of: the name of the source.
        source: what reads it on the same worker; set before the first tick.
    """

    source: Source

    def __init__(self, context: OperatorContext, generator: Any, parts_of: str, *, checked: bool = False) -> None:
        super().__init__(context, generator, checked=checked)
        self.parts_of = parts_of
        self._by_part: dict[Any, Any] = {}
        self._live: Sequence[Any] | None = None
        self._holding: Sequence[Any] = ()
        self._unread: set[Any] = set()
        self._heap: list[tuple[Any, int]] = []
        self._moved: set[Any] = set()

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Take a tick; behind the last records of a part its epoch counts no more."""
        yield from self._hold(self.source.polled_parts)
        for batch in edges[0]:
            yield self.process(batch)
        yield from self._hold(self.source.live_parts)

    def sync_state(self) -> None:
        """Write the epochs down: the stream's, and those of the parts that have moved on."""
        super().sync_state()
        self.state.assign({(PART, part): self._by_part[part] for part in self._moved})
        self._moved.clear()

    def apply(self, delta: Delta) -> None:
        """Go on from the epochs."""
        super().apply(delta)
        self._by_part = {key[1]: epoch for key, epoch in self.state.items() if isinstance(key, tuple)}
        self._live = None

    def _hold(self, live: Sequence[Any]) -> Iterable[Sequence[Batch]]:
        """Find the parts that hold the epoch back, of those that have not ended, and issue what that allows.

        That is all of them; where they are read in order, those that were begun, on whatever worker, and the next one.
        """
        if live is self._live:
            return
        self._live = self._holding = live
        if self.source.in_order:
            self._holding = [*live[:1], *(part for part in live[1:] if part in self._by_part)]
        self._unread = {part for part in self._holding if part not in self._by_part}
        self._heap = []
        epochs: list[tuple[int, Any]] = []
        self._advance(0, epochs)
        if epochs:
            mark = Batch(None, (), (), epochs)
            yield mark, mark

    def _walk(self, batch: Batch, rest: Any) -> tuple[list[bool], list[tuple[int, Any]]]:
        if len(self._holding) == 1 and not batch.epochs and self._previous == self._by_part.get(self._holding[0]):
            return self._walk_one(self._holding[0], batch, rest)
        generator, by_part, moved = self.callback, self._by_part, self._moved
        view: DataMessage[Any, Any, Any] = DataMessage(NoKey, None, None)
        rows = zip(batch.key_column(), rest, batch.timestamps, strict=True)
        previous = self._previous
        on_time: list[bool] = []
        epochs: list[tuple[int, Any]] = []
        for end, arrived in (*batch.epochs, (len(batch), None)):
            for part, view.value, timestamp in islice(rows, end - len(on_time)):
                view.key, view.timestamp = part, timestamp
                own = by_part.get(part)
                candidate = generator(view, own)
                after_own = own is None or timestamp > own
                on_time.append(True if after_own and (previous is None or timestamp > previous) else False)  # noqa: SIM210 - as bool()
                if candidate is not None and (own is None or candidate > own):
                    if own is None:
                        check_epoch(candidate)
                    by_part[part] = candidate
                    moved.add(part)
                    if own is None or previous is None or own <= previous:  # it may have held the others back
                        self._unread.discard(part)
                        previous = self._advance(len(on_time), epochs)
                elif candidate != candidate:  # noqa: PLR0124 - as NaN and NaT, which are greater than nothing
                    check_epoch(candidate)
            if arrived is not None and (previous is None or arrived > previous):
                self._previous = previous = arrived
                epochs.append((end, arrived))
        if self.context.debug:
            refuse_kept(view)
        return on_time, epochs

    def _walk_one(self, part: Any, batch: Batch, rest: Any) -> tuple[list[bool], list[tuple[int, Any]]]:
        """Walk through the records of the only part, whose epoch is the stream's."""
        walked = super()._walk(batch, rest)
        if self._previous is not None:
            self._by_part[part] = self._previous
            self._moved.add(part)
            self._unread.clear()
        return walked

    def _advance(self, position: int, epochs: list[tuple[int, Any]]) -> Any:
        """Issue the least epoch of the parts, if it has grown; return the stream's."""
        if self._holding and not self._unread:
            least = self._least()
            if self._previous is None or least > self._previous:
                self._previous = least
                epochs.append((position, least))
        return self._previous

    def _least(self) -> Any:
        """Return the least epoch of the parts; a part's place in the heap is brought up to date when it comes first."""
        heap, holding, by_part = self._heap, self._holding, self._by_part
        if not heap:
            heap.extend((by_part[part], index) for index, part in enumerate(holding))
            heapify(heap)
        epoch, index = heap[0]
        while (now := by_part[holding[index]]) > epoch:
            heapreplace(heap, (now, index))
            epoch, index = heap[0]
        return epoch
