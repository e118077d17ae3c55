"""The positions in snapshots, which readers confirm to external systems once the snapshots are durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from malflow.operators.hosting.source import Source

__all__ = ["Confirmations"]


class Confirmations:
    """Remembers the positions of the readers that confirm them, at the ticks of snapshots.

    Args:
        sources: returns the operators that host the sources in this process.
    """

    def __init__(self, sources: Callable[[], Sequence[Source]]) -> None:
        self._sources = sources
        self._captured: dict[int, Mapping[str, Mapping[Any, Any]]] = {}
        self._confirmed: int | None = None

    def note(self, tick: int) -> None:
        """Record the positions in the last deltas for a tick."""
        positions: dict[str, dict[Any, Any]] = {}
        for source in self._sources():
            if source.confirms:
                positions.setdefault(source.context.operator_name, {}).update(source.positions())
        self._captured[tick] = positions

    def settle(self, tick: int, snapshot: int | None) -> Iterator[tuple[str, Exception]]:
        """Confirm the positions of a tick to the readers, unless its snapshot failed or they were confirmed before.

        Args:
            tick: the tick.
            snapshot: the id of its durable snapshot; None if it failed.

        Yields:
            The sources with a reader that could not confirm its position, with the error.
        """
        positions = self._captured.pop(tick, {})
        if snapshot is None or not positions or snapshot == self._confirmed:
            return
        self._confirmed = snapshot
        for source in self._sources():
            name = source.context.operator_name
            for error in source.confirm(positions.get(name, {})):
                self._confirmed = None
                yield name, error
