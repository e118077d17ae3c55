"""Windows of event time: records are added to panes, and an epoch closes those that are over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

from malflow.aggregators.contract import Aggregator
from malflow.aggregators.fuse import compile_kernel
from malflow.diagnostics import short_repr
from malflow.errors import OperatorError
from malflow.event_time.panes import Panes, fitted, shown_in_zone
from malflow.message import MAX
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.reached_epoch import REACHED, ReachedEpoch
from malflow.operators.key_checks import admission_of
from malflow.operators.waiting import Waiting
from malflow.operators.windows.early import EARLY, EarlyResults
from malflow.operators.windows.kept_windows import KeptWindows
from malflow.records.batch import Batch
from malflow.states.paned import PanedState
from malflow.windows import TimeWindows, Timing, WindowResult

__all__ = ["PanedOperator", "Results", "WindowAggregate", "WindowOperator"]


class Results:
    """The results of a batch, as columns, and the epochs between them."""

    __slots__ = ("epochs", "keys", "timestamps", "values")

    def __init__(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[Any] = []
        self.epochs: list[tuple[int, Any]] = []

    def add(self, keys: Iterable[Any], values: Iterable[Any], timestamp: Any) -> None:
        """Append results with one timestamp."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(repeat(timestamp, len(self.values) - len(self.timestamps)))

    def add_each(self, keys: Iterable[Any], values: Iterable[Any], timestamps: Iterable[Any]) -> None:
        """Append results."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(timestamps)

    def mark(self, epochs: Iterable[tuple[int, Any]]) -> None:
        """Append epochs after the results so far."""
        at = len(self.keys)
        self.epochs.extend([(at, epoch) for _, epoch in epochs])

    def batch(self) -> Batch:
        """Return all of it as one batch."""
        return Batch(self.keys, self.values, self.timestamps, self.epochs)


class WindowOperator(Operator):
    """An operator that adds records to windows of event time, and lets epochs close them.

    A batch is cut only at the epochs that may close a window: those at or above the horizon.

    Args:
        context: what every operator gets.
        panes: a partition of time, which fits the same types of timestamps as the windows.
        late: whether late records come, too: those whose windows are closed then go to an output of their own, beside
            one for revised results.
    """

    def __init__(self, context: OperatorContext, panes: Any, *, late: bool = False) -> None:
        super().__init__(context)
        self.allows_late = late
        self.revised = Results()
        self.too_late = Results()
        self._keep(ReachedEpoch(context))
        self._unfitted = panes
        self._panes: Panes | None = None
        self._kinds: set[type] = set()
        self._horizon: Any = None  # no epoch below it closes a window; None: not known

    def _keep(self, reached: ReachedEpoch) -> None:
        """Set what keeps the last epoch."""
        self.reached = reached
        self.reached.on_apply = self.resume
        self.hidden = {REACHED: reached}

    def take(self, panes: Panes, run: Batch, low: Any, high: Any) -> None:
        """Add records to their windows; `low` and `high` are the least and the greatest of their timestamps."""
        raise NotImplementedError

    def advance(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over at an epoch, which may be `MAX`, and add their results."""
        raise NotImplementedError

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the least epoch that may close a window, after an epoch."""
        raise NotImplementedError

    def new_outputs(self) -> Sequence[Results]:
        """Return where the results of a batch go: its first part is passed to `advance`."""
        if not self.allows_late:
            return (Results(),)
        self.revised, self.too_late = Results(), Results()
        return Results(), self.revised, self.too_late

    def resume(self) -> None:
        """Drop what was derived from the state and the epoch: others were applied, of either or of both."""
        self._horizon = None

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records arrive."""
        self.reached.idle = min(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records to their windows, and emit the results of the windows that the epochs close."""
        outputs = self.new_outputs()
        results = outputs[0]
        passed: list[tuple[int, Any]] = []
        done = 0
        for position, epoch in batch.epochs:
            if epoch is not MAX and self._horizon is not None and epoch < self._horizon:
                passed.append((position, epoch))
                continue
            self._take(batch, done, position)
            done = position
            _mark(outputs, passed)
            passed.clear()
            self._reach(epoch, results)
            _mark(outputs, ((position, epoch),))
        self._take(batch, done, len(batch))
        if passed:
            self.reached.advance(passed[-1][1])
            _mark(outputs, passed)
        return [output.batch() for output in outputs]

    def _reach(self, epoch: Any, results: Results) -> None:
        try:
            self._advance(epoch, results)
        except OperatorError:
            raise
        except Exception as error:
            raise self.error(self._beyond(error), about=f"epoch {short_repr(epoch)}") from error

    def _beyond(self, error: Exception) -> Exception | str:
        """Return the advice for a window whose bounds the type of the timestamps does not have, else the error."""
        if not isinstance(error, OverflowError):
            return error
        return f"a window would begin or end beyond the times that Python has ({error}); filter such records"

    def _advance(self, epoch: Any, results: Results) -> None:
        panes = self._fitted()
        if panes is None:  # there was no record yet
            self.reached.advance(epoch)
            return
        self.advance(panes, epoch, results)
        self.reached.advance(epoch)
        if epoch is not MAX:
            self._horizon = self.horizon(panes, epoch)

    def _fitted(self) -> Panes | None:
        if self._panes is None and self.reached.like is not None:
            self._panes = fitted(self._unfitted, self.reached.like)
        return self._panes

    def _take(self, batch: Batch, start: int, stop: int) -> None:
        """Add some of a batch's records to their windows."""
        if start == stop:
            return
        run = batch if stop - start == len(batch) else batch.part(start, stop)
        try:
            low, high = min(run.timestamps), max(run.timestamps)
            panes = self._fitted() or self._fit(low)
            if not (type(low) in self._kinds and type(high) in self._kinds):
                self._check_kinds(panes, low, high)
            self.take(panes, run, low, high)
        except OperatorError:
            raise
        except Exception as error:
            raise self._misfit(error, run) from error

    def _fit(self, timestamp: Any) -> Panes:
        self._panes = fitted(self._unfitted, timestamp)
        self.reached.like = timestamp
        return self._panes

    def _check_kinds(self, panes: Panes, *timestamps: Any) -> None:
        """Check that the panes fit the types of timestamps.

        Raises:
            TypeError: if they don't.
        """
        for timestamp in timestamps:
            if fitted(self._unfitted, timestamp) != panes:
                like = self.reached.like
                raise TypeError(
                    f"its timestamp {short_repr(timestamp)} is of type {type(timestamp).__name__}, and the first one, "
                    f"{short_repr(like)}, is of type {type(like).__name__}; set timestamps of one type by "
                    ".assign_timestamps()"
                )
            self._kinds.add(type(timestamp))

    def _misfit(self, error: Exception, run: Batch) -> Exception:
        """Return the error of the first record whose timestamp is in no pane."""
        panes = self._panes
        for key, value, timestamp in zip(run.key_column(), run.values, run.timestamps, strict=True):
            try:
                if panes is None:
                    fitted(self._unfitted, timestamp)
                else:
                    self._check_kinds(panes, timestamp)
                    number = panes.number(timestamp)
                    _ = panes.start(number), panes.start(number + 1)
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the record's
                return self.error(self._beyond(own), (key, value, timestamp))
        return self.error(error)

    def refuse(self, run: Batch) -> None:
        """Route records whose windows are closed.

        Raises:
            OperatorError: if no late records are allowed.
        """
        if self.allows_late:
            self.too_late.add_each(run.key_column(), run.values, run.timestamps)
            return
        raise self.error(
            f"its window closed at epoch {short_repr(self.reached.epoch)}, which the record is behind: an operator "
            "before "
            "this one sent it with a timestamp that is too old, or gave it another one; call .assign_timestamps() and "
            ".generate_epochs() behind that operator",
            next(iter(zip(run.key_column(), run.values, run.timestamps, strict=True))),
        )


def _mark(outputs: Iterable[Results], epochs: Sequence[tuple[int, Any]]) -> None:
    for output in outputs:
        output.mark(epochs)


class PanedOperator(WindowOperator):
    """An operator that adds each record to a pane of time, and lets epochs close panes.

    The first pane to close is the one that contains the instant after the last epoch, whether it exists or not: an
    epoch below its last instant passes.

    Attributes:
        kept: what its panes are to users.

    Args:
        context: what every operator gets.
        panes: the partition of time.
        late: whether late records come, too.
    """

    state: PanedState
    kept = "windows"

    def __init__(self, context: OperatorContext, panes: Any, *, late: bool = False) -> None:
        super().__init__(context, panes, late=late)
        self.state = PanedState(tracked=context.tracked)
        self._bounds: tuple[Any, Any] | None = None  # of the pane of the last records: its start, and the next one's
        self._number = 0

    def waiting(self) -> Waiting | None:
        """Return how many windows are open, or, if they overlap, their panes; and the last instant of the first."""
        panes, held, epoch = self._fitted(), self.state.panes, self.reached.epoch
        if panes is None or not held:
            return None
        ends = [panes.last(number) for number in held]
        return Waiting(self.kept, len(held), min((end for end in ends if epoch is None or end > epoch), default=None))

    def held(self) -> Waiting | None:
        """Return how many windows, or panes of these, are open; closed ones that are kept for late records are not."""
        panes, epoch = self._fitted(), self.reached.epoch
        if panes is None:
            return None
        count = sum(epoch is None or self.last_instant(panes, number) > epoch for number in self.state.panes)
        return Waiting(self.kept, count) if count else None

    def last_instant(self, panes: Panes, number: int) -> Any:
        """Return the last instant of the last window that has a pane."""
        return panes.last(number)

    def resume(self) -> None:
        """Look up the pane of the next records anew."""
        super().resume()
        self._bounds = None

    def add(self, number: int, run: Batch) -> None:
        """Add records to an open pane."""
        raise NotImplementedError

    def add_late(self, panes: Panes, number: int, epoch: Any, run: Batch) -> None:
        """Add or refuse records of a pane that is closed, since `epoch` has come; by default, refuse them."""
        self.refuse(run)

    def take(self, panes: Panes, run: Batch, low: Any, high: Any) -> None:
        """Add records to their panes."""
        if self.allows_late and self._may_be_closed(low):
            run = self._take_late(panes, run)
            if not len(run):
                return
            low, high = min(run.timestamps), max(run.timestamps)
        bounds = self._bounds
        if bounds is None or not (bounds[0] <= low and high < bounds[1]):
            number = panes.number(low)
            if number != panes.number(high):
                self._take_several(panes, run)
                return
            if not self._enter(panes, number, run):
                return
        self.add(self._number, run)

    def _may_be_closed(self, timestamp: Any) -> bool:
        epoch = self.reached.epoch
        return self.reached.floors is not None or (epoch is not None and timestamp <= epoch)

    def _take_late(self, panes: Panes, run: Batch) -> Batch:
        """Add or refuse records of closed panes, in their order; return the others.

        After a change of the number of workers, a pane may be closed for the keys of one former worker only.
        """
        epoch, floors = self.reached.epoch, self.reached.floors
        kept = []
        for index, (key, timestamp) in enumerate(zip(run.key_column(), run.timestamps, strict=True)):
            number = panes.number(timestamp)
            closed = epoch if floors is None else floors[key] if epoch is None else max(epoch, floors[key])
            if panes.last(number) <= closed:
                self.add_late(panes, number, closed, run.part(index, index + 1))
            else:
                kept.append(index)
        return run.take(kept)

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the last instant of the first open pane."""
        self._bounds = None
        number = panes.number(epoch)
        return panes.last(number + 1 if panes.last(number) <= epoch else number)

    def _enter(self, panes: Panes, number: int, run: Batch) -> bool:
        """Make a pane the present one, of which `run` has the next records; return whether it is open."""
        epoch = self.reached.epoch
        if epoch is not None and panes.last(number) <= epoch:
            self.add_late(panes, number, epoch, run)
            return False
        self._number = number
        self._bounds = (panes.start(number), panes.start(number + 1))
        return True

    def _take_several(self, panes: Panes, run: Batch) -> None:
        """Add records of several panes; in each pane in their order."""
        rows: dict[int, list[int]] = {}
        low = high = None
        append = None
        for index, timestamp in enumerate(run.timestamps):
            if append is None or not low <= timestamp < high:
                number = panes.number(timestamp)
                low, high = panes.start(number), panes.start(number + 1)
                append = rows.setdefault(number, []).append
            append(index)
        for number, indices in rows.items():
            part = run.take(indices)
            if self._enter(panes, number, part):
                self.add(number, part)


class WindowAggregate(PanedOperator):
    """Aggregate the records of each key in each window; each pane is a window.

    Args:
        context: what every operator gets.
        windows: the windows.
        aggregators: the aggregators of each window's records.
        early: the distance between early results of a window; None for none.
        late: whether late records come, too.
        until: for how long closed windows are kept, so that late records revise their results.
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
    ) -> None:
        super().__init__(context, windows.panes, late=late)
        self._until = until or None
        if self._until is not None:
            self._keep(KeptWindows(context, self._until, self._has_closed))
        self._early = None if early is None else EarlyResults(context, windows, early)
        if self._early is not None:
            self.hidden = {**self.hidden, EARLY: self._early}
        self._windows = windows
        self._kernel = compile_kernel(aggregators, debug=context.debug)
        self._admit = admission_of(context)

    def add(self, number: int, run: Batch) -> None:
        """Add records to a pane."""
        states = self.state.pane(number)
        records, rest = self._kernel.begin(run.values)
        try:
            self._kernel.add(states, run.key_column(), records, run.timestamps, self._admit)
        except Exception as error:
            raise self.fail(error, run, rest) from error
        self.state.touch(number, run.key_column())
        if self._early is not None:
            self._early.note(number, run.key_column())

    def advance(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over, and add the results that are due early."""
        self.close_windows(panes, epoch, results)
        if self._early is None or epoch is MAX:
            return
        for first, keys, instant in self._early.due(panes, self.reached.epoch, epoch):
            self.emit(panes, first, self.accumulated(first, keys), Timing.EARLY, results, instant)

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the last instant of the first open pane, or the first at which results are due early."""
        last = super().horizon(panes, epoch)
        if self.allows_late:  # each epoch may be the one by which a record is too late, and stands before or after it
            return None
        return last if self._early is None else min(last, self._early.horizon(panes, epoch))

    def accumulated(self, first: int, keys: Iterable[Any]) -> Mapping[Any, Any]:
        """Return the accumulators of some keys in the window that begins with a pane."""
        states = self.state.panes[first]
        return {key: states[key] for key in keys}

    def _has_closed(self, epoch: Any) -> bool:
        panes = self._fitted()
        return panes is not None and any(panes.last(number) <= epoch for number in self.state.panes)

    def close_windows(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over at an epoch, and add their results."""
        before, until = self.reached.epoch, self._until
        for number in sorted(self.state.panes):
            last = panes.last(number)
            if epoch is not MAX and last > epoch:
                break
            if before is None or last > before:  # a program before may have kept closed windows
                timing = Timing.END if epoch is MAX else Timing.FINAL
                self.emit(panes, number, self.not_closed(last, self.state.panes[number]), timing, results)
            if until is None or epoch is MAX or last + until <= epoch:
                self.state.drop(number)

    def not_closed(self, last: Any, states: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """Return the states without those of keys whose window was closed already, by the worker they were on.

        Args:
            last: the last instant of the window.
            states: the states by key.
        """
        floors = self.reached.floors
        return states if floors is None else {key: state for key, state in states.items() if floors[key] < last}

    def add_late(self, panes: Panes, number: int, epoch: Any, run: Batch) -> None:
        """Add records to a window that is closed, if it is kept, with a revised result for each; refuse others."""
        last = panes.last(number)
        if not isinstance(self.reached, KeptWindows) or self.reached.is_dropped(last, epoch):
            self.refuse(run)
            return
        states = self.state.pane(number)
        records, rest = self._kernel.begin(run.values)
        try:
            values = self._kernel.each(states, run.key_column(), records, run.timestamps, self._admit)
        except Exception as error:
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
    ) -> None:
        """Add the results of the windows whose first pane is `first`.

        Args:
            panes: the panes.
            first: the number of the windows' first pane.
            states: the accumulators by key.
            timing: when the results are made.
            results: where to add them.
            timestamp: their timestamp; by default the last instant of the windows.
        """
        end = first + self._windows.span
        if timing is not Timing.EARLY and self._early is not None:
            self._early.close(first)
        start, stop = shown_in_zone(panes, panes.start(first)), shown_in_zone(panes, panes.start(end))
        try:
            values = self._kernel.results(states.values())
        except Exception as error:
            raise self._unfinished(
                error, states, f"the window from {short_repr(start)} to {short_repr(stop)}"
            ) from error
        made = map(WindowResult, repeat(start), repeat(stop), values, repeat(timing))
        results.add(states, made, panes.last(end - 1) if timestamp is None else timestamp)

    def merge(self, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> dict[Any, Any]:
        """Merge the accumulators of each key, those of `one` first; a key that only one side has keeps its own.

        Raises:
            OperatorError: if a user's function fails, naming the key.
        """
        try:
            return self._kernel.merge_by_key(one, other)
        except Exception as error:
            raise self._unmerged(error, one, other) from error

    def _unmerged(self, error: Exception, one: Mapping[Any, Any], other: Mapping[Any, Any]) -> Exception:
        """Return the error of the first key whose accumulators can't be merged."""
        for key in [key for key in other if key in one]:
            try:
                self._kernel.merge(one[key], other[key])
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                return self.error(own, about=f"merging accumulators of key {short_repr(key)}")
        return self.error(error)

    def _unfinished(self, error: Exception, states: Mapping[Any, Any], window: str) -> Exception:
        """Return the error of the first key whose result can't be made."""
        for key, state in states.items():
            try:
                self._kernel.result(state)
            except Exception as own:  # noqa: BLE001 - whatever it is, it is the key's
                return self.error(own, about=f"the result of key {short_repr(key)}, {window}")
        return self.error(error, about=window)
