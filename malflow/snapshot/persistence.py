"""The contract between a runtime and the place that keeps its state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from malflow.errors import told
from malflow.state import Delta, StateSpec

__all__ = ["NoPersistence", "Persistence", "Restored", "Session", "Start", "UnwritableState", "job_of"]


@dataclass(frozen=True, slots=True)
class Start:
    """How a run begins, and what may become of states that its program has changed.

    Attributes:
        restore: the snapshot to begin with: ``"latest"``, the id of one, or None to begin with nothing.
        recovery: what to do if that one can't be read: ``"strict"`` refuses, ``"previous"`` goes back to the newest
            one that can; what came after it is done again.
        renamed: new names of operators by their old ones.
        allow_dropped_state: operators whose state may be dropped if the program has no place for it.
    """

    restore: Literal["latest"] | int | None = "latest"
    recovery: Literal["strict", "previous"] = "strict"
    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_dropped_state: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """What a snapshot holds.

    Attributes:
        snapshot: its id.
        tick: how many ticks had run.
        parallelism: how many workers had the states.
        states: for each operator, by its present name, and each worker, the state of each key.
        versions: for each operator the version of its states' schema.
        placements: for each operator the name of the function that chose the worker of each key.
    """

    snapshot: int
    tick: int
    parallelism: int
    states: dict[str, dict[int, dict[Any, Any]]]
    versions: dict[str, int]
    placements: dict[str, str | None]


class UnwritableState(Exception):
    """A state can't be written as bytes; the cause says why.

    Attributes:
        operator: the operator.
        key, state: the first such key, and its state.
    """

    def __init__(self, operator: str, key: Any, state: Any) -> None:
        super().__init__(operator)
        self.operator = operator
        self.key = key
        self.state = state

    @property
    def reason(self) -> str:
        """What was raised, as a text."""
        cause = self.__cause__
        return f"{type(cause).__name__}: {'' if cause is None else told(cause)}"


class Session(Protocol):
    """A run's hold on the place that keeps its state."""

    @property
    def is_busy(self) -> bool:
        """Tell whether a snapshot is still being written."""

    @property
    def wants_retry(self) -> bool:
        """Whether the last snapshot failed, and it is time to try again."""

    @property
    def retry_after(self) -> float | None:
        """The seconds between the last snapshot, if it failed, and the next attempt; None if there is none."""

    def wants_base(self, parallelism: int) -> bool:
        """Tell whether the next snapshot should hold all of the state, not only what changed."""

    def commit(
        self,
        tick: int,
        parallelism: int,
        operators: Sequence[StateSpec],
        deltas: Iterable[tuple[int, str, Delta, int]],
    ) -> Future[int]:
        """Capture what changed, and write it in the background; the result is the id of the snapshot.

        Args:
            tick: how many ticks have run.
            parallelism: how many workers have the state.
            operators: those that keep state.
            deltas: worker, operator, what changed, and how many keys the operator has on that worker. The states in
                it are live ones; they are serialised before this returns.

        Raises:
            UnwritableState: if a state can't be written as bytes.
        """

    def check(self) -> None:
        """Raise what went wrong in the background, if the run can't go on after it.

        Raises:
            SnapshotError: such as a `FencedError`.
        """

    def confirm(self) -> None:
        """Look whether the job is still this run's, once nothing is being written.

        Raises:
            SnapshotError: such as a `FencedError`.
        """

    def close(self, *, wait: bool = False) -> None:
        """Let go of it: wait for what is being written and deleted, or leave it to chance."""


class Persistence(Protocol):
    """Keeps what changed from one snapshot to the next, and gives it back when a run starts.

    Attributes:
        keeps: whether anything is kept at all. Where nothing is, changes are not tracked and `open` is not called.
    """

    keeps: bool

    def open(self, operators: Sequence[StateSpec], start: Start) -> tuple[Session, Restored | None]:
        """Claim the job for a run, and give what it goes on from; None where it begins with nothing.

        Raises:
            SnapshotError: if that can't be read, does not fit the program, or the job can't be claimed.
        """


class NoPersistence:
    """Keep nothing: a run starts from nothing, and its state ends with it."""

    keeps = False

    def open(self, operators: Sequence[StateSpec], start: Start) -> tuple[Session, Restored | None]:
        """Refuse: there is nothing to open.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("NoPersistence keeps nothing")

    def __repr__(self) -> str:
        return "NoPersistence()"


def job_of(persistence: Persistence, default: str = "default") -> str:
    """Return the name of the job whose state is kept, where it has one."""
    return getattr(persistence, "job", None) or default
