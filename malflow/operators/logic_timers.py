"""The timers of a logic, kept in a hidden state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from malflow.event_time.timers import Timers
from malflow.operators.contract import OperatorContext
from malflow.states.keyed import Delta, KeyedState

__all__ = ["CLOCK_TIMERS", "TIMERS", "LogicTimers"]

TIMERS = "timers"
"""The role of the hidden state with event-time timers."""

CLOCK_TIMERS = "clock-timers"
"""The role of the hidden state with tick-time timers."""

_NONE = object()


class LogicTimers:
    """The timers that a logic has set, kept in a hidden state in that order.

    Attributes:
        state: the time of each key's timer, as of the last delta.
        pending: the timers.
    """

    def __init__(self, context: OperatorContext) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self.pending = Timers()
        self._tracked = context.tracked
        self._changed: dict[Any, None] = {}  # in the order of the changes

    def set(self, key: Any, at: Any) -> None:
        """Set the timer of a key, replacing any other."""
        if self.pending.at.get(key, _NONE) != at:
            self.pending.set(key, at)
            self._note(key)

    def cancel(self, key: Any) -> None:
        """Drop the timer of a key, if it has one."""
        if key in self.pending.at:
            self.pending.cancel(key)
            self._note(key)

    def take(self, at: Any) -> list[Any]:
        """Drop the timers of one time; return their keys in the order in which the timers were set."""
        keys = self.pending.take(at)
        for key in keys:
            self._note(key)
        return keys

    def retain(self, states: KeyedState) -> None:
        """Drop the timers of keys without a state."""
        for key in [key for key in self.pending.at if key not in states]:
            self.cancel(key)

    def _note(self, key: Any) -> None:
        if self._tracked:
            self._changed.pop(key, None)
            self._changed[key] = None

    def sync_state(self) -> None:
        """Write the timers to the state."""
        at = self.pending.at
        changed: Iterable[Any] = self._changed if self._tracked else [*self.state, *at]
        self.state.touch(changed)
        for key in changed:
            self.state.pop(key, None)
            if key in at:
                self.state[key] = at[key]
        self._changed = {}

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Apply a delta to the timers."""
        self.state.apply(delta)
        if delta.whole:
            self.pending.clear()
        for key in delta.deleted:
            self.pending.cancel(key)
        for key, at in delta.changed.items():
            self.pending.set(key, at)

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()
