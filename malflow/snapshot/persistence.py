"""The contract between a runtime and the storage of its state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from malflow.checks import is_whole_number
from malflow.errors import GraphError, OperatorError
from malflow.states.keyed import StateDelta
from malflow.states.kinds import StateSpec
from malflow.words import error_text, short_repr

if TYPE_CHECKING:
    from malflow.snapshot.files.stored_states import StoredStates

__all__ = [
    "CoordinatingSession",
    "NamedJob",
    "NoPersistence",
    "Persistence",
    "RestoreOptions",
    "RestoredState",
    "Session",
    "StateNotSerializable",
    "Wish",
    "check_wish",
    "job_of",
    "place_of",
]


Wish = Literal["latest"] | int | datetime
"""The snapshot wanted: the latest one, that with an id, or the latest one at a point in time."""


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """Which snapshot a run restores, and how its states map to the program's.

    Attributes:
        restore: the snapshot to restore: ``"latest"``, an id, a datetime with a time zone for the one that was the
            latest at that time, or None to start from empty state.
        recovery: what to do if that snapshot can't be read: ``"strict"`` raises, ``"previous"`` falls back to the
            newest readable one, and later input is processed again.
        renamed: new names of operators by their old names.
        allow_dropped_state: operators that may lose their state if the program has no use for it.
        accept_duplicates: whether the snapshot may be older than the last commit of a transactional sink.
        in_store: whether the states may stay in the store, for other processes to read: see `RestoredState.stored`.
    """

    restore: Wish | None = "latest"
    recovery: Literal["strict", "previous"] = "strict"
    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_dropped_state: Collection[str] = ()
    accept_duplicates: bool = False
    in_store: bool = False


@dataclass(frozen=True, slots=True)
class RestoredState:
    """The content of a snapshot.

    Attributes:
        snapshot: its id.
        tick: the number of ticks completed.
        parallelism: the number of workers.
        states: the state of each key, by name of the state (its current one) and worker.
        versions: the schema version of each state.
        placements: for each state the name of the partitioner that assigned keys to workers.
        time: when it was taken, in UTC; None if unknown. The clock of a run does not begin earlier.
        stored: the states if they are still in the store, and `states` is empty; None otherwise.
        definitions: the definition of each state; empty if they are the program's.
    """

    snapshot: int
    tick: int
    parallelism: int
    states: dict[str, dict[int, dict[Any, Any]]]
    versions: dict[str, int]
    placements: dict[str, str | None]
    time: datetime | None = None
    stored: StoredStates | None = None
    definitions: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, int]:
        """The number of keys of each state."""
        if self.stored is not None:
            return self.stored.keys
        return {name: sum(map(len, by_worker.values())) for name, by_worker in self.states.items()}


def check_wish(name: str, wish: object, others: str = "") -> None:
    """Check a wish: ``"latest"``, an id, or a datetime with a time zone.

    Args:
        name: the name of the argument, for the error.
        wish: the wish.
        others: what else may be passed, for the error.
    """
    if wish == "latest" or is_whole_number(wish, least=None):
        return
    if not isinstance(wish, datetime):
        raise GraphError(f"{name} needs 'latest', the id of a snapshot, or a datetime{others}; got {short_repr(wish)}")
    if wish.utcoffset() is None:
        raise GraphError(f"{name} needs a datetime with a time zone; got {wish!r}; add tzinfo=UTC, or .astimezone()")


class StateNotSerializable(Exception):
    """A state can't be serialised; the cause says why.

    Attributes:
        operator: the operator.
        key, state: the first such key and its state.
    """

    def __init__(self, operator: str, key: Any, state: Any) -> None:
        super().__init__(operator)
        self.operator = operator
        self.key = key
        self.state = state

    @property
    def reason(self) -> str:
        """The cause, as text."""
        cause = self.__cause__
        return f"{type(cause).__name__}: {'' if cause is None else error_text(cause)}"

    def as_operator_error(
        self, kind: type[OperatorError] = OperatorError, consequence: str = "the last snapshot is intact"
    ) -> OperatorError:
        """Return the error that ends a run which needs to write this state.

        Args:
            kind: the class of the error.
            consequence: the consequence, or why it must be written.
        """
        return kind(
            f"operator '{self.operator}' failed at key {short_repr(self.key)}: its state {short_repr(self.state)} of "
            "type "
            f"{type(self.state).__name__} can't be written: {self.reason}; {consequence}",
            operator=self.operator,
            record=(self.key, self.state, None),
        )


class Session(Protocol):
    """The snapshots of one run: captures changes and commits them."""

    @property
    def is_busy(self) -> bool:
        """Whether a snapshot is still being written."""

    @property
    def wants_retry(self) -> bool:
        """Whether the last snapshot failed and a retry is due."""

    @property
    def retry_after(self) -> float | None:
        """The seconds from the last snapshot, if it failed, to the next attempt, or None."""

    def needs_full_snapshot(self, parallelism: int) -> bool:
        """Whether the next snapshot must hold the full state, not only changes."""

    def commit(
        self,
        tick: int,
        parallelism: int,
        states: Sequence[StateSpec],
        deltas: Iterable[StateDelta],
    ) -> Future[int]:
        """Serialise the changes, and write them in the background; the future's result is the snapshot's id.

        Args:
            tick: the number of ticks completed.
            parallelism: the number of workers.
            states: the states of the program.
            deltas: the changes, at most one for each state and worker. Live states in them are serialised before this
                returns.

        Raises:
            StateNotSerializable: if a state can't be serialised.
        """

    def check(self) -> None:
        """Raise the background error that must end the run, if there is one.

        Raises:
            SnapshotError: such as a `FencedError`.
        """

    def confirm(self) -> None:
        """Wait for pending writes, and check that no other run has claimed the job.

        Raises:
            SnapshotError: such as a `FencedError`.
        """

    def close(self, *, wait: bool = False) -> None:
        """Close the session; with `wait`, finish pending writes and deletions, otherwise abandon them."""


@runtime_checkable
class CoordinatingSession(Session, Protocol):
    """A session that can coordinate two-phase commits of sinks."""

    @property
    def claimed(self) -> tuple[str, int]:
        """The unique id of the job and the number of this run's claim; the claim with the highest number is valid."""

    def amend(
        self,
        tick: int,
        parallelism: int,
        states: Sequence[StateSpec],
        deltas: Iterable[StateDelta],
    ) -> Future[int]:
        """Commit changes on top of the last, successful snapshot; otherwise as `commit`.

        It never takes a full snapshot, so states that are not in `deltas` stay unchanged.
        """


