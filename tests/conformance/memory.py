"""A persistence in memory, for what a restart must bring back."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from malflow.snapshot.persistence import Restored, Start
from malflow.state import Delta, KeyedState, StateSpec


class MemoryPersistence:
    """Keeps pickled deltas, as a store does. A snapshot of another number of workers begins anew."""

    keeps = True

    def __init__(self) -> None:
        self.commits: list[bytes] = []
        self.at: tuple[int, int, Sequence[StateSpec]] = (0, 0, ())

    def open(self, operators: Sequence[StateSpec], start: Start) -> tuple[MemorySession, Restored | None]:
        """Give what the last commit holds."""
        if not self.commits:
            return MemorySession(self), None
        tick, parallelism, kept = self.at
        versions = {spec.name: spec.version for spec in kept}
        placements = {spec.name: spec.placement for spec in kept}
        return MemorySession(self), Restored(1, tick, parallelism, self.states(), versions, placements)

    def states(self) -> dict[str, dict[int, dict[Any, Any]]]:
        """Give the states by key, by worker, by name."""
        merged: dict[str, dict[int, dict[Any, Any]]] = {}
        for commit in map(pickle.loads, self.commits):
            for worker, name, delta, keys in commit:
                state = KeyedState()
                state.update(merged.setdefault(name, {}).get(worker, {}))
                state.apply(delta)
                assert len(state) == keys
                merged[name][worker] = dict(state)
        return merged


class MemorySession:
    """A run's hold on it: every commit is done at once."""

    is_busy = False

    def __init__(self, store: MemoryPersistence) -> None:
        self._store = store

    def wants_base(self, parallelism: int) -> bool:
        """Want all of the state where the workers are others."""
        return parallelism != self._store.at[1]

    def commit(
        self,
        tick: int,
        parallelism: int,
        operators: Sequence[StateSpec],
        deltas: Iterable[tuple[int, str, Delta, int]],
    ) -> Future[int]:
        """Keep what changed."""
        store = self._store
        if self.wants_base(parallelism):
            store.commits.clear()
        store.commits.append(pickle.dumps([tuple(delta) for delta in deltas]))
        store.at = tick, parallelism, operators
        done: Future[int] = Future()
        done.set_result(len(store.commits))
        return done

    def check(self) -> None:
        """Find nothing wrong."""

    def close(self) -> None:
        """Let go of nothing."""
