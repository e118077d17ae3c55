"""The contract between a runtime and the place that keeps its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from malflow.state import Delta

__all__ = ["NoPersistence", "Persistence", "WorkerDeltas"]

WorkerDeltas = Mapping[tuple[int, int], Mapping[str, Delta]]
"""For each ``(stage, worker)``, the delta of each operator's state by the operator's name."""


class Persistence(Protocol):
    """Keeps what changed from one snapshot to the next, and gives it back, as one delta, when a run starts.

    Attributes:
        keeps: whether anything is kept at all. Where nothing is, changes are not tracked and `commit` is not called.
    """

    keeps: bool

    def load(self) -> WorkerDeltas | None:
        """Give everything committed so far, or None where nothing was.

        Raises:
            SnapshotError: if it can't be read.
        """

    def commit(self, tick: int, deltas: WorkerDeltas) -> None:
        """Keep what changed up to tick `tick`. The states are live ones: serialise them before returning.

        Raises:
            SnapshotError: if it can't be written.
        """


class NoPersistence:
    """Keep nothing: a run starts from nothing, and its state ends with it."""

    keeps = False

    def load(self) -> WorkerDeltas | None:
        """Find nothing."""
        return None

    def commit(self, tick: int, deltas: WorkerDeltas) -> None:
        """Keep nothing."""

    def __repr__(self) -> str:
        return "NoPersistence()"
