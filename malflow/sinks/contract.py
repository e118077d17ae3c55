"""The sink contracts: an object that writes messages, either whole or split into parts with state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from malflow.errors import GraphError, check_arguments, check_methods, check_not_deferred, offers
from malflow.message import DataMessage
from malflow.type_parameters import K, P, S, T, V
from malflow.words import short_repr

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KeepingSinkImpl",
    "ResumableSinkImpl",
    "StatefulSink",
    "StatefulSinkImpl",
    "StatefulSinkPartition",
    "StatelessSink",
    "StatelessSinkImpl",
    "is_resumable",
    "offered",
    "optional",
]

M = TypeVar("M", bound=Callable[..., Any])


def optional(method: M) -> M:
    """Mark a method of a contract as its default, which `offered` does not count."""
    method.is_optional = True  # type: ignore[attr-defined] # a mark
    return method


class StatelessSinkImpl(Generic[K, V, T]):
    """A sink without state. Subclassing is optional: any object with ``sink(msg)`` works.

    One object serves every worker of a process. Delivery is at least once: after a restart the records since the last
    snapshot are written again. See `ResumableSinkImpl` for a sink that removes them first.

    Attributes:
        on_driver: whether one object in the process that started the run (the driver) writes the records of all
            workers, tick by tick. If False, each process has its own copy. False if an implementation lacks the
            attribute.
        reader_is_gone: whether the output has lost its reader; the run then ends as if by `stop`. Checked after each
            tick if the sink is on the driver.
        takes_all_or_none: whether `sink_batch` writes either all of its messages or, if it raises, none. Then a policy
            ``on_error=`` other than to fail still writes batches; otherwise it writes messages one by one. False if an
            implementation lacks the attribute.
        takes_columns: whether `sink_columns` is called, if the sink has it. True if an implementation lacks the
            attribute.
    """

    takes_all_or_none: ClassVar[bool] = False
    on_driver: ClassVar[bool] = False
    reader_is_gone: bool = False
    takes_columns: bool = True

    @abstractmethod
    def sink(self, msg: DataMessage[K, V, T]) -> None:
        """Write one message."""

    @optional
    def sink_batch(self, keys: Sequence[K], values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Write a batch of messages, as three columns of equal length. Don't mutate them.

        The default calls `sink`.
        """
        for message in map(DataMessage, keys, values, timestamps):
            self.sink(message)

    @optional
    def sink_columns(self, keys: Sequence[K] | None, batch: pa.RecordBatch, timestamps: Sequence[T]) -> None:
        """Write a batch of messages with values that came as columns and are records: dicts, or of a class.

        Optional: without it, Python objects are made of the columns, for `sink_batch`. The default is never called.

        Args:
            keys: the keys, such as a `malflow.columns.Column`; None if no message has one.
            batch: a column for each field of the values. Don't write into its buffers.
            timestamps: the timestamps, such as a `malflow.columns.Column`.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Make the written messages visible to readers. Called at the end of every tick."""

    def close(self) -> None:
        """Release resources. Called once when the run ends, whether it succeeded or failed."""


class ResumableSinkImpl(StatelessSinkImpl[K, V, T], Generic[K, V, T, S]):
    """A sink that can return to an earlier position, for exactly-once delivery.

    Its position is part of every snapshot, including the one taken before a run's first record. A run that resumes
    passes it to `restore`. The sink can then remove messages written after the snapshot; the run then writes them
    again. Subclassing is optional: any object with ``sink(msg)``, ``snapshot()`` and ``restore(position)`` works. On
    runtimes with several processes it must be `on_driver`.
    """

    on_driver: ClassVar[bool] = True

    @abstractmethod
    def snapshot(self) -> S | None:
        """Return the position after all messages written so far. They must be durable.

        It must be picklable, and not mutated afterwards; None if the sink cannot return to it. Called between ticks.
        """

    @abstractmethod
    def restore(self, position: S | None) -> None:
        """Return to a position. Called once when a run resumes, before its first record.

        Args:
            position: the result of `snapshot`; None if the snapshot has no position of this sink.
        """


