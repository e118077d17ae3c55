"""The events that a run reports to its listeners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypeAlias

__all__ = [
    "BudgetExceeded",
    "ConfirmationFailed",
    "DiscoveryFailed",
    "Event",
    "InputEnded",
    "LettersTaken",
    "Listener",
    "PartsDiscovered",
    "PartsKept",
    "PartsMoved",
    "RescaleRefused",
    "Rescaled",
    "Restarted",
    "Run",
    "RunFinished",
    "RunStarted",
    "SnapshotCommitted",
    "SnapshotFailed",
    "StartListener",
    "TickFinished",
]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run has its state and is about to begin its first tick; sent again after each restart.

    Attributes:
        parallelism: the number of workers.
        snapshot: the id of the snapshot that the run resumes from; None if it starts without state.
        tick: the number of the last tick in that snapshot; 0 without a snapshot.
        time: when the snapshot was taken, in UTC; None if unknown.
        keys: the number of keys of each stateful operator in it.
        begins_anew: the sources without positions, which emit records again that the state already contains.
        unseen: the operators that were added after a table had rows, which they will not see: the name of the operator,
            that of the table, and the number of rows.
        restarts: how often the run was restarted.
    """

    parallelism: int
    snapshot: int | None = None
    tick: int = 0
    time: datetime | None = None
    keys: Mapping[str, int] = field(default_factory=dict)
    begins_anew: Sequence[str] = ()
    unseen: Sequence[tuple[str, str, int]] = ()
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class TickFinished:
    """A tick has passed all stages, and the sinks have received its output.

    Attributes:
        tick: its number.
        parallelism: the number of workers.
        polled: the number of records read from the sources.
        seconds: its duration, without the runtime's work between ticks.
    """

    tick: int
    parallelism: int
    polled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SnapshotCommitted:
    """A snapshot was committed: a run can resume from it.

    Attributes:
        snapshot: its id.
        tick: the number of the last tick that it contains.
        bytes: the size of the files that it consists of; None if the persistence does not tell.
        seconds: how long it took, including the writing in the background.
    """

    snapshot: int
    tick: int
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """A snapshot could not be written; the previous one remains valid.

    Attributes:
        tick: the number of the last tick that it would have contained.
        error: the cause.
        retry_after: the seconds until the next attempt; None if the run ends.
    """

    tick: int
    error: BaseException
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class ConfirmationFailed:
    """A reader could not confirm a position to its external system; the run and its snapshots continue.

    Attributes:
        tick: the number of the last tick.
        source: the name of the source.
        error: the error; it names the source and the part.
    """

    tick: int
    source: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class PartsDiscovered:
    """A source has new parts. They are read from now on.

    Attributes:
        tick: the number of the last tick before.
        source: the name of the source.
        parts: the new parts.
    """

    tick: int
    source: str
    parts: Sequence[Any]


@dataclass(frozen=True, slots=True)
class PartsMoved:
    """Parts of a source have moved from a busy worker to an idle one, with all state that belongs to them.

    Attributes:
        tick: the number of the last tick before.
        source: the name of the source.
        parts: the parts.
        before: the worker that read them.
        after: the worker that reads them from now on.
        reason: how busy both workers were.
    """

    tick: int
    source: str
    parts: Sequence[Any]
    before: int
    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartsKept:
    """Parts of a source should move to an idle worker, and stay, since too much state would move for them.

    Attributes:
        tick: the number of the last tick.
        source: the name of the source.
        parts: the parts.
        worker: the worker that reads them.
        bytes: the bytes of state.
        limit: the most bytes that may move.
    """

    tick: int
    source: str
    parts: Sequence[Any]
    worker: int
    bytes: int
    limit: int


@dataclass(frozen=True, slots=True)
class DiscoveryFailed:
    """A source could not list its parts; the run tries again after its ``discover_every``.

    Attributes:
        tick: the number of the last tick.
        source: the name of the source.
        error: the cause.
    """

    tick: int
    source: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class LettersTaken:
    """Records that failed in a tick became dead letters; there is at most one event per tick and operator.

    Attributes:
        tick: the number of the tick.
        operator: the name of the operator.
        count: the number of letters on all workers.
    """

    tick: int
    operator: str
    count: int


