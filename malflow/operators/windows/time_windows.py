"""The operator of time windows that are single panes: it aggregates their records, one by one or as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.exactness import has_accumulated, merge_into, runs_of
from malflow.aggregators.fuse import compile_kernel
from malflow.errors import failures
from malflow.event_time.panes import Panes, fitted, shown_in_zone
from malflow.message import MAX
from malflow.operators.columns import Arrays, KeepsArrays, Results
from malflow.operators.contract import OperatorContext
from malflow.operators.keyed.stateful import admission_of
from malflow.operators.windows.early import EARLY, EarlyResults
from malflow.operators.windows.window_operator import KeptWindows, PanedOperator
from malflow.records.batch import Batch
from malflow.records.columnar import Unfit
from malflow.states.paned import PanedState
from malflow.windows import TimeWindows, Timing, WindowResult
from malflow.words import short_repr

if TYPE_CHECKING:
    from malflow.columns.aggregates.panes import PaneArrays

__all__ = [
    "WindowAggregate",
]


class WindowAggregate(KeepsArrays, PanedOperator):
    """Aggregate the records of each key in each window; each pane is a window.

    Args:
        context: the operator's context.
        windows: the windows.
        aggregators: the aggregators of each window's records.
        early: the distance between early results of a window; None for no early results.
        late: whether it also receives late records.
        until: how long closed windows are kept, for late records to revise their results.
        merges: whether other workers may send accumulators in place of records: see `local_aggregate`.
    """

    def __init__(
        self,
        context: OperatorContext,
        windows: TimeWindows,
        aggregators: Sequence[Aggregator[Any, Any, Any]],
        *,
        early: Any = None,
        late: bool = False,
        until: Any = None,
        merges: bool = False,
    ) -> None:
        super().__init__(context, windows.panes, late=late)
        self._until = until or None
        if self._until is not None:
            self._keep(KeptWindows(context, self._until, self._has_closed))
        self._early = None if early is None else EarlyResults(context, windows, early)
        if self._early is not None:
            self.hidden = {**self.hidden, EARLY: self._early}
        self._windows = windows
        self._time_kind: Any = None  # the type of timestamps in arrays
        self._kernel = compile_kernel(aggregators, debug=context.debug, workers=len(context.workers))
        self._admit = admission_of(context)
        self._merges = merges and len(context.workers) > 1 and not context.debug
        self._arrays = Arrays(self, self.begin_arrays, self.resume)
        self._is_taken = False

    # Batches of columns are added to arrays, at once: no record is in a window that an epoch before it closes, since
    # it would be late. The epochs then close windows of the arrays. Lateness, results and order stay the same.

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records to their windows, and emit the results of the windows that the epochs close."""
        self._is_taken = self._arrays.take(batch, self._add_columns) is not None
        return super().process(batch)

    def _take(self, batch: Batch, start: int, stop: int) -> None:
        if not self._is_taken:
            super()._take(batch, start, stop)

    def begin_arrays(self) -> PaneArrays | None:
        """Return arrays that begin as a copy of the state; None while former workers have epochs of their own."""
        from malflow.columns.aggregates.panes import PaneArrays  # noqa: PLC0415 - only the extra has it

        if self._early is not None or self.allows_late or self._until is not None:
            raise Unfit("early and revised results are made record by record")
        if self.reached.floors is not None or (self._windows.is_plain and self._has_closed(self.reached.epoch)):
            return None
        kernel, admit, tracked = self._kernel, self._admit, self.context.tracked
        return PaneArrays(
            self.state,
            kernel.aggregators,
            kernel.slots,
            merges=self._windows.span,
            admit=admit,
            tracked=tracked,
            on_renumber=self.forget_cells,
        )

    def forget_cells(self) -> None:
        """Forget cells of arrays that were kept: there are none."""

    def _add_columns(self, arrays: PaneArrays, batch: Batch) -> bool:
        from malflow.columns.aggregates.pane_times import check_times, numbers_in, pane_numbers, window_times  # noqa: PLC0415 - as above

        times = window_times(batch.timestamps)
        if self._time_kind not in (None, times.kind):
            raise Unfit("the type of its timestamps has changed")
        first = next((position for position, _ in batch.epochs if position), len(batch))
        low = times[int(numbers_in(times)[:first].argmin())]
        try:
            panes = self._fitted() or fitted(self._unfitted, low)
            if type(low) not in self._kinds:
                self._check_kinds(panes, low)
        except TypeError as error:
            raise Unfit("its timestamps do not fit its windows") from error
        numbers = pane_numbers(panes, times)
        check_times(panes, numbers, batch.epochs, self.reached.epoch)
        self.add_columns(arrays, batch, times, numbers)
        if self._panes is None:
            self._fit(low)
        self._time_kind = times.kind
        return True

    def add_columns(self, arrays: PaneArrays, batch: Batch, times: Any, numbers: Any) -> None:
        """Add records to arrays; their timestamps and the numbers of their panes are arrays too."""
        arrays.add(batch, times, numbers)

    @property
    def held_panes(self) -> Mapping[int, Any]:
        """The states of all panes, by number; in arrays while there are any."""
        return self.state.panes if self._arrays.held is None else self._arrays.held

    def drop_pane(self, number: int) -> None:
        """Drop a pane."""
        (self.state if self._arrays.held is None else self._arrays.held).drop(number)

    def new_outputs(self) -> Sequence[Results]:
        """Return empty collections of results."""
        arrays = self._arrays.held
        if arrays is None or arrays.outcomes is None:
            return super().new_outputs()
        from malflow.columns.aggregates.window_frames import WindowFrames  # noqa: PLC0415 - as above

        return (WindowFrames(arrays, arrays.outcomes, self._time_kind),)  # type: ignore[return-value] # a kind of it

    def sync_state(self) -> None:
        """Write the arrays to the state."""
        if self._arrays.held is not None:
            self._arrays.held.sync()

    def look(self, keys: Iterable[Any] | None, limit: int) -> PanedState:
        """Return the state, or a copy of a part of it."""
        arrays = self._arrays.held
        if arrays is None:
            return self.state
        found = PanedState()
        for number, states in arrays.look(keys, limit).items():
            found.pane(number).update(states)
        return found

    def resume(self) -> None:
        """Look up the pane of the next records again."""
        self._arrays.drop()
        super().resume()

    def add(self, number: int, run: Batch) -> None:
        """Add records to a pane."""
        if not self._merges or not has_accumulated(run.values):
            self._add_records(number, run)
            return
        for are_accumulated, part in runs_of(run):
            if not are_accumulated:
                self._add_records(number, part)
                continue
            try:
                merge_into(self.state.pane(number), part, self._kernel.merge, self._admit)
            except Exception as error:
                raise self._unmerged_part(error, self.state.pane(number), part) from error
            self.state.touch(number, part.key_column())

    def _add_records(self, number: int, run: Batch) -> None:
        states = self.state.pane(number)
        records, rest = self._kernel.begin(run.values)
        try:
            self._kernel.add(states, run.key_column(), records, run.timestamps, self._admit)
        except failures() as error:
            raise self.fail(error, run, rest) from error
        self.state.touch(number, run.key_column())
        if self._early is not None:
            self._early.note(number, run.key_column())

    def advance(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over, and add early results that are due."""
        self.close_windows(panes, epoch, results)
        if self._early is None or epoch is MAX:
            return
        for first, keys, instant in self._early.due(panes, self.reached.epoch, epoch):
            self.emit(panes, first, self.accumulated(first, keys), Timing.EARLY, results, instant)

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the last instant of the first open pane, or the first at which early results are due."""
        last = super().horizon(panes, epoch)
        if self.allows_late:  # a record may be too late by any epoch, so the order of records and epochs matters
            return None
        return last if self._early is None else min(last, self._early.horizon(panes, epoch))

    def accumulated(self, first: int, keys: Iterable[Any]) -> Mapping[Any, Any]:
        """Return the accumulators of some keys in the window that begins with a pane."""
        states = self.state.panes[first]
        return {key: states[key] for key in keys}

    def _has_closed(self, epoch: Any) -> bool:
        panes = self._fitted()
        if panes is None or epoch is None:
            return False
        return any(panes.last(number) <= epoch for number in self.state.panes)

    def close_windows(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over at an epoch, and add their results."""
        before, until = self.reached.epoch, self._until
        held = self.held_panes
        for number in sorted(held):
            last = panes.last(number)
            if epoch is not MAX and last > epoch:
                break
            if before is None or last > before:  # an earlier program may have kept closed windows
                timing = Timing.END if epoch is MAX else Timing.FINAL
                self.emit(panes, number, self.not_closed(last, held[number]), timing, results)
            if until is None or epoch is MAX or last + until <= epoch:
                self.drop_pane(number)

    def not_closed(self, last: Any, states: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return the states without the keys of a former worker that had already closed the window.

        Args:
            last: the last instant of the window.
            states: the states by key.
        """
        floors = self.reached.floors
        return states if floors is None else {key: state for key, state in states.items() if floors[key] < last}

    def add_late(self, panes: Panes, number: int, epoch: Any, run: Batch) -> None:
        """Add records to a closed window that is kept, with a revised result for each; reject others."""
        last = panes.last(number)
        if not isinstance(self.reached, KeptWindows) or self.reached.is_dropped(last, epoch):
            self.refuse(run)
            return
        states = self.state.pane(number)
        records, rest = self._kernel.begin(run.values)
        try:
            values = self._kernel.each(states, run.key_column(), records, run.timestamps, self._admit)
        except failures() as error:
            raise self.fail(error, run, rest) from error
        self.state.touch(number, run.key_column())
        start, stop = shown_in_zone(panes, panes.start(number)), shown_in_zone(panes, panes.start(number + 1))
        self.revised.add(
            run.key_column(), map(WindowResult, repeat(start), repeat(stop), values, repeat(Timing.LATE)), last
        )

    def emit(
        self,
        panes: Panes,
        first: int,
        states: Mapping[Any, Any],
        timing: Timing,
        results: Results,
        timestamp: Any = None,
        span: int | None = None,
    ) -> None:
        """Add the results of the windows with `first` as first pane.

        Args:
            panes: the panes.
            first: the number of the windows' first pane.
            states: the accumulators by key.
            timing: the timing of the results.
            results: receives them.
            timestamp: their timestamp; by default the last instant of the windows.
            span: how many panes they have; by default as many as all windows.
        """
        if timing is not Timing.EARLY and self._early is not None:
            self._early.close(first)
        end = first + (span or self._windows.span)
        stamp = panes.last(end - 1) if timestamp is None else timestamp
        arrays = self._arrays.held
        if arrays is None:
            results.add(states, self._results(panes, (first, end), states, repeat(timing)), stamp)
        elif states:
            self._emit_cells(arrays, panes, (first, end), states, timing, results, stamp)

    def _emit_cells(
        self,
        arrays: PaneArrays,
        panes: Panes,
        ends: tuple[int, int],
        cells: Any,
        timing: Timing,
        results: Any,
        stamp: Any,
    ) -> None:
        """Add the results of windows in arrays, as columns if they can be."""
        if arrays.outcomes is None:
            states = arrays.objects(cells)
            results.add(states, self._results(panes, ends, states, repeat(timing)), stamp)
        else:
            bounds = panes.start(ends[0]), panes.start(ends[1])
            results.add_window(bounds, stamp, timing, cells)

    def _results(
        self, panes: Panes, ends: tuple[int, int], states: Mapping[Any, Any], timings: Iterable[Timing]
    ) -> Iterator[WindowResult[Any, Any]]:
        """Return the results of the window of each key from one pane up to, and without, another."""
        start, stop = (shown_in_zone(panes, panes.start(number)) for number in ends)
        try:
            values = self._kernel.results(states.values())
        except Exception as error:
            raise self._unfinished(
                error, states, f"the window from {short_repr(start)} to {short_repr(stop)}"
            ) from error
        return map(WindowResult, repeat(start), repeat(stop), values, timings)

    def results_so_far(self) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Yield each key with its results of windows that are open, or closed and kept, in order of time.

        The timing of a window is `Timing.EARLY` if it is open for its key, and else `Timing.FINAL`.

        Raises:
            OperatorError: if a user's function fails, naming the key.
        """
        panes = self._fitted()
        for number in () if panes is None else sorted(self.state.panes):
            yield from self._so_far(panes, number, self.state.panes[number])

    def _so_far(
        self, panes: Any, first: int, states: Mapping[Any, Any], span: int | None = None
    ) -> Iterator[tuple[Any, WindowResult[Any, Any]]]:
        """Pair the keys with the results of their windows with `first` as first pane."""
        end = first + (span or self._windows.span)
        last = panes.last(end - 1)
        is_over = self.reached.epoch is not None and last <= self.reached.epoch
        still_open = () if is_over else self.not_closed(last, states)
        timings = (Timing.EARLY if key in still_open else Timing.FINAL for key in states)
        return zip(states, self._results(panes, (first, end), states, timings), strict=False)

    def merge(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        """Merge the accumulators of each key, with `one` first; a key that only one side has keeps its own.

        Raises:
            OperatorError: if a user's function fails, naming the key.
        """
        try:
            return self._kernel.merge_by_key(one, other)
        except Exception as error:
            raise self._unmerged(error, one, other) from error

    def _unmerged(self, error: Exception, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> Exception:
        """Return the error of the first key with accumulators that can't be merged."""
        for key in [key for key in other if key in one]:
            try:
                self._kernel.merge(one[key], other[key])
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                return self.error(own, about=f"merging accumulators of key {short_repr(key)}")
        return self.error(error)

    def _unmerged_part(self, error: Exception, states: Mapping[Any, Any], part: Batch) -> Exception:
        """Return the error of the first key that is not admitted, or has an accumulator that can't be merged."""
        for key, value in zip(part.key_column(), part.values, strict=True):
            try:
                if key not in states and self._admit is not None:
                    self._admit(key)
                self._kernel.merge(states.get(key, value[0]), value[0])
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                return self.error(own, about=f"merging accumulators of key {short_repr(key)}")
        return self.error(error)

    def _unfinished(self, error: Exception, states: Mapping[Any, Any], window: str) -> Exception:
        """Return the error of the first key with a result that fails."""
        for key, state in states.items():
            try:
                self._kernel.result(state)
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                return self.error(own, about=f"the result of key {short_repr(key)}, {window}")
        return self.error(error, about=window)
