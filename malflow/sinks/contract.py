"""What a sink is: an object that takes messages, whole or split into parts that keep state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from malflow.errors import GraphError, offers, refuse_deferred, require_arguments, require_methods, shown
from malflow.message import DataMessage

__all__ = [
    "ResumableSinkImpl",
    "StatefulSink",
    "StatefulSinkImpl",
    "StatefulSinkPartition",
    "StatelessSink",
    "StatelessSinkImpl",
    "is_resumable",
]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
P = TypeVar("P")
S = TypeVar("S")


class StatelessSinkImpl(Generic[K, V, T]):
    """A sink without state. Subclassing is optional: any object with ``sink(msg)`` will do.

    One object serves every worker of a process. What it writes is written at least once: after a restart the
    records since the last snapshot come again. See `ResumableSinkImpl` for one that takes back what comes again.

    Attributes:
        on_driver: where the workers are spread over processes, whether one object in the process that started the run
            takes the records of all of them, tick by tick; else each process has a copy of its own. Taken as False
            where an implementation does not say.
        reader_is_gone: whether nobody reads what is written any more, so that the run ends as by `stop`. Looked at
            after each tick, where the sink is in the process that started the run.
    """

    on_driver: ClassVar[bool] = False
    reader_is_gone: bool = False

    @abstractmethod
    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Take one message."""

    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Take a run of messages as three columns of one length; the columns must not be changed.

        The default is written over `sink`.
        """
        for message in map(DataMessage, keys, values, timestamps):
            self.sink(message)

    def flush(self) -> None:
        """Make what was taken visible outside. Called at the end of every tick."""

    def close(self) -> None:
        """Let go of what is held. Called once, when the run ends, however it ends."""


class ResumableSinkImpl(StatelessSinkImpl[K, V, T], Generic[K, V, T, S]):
    """A sink that can go back to where it stood: what it writes is written exactly once.

    Its position is part of every snapshot, and of the one that a run takes before its first record. A run that resumes
    gives it back, so that what was written after the snapshot can be taken back before it comes again. Subclassing is
    optional: any object with ``sink(msg)``, ``snapshot()`` and ``restore(position)`` will do. On Spark it must be
    `on_driver`.
    """

    on_driver: ClassVar[bool] = True

    @abstractmethod
    def snapshot(self) -> S | None:
        """Return the position after all that was taken, which must be durable now.

        It is picklable, and not changed afterwards; None where there is nothing to go back to. Called between ticks.
        """

    @abstractmethod
    def restore(self, position: S | None) -> None:
        """Go back to a position. Called once, before the first record of a run that resumes.

        Args:
            position: what `snapshot` returned; None where the snapshot has no position of this sink.
        """


def is_resumable(impl: object) -> bool:
    """Whether a sink's position is kept."""
    return offers(impl, "snapshot") and offers(impl, "restore")


class StatefulSinkPartition(StatelessSinkImpl[K, V, T], Generic[K, V, T, S]):
    """The writer of one part of a stateful sink. Subclassing is optional."""

    @abstractmethod
    def snapshot(self) -> S:
        """Give what `build_part` needs to go on from here: picklable, and not changed afterwards."""

    def collect(self) -> S:
        """Give the state for the last time: the part moves to another worker, and is built there from it.

        `close` follows. By default a snapshot.
        """
        return self.snapshot()


class StatefulSinkImpl(Generic[K, V, T, P, S]):
    """A sink that is split into parts, each with a state of its own. Subclassing is optional."""

    @abstractmethod
    def assign_part(self, msg: DataMessage[K, V, T]) -> P:
        """Name the part that a message goes to. A part is a key like any other; one worker holds it."""

    @abstractmethod
    def build_part(self, part: P, state: S | None) -> StatefulSinkPartition[K, V, T, S]:
        """Build the writer of one part at its first message, from its state where there is one."""


@dataclass(frozen=True, slots=True)
class StatelessSink(Generic[K, V, T]):
    """A sink without state.

    Args:
        impl: any object with ``sink(msg)``; ``sink_batch``, ``flush`` and ``close`` are used where it has them.

    Raises:
        GraphError: if `impl` has no ``sink``.
    """

    impl: StatelessSinkImpl[K, V, T]

    def __post_init__(self) -> None:
        if hasattr(self.impl, "assign_part") and not hasattr(self.impl, "sink"):
            raise GraphError(f"StatelessSink got {shown(self.impl)}, a sink of parts; write StatefulSink(...)")
        require_methods(self.impl, "StatelessSink", ("sink",))
        refuse_deferred(self.impl, "StatelessSink", ("sink_batch", "flush", "close"))


@dataclass(frozen=True, slots=True)
class StatefulSink(Generic[K, V, T, P, S]):
    """A sink of parts with state; every message goes to the worker that holds its part.

    Args:
        impl: any object with ``assign_part(msg)`` and ``build_part(part, state)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatefulSinkImpl[K, V, T, P, S]

    def __post_init__(self) -> None:
        if hasattr(self.impl, "sink") and not hasattr(self.impl, "assign_part"):
            raise GraphError(f"StatefulSink got {shown(self.impl)}, a sink without parts; write StatelessSink(...)")
        require_methods(self.impl, "StatefulSink", ("assign_part", "build_part"))
        require_arguments(
            self.impl.build_part, "StatefulSink", ("part", "state"), "let it take the state, None at first"
        )
