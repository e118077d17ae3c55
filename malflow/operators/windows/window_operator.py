"""The bases of operators with time windows and panes: epochs close them, late records are rejected or update them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from malflow.errors import OperatorError
from malflow.event_time.panes import Panes, fitted, horizon
from malflow.message import MAX
from malflow.operators.columns import Results
from malflow.operators.contract import Operator, OperatorContext
from malflow.operators.epochs.frontiers import KEPT, REACHED, UNTIL, ReachedEpoch
from malflow.operators.waiting import Waiting
from malflow.records.batch import Batch
from malflow.states.keyed import Delta
from malflow.states.paned import PanedState
from malflow.words import short_repr

__all__ = [
    "KeptWindows",
    "PanedOperator",
    "WindowOperator",
]

_epoch = itemgetter(1)


class WindowOperator(Operator):
    """An operator that adds records to time windows. Epochs close them.

    A batch is cut only at the epochs that may close a window: those at or above the horizon.

    Args:
        context: the operator's context.
        panes: a partition of time, for the same types of timestamps as the windows.
        late: whether it also receives late records. Records of closed windows then have their own output, in addition
            to one for revised results.
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
        self._horizon: Any = None  # no epoch below it closes a window; None: unknown

    def _keep(self, reached: ReachedEpoch) -> None:
        """Set the keeper of the last epoch."""
        self.reached = reached
        self.reached.on_apply = self.resume
        self.hidden = {REACHED: reached}

    def take(self, panes: Panes, run: Batch, low: Any, high: Any) -> None:
        """Add records to their windows; `low` and `high` are the least and the greatest of their timestamps."""
        raise NotImplementedError

    def advance(self, panes: Panes, epoch: Any, results: Results) -> None:
        """Close the windows that are over at an epoch (may be `MAX`), and add their results."""
        raise NotImplementedError

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the least epoch after the given one that may close a window."""
        raise NotImplementedError

    def new_outputs(self) -> Sequence[Results]:
        """Return empty collections of results, the first of which is passed to `advance`."""
        if not self.allows_late:
            return (Results(),)
        self.revised, self.too_late = Results(), Results()
        return Results(), self.revised, self.too_late

    def resume(self) -> None:
        """Drop data derived from the state and the epoch, after another one was applied."""
        self._horizon = None

    def set_idle_inputs(self, edges: Sequence[int]) -> None:
        """Set whether any records arrive."""
        self.reached.idle = min(edges)

    def process(self, batch: Batch) -> Sequence[Batch]:
        """Add the records to their windows, and emit the results of the windows that the epochs close."""
        outputs = self.new_outputs()
        results = outputs[0]
        epochs, at, done = batch.epochs, 0, 0
        passed: Sequence[tuple[int, Any]] = ()
        while at < len(epochs):
            closing = at if self._horizon is None else bisect_left(epochs, self._horizon, at, key=_epoch)
            passed = epochs[at:closing]
            if closing == len(epochs):
                break
            position, epoch = epochs[closing]
            self._take(batch, done, position)
            done = position
            _mark(outputs, passed)
            self._reach(epoch, results)
            _mark(outputs, ((position, epoch),))
            at, passed = closing + 1, ()
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
        """Return a hint for a window with bounds outside the range of the timestamps, else the error."""
        if not isinstance(error, OverflowError):
            return error
        return f"a window would begin or end out of Python's range of times ({error}); filter such records"

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
        """Return the error of the first record with a timestamp in no pane."""
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
        """Route records of closed windows.

        Raises:
            OperatorError: if no late records are allowed.
        """
        if self.allows_late:
            self.too_late.add_each(run.key_column(), run.values, run.timestamps)
            return
        raise self.error(
            f"the record is late: epoch {short_repr(self.reached.epoch)} has already closed its window. An upstream "
            "operator emitted it with an older timestamp; call .assign_timestamps() and .generate_epochs() after that "
            "operator",
            next(iter(zip(run.key_column(), run.values, run.timestamps, strict=True))),
        )


def _mark(outputs: Iterable[Results], epochs: Sequence[tuple[int, Any]]) -> None:
    for output in outputs:
        output.mark(epochs)


class PanedOperator(WindowOperator):
    """An operator that adds each record to a pane, and closes panes at epochs.

    The first pane to close is the one that contains the instant after the last epoch, even if it has no records: an
    epoch before its last instant closes nothing.

    Attributes:
        kept: the name of its panes for users.

    Args:
        context: the operator's context.
        panes: the partition of time.
        late: whether it also receives late records.
    """

    state: PanedState
    kept = "windows"

    def __init__(self, context: OperatorContext, panes: Any, *, late: bool = False) -> None:
        super().__init__(context, panes, late=late)
        self.state = PanedState(tracked=context.tracked)
        self._bounds: tuple[Any, Any] | None = None  # the start of the last records' pane, and of the next one
        self._number = 0

    def waiting(self) -> Waiting | None:
        """Return the number of open windows or, if they overlap, panes; and the last instant of the first."""
        panes, held, epoch = self._fitted(), self.held_panes, self.reached.epoch
        if panes is None or not held:
            return None
        ends = [panes.last(number) for number in held]
        return Waiting(self.kept, len(held), min((end for end in ends if epoch is None or end > epoch), default=None))

    def held(self) -> Waiting | None:
        """Return the number of open windows or panes, without closed ones that are kept for late records."""
        panes, epoch = self._fitted(), self.reached.epoch
        if panes is None:
            return None
        count = sum(epoch is None or self.last_instant(panes, number) > epoch for number in self.held_panes)
        return Waiting(self.kept, count) if count else None

    @property
    def held_panes(self) -> Mapping[int, Any]:
        """The states of all panes, by number."""
        return self.state.panes

    def drop_pane(self, number: int) -> None:
        """Drop a pane."""
        self.state.drop(number)

    def last_instant(self, panes: Panes, number: int) -> Any:
        """Return the last instant of the last window that contains a pane."""
        return panes.last(number)

    def resume(self) -> None:
        """Look up the pane of the next records again."""
        super().resume()
        self._bounds = None

    def add(self, number: int, run: Batch) -> None:
        """Add records to an open pane."""
        raise NotImplementedError

    def add_late(self, panes: Panes, number: int, epoch: Any, run: Batch) -> None:
        """Add or reject records of a pane that `epoch` has closed; by default, reject them."""
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
        """Add or reject records of closed panes, in order; return the others.

        After a rescale, a pane may be closed only for the keys of one former worker.
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
        return horizon(panes, epoch)

    def _enter(self, panes: Panes, number: int, run: Batch) -> bool:
        """Make a pane with the next records in `run` the current one; return whether it is open."""
        epoch = self.reached.epoch
        if epoch is not None and panes.last(number) <= epoch:
            self.add_late(panes, number, epoch, run)
            return False
        self._number = number
        self._bounds = (panes.start(number), panes.start(number + 1))
        return True

    def _take_several(self, panes: Panes, run: Batch) -> None:
        """Add records of several panes, in order within each pane."""
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


