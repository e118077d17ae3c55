"""The positions in durable snapshots, confirmed to the readers of a run in this process."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from malflow.engine.execution import Run
from malflow.events import ConfirmationFailed
from malflow.runtime.listeners import Listeners

__all__ = ["Confirmations"]

_Positions = Mapping[str, Mapping[Any, Any]]
"""The positions of the parts whose readers confirm them, by source."""


class Confirmations:
    """Notes the positions that go into each snapshot, and confirms them once the snapshot is durable.

    Nothing is confirmed of a snapshot that has failed, or of which nobody knows whether it exists.

    Args:
        listeners: the listeners to notify of readers that fail.
    """

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners
        self._captured: list[tuple[_Positions, Future[int]]] = []
        self._confirmed: int | None = None

    def capture(self, run: Run, made: Future[int]) -> None:
        """Note the positions in a snapshot that is being written; called right after its deltas were taken."""
        positions = _positions_of(run)
        if positions:
            self._captured.append((positions, made))

    def confirm(self, run: Run) -> None:
        """Confirm the positions in the newest snapshot that has become durable; called between two ticks."""
        newest: tuple[_Positions, int] | None = None
        pending: list[tuple[_Positions, Future[int]]] = []
        for positions, made in self._captured:
            if not made.done():
                pending.append((positions, made))
            elif not made.cancelled() and made.exception() is None:
                newest = positions, made.result()
                pending.clear()  # what was captured before it is behind
        self._captured = pending
        if newest is not None and newest[1] != self._confirmed:  # otherwise nothing had changed
            self._confirmed = newest[1] if self._pass(run, newest[0]) else None

    def confirm_restored(self, run: Run) -> None:
        """Confirm the positions that a run has just been restored to; the run before may not have come to it."""
        self._pass(run, _positions_of(run))

    def _pass(self, run: Run, positions: _Positions) -> bool:
        """Confirm positions; return whether no reader failed."""
        has_passed = True
        for source in run.sources:
            name = source.context.operator_name
            for error in source.confirm(positions.get(name, {})):
                self._listeners.notify(ConfirmationFailed(run.ticks, name, error))
                has_passed = False
        return has_passed


def _positions_of(run: Run) -> _Positions:
    positions: dict[str, dict[Any, Any]] = {}
    for source in run.sources:
        if source.confirms:
            positions.setdefault(source.context.operator_name, {}).update(source.positions())
    return positions