@dataclass(frozen=True, slots=True)
class BudgetExceeded:
    """An operator has failed at more records than its budget allows; the run fails after this event.

    Attributes:
        tick: the number of the tick.
        operator: the name of the operator.
        failed: the number of failed records within the window of the budget.
        taken: the number of records that the operator received within it.
        share: the share that may fail.
        errors: the counts by kind of error; only the most common kinds of each tick are counted.
    """

    tick: int
    operator: str
    failed: int
    taken: int
    share: float
    errors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Rescaled:
    """The number of workers has changed.

    Attributes:
        tick: the number of the last tick before.
        previous: the number of workers before.
        parallelism: the number of workers now.
    """

    tick: int
    previous: int
    parallelism: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The number of workers stays, because the dataflow cannot run with another.

    Attributes:
        tick: the number of the last tick.
        parallelism: the number of workers requested.
        error: the cause.
    """

    tick: int
    parallelism: int
    error: BaseException


@dataclass(frozen=True, slots=True)
class Restarted:
    """The run failed, and starts again from its last snapshot.

    Attributes:
        restarts: how often the run has been restarted, including this time.
        error: the error that made it fail.
        pause: the seconds until the restart.
    """

    restarts: int
    error: BaseException
    pause: float


@dataclass(frozen=True, slots=True)
class InputEnded:
    """Every source has emitted its last record.

    Attributes:
        tick: the number of the last tick.
        at_end: whether the run emits open results (``"finish"``) or keeps them for the next run (``"keep"``).
        is_chosen: whether the run's `at_end` says so; otherwise it depends on whether the run has a persistence.
        held: the open results that are kept, as text by operator, such as ``"3 windows"``; empty with ``"finish"``.
    """

    tick: int
    at_end: Literal["finish", "keep"]
    is_chosen: bool
    held: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is over: its sources have ended, it was stopped, or it failed. The last event of a run.

    Attributes:
        tick: the number of the last tick.
        parallelism: the number of workers.
        records: the number of records that each operator processed, and each source emitted, since the run started.
        late: the number of late records at each `generate_epochs`.
        lateness: the greatest lateness at each of them, as in `Progress`.
        dropped: the number of those that no operator has read.
        snapshot: the id of the last snapshot, or None.
        restarts: how often the run was restarted.
        error: the error that ended the run; None if it did not fail.
    """

    tick: int
    parallelism: int
    records: Mapping[str, int]
    late: Mapping[str, int]
    lateness: Mapping[str, Any]
    dropped: Mapping[str, int]
    snapshot: int | None
    restarts: int
    error: BaseException | None


Event: TypeAlias = (
    RunStarted
    | TickFinished
    | SnapshotCommitted
    | SnapshotFailed
    | ConfirmationFailed
    | PartsDiscovered
    | PartsKept
    | PartsMoved
    | DiscoveryFailed
    | LettersTaken
    | BudgetExceeded
    | Rescaled
    | RescaleRefused
    | Restarted
    | InputEnded
    | RunFinished
)
"""Any event. Later versions may add kinds: a listener must ignore unknown ones."""


class Run(Protocol):
    """A run, as a listener receives it: its `malflow.RunHandle`, also if `execute` runs it on the caller's thread."""

    @property
    def job(self) -> str:
        """The name of its job."""

    @property
    def runtime(self) -> str:
        """The kind of its runtime: ``single``, ``processes`` or ``spark``."""

    @property
    def progress(self) -> Any:
        """The `malflow.runtime.progress.progress.Progress` of the run."""

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""

    def stop(self) -> None:
        """End the run after the current tick, with a last snapshot."""

    def snapshot(self) -> Future[int]:
        """Request a snapshot."""

    def rescale(self, parallelism: int, /) -> Future[None]:
        """Request another number of workers."""

    def replay(self, operator: str, ids: Sequence[str] | None = None, /) -> Future[Any]:
        """Request that dead letters of an operator are processed again."""

    def discard(self, operator: str, ids: Sequence[str] | None = None, /) -> Future[Any]:
        """Request that dead letters of an operator are removed."""

    @property
    def program(self) -> Any:
        """The compiled dataflow, for `malflow.draw`; None before it is built."""

    def letters(self, operator: str, limit: int = 100) -> Future[Any]:
        """Ask for the dead letters of an operator."""

    def explain_time(self, timeout: float = 30.0) -> Any:
        """Return which operators wait for an epoch (watermark), and for which source."""

    def why(self, operator: str | None = None, timeout: float = 30.0) -> Any:
        """Return why nothing comes out of an operator, or of the whole run."""

    def state(self, name: str, /) -> Any:
        """Return the states of an operator, to ask for them."""

    def windows(self, name: str, /) -> Any:
        """Return the windows of an operator, to ask for their results."""

    def tap(self, tap: Any, /) -> None:
        """Add a reader of the records that an operator emits: a `malflow.engine.taps.Tap`."""


class Listener(Protocol):
    """Receives the events of a run, one at a time, in the process that started it.

    The run calls it between ticks and waits for it, so do long work on another thread. It may call `stop`, `snapshot`
    and `rescale` of the runtime, but must not wait for their results. If it raises, the error is logged and the
    listener receives no more events; the run continues.

    A listener that also has the method of `StartListener` receives the handle of the run.
    """

    def on_event(self, event: Event, /) -> None:
        """Receive an event."""


class StartListener(Listener, Protocol):
    """A listener that receives the handle of each run, with which another thread can see and steer it."""

    def on_start(self, run: Run, /) -> None:
        """Receive the handle of a run, before its first event; called once a run, however often it restarts.

        The run waits for it. Its state is not restored yet.
        """
