"""Epochs of a stream keyed by the parts of its source: one epoch per part.

Each part has its own watermark, and the stream's is the least among the unfinished parts, as with Flink's watermarks
per split. A heap orders the parts by epoch. A part that advances stays in place until it is at the top of the heap, so
an advance costs nothing while another part holds the stream back. Records arrive in columns, and most neither are late
nor move an epoch: runs of these are found by comparing the column with bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from heapq import heapify, heapreplace
from itertools import islice
from operator import length_hint
from typing import Any

from malflow.event_time.tick import Tick
from malflow.message import MIN, DataMessage
from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.generator import ANSWERED, SILENCE, GenerateEpochs, Late, Marks, Row
from malflow.operators.epochs.rounding import Step, calm_until
from malflow.operators.epochs.timestamps import check_epoch
from malflow.operators.hosting.source import Source
from malflow.operators.waiting import OperatorTime, Reached
from malflow.records.batch import Batch
from malflow.states.keyed import Delta

__all__ = ["PART", "UNREAD", "GeneratePartEpochs"]

PART = "part"
"""The first element of the key of a part's epoch in the state: ``(PART, part)``."""


class _Unread:
    """Stands for the parts that no worker has got yet: they hold the epoch back on every worker."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<not begun yet>"

    def __reduce__(self) -> str:
        return "UNREAD"


UNREAD = _Unread()
"""The part that holds an epoch back, for all that no worker has begun."""

_PATIENCE = 4
"""How many records per part may be outside the common bounds before the bounds are computed again."""


# Invariant: the heap has a part's epoch or an earlier one of it. So its top, once up to date, is the least of all.
#
# Example: the parts p and q.
#   p reaches 10    the stream has no epoch, since q has none
#   q reaches 4     the stream's epoch is 4
#   p reaches 20    still 4: p is not at the top of the heap, which stays as it is
#   q reaches 15    15
#   q finishes      20
class GeneratePartEpochs(GenerateEpochs):
    """Keep an epoch for each part, and issue the least epoch of the parts that may still emit records.

    The generator receives the epoch of the record's part. This epoch also decides whether the record is late; so
    lateness does not depend on the interleaving of parts. A part without an epoch holds the stream's epoch back; a
    finished part does not. After all parts have finished, the stream's epoch stays. Incoming epochs are forwarded if
    they are greater. With `every`, the epochs of the parts are rounded down too.

    Issued epochs count too: a record at or before the stream's epoch is late. This matters only for unexpected records,
    from a file that has grown after its end or from input that violates its own epochs.

    Args:
        context, generator, every, checked, idle_after: as for `GenerateEpochs`.
        parts_of: the name of the source.
        sender: an operator in between with logic that chooses the keys of its messages; they are then checked.

    Attributes:
        parts_of: the name of the source.
        source: the source's operator on the same worker; set before the first tick.
    """

    source: Source

    def __init__(
        self,
        context: OperatorContext,
        generator: Any,
        parts_of: str,
        *,
        every: Step | None = None,
        checked: bool = False,
        idle_after: timedelta | None = None,
        sender: str | None = None,
    ) -> None:
        super().__init__(context, generator, every=every, checked=checked, idle_after=idle_after)
        self.parts_of = parts_of
        self._sender = sender
        self._by_part: dict[Any, Any] = {}
        self._answered_by_part: dict[Any, Any] = {}
        self._live: Sequence[Any] | None = None
        self._may_get_more = False
        self._holding: Sequence[Any] = ()
        self._unread: set[Any] = set()
        self._heap: list[tuple[Any, int]] = []
        self._moved: set[Any] = set()
        self._calm: tuple[Any, Any] = (MIN, MIN)  # an epoch of a part, and what `calm_until` returns for it
        self._silence_of: dict[Any, timedelta | None] = {}  # None if the part has records
        self._passed: timedelta | None = None
        self._part_lift: Any = None

    @property
    def holding(self) -> Sequence[Any]:
        """The unfinished parts that hold the epoch back."""
        is_current = self._live is not None and self._may_get_more is self.source.may_get_more
        return self._holding if is_current else self._holding_of(self.source.live_parts)

    def time(self) -> OperatorTime:
        """Return the last epoch issued, and the epochs of the parts that hold it back; None for no epoch."""
        return OperatorTime(epoch=self.epoch, parts=[(part, self._by_part.get(part)) for part in self.holding])

    def join_source(self, sources: Mapping[str, Source]) -> None:
        """Connect with the source of the parts."""
        self.source = sources[self.parts_of]

    def reached(self, *, is_finished: bool) -> Iterable[Reached]:
        """Return the generator's progress; with ``idle_after``, part by part while some hold it back."""
        if is_finished or self.idle_after is None or not self.holding:
            return super().reached(is_finished=is_finished)
        return [
            Reached(self._progress_of(part), False, self._silence_of.get(part), counts_tick=True)
            for part in self.holding
        ]

    def _progress_of(self, part: Any) -> Any:
        """Return the epoch of a part before rounding, or the stream's if that is greater."""
        known = (self._by_part.get(part), self._answered_by_part.get(part), self._previous)
        return max((epoch for epoch in known if epoch is not None), default=None)

    def _note_silence(self, tick: Tick) -> None:
        self._passed = tick.passed
        if self.holding:
            self.silence = None
        else:  # with discovery, all parts may be finished but not the source
            super()._note_silence(tick)

    def lift_to(self, epoch: Any, *, is_finished: bool) -> None:
        """Issue an epoch at the beginning of the tick if all parts have finished; else advance the silent ones."""
        if is_finished or (self.is_silent and not self.holding):
            self.lift = epoch
        elif self.idle_after is not None:
            self._part_lift = epoch

    def _lifted_parts(self) -> Iterable[Sequence[Batch]]:
        """Advance the silent parts, up to the previous tick."""
        epoch, self._part_lift = self._part_lift, None
        if epoch is None:
            return
        epochs: Marks = []
        for part in self._holding:
            if self._is_idle(self._silence_of.get(part)):
                self._lift_part(part, epoch, epochs)
        if epochs:
            mark = Batch(None, (), (), epochs)
            yield mark, mark

    def _lift_part(self, part: Any, epoch: Any, epochs: Marks) -> None:
        own, answered = self._by_part.get(part), self._answered_by_part.get(part)
        if self._every is not None and (answered is None or epoch > answered):
            self._answered_by_part[part] = epoch
        self._move(part, own, self._thin(epoch), 0, epochs)

    def _count_silence(self) -> None:
        """Measure the silence of the polled parts; records of a later poll in the tick end it."""
        emitting, passed, self._passed = self.source.polled_by_part, self._passed, None
        for part in self.source.asked_parts:
            if part in emitting:
                self._silence_of[part] = None
            elif passed is not None:
                silence = self._silence_of.get(part)
                self._silence_of[part] = timedelta(0) if silence is None else silence + passed

    def run(self, edges: Sequence[Sequence[Batch]]) -> Iterable[Sequence[Batch]]:
        """Process a tick; the epoch of a part that has emitted its last records no longer counts."""
        yield from self._lifted()
        yield from self._hold(self.source.polled_parts)
        yield from self._lifted_parts()
        if self.idle_after is not None:
            self._count_silence()
        for batch in edges[0]:
            yield self.process(batch)
        yield from self._hold(self.source.live_parts)

    def sync_state(self) -> None:
        """Write the stream's epoch and the epochs of the parts that have advanced to the state."""
        super().sync_state()
        self.state.assign({(PART, part): self._by_part[part] for part in self._moved})
        if self._keeps_answers:
            self.state.assign({(ANSWERED, part): self._answered_by_part.get(part) for part in self._moved})
        self.state.assign({(SILENCE, part): silence for part, silence in self._silence_of.items()})
        self._moved.clear()

    def apply(self, delta: Delta) -> None:
        """Restore the epochs."""
        super().apply(delta)
        self._by_part = self._kept_by_part(PART)
        self._answered_by_part = self._kept_by_part(ANSWERED) if self._keeps_answers else {}
        self._silence_of = self._kept_by_part(SILENCE) if self.idle_after is not None else {}
        self._live = None

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Check the keys if an operator in between chose them, then process records and epochs."""
        if self._sender is not None and batch.keys is not None:
            for key in set(batch.keys):
                if not self.source.has_part(key):
                    raise self._stranger(key, batch)
        return super().process(batch)

    def _stranger(self, key: Any, batch: Batch) -> Exception:
        """Return the error for a key that is not a part."""
        at = next(index for index, it in enumerate(batch.key_column()) if it == key)
        return self.error(
            f"its key is not a part of source '{self.parts_of}', and each part has its own time; operator "
            f"'{self._sender}' sent it: send messages with the key of the message received, call .generate_epochs() "
            "before that operator, or pass per_part=False to use one time",
            (key, batch.values[at], batch.timestamps[at]),
        )

    def _kept_by_part(self, what: str) -> dict[Any, Any]:
        return {key[1]: epoch for key, epoch in self.state.items() if isinstance(key, tuple) and key[0] == what}

    def _hold(self, live: Sequence[Any]) -> Iterable[Sequence[Batch]]:
        """Find the unfinished parts that hold the epoch back, and issue the epoch that they allow."""
        if live is self._live and self.source.may_get_more is self._may_get_more:
            return
        self._live, self._may_get_more, self._holding = live, self.source.may_get_more, self._holding_of(live)
        self._silence_of.update(dict.fromkeys(self._silence_of.keys() - set(live)))
        self._unread = {part for part in self._holding if part not in self._by_part}
        self._heap = []
        epochs: Marks = []
        self._advance(0, epochs)
        if epochs:
            mark = Batch(None, (), (), epochs)
            yield mark, mark

    def _holding_of(self, live: Sequence[Any]) -> Sequence[Any]:
        """Return all unfinished parts; if parts are read in order, those started on any worker and the next one."""
        if self.source.may_get_more:
            return (*live, UNREAD)
        if not self.source.in_order:
            return live
        return [*live[:1], *(part for part in live[1:] if part in self._by_part)]

    def _ask(self, rows: Iterable[Row], view: DataMessage[Any, Any, Any], late: Late, epochs: Marks) -> None:
        if self._is_of_one_part:
            self._ask_one(self._holding[0], rows, view, late, epochs)
            return
        generator, every, thin, by_part, previous = (
            self.callback,
            self._every,
            self._thin,
            self._by_part,
            self._previous,
        )
        answered = by_part if every is None else self._answered_by_part
        for position, part, view.value, timestamp in rows:
            view.key, view.timestamp = part, timestamp
            own = by_part.get(part)
            before = answered.get(part, own)
            candidate = generator(view, before)
            if own is not None and not timestamp > own:
                late[position - 1] = own if previous is None or own > previous else previous
            elif previous is not None and not timestamp > previous:
                late[position - 1] = previous
            if candidate is not None and (before is None or candidate > before):
                if before is None:
                    check_epoch(candidate, timestamp)
                answered[part] = candidate
                epoch = candidate if every is None else thin(candidate)
                previous = self._move(part, own, epoch, position, epochs)
            elif candidate != candidate:  # noqa: PLR0124 - NaN and NaT, which are greater than nothing
                check_epoch(candidate)

    def _receive(self, position: int, arrived: Any, epochs: Marks) -> None:
        super()._receive(position, arrived, epochs)
        self._answered = None  # each part has its own

    @property
    def _is_of_one_part(self) -> bool:
        """Whether there is a single part. Its epoch is the stream's."""
        if self.source.may_get_more:
            return False
        return len(self._holding) == 1 and self._previous == self._by_part.get(self._holding[0])

    def _move(self, part: Any, own: Any, epoch: Any, position: int, epochs: Marks) -> Any:
        """Advance the epoch of a part from `own`; issue the epoch that this allows; return the stream's."""
        self._moved.add(part)
        if own is not None and not epoch > own:
            return self._previous
        self._by_part[part] = epoch
        if own is None or self._previous is None or own <= self._previous:  # this part may have held the others back
            self._unread.discard(part)
            self._advance(position, epochs)
        return self._previous

    def _ask_one(
        self, part: Any, rows: Iterable[Row], view: DataMessage[Any, Any, Any], late: Late, epochs: Marks
    ) -> None:
        """Call the generator with records of the only part. Its epoch is the stream's."""
        self._answered = self._answered_by_part.get(part)
        super()._ask(rows, view, late, epochs)
        self._follow(part)
        if self._answered is not None:
            self._answered_by_part[part], self._answered = self._answered, None

    def _follow(self, part: Any) -> None:
        """Set the epoch of the only part to the stream's."""
        if self._previous is not None:
            self._by_part[part] = self._previous
            self._moved.add(part)
            self._unread.clear()

    def _skip(self, batch: Batch, rest: Iterator[Any], size: int, late: Late, epochs: Marks) -> None:
        if self._is_of_one_part:
            super()._skip(batch, rest, size, late, epochs)
            self._follow(self._holding[0])
        elif self._every is None:
            self._move_often(batch, rest, size, late, epochs)
        else:
            self._move_seldom(batch, rest, size, late, epochs)

    def _fits(self, stamps: Any, batch: Batch) -> bool:
        """Whether all epochs have the type of the timestamps, and the parts of the batch are few."""
        from malflow.columns.epochs import are_few  # noqa: PLC0415 - only the extra has it

        known = self._by_part.values()
        return (
            super()._fits(stamps, batch)
            and (self._is_of_one_part or are_few(batch.keys))
            and all(epoch is None or stamps.number_of(epoch) is not None for epoch in known)
        )

    def _skip_column(self, stamps: Any, batch: Batch, start: int, stop: int) -> None:
        if self._is_of_one_part:
            super()._skip_column(stamps, batch, start, stop)
            self._follow(self._holding[0])
            return
        self._previous, reached = stamps.walk_parts(
            batch.keys, start, stop, self._previous, by_part=self._by_part, holding=self._holding
        )
        self._by_part.update(reached)
        self._moved.update(reached)
        self._unread.difference_update(reached)

    def _move_often(self, batch: Batch, rest: Iterator[Any], size: int, late: Late, epochs: Marks) -> None:
        """Find the records that are late or move an epoch, as most do here."""
        bound, by_part, previous = self.callback.bound, self._by_part, self._previous
        heap, holding, note_moved = self._heap, self._holding, self._moved.add
        stamped = zip(batch.key_column(), rest, strict=False)
        for position, (part, stamp) in enumerate(stamped, size - length_hint(rest) + 1):
            own = by_part.get(part)
            if (own is not None and not stamp > own) or (previous is not None and not stamp > previous):
                late[position - 1] = self._low(part)
            epoch = stamp - bound
            if own is None or previous is None or not heap:
                if own is None or epoch > own:
                    previous = self._move(part, own, epoch, position, epochs)
            elif epoch > own:  # as in _move, without its three calls a record
                note_moved(part)
                by_part[part] = epoch
                if own <= previous and not self._unread:
                    least, index = heap[0]
                    while (now := by_part[holding[index]]) > least:
                        heapreplace(heap, (now, index))
                        least, index = heap[0]
                    if least > previous:
                        previous = self._previous = least
                        epochs.append((position, least))

    def _move_seldom(self, batch: Batch, rest: Iterator[Any], size: int, late: Late, epochs: Marks) -> None:
        """Find the records that are late or move an epoch to the next multiple.

        If the parts keep pace, most timestamps are within the bounds of all parts, so it does not matter which part
        they belong to. The common bounds are computed again after some records have been outside.
        """
        bound, by_part, thin = self.callback.bound, self._by_part, self._thin
        parts, start = list(batch.key_column()), size - length_hint(rest) + 1
        if not parts:
            return
        reaches = {part: self._reach(part) for part in set(parts)}
        lowest, highest = _common(reaches)
        outside, patience = 0, _PATIENCE * len(reaches)
        for stamp in islice(rest, len(parts)):
            if lowest < stamp <= highest:
                continue
            position = size - length_hint(rest)
            part = parts[position - start]
            low, until = reaches[part]
            if low < stamp <= until:
                outside += 1
                if outside > patience:
                    lowest, highest = _common(reaches)
                    outside = 0
                continue
            own, low = by_part.get(part), self._low(part)
            if not stamp > low:
                late[position - 1] = low
            if own is None or stamp > own:
                self._move(part, own, thin(stamp - bound), position, epochs)
                reaches[part] = self._reach(part)
                lowest = max(lowest, reaches[part][0])

    def _reach(self, part: Any) -> tuple[Any, Any]:
        """Return the bounds between which a part's records are on time and don't move its epoch."""
        own = self._by_part.get(part, MIN)
        if own is not self._calm[0]:  # parts that keep pace reach the same epoch one after the other
            self._calm = own, calm_until(own, self.callback.bound, self._every)
        return self._low(part), self._calm[1]

    def _low(self, part: Any) -> Any:
        """Return the epoch by which records of a part are late: the greater of its own and the stream's."""
        own, previous = self._by_part.get(part, MIN), self._previous
        return own if previous is None or own > previous else previous

    def _advance(self, position: int, epochs: Marks) -> None:
        """Issue the least epoch of the parts, if it has grown."""
        if self._holding and not self._unread:
            least = self._least()
            if self._previous is None or least > self._previous:
                self._previous = least
                epochs.append((position, least))

    def _least(self) -> Any:
        """Return the least epoch of the parts; update a part's place in the heap when it is at the top."""
        heap, holding, by_part = self._heap, self._holding, self._by_part
        if not heap:
            heap.extend((by_part[part], index) for index, part in enumerate(holding))
            heapify(heap)
        epoch, index = heap[0]
        while (now := by_part[holding[index]]) > epoch:
            heapreplace(heap, (now, index))
            epoch, index = heap[0]
        return epoch


def _common(reaches: Mapping[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the bounds common to all parts."""
    lows, untils = zip(*reaches.values(), strict=True)
    return max(lows), min(untils)
