"""The operators of windows that share panes: overlapping ones, and those that grow.

Each record is added to one pane (Li et al., 2005), and a window combines its panes' accumulators. They are combined in
blocks, as in van Herk and Gil & Werman: a window is a suffix of one block and a prefix of the next, so a pane costs
three merges per key, however many windows share it. Nothing is subtracted, so any aggregator that can merge works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from malflow.aggregators.contract import Aggregator
from malflow.event_time.panes import Panes
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import OperatorContext
from malflow.operators.windows.time_windows import WindowAggregate
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.windows import TimeWindows, Timing, WindowResult

if TYPE_CHECKING:
    from malflow.columns.aggregates.panes import PaneArrays

__all__ = ["CumulateAggregate", "SlidingAggregate"]

_States = Mapping[Any, Any]


class SlidingAggregate(WindowAggregate):
    """Aggregate the records of each key in each window, where windows share panes.

    Each pane is aggregated once, and windows are combined from panes in blocks: see `_Blocks`. A pane is kept until its
    last window is closed.

    Args:
        context: the operator's context.
        windows: the windows.
        aggregators: the aggregators of each window's records; they must support merging.
        early: the distance between early results of a window (each merges all its panes); None for no early results.
        late: whether it also receives late records; they are added to their open windows.
        merges: whether other workers may send accumulators in place of records.
    """

    kept = "panes of windows"

    def __init__(
        self,
        context: OperatorContext,
        windows: TimeWindows,
        aggregators: Sequence[Aggregator[Any, Any, Any]],
        *,
        early: Any = None,
        late: bool = False,
        merges: bool = False,
    ) -> None:
        super().__init__(context, windows, aggregators, early=early, late=late, merges=merges)
        self._blocks = _Blocks(windows.span, self._merge_panes)
        self._next: int | None = None  # the first pane that is not closed; None: unknown

    def add(self, number: int, run: Batch) -> None:
        """Add records to a pane, unless it is between two windows."""
        if number % self._windows.step < self._windows.span:
            super().add(number, run)

    def add_columns(self, arrays: PaneArrays, batch: Batch, times: Any, numbers: Any) -> None:
        """Add records to arrays, unless they are between two windows."""
        step, span = self._windows.step, self._windows.span
        if span < step:
            is_in = numbers % step < span
            batch, times, numbers = batch.select(is_in), times.select(is_in), numbers[is_in]
        if len(batch):
            super().add_columns(arrays, batch, times, numbers)

    def begin_arrays(self) -> PaneArrays | None:
        """Return arrays that begin as a copy of the state."""
        arrays = super().begin_arrays()
        if arrays is not None:
            self.forget_cells()
        return arrays

    def forget_cells(self) -> None:
        """Combine the closed panes again, since the cells of blocks are no longer valid."""
        self._blocks.clear()
        self._next = None

    def _merge_panes(self, one: Any, other: Any) -> Any:
        arrays = self._arrays.held
        return self.merge(one, other) if arrays is None else arrays.merge(one, other)

    def last_instant(self, panes: Panes, number: int) -> Any:
        """Return the last instant of the last window that contains a pane."""
        return panes.last(number // self._windows.step * self._windows.step + self._windows.span - 1)

    def add_late(self, panes: Panes, number: int, epoch: Any, run: Batch) -> None:
        """Add records to a closed pane that is part of open windows; reject those only in closed windows."""
        newest = number // self._windows.step * self._windows.step
        if newest + self._windows.span <= number:  # between two windows
            return
        if panes.last(newest + self._windows.span - 1) <= epoch:
            self.refuse(run)
            return
        self.add(number, run)
        self._next = None  # combine the closed panes again

    def accumulated(self, first: int, keys: Iterable[Any]) -> _States:
        """Return the accumulators of some keys in the window that begins with a pane."""
        found: _States = {}
        for number in range(first, first + self._windows.span):
            states = self.state.panes.get(number, {})
            found = self.merge(found, {key: states[key] for key in keys if key in states})
        return found

    def results_so_far(self) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of open windows, in order of time."""
        panes, held, epoch = self._fitted(), self.state.panes, self.reached.epoch
        span, step = self._windows.span, self._windows.step
        if panes is None:
            return
        firsts = {first for number in held for first in range(number - span + 1, number + 1) if first % step == 0}
        for first in sorted(firsts):
            last = panes.last(first + span - 1)
            if epoch is None or last > epoch:
                keys = dict.fromkeys(key for number in range(first, first + span) for key in held.get(number, ()))
                states = self.accumulated(first, keys)
                yield from self._so_far(panes, first, self.not_closed(last, states))

    def close_windows(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close panes in order, with the windows that end with them."""
        held, span, step = self.held_panes, self._windows.span, self._windows.step
        number = self._resume(panes) if self._next is None and held else self._next or 0
        while held:
            oldest = min(held)
            closing = max(number, oldest)
            if epoch is not MAX and panes.last(closing) > epoch:
                break
            if oldest >= number:  # no closed pane is part of an open window: skip to the next records
                self._blocks.clear()
                number = oldest
            self._blocks.close(number, held)
            first = number - span + 1
            if first % step == 0:
                timing = Timing.END if epoch is MAX else Timing.FINAL
                states = self.not_closed(panes.last(number), self._blocks.window(number))
                self.emit(panes, first, states, timing, results)
                for over in range(first, first + min(step, span)):
                    if over in held:
                        self.drop_pane(over)
            number += 1
            self._next = number

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the state."""
        super().apply(delta)
        self.resume()

    def resume(self) -> None:
        """Find the first open pane, and combine the closed ones again."""
        super().resume()
        self.forget_cells()

    def _resume(self, panes: Panes) -> int:
        """Return the first open pane, and restore the combination of the closed ones."""
        held, epoch = self.held_panes, self.reached.epoch
        number = min(held)
        while epoch is not None and panes.last(number) <= epoch:
            number += 1
        self._blocks.rebuild(number, held)
        return number


class CumulateAggregate(SlidingAggregate):
    """Aggregate the records of each key in windows that grow by a pane, up to a block of `span` panes.

    The closed panes of a block are merged as they close, so a pane costs one merge per key. A block is kept until its
    last window is closed. Late records are added to their pane, and so to the windows of the block that are still open.
    """

    _total: _States | None = None

    def forget_cells(self) -> None:
        """Merge the closed panes of the block again, since its cells are no longer valid."""
        super().forget_cells()
        self._total = None

    def close_windows(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close panes in order, and with each the window that ends with it."""
        held, span = self.held_panes, self._windows.span
        if self._next is None:
            self._total = None
        while held:
            block = min(held) // span * span
            number = max(min(held), self._first_open(panes) if self._next is None else self._next)
            if epoch is not MAX and panes.last(number) > epoch:
                break
            states = self._merged(block, number)
            timing = Timing.END if epoch is MAX else Timing.FINAL
            open_ones = self.not_closed(panes.last(number), states)
            self.emit(panes, block, open_ones, timing, results, span=number - block + 1)
            self._next = number + 1
            if number >= block + span - 1:
                self._total = None
                for over in [it for it in held if it < block + span]:
                    self.drop_pane(over)

    def _first_open(self, panes: Panes) -> int:
        """Return the first pane that is not closed."""
        number, epoch = min(self.held_panes), self.reached.epoch
        while epoch is not None and panes.last(number) <= epoch:
            number += 1
        return number

    def _merged(self, block: int, number: int) -> _States:
        """Return the accumulators of the panes of a block up to one."""
        held = self.held_panes
        if self._total is None:
            self._total = {}
            for before in range(block, number):
                if before in held:
                    self._total = self._merge_panes(self._total, held[before])
        if number in held:
            self._total = self._merge_panes(self._total, held[number])
        return self._total

    def results_so_far(self) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of open windows, in order of time."""
        panes, held, epoch, span = self._fitted(), self.state.panes, self.reached.epoch, self._windows.span
        if panes is None:
            return
        for block in sorted({number // span * span for number in held}):
            states: _States = {}
            for number in range(block, block + span):
                states = self.merge(states, held.get(number, {}))
                if states and (epoch is None or panes.last(number) > epoch):
                    open_ones = self.not_closed(panes.last(number), states)
                    yield from self._so_far(panes, block, open_ones, number - block + 1)


# Example: windows of three panes, so the blocks are p0 p1 p2 and p3 p4 p5.
#   p3 closes    suffixes of the first block: p0+p1+p2, p1+p2, p2; prefix: p3
#                the window p1 p2 p3 is (p1+p2) + p3
#   p4 closes    prefix: p3+p4; the window p2 p3 p4 is p2 + (p3+p4)
#   p5 closes    prefix: p3+p4+p5; it is the window
class _Blocks:
    """Windows of `span` panes, combined by the two-stacks method of van Herk, Gil and Werman.

    Panes are divided into blocks of `span`, by their numbers. A window is the end of one block and the beginning of the
    next: a suffix, combined once when the block is over, and a prefix, to which each pane is added. So there are three
        merges per pane and key, however long the windows are, and nothing is subtracted. The merges of a window and
        their order depend only on the numbers of its panes, so floats are the same to the last bit after a restart.

    Args:
        span: the number of panes in a window.
        combine: merges the accumulators of each key in two intervals, the earlier one first; mutates none.
    """

    def __init__(self, span: int, combine: Callable[[_States, _States], _States]) -> None:
        self._span = span
        self._combine = combine
        self._prefix: _States = {}
        self._suffixes: dict[int, _States] = {}  # of the previous block, by the number of their first pane

    def clear(self) -> None:
        """Start without panes."""
        self._prefix, self._suffixes = {}, {}

    def close(self, number: int, panes: Mapping[int, _States]) -> None:
        """Add the next pane to the prefix; at the start of a block, combine the previous block."""
        if number % self._span == 0:
            self._turn(number, panes)
        self._append(panes.get(number))

    def window(self, last: int) -> _States:
        """Return the accumulators of the window that ends with the pane closed last."""
        suffix = self._suffixes.get(last - self._span + 1)
        return self._combine(suffix, self._prefix) if suffix else self._prefix

    def rebuild(self, number: int, panes: Mapping[int, _States]) -> None:
        """Restore the combination as `close` left it before the pane `number`."""
        block = (number - 1) // self._span * self._span
        self._turn(block, panes)
        for closed in range(block, number):
            self._append(panes.get(closed))

    def _append(self, states: _States | None) -> None:
        if states:
            self._prefix = self._combine(self._prefix, states)

    def _turn(self, block: int, panes: Mapping[int, _States]) -> None:
        """Begin a block: combine the suffixes of the previous one."""
        self.clear()
        suffix: _States = {}
        for number in range(block - 1, block - self._span, -1):
            if panes.get(number):
                suffix = self._combine(panes[number], suffix)
            self._suffixes[number] = suffix
