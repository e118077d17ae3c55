"""A persistence that implements only the published contract."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

from malflow import StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import RestoredState, RestoreOptions, Session, StateDelta, StateSpec
from malflow.sources import SingleIteratorSource


class Shelf:
    """Keeps the last snapshot, in pickles."""

    is_enabled = True

    def __init__(self) -> None:
        self.snapshot = 0
        self.tick = self.parallelism = 0
        self.specs: Sequence[StateSpec] = ()
        self.states: dict[tuple[str, int], dict[Any, bytes]] = {}

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Return a session, and what was kept."""
        if not self.snapshot:
            return ShelfSession(self), None
        held: dict[str, dict[int, dict[Any, Any]]] = {spec.name: {} for spec in states}
        for (name, worker), by_key in self.states.items():
            held[name][worker] = {key: pickle.loads(state) for key, state in by_key.items()}
        versions = {spec.name: spec.version for spec in self.specs}
        placements = {spec.name: spec.placement for spec in self.specs}
        restored = RestoredState(self.snapshot, self.tick, self.parallelism, held, versions, placements)
        return ShelfSession(self), restored


class ShelfSession:
    """Writes at once."""

    is_busy = False
    wants_retry = False
    retry_after = None

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    def needs_full_snapshot(self, parallelism: int) -> bool:
        """Whether the states are those of another number of workers."""
        return parallelism != self.shelf.parallelism

    def commit(
        self, tick: int, parallelism: int, states: Sequence[StateSpec], deltas: Iterable[StateDelta]
    ) -> Future[int]:
        """Apply the changes."""
        shelf = self.shelf
        if self.needs_full_snapshot(parallelism):
            shelf.states.clear()
        for worker, name, delta, keys in deltas:
            held = shelf.states.setdefault((name, worker), {})
            if delta.whole:
                held.clear()
            held.update({key: pickle.dumps(state) for key, state in delta.changed.items()})
            for key in delta.deleted:
                held.pop(key, None)
            assert len(held) == keys
        shelf.snapshot, shelf.tick, shelf.parallelism, shelf.specs = shelf.snapshot + 1, tick, parallelism, states
        done: Future[int] = Future()
        done.set_result(shelf.snapshot)
        return done

    def check(self) -> None:
        """Do nothing."""

    def confirm(self) -> None:
        """Do nothing."""

    def close(self, *, wait: bool = False) -> None:
        """Do nothing."""


def test_a_persistence_of_ones_own_keeps_state(any_parallelism: Any) -> None:
    shelf = Shelf()

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10)))
        keyed = numbers.key_distribute("parity", lambda msg: msg.value % 2)
        sums = keyed.stateful_map("sum", lambda _, value, state: (state + value, state + value), default=int)
        sums.sink("totals", VecSink())

    for run in (1, 2):
        any_parallelism(build, shelf).execute()
        sums = {
            key: pickle.loads(it)
            for (name, _), held in shelf.states.items()
            if name == "sum"
            for key, it in held.items()
        }
        assert sums == {0: 20 * run, 1: 25 * run}
