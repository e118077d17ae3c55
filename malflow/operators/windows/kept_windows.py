"""The closed windows that are kept for late records, and those that a shorter span has dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.reached_epoch import KEPT, UNTIL, ReachedEpoch
from malflow.states.keyed import Delta

__all__ = ["KeptWindows"]


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
