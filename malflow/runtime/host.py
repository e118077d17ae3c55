"""The contract of a runtime's host of workers; the coordinator does everything else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from malflow.engine.parts.discovery import Change
from malflow.engine.parts.places import PartMove, Parts, Place
from malflow.engine.reports import Report
from malflow.engine.state_queries import Outcome, Question
from malflow.engine.state_specs import OldStates
from malflow.event_time.tick import Tick
from malflow.operators.waiting import OperatorTime, Running, Waiting
from malflow.snapshot.persistence import RestoredState, Session
from malflow.states.keyed import StateDelta

__all__ = ["Host", "PartsChanged", "PartsMove", "Rescale", "SinkPositions", "Step", "TickingHost"]

SinkPositions: TypeAlias = Callable[[bool], Sequence[StateDelta]]
"""Ends the transactions of the run's sinks, and returns the changed positions or, with True, all of them."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """A step of a run: continue with another number of workers."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class PartsChanged:
    """A step of a run: continue with the current parts of sources."""

    changes: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class PartsMove:
    """A step of a run: continue with parts on another worker.

    Attributes:
        move: the move.
        reason: why they move, for the log.
    """

    move: PartMove
    reason: str


Step: TypeAlias = Tick | Rescale | PartsChanged | PartsMove
"""A decision of the coordinator: a tick for the host to run, or a change for `Coordinator.apply`."""


class Host(Protocol):
    """The workers of a run, in any process.

    All methods are called between two ticks, on the run's own thread.

    Attributes:
        lanes: a number for each worker; workers with the same one take turns, and others run at the same time.
        parallelism: the number of workers of each stage.
        parts: the parts of each source that each worker holds.
        listed: the parts of each source.
    """

    @property
    def lanes(self) -> Sequence[int]: ...  # noqa: D102 - described above

    @property
    def parallelism(self) -> int: ...  # noqa: D102 - described above

    @property
    def parts(self) -> Parts: ...  # noqa: D102 - described above

    @property
    def listed(self) -> Mapping[str, Sequence[Any]]: ...  # noqa: D102 - described above

    def load(self, restored: RestoredState) -> OldStates:
        """Load the states of a snapshot, before `open`.

        Returns:
            The states that belong to no worker: the positions of the sinks in this process.

        Raises:
            SnapshotError: if they don't fit the program.
            OperatorError: if user code fails.
        """

    def open(self, tick: int) -> None:
        """Prepare the workers for ticks.

        Args:
            tick: the number of the last tick that their states include.
        """

    def live(self) -> Collection[Place] | None:
        """Return the sources and workers with unfinished parts; None if only the first tick can report them."""

    def pause(self) -> float:
        """Return the minimum number of seconds until the next tick."""

    def times(self) -> Mapping[int, Mapping[int, OperatorTime]] | None:
        """Return the progress of operators in event time, by worker and vertex; None if only a tick can report it."""

    def running(self) -> Running | None:
        """Return the operator that works now; None if none works in this process. Callable from any thread."""

    def held(self) -> Mapping[str, Waiting] | None:
        """Return the open results of operators; None if only a tick can report them."""

    def ask(self, questions: Sequence[Question]) -> Sequence[Outcome] | None:
        """Answer questions with copies of the states after the last tick.

        Returns:
            For each question the findings of its workers, in their order, or an error; None if the next tick answers.
        """

    def answers(self) -> Sequence[Outcome]:
        """Return the outcomes of the questions that the tick was asked."""

    def capture(
        self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool
    ) -> Future[int] | None:
        """Begin to write a snapshot of the states after the last tick.

        Args:
            session: the session that commits it.
            tick: the number of the last tick.
            sinks: called once if the snapshot is begun; returns the positions to include.
            full: whether it must include all state, not only the changes.
            alone: whether no tick runs at the same time.

        Returns:
            A future of its id. None if workers must first write all of their state, in the next tick.

        Raises:
            StateNotSerializable: if a state can't be written.
            OperatorError: if a sink fails.
        """

    def settle(self, tick: int, snapshot: int | None) -> Iterable[tuple[str, Exception]]:
        """Handle the end of a snapshot: confirm the positions in it to the readers.

        Args:
            tick: the tick of its states.
            snapshot: its id, after it became durable and its sinks were committed; None if it failed.

        Returns:
            The sources with a reader that could not confirm its position, with the error.
        """

    def check_moves(self) -> None:
        """Check that the workers can move, before `rescale`; nothing has changed then."""

    def rescale(self, parallelism: int) -> None:
        """Continue with a different number of workers.

        Raises:
            MalflowError: if that fails; the run ends.
        """

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        """Continue with the current parts of sources.

        Raises:
            OperatorError: naming an unfinished part that no longer exists.
        """

    def move_parts(self, move: PartMove, limit: int) -> int | None:
        """Continue with parts on another worker, with all that belongs to them.

        Args:
            move: the move.
            limit: the most bytes of state that may have to move for it.

        Returns:
            None once they have moved; the bytes of state if these are more than the limit, and nothing has changed.

        Raises:
            MalflowError: if that fails; the run ends.
        """

    def close(self, error: BaseException | None) -> None:
        """Close the workers; add errors as notes to `error`."""


class TickingHost(Host, Protocol):
    """A host that runs a tick on demand, for `malflow.runtime.coordination.coordinator.drive`."""

    def run(self, tick: Tick) -> Sequence[Report]:
        """Run a tick on all workers, deliver its output to the sinks, and return the reports of all stages."""
