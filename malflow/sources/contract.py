"""What a source is: an implementation that lists its parts and builds a reader for each."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from malflow.errors import require_arguments, require_methods

__all__ = [
    "StatefulSource",
    "StatefulSourceImpl",
    "StatefulSourcePartition",
    "StatelessSource",
    "StatelessSourceImpl",
    "StatelessSourcePartition",
    "poll_until",
]

P = TypeVar("P")
V = TypeVar("V")
T = TypeVar("T")
S = TypeVar("S")

POLL_SECONDS = 0.01
"""How long one call may go on collecting records that come one by one, before it hands over what it has."""


class StatelessSourcePartition(Generic[V, T]):
    """A reader of one part. Subclassing is optional: any object with these methods will do."""

    @abstractmethod
    def poll(self) -> tuple[V, T] | None:
        """Give the next ``(value, timestamp)``, or None when there is nothing now. Must not block."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Tell whether no record will ever come again. A finished part is not polled any more."""

    def suspend(self) -> None:
        """Let go of what is held outside (connections, files): this reader is not polled again."""

    def poll_batch(self, limit: int) -> tuple[Sequence[V], Sequence[T]]:
        """Give up to `limit` records as two columns of one length; empty columns when there is nothing now.

        The default is written over `poll`.
        """
        return poll_until(self, limit)


class StatefulSourcePartition(StatelessSourcePartition[V, T], Generic[V, T, S]):
    """A reader of one part that knows its position and can start again from it."""

    @abstractmethod
    def snapshot(self) -> S:
        """Give the position after the last record handed over: picklable, and not changed afterwards."""

    def collect(self) -> S:
        """Give the position for the last time: the part moves to another worker, and is built there from it.

        `suspend` follows. By default a snapshot.
        """
        return self.snapshot()

    def go_on_from(self, position: S) -> bool:
        """Go on from a position that another reader of the part has reached, and tell whether that is possible.

        On Spark readers move between processes, and come back later. Where this tells False, which is the default, the
        reader is suspended and another one is built from the position. Worth having where building costs more than
        reading on, as with a compressed file.
        """
        del position
        return False


class StatelessSourceImpl(Generic[P, V, T]):
    """A source whose parts begin again when they are built again. Subclassing is optional.

    Attributes:
        keyed: whether the records have their part as key; where it is False they have no key. Taken as True where an
            implementation does not say.
        in_order: whether a worker reads its parts one after the other, in the order in which they were listed, each
            until it is finished. Taken as False where an implementation does not say.
    """

    keyed: ClassVar[bool] = True
    in_order: bool = False

    @abstractmethod
    def list_parts(self) -> Iterable[P]:
        """List the parts, once a run. A part is a key like any other: it is the key of the records read from it."""

    @abstractmethod
    def build_part(self, part: P) -> StatelessSourcePartition[V, T]:
        """Build the reader of one part."""


class StatefulSourceImpl(Generic[P, V, T, S]):
    """A source whose parts resume from a position. Subclassing is optional.

    It may have a method ``present_part(part)``, which returns the name that a part of an older snapshot has now.

    Attributes:
        keyed: whether the records have their part as key; where it is False they have no key. Taken as True where an
            implementation does not say.
        in_order: whether a worker reads its parts one after the other, in the order in which they were listed, each
            until it is finished. Taken as False where an implementation does not say.
    """

    keyed: ClassVar[bool] = True
    in_order: bool = False

    @abstractmethod
    def list_parts(self) -> Iterable[P]:
        """List the parts, once a run. A part is a key like any other: it is the key of the records read from it."""

    @abstractmethod
    def build_part(self, part: P, state: S | None) -> StatefulSourcePartition[V, T, S]:
        """Build the reader of one part, from the position `state`, or from the beginning when it is None."""


@dataclass(frozen=True, slots=True)
class StatelessSource(Generic[P, V, T]):
    """A source whose parts begin again when the run is restarted.

    Args:
        impl: any object with ``list_parts()`` and ``build_part(part)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatelessSourceImpl[P, V, T]

    def __post_init__(self) -> None:
        require_methods(self.impl, "StatelessSource", ("list_parts", "build_part"))
        instead = "write StatefulSource(...), whose parts are built from a position"
        require_arguments(self.impl.build_part, "StatelessSource", ("part",), instead)

    def build_part(self, part: P, state: Any) -> StatelessSourcePartition[V, T]:
        """Build the reader of one part; there is no position to start from."""
        del state
        return self.impl.build_part(part)


@dataclass(frozen=True, slots=True)
class StatefulSource(Generic[P, V, T, S]):
    """A source whose parts resume where they were when they move or restart.

    Args:
        impl: any object with ``list_parts()`` and ``build_part(part, state)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatefulSourceImpl[P, V, T, S]

    def __post_init__(self) -> None:
        require_methods(self.impl, "StatefulSource", ("list_parts", "build_part"))
        instead = "write StatelessSource(...), or let it take the position, None at first"
        require_arguments(self.impl.build_part, "StatefulSource", ("part", "state"), instead)

    def build_part(self, part: P, state: S | None) -> StatefulSourcePartition[V, T, S]:
        """Build the reader of one part, from a position where there is one."""
        return self.impl.build_part(part, state)


def poll_until(partition: StatelessSourcePartition[V, T], limit: int) -> tuple[list[V], list[T]]:
    """Collect what `partition.poll` gives: up to `limit` records, or as many as come in `POLL_SECONDS`.

    It stops at the first None, and never polls a partition that says it is finished.
    """
    values: list[V] = []
    timestamps: list[T] = []
    deadline = time.monotonic() + POLL_SECONDS
    while len(values) < limit and not partition.is_finished():
        record = partition.poll()
        if record is None:
            break
        try:
            value, timestamp = record
        except (TypeError, ValueError) as error:
            raise TypeError(f"poll() must return (value, timestamp) or None; got {record!r}") from error
        values.append(value)
        timestamps.append(timestamp)
        if time.monotonic() >= deadline:
            break
    return values, timestamps
