"""What a runtime must be able to do with the workers that it hosts; all the rest is the coordinator's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from malflow.engine.discovery import Change
from malflow.engine.part_placement import Parts, Place
from malflow.engine.reports import Report
from malflow.event_time.tick import Tick
from malflow.operators.waiting import OperatorTime, Waiting
from malflow.snapshot.persistence import RestoredState, Session
from malflow.states.keyed import StateDelta

__all__ = ["Host", "PartsChanged", "Rescale", "SinkPositions", "Step", "TickingHost"]

SinkPositions: TypeAlias = Callable[[bool], Sequence[StateDelta]]
"""Ends the transactions of the run's sinks, and returns the positions that changed, or, with True, all of them."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """A step of a run: to continue with another number of workers."""

    parallelism: int


@dataclass(frozen=True, slots=True)
class PartsChanged:
    """A step of a run: to continue with the parts of sources that there are now."""

    changes: Mapping[str, Change]


Step: TypeAlias = Tick | Rescale | PartsChanged
"""A decision of the coordinator: a tick for the host to run, or a change for `Coordinator.apply`."""


class Host(Protocol):
    """The workers of a run, wherever they are.

    All methods are called between two ticks, on the run's own thread.

    Attributes:
        parallelism: how many workers each stage has.
        parts: the parts of each source that each worker holds.
        listed: the parts of each source.
    """

    @property
    def parallelism(self) -> int: ...  # noqa: D102 - described above

    @property
    def parts(self) -> Parts: ...  # noqa: D102 - described above

    @property
    def listed(self) -> Mapping[str, Sequence[Any]]: ...  # noqa: D102 - described above

    def load(self, restored: RestoredState) -> None:
        """Load the states of a snapshot, before `open`.

        Raises:
            SnapshotError: if they don't fit the program.
            OperatorError: if user code fails.
        """

    def open(self, tick: int) -> None:
        """Make the workers ready for ticks.

        Args:
            tick: the number of the last tick, whose states they have.
        """

    def live(self) -> Collection[Place] | None:
        """Return the sources and workers with unfinished parts; None if the first tick must tell."""

    def pause(self) -> float:
        """Return the least number of seconds until the next tick is to begin."""

    def times(self) -> Mapping[int, Mapping[int, OperatorTime]] | None:
        """Return how far operators have come, by worker and vertex; None if a tick must be asked for it."""

    def held(self) -> Mapping[str, Waiting] | None:
        """Return the open results of operators; None if a tick must be asked for them."""

    def capture(
        self, session: Session, tick: int, sinks: SinkPositions, *, full: bool, alone: bool
    ) -> Future[int] | None:
        """Begin to write a snapshot of the states after the last tick.

        Args:
            session: the session to commit it with.
            tick: the number of the last tick.
            sinks: called once if the snapshot is begun; its positions belong into the snapshot.
            full: whether it must have all state, not only the changes.
            alone: whether no tick runs meanwhile.

        Returns:
            A future of its id. None if workers must write all of their state in a tick first: the next one.

        Raises:
            StateNotSerializable: if a state can't be written.
            OperatorError: if a sink fails.
        """

    def settle(self, tick: int, snapshot: int | None) -> Iterable[tuple[str, Exception]]:
        """Note the end of a snapshot, and confirm the positions in it to the readers.

        Args:
            tick: the tick whose states it has.
            snapshot: its id, now that it is durable and its sinks are committed; None if it has failed.

        Returns:
            The sources with a reader that could not confirm its position, and the error.
        """

    def rescale(self, parallelism: int) -> None:
        """Continue with another number of workers, which is not the present one.

        Raises:
            MalflowError: if that fails; the run ends.
        """

    def change_parts(self, changes: Mapping[str, Change]) -> None:
        """Continue with the parts of sources that there are now.

        Raises:
            OperatorError: naming a part that is gone and is not finished.
        """

    def close(self, error: BaseException | None) -> None:
        """Close the workers; errors are noted in `error`."""


class TickingHost(Host, Protocol):
    """A host whose ticks can be called for, so that `malflow.runtime.coordinator.drive` runs it."""

    def run(self, tick: Tick) -> Sequence[Report]:
        """Run a tick on all workers, deliver the output to the sinks, and return the reports of all stages."""