class Persistence(Protocol):
    """Stores the snapshots of a job, and restores them when a run starts.

    Attributes:
        is_enabled: whether state is persisted at all. If not, changes are not tracked and `open` is not called.
    """

    is_enabled: bool

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Claim the job, and read the state to resume from; None to start from empty state.

        Raises:
            SnapshotError: if the state can't be read or does not fit the program, or the job can't be claimed.
        """


class NoPersistence:
    """No persistence: each run starts from empty state. It is lost when the run ends."""

    is_enabled = False

    def open(self, states: Sequence[StateSpec], start: RestoreOptions) -> tuple[Session, RestoredState | None]:
        """Raise an error: there is nothing to open.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("NoPersistence stores no snapshots")

    def __repr__(self) -> str:
        return "NoPersistence()"


@runtime_checkable
class NamedJob(Protocol):
    """A persistence of a named job; logs and Spark queries use the name.

    Attributes:
        job: the name of the job.
    """

    job: str


def job_of(persistence: Persistence, default: str = "default") -> str:
    """Return the name of a persistence's job, `default` if it has none."""
    return persistence.job if isinstance(persistence, NamedJob) else default


def place_of(persistence: Persistence) -> str | None:
    """Return where a persistence keeps its jobs, without secrets; None if it does not say, as `NoPersistence`."""
    place = getattr(persistence, "place", None)
    return place if isinstance(place, str) else None
