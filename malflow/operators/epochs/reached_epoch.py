"""The epoch that an operator has reached, kept in a hidden state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from malflow.operators.contract import OperatorContext
from malflow.operators.epochs.floors import Floors
from malflow.states.keyed import Delta, KeyedState

__all__ = ["KEPT", "REACHED", "UNTIL", "ReachedEpoch"]

REACHED = "epoch"
"""The role of the hidden state."""

UNTIL = "until"
"""The key, in the state, of the span that closed windows are kept: see `operators.windows.kept_windows`."""

KEPT = "kept"
"""The key, in the state, of shorter former spans."""


class ReachedEpoch:
    """The last epoch that has passed an operator, restored with it.

    Attributes:
        state: the epoch, in the form that `Movement.EPOCHS` moves.
        epoch: the epoch; None before the first one.
        like: a timestamp of the records' type; None before the first record.
        idle: the idleness of the operator's input: see `malflow.engine.idle_edges.Idle`.
        on_apply: called after another epoch was applied, to drop data derived from the previous one.
        floors: after a rescale, the epochs of old workers that were ahead of this one, by key, or None.
    """

    def __init__(self, context: OperatorContext) -> None:
        self.state = KeyedState(tracked=context.tracked)
        self.epoch: Any = None
        self.like: Any = None
        self.idle = 0
        self.on_apply: Callable[[], None] | None = None
        self.floors: Floors | None = None
        self._placement = context.placement

    def advance(self, epoch: Any) -> None:
        """Set the epoch."""
        self.epoch = epoch
        if self.floors is not None and self.floors.are_passed(epoch):
            self.floors = None

    def sync_state(self) -> None:
        """Write the epoch to the state."""
        past = None if self.floors is None else self.floors.past
        self.state.assign({"epoch": self.epoch, "idle": int(self.idle) or None, "past": past, "like": self.like})
        self.state.assign(self.spans())

    def spans(self) -> Mapping[str, Any]:
        """Return the spans in the state unchanged; only `KeptWindows` adds its own."""
        until, kept = self.state.get(UNTIL), self.state.get(KEPT)
        if until is not None and self.epoch is not None:
            kept = (*(kept or ()), (until, self.epoch))
        return {UNTIL: None, KEPT: kept}

    def delta(self) -> Delta:
        """Return the changes of the state since the last call."""
        self.sync_state()
        return self.state.delta()

    def apply(self, delta: Delta) -> None:
        """Restore an epoch."""
        self.state.apply(delta)
        self.epoch, self.like = self.state.get("epoch"), self.state.get("like")
        past = self.state.get("past")
        self.floors = None if past is None or self._placement is None else Floors(self._placement, past)
        if self.on_apply is not None:
            self.on_apply()

    def forget(self) -> None:
        """Make the next delta complete."""
        self.state.forget()
