"""Early results of windows that are still open, for keys with new records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from malflow.event_time.panes import Panes, instant_after, instant_before
from malflow.operators.contract import OperatorContext
from malflow.states.keyed import Delta
from malflow.states.paned import PanedState
from malflow.windows import TimeWindows

__all__ = ["EARLY", "EarlyResults"]

EARLY = "early"
"""The role of the hidden state."""


class EarlyResults:
    """The keys of each open window that have new records since its last early result.

    Early results are due at the first epoch that reaches the last instant before a multiple of `every`, counted from
    the window's start. If an epoch passes several multiples, there is one result, for the last of them.

    Attributes:
        state: the keys by the number of the window's first pane.

    Args:
        context: the operator's context.
        windows: the windows.
        every: the distance between early results.
    """

    def __init__(self, context: OperatorContext, windows: TimeWindows, every: Any) -> None:
        self.state = PanedState(tracked=context.tracked)
        self._windows = windows
        self._every = every

    def note(self, number: int, keys: Iterable[Any]) -> None:
        """Record the keys of records that were added to a pane."""
        changed = dict.fromkeys(keys, 1)
        for first in self._firsts(number):
            self.state.pane(first).update(changed)
            self.state.touch(first, changed)

    def close(self, first: int) -> None:
        """Drop the keys of a window that is over."""
        if first in self.state.panes:
            self.state.drop(first)

    def due(self, panes: Panes, before: Any, epoch: Any) -> Iterator[tuple[int, Iterable[Any], Any]]:
        """Yield the windows with results due at an epoch, with their keys and the results' timestamp.

        Args:
            panes: the panes.
            before: the previous epoch, or None.
            epoch: the epoch.
        """
        for first in sorted(self.state.panes):
            start = panes.start(first)
            if panes.last(first + self._windows.span - 1) <= epoch:  # a late record was added to its pane
                self.close(first)
                continue
            passed = self._passed(start, epoch)
            instant = instant_before(start + passed * self._every)
            if passed > 0 and (before is None or instant > before):
                yield first, self.state.drop(first), instant

    def horizon(self, panes: Panes, epoch: Any) -> Any:
        """Return the first instant after an epoch at which results of a started window may be due."""
        number = panes.number(instant_after(epoch))
        starts = [panes.start(first) for first in self._firsts(number)] or [panes.start(number)]
        return min(instant_before(start + (self._passed(start, epoch) + 1) * self._every) for start in starts)

    def _passed(self, start: Any, epoch: Any) -> int:
        """Return the number of multiples after a start with a preceding instant that an epoch has reached."""
        now, every = instant_after(epoch), self._every
        passed = int((now - start) // every)
        while start + passed * every > now:  # with floats the product may round differently from the quotient
            passed -= 1
        while start + (passed + 1) * every <= now:
            passed += 1
        return passed

    def _firsts(self, number: int) -> Iterator[int]:
        """Yield the first panes of the windows that contain a pane."""
        step, span = self._windows.step, self._windows.span
        first = number // step * step
        while first + span > number:
            yield first
            first -= step

    def sync_state(self) -> None:
        """Do nothing: the state is always complete."""

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Restore a state."""
        self.state.apply(delta)

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()
