"""A persistence in memory, for what a restart must bring back."""

from __future__ import annotations

import pickle
from typing import Any

from malflow.snapshot import WorkerDeltas
from malflow.state import Delta


class MemoryPersistence:
    """Keeps pickled deltas, as a store does."""

    keeps = True

    def __init__(self) -> None:
        self.commits: list[bytes] = []

    def load(self) -> WorkerDeltas | None:
        merged: dict[Any, Any] = {}
        for commit in map(pickle.loads, self.commits):
            for place, deltas in commit.items():
                merged.setdefault(place, {})
                for name, delta in deltas.items():
                    state = merged[place].setdefault(name, {})
                    state.update(delta.changed)
                    for key in delta.deleted:
                        state.pop(key, None)
        return {
            place: {name: Delta(state) for name, state in deltas.items()} for place, deltas in merged.items()
        } or None

    def commit(self, tick: int, deltas: WorkerDeltas) -> None:
        self.commits.append(pickle.dumps(dict(deltas)))