class KeepingSinkImpl(StatelessSinkImpl[K, V, T], Generic[K, V, T]):
    """A sink that keeps batches for later, and does not read them when they come."""

    @abstractmethod
    def keep(self, keys: Sequence[K] | None, values: Sequence[V], timestamps: Sequence[T]) -> None:
        """Keep a batch of messages: its values may be `Columnar`, its keys and timestamps columns."""


_SIMPLER = {
    "sink_batch": ("sink",),
    "sink_columns": ("sink_batch", "sink", "encode"),
    "encode_columns": ("encode",),
    "keep": ("sink_columns", "sink_batch", "sink"),
}
"""The methods of sinks that take several messages, and the simpler ones that they stand for."""


def offered(sink: Any, method: str) -> Callable[..., Any] | None:
    """Return a method of a sink that takes several messages; None if it has none of its own.

    That of a contract does not count, nor one that a subclass has made obsolete: it overrides a simpler one.
    """
    for cls in type(sink).__mro__:
        if method in vars(cls):
            found: Callable[..., Any] = getattr(sink, method)
            return None if getattr(found, "is_optional", False) else found
        if any(simpler in vars(cls) for simpler in _SIMPLER[method]):
            return None
    return getattr(sink, method, None)


def takes_columns(impl: object) -> bool:
    """Whether a sink takes batches of columns without making rows of them."""
    if isinstance(impl, KeepingSinkImpl):
        return True
    has_methods = any(offered(impl, method) is not None for method in ("sink_columns", "encode_columns"))
    return has_methods and bool(getattr(impl, "takes_columns", True))


def is_resumable(impl: object) -> bool:
    """Whether a sink's position is part of snapshots."""
    return offers(impl, "snapshot") and offers(impl, "restore")


class StatefulSinkPartition(StatelessSinkImpl[K, V, T], Generic[K, V, T, S]):
    """The writer of one part of a stateful sink. Subclassing is optional."""

    @abstractmethod
    def snapshot(self) -> S:
        """Return the state from which `build_part` can resume. It must be picklable, and not mutated afterwards."""

    def collect(self) -> S:
        """Return the final state of a part that moves to another worker. That worker builds a writer from it.

        `close` is called next. The default returns `snapshot`.
        """
        return self.snapshot()


class StatefulSinkImpl(Generic[K, V, T, P, S]):
    """A sink that is split into parts, each with its own state. Subclassing is optional."""

    @abstractmethod
    def assign_part(self, msg: DataMessage[K, V, T]) -> P:
        """Return the part that a message belongs to. A part must be a valid key; one worker owns it."""

    @abstractmethod
    def build_part(self, part: P, state: S | None) -> StatefulSinkPartition[K, V, T, S]:
        """Return a writer of one part, from its state if it has one. Called at the part's first message."""


@dataclass(frozen=True, slots=True)
class StatelessSink(Generic[K, V, T]):
    """A sink without state.

    Args:
        impl: any object with ``sink(msg)``; ``sink_batch``, ``flush`` and ``close`` are called if it has them.

    Raises:
        GraphError: if `impl` has no ``sink``.
    """

    impl: StatelessSinkImpl[K, V, T]

    def __post_init__(self) -> None:
        if hasattr(self.impl, "assign_part") and not hasattr(self.impl, "sink"):
            raise GraphError(f"StatelessSink got {short_repr(self.impl)}, a sink of parts; write StatefulSink(...)")
        check_methods(self.impl, "StatelessSink", ("sink",))
        check_not_deferred(self.impl, "StatelessSink", ("sink_batch", "flush", "close"))


@dataclass(frozen=True, slots=True)
class StatefulSink(Generic[K, V, T, P, S]):
    """A sink of parts with state; every message goes to the worker that owns its part.

    Args:
        impl: any object with ``assign_part(msg)`` and ``build_part(part, state)``.

    Raises:
        GraphError: if `impl` lacks one of these methods.
    """

    impl: StatefulSinkImpl[K, V, T, P, S]

    def __post_init__(self) -> None:
        if hasattr(self.impl, "sink") and not hasattr(self.impl, "assign_part"):
            raise GraphError(
                f"StatefulSink got {short_repr(self.impl)}, a sink without parts; write StatelessSink(...)"
            )
        check_methods(self.impl, "StatefulSink", ("assign_part", "build_part"))
        check_arguments(
            self.impl.build_part, "StatefulSink", ("part", "state"), "accept the state, which is None at first"
        )
