"""A job with a state on several workers, whose snapshots are remembered as lists: the model of reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from malflow.partitioners import PLACEMENT, rendezvous_select
from malflow.snapshot import FsspecBackend
from malflow.snapshot.persistence import RestoreOptions
from malflow.states.keyed import KeyedState, StateDelta
from malflow.states.kinds import StateKind, StateSpec

__all__ = ["Keeper"]


class Keeper:
    """A run that keeps a state by key.

    Attributes:
        taken: the keys with their states, worker by worker, by the id of the snapshot.
    """

    def __init__(
        self,
        backend: FsspecBackend,
        workers: int = 1,
        placement: str | None = PLACEMENT,
        place: Callable[[Any, Sequence[int]], int] = rendezvous_select,
        kind: StateKind = StateKind.STATEFUL_MAP,
    ) -> None:
        self.backend = backend
        self.spec = StateSpec("sum", kind, 1, placement)
        self.taken: dict[int, list[tuple[Any, Any]]] = {}
        self._place = place
        self._session, _ = backend.open([self.spec], RestoreOptions())
        self._workers = [KeyedState(tracked=True) for _ in range(workers)]
        self._tick = 0

    def save(self, changes: Mapping[Any, Any], worker: int | None = None) -> int:
        """Change states, None drops one, and take a snapshot; return its id."""
        for key, state in changes.items():
            of = range(len(self._workers))
            states = self._workers[self._place(key, of) if worker is None else worker]
            if state is None:
                states.pop(key, None)
            else:
                states[key] = state
            states.touch([key])
        return self._commit()

    def rewrite(self) -> int:
        """Drop the first key of each worker, and take a snapshot with all others, written again; return its id."""
        for states in self._workers:
            if states:
                del states[next(iter(states))]
            states.forget()
        return self._commit()

    def rescale(self, workers: int) -> int:
        """Move the keys to another number of workers, and take a snapshot; return its id."""
        before, self._workers = self._workers, [KeyedState(tracked=True) for _ in range(workers)]
        for states in before:
            for key, state in states.items():
                self._workers[self._place(key, range(workers))][key] = state
        return self._commit()

    def _commit(self) -> int:
        self._tick += 1
        count = len(self._workers)
        if self._session.needs_full_snapshot(count):
            for states in self._workers:
                states.forget()
        changes = [(worker, states.delta(), len(states)) for worker, states in enumerate(self._workers)]
        deltas = [StateDelta(worker, "sum", delta, keys) for worker, delta, keys in changes if delta]
        made = self._session.commit(self._tick, count, [self.spec], deltas).result()
        self.taken[made] = [item for states in self._workers for item in states.items()]
        return made
