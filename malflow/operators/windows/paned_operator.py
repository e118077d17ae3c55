"""The base of operators that add records to panes of event time, which epochs close."""

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
