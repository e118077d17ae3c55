"""The base of operators that add records to panes of event time, closed by epochs."""

from __future__ import annotations

from typing import Any

from malflow.event_time.panes import Panes
from malflow.operators.contract import OperatorContext
from malflow.operators.waiting import Waiting
from malflow.operators.windows.window_operator import WindowOperator
from malflow.records.batch import Batch
from malflow.states.paned import PanedState

__all__ = ["PanedOperator"]


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
        panes, held, epoch = self._fitted(), self.state.panes, self.reached.epoch
        if panes is None or not held:
            return None
        ends = [panes.last(number) for number in held]
        return Waiting(self.kept, len(held), min((end for end in ends if epoch is None or end > epoch), default=None))

    def held(self) -> Waiting | None:
        """Return the number of open windows or panes, without closed ones that are kept for late records."""
        panes, epoch = self._fitted(), self.reached.epoch
        if panes is None:
            return None
        count = sum(epoch is None or self.last_instant(panes, number) > epoch for number in self.state.panes)
        return Waiting(self.kept, count) if count else None

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
        number = panes.number(epoch)
        return panes.last(number + 1 if panes.last(number) <= epoch else number)

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
