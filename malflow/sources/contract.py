"""The source contracts: an implementation lists its parts and builds a reader for each."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple

from malflow.durations import Duration
from malflow.errors import check_arguments, check_methods
from malflow.failures import OnError
from malflow.type_parameters import P, S, T, V

__all__ = [
    "Rejected",
    "StatefulSource",
    "StatefulSourceImpl",
    "StatefulSourcePartition",
    "StatelessSource",
    "StatelessSourceImpl",
    "StatelessSourcePartition",
    "poll_until",
]


class Rejected(NamedTuple):
    """A raw record that a reader could not read.

    Attributes:
        value: the raw record.
        timestamp: its timestamp, or the nearest one known.
        place: where it was read, such as a file and a line; None if it was read again, from a dead letter.
        error: the kind of the error, such as ``BadRecord``.
        reason: why it could not be read.
    """

    value: Any
    timestamp: Any
    place: str | None
    error: str
    reason: str


POLL_SECONDS = 0.01
"""How long one call may collect records that arrive one by one."""


class StatelessSourcePartition(Generic[V, T]):
    """A reader of one part. Subclassing is optional: any object with these methods works.

    It may have these methods:

    - ``set_clock(now, started)``: called before the polls of a tick with the time of the tick and that of the run's
      first tick, in UTC. A repeated tick has the same time;
    - ``position()``: returns the position for the source's ``resume_part()``, see `StatelessSourceImpl`;
    - ``share()``: returns how much has been read, see `StatefulSourcePartition`;
    - ``take_skipped()``: returns the time, a timedelta, by which to advance the clock of ticks since the last call. For
      test scripts.
    """

    @abstractmethod
    def poll(self) -> tuple[V, T] | None:
        """Return the next ``(value, timestamp)``, or None if none is available now. Must not block."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Whether the part has no more records. A finished part is not polled again in the run, even if it moves."""

    def suspend(self) -> None:
        """Release external resources (connections, files): this reader is not polled again."""

    def poll_batch(self, limit: int) -> tuple[Sequence[V], Sequence[T]]:
        """Return up to `limit` records as two columns of equal length; empty columns if none are available now.

        The default calls `poll`.
        """
        return poll_until(self, limit)


class StatefulSourcePartition(StatelessSourcePartition[V, T], Generic[V, T, S]):
    """A reader of one part that has a position and can resume from it."""

    @abstractmethod
    def snapshot(self) -> S:
        """Return the position after the last record returned. It must be picklable, and not mutated afterwards."""

    def collect(self) -> S:
        """Return the final position of a part that moves to another worker. That worker builds a reader from it.

        `suspend` is called next. The default returns `snapshot`.
        """
        return self.snapshot()

    def go_on_from(self, position: S) -> bool:
        """Continue from a position that another reader of the part has reached; return whether this succeeded.

        On Spark, readers move between processes and may return later. If this returns False, the default, the reader is
        suspended and a new one is built from the position. Implement it if building costs more than skipping records,
        as with a compressed file.
        """
        del position
        return False

    def committed(self, position: S) -> None:
        """Confirm a position to the external system: its snapshot is durable. Optional; the default does nothing.

        It is called between two ticks, in the process that reads the part, with the part's position in that snapshot.
        The reader has usually passed it. One call, with the newest position, may confirm several snapshots. After a
        restart, the restored position may be confirmed again.

        A confirmation only lets the external system delete data, or shows progress to others. If this raises, the run
        continues, reports the error as a `malflow.events.ConfirmationFailed`, and confirms the next snapshot's position
        as usual.
        """

    def lag(self) -> int | None:
        """Return how much input waits after the position, in the source's own unit; None if unknown.

        It is called at the end of each tick, so it must not query a server. Optional; `malflow.Progress` shows it.
        """
        return None

    def share(self) -> tuple[int, int] | None:
        """Return how much of the part has been read, and how much there is in all, in one unit; None if unknown.

        All parts of the source use the same unit, such as bytes or records. None may also mean that the part has no
        end. It may be called at the end of each tick, so it must not query a server. Optional; ``malflow run --live``
        shows it as a progress bar.
        """
        return None

    def take_rejected(self) -> Sequence[Rejected]:
        """Return the records that could not be read since the last call and that the policy skips or keeps.

        It is called after each poll. Optional, for readers of a source that has a `policy`.
        """
        return ()


class StatelessSourceImpl(Generic[P, V, T]):
    """A source with parts that restart from the beginning when they are rebuilt. Subclassing is optional.

    It may have a method ``resume_part(part, position)``. It returns a reader that continues from the ``position()`` of
    another reader in the same run. Without it, readers are pickled to move between processes. ``part_sizes(parts)`` is
    as for `StatefulSourceImpl`.

    Attributes:
        keyed: whether a record's key is its part; if False, records have no key. True if an implementation lacks the
            attribute.
        in_order: whether a worker reads its parts one after the other, in the order of the list. False if an
            implementation lacks the attribute.
        discover_every: how often the parts are listed again, to find new ones; the run then ends only when it is
            stopped. None, also if an implementation lacks the attribute, to list them once per run.
        in_one_process: whether readers must stay in the process that started the run, like servers; runtimes with
            several processes reject such a source. False if an implementation lacks the attribute.
        bounded: whether all parts end: with several workers, a worker may then read one after the other of many parts.
            False if an implementation lacks the attribute.
        emits_columns: whether its batches are columns, for drawings. False if an implementation lacks the attribute.
    """

    keyed: ClassVar[bool] = True
    in_order: bool = False
    discover_every: Duration | None = None
    in_one_process: ClassVar[bool] = False
    bounded: bool = False
    emits_columns: bool = False

    @abstractmethod
    def list_parts(self) -> Iterable[P]:
        """Return the parts; called once per run, or every `discover_every`.

        A part must be a valid key, since it is the key of its records. With `discover_every`, the run fails if a part
        is no longer listed, unless its reader is finished.
        """

    @abstractmethod
    def build_part(self, part: P) -> StatelessSourcePartition[V, T]:
        """Return a reader of one part."""


