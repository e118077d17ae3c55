"""Runs of a job on a store with hooks, and a clock that needs no waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.executors import InlineExecutor
from malflow.snapshot.persistence import RestoreOptions
from malflow.snapshot.protocol.manifest import Manifest, boundary_key, manifest_key
from malflow.states.keyed import Delta, StateDelta
from malflow.states.kinds import StateKind, StateSpec
from malflow.store.contract import Store
from malflow.store.retry import SystemContext
from tests.kit.memory_store import HookedStore

SUM = StateSpec("sum", StateKind.STATEFUL_MAP, 1, "malflow.partitioners.rendezvous_select")
KEY = "a signing key of the tests"
_TOKENS = count(1)


@dataclass
class Failing:
    """Raises `error` at the next `times` operations whose key begins so."""

    operation: str
    prefix: str
    error: Exception
    times: int = 1
    fired: int = 0

    def __call__(self, operation: str, key: str) -> None:
        if operation == self.operation and key.startswith(self.prefix) and self.fired < self.times:
            self.fired += 1
            raise self.error


@dataclass
class Doing:
    """Does something at the next operation whose key begins so, once."""

    operation: str
    prefix: str
    do: Callable[[], object]
    fired: int = 0

    def __call__(self, operation: str, key: str) -> None:
        if operation == self.operation and key.startswith(self.prefix) and not self.fired:
            self.fired += 1
            self.do()


@dataclass
class Clock:
    """Time that passes where somebody sleeps, and nowhere else."""

    time: float = 0.0
    pauses: list[float] = field(default_factory=list)
    process: int = 1

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.time += seconds

    @property
    def environment(self) -> SystemContext:
        return SystemContext(
            token=lambda: f"{next(_TOKENS):016x}",
            monotonic=lambda: self.time,
            sleep=self.sleep,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time),
            jitter=lambda: 0.5,
            process=lambda: self.process,
        )


class StoreBackend(FsspecBackend):
    """A backend over a store."""

    def __init__(self, store: Store, clock: Clock | None = None, **options: Any) -> None:
        super().__init__("memory://unused", **options)
        self._given = store
        steady(self, clock)

    def _store(self, *, exclusive: bool) -> Store:
        return self._given


def steady(backend: FsspecBackend, clock: Clock | None = None) -> FsspecBackend:
    """Make a backend write at once and wait for nothing."""
    backend._environment = (clock or Clock()).environment
    backend._executor = InlineExecutor
    return backend


class Job:
    """A run of a job that keeps one state of one operator on one worker.

    Attributes:
        state: what it is.
    """

    def __init__(self, backend: FsspecBackend, spec: StateSpec = SUM, **start: Any) -> None:
        self.backend = backend
        self.spec = spec
        self.session, self.restored = backend.open([spec], RestoreOptions(**start))
        found = {} if self.restored is None else self.restored.states.get(spec.name, {})
        self.state: dict[Any, Any] = dict(found.get(0, {}))
        self.tick = 0 if self.restored is None else self.restored.tick

    def save(self, changed: dict[Any, Any] | None = None, *, deleted: Iterable[Any] = ()) -> Future[int]:
        """Change the state, and take a snapshot."""
        new = dict(changed or {})
        gone = frozenset(deleted)
        self.state.update(new)
        for key in gone:
            del self.state[key]
        self.tick += 1
        delta = Delta(new, gone)
        if self.session.needs_full_snapshot(1):
            delta = Delta(self.state, whole=True)
        deltas = [StateDelta(0, self.spec.name, delta, len(self.state))] if delta else []
        return self.session.commit(self.tick, 1, [self.spec], deltas)


def manifests(store: HookedStore, backend: FsspecBackend) -> list[Manifest]:
    """Read all manifests that are there, by their numbers."""
    manifest_log = backend.manifest_log()
    assert manifest_log.find() is not None
    return [manifest_log.manifest(int(key[2:22])) for key in sorted(store.objects) if key.startswith("m/")]


def data_keys(store: HookedStore) -> set[str]:
    """Name the data files that are there."""
    return {key for key in store.objects if key.startswith("d/")}


def seqs(store: HookedStore) -> list[int]:
    """Return the numbers of the manifests that are there."""
    return [int(key[2:22]) for key in sorted(store.objects) if key.startswith("m/")]


def flipped(data: bytes, at: int, mask: int = 1) -> bytes:
    """Change one byte."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


__all__ = [
    "KEY",
    "SUM",
    "Clock",
    "Doing",
    "Failing",
    "Job",
    "StoreBackend",
    "boundary_key",
    "data_keys",
    "flipped",
    "manifest_key",
    "manifests",
    "seqs",
    "steady",
]
