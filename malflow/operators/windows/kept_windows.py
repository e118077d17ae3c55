"""The closed windows that are kept for late records, and those that were dropped when the span was a shorter one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.reached_epoch import KEPT, UNTIL, ReachedEpoch
from malflow.states.keyed import Delta

__all__ = ["KeptWindows"]


class KeptWindows(ReachedEpoch):
    """The epoch that windows have reached which are kept for a span after they have closed.

    A program that resumes with a longer span does not have the windows that the shorter one has dropped. Late records
    of these are too late, since a revised result would be of them alone. So the state has the span, and shorter ones
    before it, with the epochs that they had reached.

    Args:
        context: what every operator gets.
        until: the span.
        has_closed: whether there are windows that an epoch has closed.
    """

    def __init__(self, context: OperatorContext, until: Any, has_closed: Callable[[Any], bool]) -> None:
        super().__init__(context)
        self._until = until
        self._has_closed = has_closed
        self._shorter: tuple[tuple[Any, Any], ...] = ()
        self._restored: Any = None

    def is_dropped(self, last: Any, epoch: Any) -> bool:
        """Whether a window that is closed is not kept any more.

        Args:
            last: its last instant.
            epoch: the epoch that its key has reached.
        """
        self._compare_spans()
        return bool(last + self._until <= epoch) or any(
            (last if until is None else last + until) <= reached for until, reached in self._shorter
        )

    def spans(self) -> Mapping[str, Any]:
        """Return the span, and the shorter ones that still matter."""
        self._compare_spans()
        self._shorter = tuple(it for it in self._shorter if not self._is_made_up_for(*it))
        return {UNTIL: self._until, KEPT: self._shorter or None}

    def apply(self, delta: Delta) -> None:
        """Continue from an epoch; the windows may be applied later."""
        super().apply(delta)
        self._shorter = self.state.get(KEPT) or ()
        reached = [self.epoch, *(() if self.floors is None else self.floors.epochs)]
        self._restored = max((epoch for epoch in reached if epoch is not None), default=None)

    def _compare_spans(self) -> None:
        """Note that a shorter span has dropped windows, once all that is restored is there."""
        reached, self._restored = self._restored, None
        if reached is None:
            return
        before = self.state.get(UNTIL)
        if before is None and not self._shorter and self._has_closed(reached):  # of a snapshot that has no spans yet
            return
        if before is None or before < self._until:
            self._shorter = (*self._shorter, (before, reached))

    def _is_made_up_for(self, until: Any, reached: Any) -> bool:
        """Whether the present span has by now dropped all that a shorter one had."""
        try:
            return self.epoch is not None and bool(
                reached + self._until <= (self.epoch if until is None else self.epoch + until)
            )
        except OverflowError:  # at the end of the calendar
            return False