class StatefulSourceImpl(Generic[P, V, T, S]):
    """A source with parts that resume from a position. Subclassing is optional.

    It may have these methods:

    - ``present_part(part)``: returns the current name of a part from an older snapshot;
    - ``renamed_parts(positions, listed)``: returns the new names, by the old ones, of parts that were renamed since the
      snapshot, given its positions by part and the current parts. A part that reuses a name is then new;
    - ``list_again()``: lists the parts as `list_parts` does, every `discover_every` after a run has begun;
    - ``part_sizes(parts)``: returns the known sizes of unread parts, by part, in the unit of a reader's ``share()``. Of
      a `bounded` source, the largest parts are read first. Called in the process that started the run.

    Attributes:
        keyed: whether a record's key is its part; if False, records have no key. True if an implementation lacks the
            attribute.
        in_order: whether a worker reads its parts one after the other, in the order of the list. False if an
            implementation lacks the attribute.
        discover_every: how often the parts are listed again, to find new ones; the run then ends only when it is
            stopped. None, also if an implementation lacks the attribute, to list them once per run.
        in_one_process: whether readers must stay in the process that started the run, like servers; runtimes with
            several processes reject such a source. False if an implementation lacks the attribute.
        policy: the policy for records that its readers can't read. None if the source has no policy; an implementation
            may then omit it. A source with a policy has readers with ``take_rejected``, and ``with_policy(policy)``.
            The latter returns the source with another policy. It may have ``read_again(part, raw)``. It returns the
            value of a dead letter's raw record, for replays.
        bounded: whether all parts end: with several workers, a worker may then read one after the other of many parts.
            Each is built where it is read, when it is begun. False if an implementation lacks the attribute.
        emits_columns: whether its batches are columns, for drawings. False if an implementation lacks the attribute.
    """

    keyed: ClassVar[bool] = True
    in_order: bool = False
    discover_every: Duration | None = None
    in_one_process: ClassVar[bool] = False
    bounded: bool = False
    emits_columns: bool = False
    policy: OnError | None = None

    @abstractmethod
    def list_parts(self) -> Iterable[P]:
        """Return the parts; called once per run, or every `discover_every`.

        A part must be a valid key, since it is the key of its records. With `discover_every`, the run fails if a part
        is no longer listed, unless its reader is finished.
        """

    @abstractmethod
    def build_part(self, part: P, state: S | None) -> StatefulSourcePartition[V, T, S]:
        """Return a reader of one part, starting at the position `state`, or at the beginning if it is None."""

    def build_discovered_part(self, part: P) -> StatefulSourcePartition[V, T, S]:
        """Return a reader of a part that appeared after the job's first start, in a run or between two runs.

        All its records were written since then, so read it from its beginning, even if the initial parts start at their
        end. The default returns ``build_part(part, None)``.
        """
        return self.build_part(part, None)


@dataclass(frozen=True, slots=True)
class StatelessSource(Generic[P, V, T]):
    """A source with parts that restart from the beginning when the run is restarted.

    Args:
        impl: any object with ``list_parts()`` and ``build_part(part)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatelessSourceImpl[P, V, T]

    def __post_init__(self) -> None:
        check_methods(self.impl, "StatelessSource", ("list_parts", "build_part"))
        instead = "write StatefulSource(...), which passes a position"
        check_arguments(self.impl.build_part, "StatelessSource", ("part",), instead)

    def build_part(self, part: P, state: Any) -> StatelessSourcePartition[V, T]:
        """Return a reader of one part; the position is ignored."""
        del state
        return self.impl.build_part(part)


@dataclass(frozen=True, slots=True)
class StatefulSource(Generic[P, V, T, S]):
    """A source with parts that resume from their positions when they move or restart.

    Args:
        impl: any object with ``list_parts()`` and ``build_part(part, state)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatefulSourceImpl[P, V, T, S]

    def __post_init__(self) -> None:
        check_methods(self.impl, "StatefulSource", ("list_parts", "build_part"))
        instead = "write StatelessSource(...), or accept the position, which is None at first"
        check_arguments(self.impl.build_part, "StatefulSource", ("part", "state"), instead)

    def build_part(self, part: P, state: S | None) -> StatefulSourcePartition[V, T, S]:
        """Return a reader of one part, starting at the position if there is one."""
        return self.impl.build_part(part, state)

    def build_discovered_part(self, part: P) -> StatefulSourcePartition[V, T, S]:
        """Return a reader of a part that has appeared since the job's first start."""
        if hasattr(self.impl, "build_discovered_part"):
            return self.impl.build_discovered_part(part)
        return self.impl.build_part(part, None)


def poll_until(partition: StatelessSourcePartition[V, T], limit: int) -> tuple[list[V], list[T]]:
    """Poll up to `limit` records, for at most `POLL_SECONDS`.

    Stop at the first None, and never poll a finished partition.
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