class KeptWindows(ReachedEpoch):
    """The epoch of windows that are kept for a span after they have closed.

    A program that resumes with a longer span lacks the windows that the shorter one has dropped. Late records of these
    are too late, since a revised result would consist of them alone. So the state has the span, and shorter former
    spans with the epochs that they had reached.

    Args:
        context: the operator's context.
        until: the span.
        has_closed: whether any windows have been closed by an epoch.
    """

    def __init__(self, context: OperatorContext, until: Any, has_closed: Callable[[Any], bool]) -> None:
        super().__init__(context)
        self._until = until
        self._has_closed = has_closed
        self._shorter: tuple[tuple[Any, Any], ...] = ()
        self._restored: Any = None

    def is_dropped(self, last: Any, epoch: Any) -> bool:
        """Whether a closed window is no longer kept.

        Args:
            last: its last instant.
            epoch: the epoch that its key has reached.
        """
        self._compare_spans()
        return bool(last + self._until <= epoch) or any(
            (last if until is None else last + until) <= reached for until, reached in self._shorter
        )

    def spans(self) -> Mapping[str, Any]:
        """Return the span, and the shorter former spans that still matter."""
        self._compare_spans()
        self._shorter = tuple(it for it in self._shorter if not self._is_made_up_for(*it))
        return {UNTIL: self._until, KEPT: self._shorter or None}

    def apply(self, delta: Delta) -> None:
        """Restore an epoch; the windows may be applied later."""
        super().apply(delta)
        self._shorter = self.state.get(KEPT) or ()
        reached = [self.epoch, *(() if self.floors is None else self.floors.epochs)]
        self._restored = max((epoch for epoch in reached if epoch is not None), default=None)

    def _compare_spans(self) -> None:
        """Detect that a shorter span has dropped windows, once everything is restored."""
        reached, self._restored = self._restored, None
        if reached is None:
            return
        before = self.state.get(UNTIL)
        if before is None and not self._shorter and self._has_closed(reached):  # from a snapshot without spans
            return
        if before is None or before < self._until:
            self._shorter = (*self._shorter, (before, reached))

    def _is_made_up_for(self, until: Any, reached: Any) -> bool:
        """Whether the current span has dropped all windows that a shorter one had dropped."""
        try:
            return self.epoch is not None and bool(
                reached + self._until <= (self.epoch if until is None else self.epoch + until)
            )
        except OverflowError:  # at the end of the calendar
            return False
