"""The messages between the coordinator and the worker processes of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from malflow.engine.parts.places import PartMove, Parts, Place
from malflow.engine.reports import Report
from malflow.engine.state_specs import States
from malflow.event_time.tick import Tick
from malflow.operators.waiting import OperatorTime, Waiting
from malflow.runtime.transport.chunks import Chunk
from malflow.runtime.transport.surroundings import Surroundings

if TYPE_CHECKING:
    from malflow.runtime.transport.states import PackedQuestion
    from malflow.snapshot.codecs.contract import Codec
    from malflow.snapshot.codecs.shapes import Finding
    from malflow.snapshot.compression import Compression
    from malflow.snapshot.protocol.commit import DataWriter
    from malflow.snapshot.protocol.manifest import FileEntry

__all__ = [
    "CHECK_MOVES",
    "CLOSE",
    "GATHER",
    "HELD",
    "READ",
    "STATES",
    "TIMES",
    "AddParts",
    "Ask",
    "AskQuestions",
    "Begin",
    "Capture",
    "Captured",
    "CheckGone",
    "Closed",
    "ContinueTicks",
    "Done",
    "Failed",
    "Gathered",
    "Logged",
    "Message",
    "PeerLost",
    "Printed",
    "Reply",
    "RunTick",
    "Settle",
    "Setup",
    "Ticked",
    "Warned",
    "WriteFiles",
    "WrittenFiles",
]

A_co = TypeVar("A_co", covariant=True)


# Answers of a worker process


class Ticked(NamedTuple):
    """The outcome of a tick.

    Attributes:
        reports: the reports of the workers.
        output: the records for sinks on the driver, each chunk with the number of its sink.
    """

    reports: Sequence[Report]
    output: Sequence[tuple[int, Chunk]]


class Captured(NamedTuple):
    """The changes since the last snapshot.

    Attributes:
        keys: the number of keys of each changed state, by worker and name.
        findings: the classes in the states.
        deltas: the changes of each state, pickled; empty if the process itself writes them.
        is_full: whether the files that the process will write hold all state.
    """

    keys: Mapping[tuple[int, str], int]
    findings: Sequence[Finding]
    deltas: Sequence[bytes]
    is_full: bool = False


class Gathered(NamedTuple):
    """All state of a process.

    Attributes:
        states: the states by worker and name, each pickled.
        finished: the finished parts of sources, by worker and name.
    """

    states: Mapping[tuple[int, str], bytes]
    finished: Mapping[int, Mapping[str, Collection[Any]]]


class Closed(NamedTuple):
    """The workers of a process are closed, and the process ends.

    Attributes:
        errors: the pickled errors of closing.
    """

    errors: Sequence[bytes]


# To a worker process


@dataclass(frozen=True, slots=True)
class Setup:
    """The facts that hold for the whole life of a process.

    Objects of the user's are pickled in it: they are unpickled after the classes of the script.

    Attributes:
        program: the pickled program and classes of the script: see `malflow.runtime.processes.host`.
        process: the number of the process.
        tracked: whether the run takes snapshots.
        debug: whether to make checks that are too expensive for production.
        levels: the levels of loggers by name, the root's under ``""``, and whether they propagate.
        disabled: the level up to which logging is disabled.
        filters: the filters of warnings, each pickled.
        surroundings: the settings of the script's interpreter.
    """

    program: bytes = field(repr=False)
    process: int
    tracked: bool
    debug: bool
    levels: Mapping[str, tuple[int, bool]]
    disabled: int
    filters: Sequence[bytes] = field(repr=False)
    surroundings: Surroundings = field(default_factory=Surroundings, repr=False)


class Message(Generic[A_co]):
    """A command to a worker process, answered by an `A_co`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Begin(Message[frozenset[Place]]):
    """Make workers, in place of earlier ones, load their states, and open them; return the live places.

    Attributes:
        tick: the number of the last tick that the states include.
        owners: the process of each worker.
        listed: the parts of each source.
        parts: the parts of each source that each worker holds.
        discovered: the parts of each source that appeared after the job's first start.
        states: the states of the workers of the process, by worker and name.
        changed: the states that differ from those in the last snapshot.
        finished: the finished parts of sources, by worker and name.
    """

    tick: int
    owners: Sequence[int]
    listed: Mapping[str, Sequence[Any]]
    parts: Parts
    discovered: Mapping[str, set[Any]]
    states: Mapping[int, Mapping[str, States]] = field(repr=False)
    changed: Mapping[int, Collection[str]] = field(repr=False)
    finished: Mapping[int, Mapping[str, Collection[Any]]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunTick(Message[Ticked]):
    """Run a tick."""

    tick: Tick


@dataclass(frozen=True, slots=True)
class Capture(Message[Captured]):
    """Serialise the changes since the last snapshot.

    Attributes:
        tick: the number of the last tick.
        full: whether to serialise all state.
        codec: the codec; None to return the changes, for a session that writes them elsewhere.
    """

    tick: int
    full: bool
    codec: Codec | None


@dataclass(frozen=True, slots=True)
class Settle(Message[list[tuple[str, bytes]]]):
    """Handle the end of a snapshot; return the pickled errors of readers that could not confirm, by source.

    Attributes:
        tick: the tick of its states.
        snapshot: its id; None if it failed.
    """

    tick: int
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class AskQuestions(Message[list[dict[int, bytes]]]):
    """Answer questions about states; return, for each question, the pickled answers of its workers.

    Attributes:
        questions: the questions.
    """

    questions: Sequence[PackedQuestion]


@dataclass(frozen=True, slots=True)
class CheckGone(Message[None]):
    """Fail if parts that are no longer listed are unfinished.

    Attributes:
        gone: the parts, by source.
    """

    gone: Mapping[str, Sequence[Any]]


class ReadSoFar(NamedTuple):
    """How far the workers of a process have read.

    Attributes:
        epochs: the states of the epoch (watermark) generators, by name and worker.
        ended: the parts of each source that have been read to their end.
    """

    epochs: dict[str, dict[int, States]]
    ended: dict[str, set[Any]]


@dataclass(frozen=True, slots=True)
class AddParts(Message[frozenset[Place]]):
    """Continue with new parts of sources; return the live places.

    Attributes:
        new: the new parts, by source.
        parts: the parts of each source that each worker holds, with the new ones.
        raised: the states of generators with raised epochs, by worker and name.
    """

    new: Mapping[str, Sequence[Any]]
    parts: Parts
    raised: Mapping[int, Mapping[str, States]]


class ToMove(NamedTuple):
    """What a process knows about a move of parts.

    Attributes:
        times: the epochs of its workers, each pickled, by the state's name and the worker.
        size: the bytes of the state that belongs to the parts, if the process has it and they are too many.
        states: the state that belongs to the parts, pickled, by the state's name; empty if another process has it.
        ended: those of the parts that have been read to their end, by source.
        heard: when each part was last heard, by source.
    """

    times: dict[str, dict[int, bytes]]
    size: int | None
    states: Mapping[str, bytes]
    ended: Mapping[str, Sequence[Any]]
    heard: Mapping[str, Mapping[Any, datetime]]


@dataclass(frozen=True, slots=True)
class GiveParts(Message[ToMove]):
    """Suspend the readers of parts that move, unless their state is too large, and return what belongs to them.

    Attributes:
        move: the move.
        limit: the most bytes of state that may move.
    """

    move: PartMove
    limit: int


@dataclass(frozen=True, slots=True)
class TakeParts(Message[frozenset[Place]]):
    """Continue with parts on their new worker; return the live places.

    Attributes:
        move: the move.
        states: the state that belongs to the parts, pickled, by the state's name.
        ended: those of the parts that have been read to their end, by source.
        heard: when each part was last heard, by source.
        times: the epochs with which the new worker continues, each pickled, by the state's name.
    """

    move: PartMove
    states: Mapping[str, bytes] = field(repr=False)
    ended: Mapping[str, Sequence[Any]]
    heard: Mapping[str, Mapping[Any, datetime]]
    times: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ContinueTicks(Message[tuple[frozenset[Place], list[Report]]]):
    """Continue as if the workers had made the ticks of an earlier run; return live places and reports; for tests.

    Attributes:
        finished: the sources and workers that had finished before its last tick.
    """

    finished: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Ask(Message[A_co]):
    """A command without a field: one of the constants below.

    Attributes:
        what: what to return or to do.
    """

    what: Literal["times", "held", "read", "states", "check_moves", "gather", "close"]


TIMES: Final[Ask[dict[int, dict[int, OperatorTime]]]] = Ask("times")
"""Return the progress of operators in event time, by worker and vertex."""

HELD: Final[Ask[dict[str, Waiting]]] = Ask("held")
"""Return the open results of operators."""

READ: Final[Ask[ReadSoFar]] = Ask("read")
"""Return the epochs and the ended parts, on which the deal of new parts depends."""

STATES: Final[Ask[dict[tuple[int, str], bytes]]] = Ask("states")
"""Return all states, each pickled, by worker and name; for tests."""

CHECK_MOVES: Final[Ask[None]] = Ask("check_moves")
"""Fail if a reader can't move to another process."""

GATHER: Final[Ask[Gathered]] = Ask("gather")
"""Return all state, and close the workers."""

CLOSE: Final[Ask[Closed]] = Ask("close")
"""Close the workers, and end."""


# From a worker process


class Done(NamedTuple):
    """A command was executed.

    Attributes:
        answer: the answer.
    """

    answer: Any


class Failed(NamedTuple):
    """A command has failed.

    Attributes:
        error: the pickled error.
    """

    error: bytes


class PeerLost(NamedTuple):
    """A tick can't end, since another process has closed its end.

    Attributes:
        process: the number of that process.
    """

    process: int


class Logged(NamedTuple):
    """A log record of a worker process.

    Attributes:
        record: the attributes of the record.
    """

    record: Mapping[str, Any]


class Printed(NamedTuple):
    """Text that was printed in a worker process.

    Attributes:
        stream: ``"stdout"`` or ``"stderr"``.
        text: the text.
    """

    stream: str
    text: str


class Warned(NamedTuple):
    """A warning of a worker process.

    Attributes:
        message: the warning.
        category: its class.
        filename, lineno: where it was issued.
    """

    message: Warning | str
    category: type[Warning]
    filename: str
    lineno: int


Reply: TypeAlias = Done | Failed | PeerLost | Logged | Printed | Warned


# Between the threads that write snapshots


class WriteFiles(NamedTuple):
    """Write the data files of the last `Capture`.

    Attributes:
        writer: writes the files.
        codec, compression: their encoding.
        base: whether the snapshot is a full one.
    """

    writer: DataWriter
    codec: Codec
    compression: Compression
    base: bool


class WrittenFiles(NamedTuple):
    """The outcome of `WriteFiles`.

    Attributes:
        written: the files.
        error: a pickled error; None if they were written.
    """

    written: Sequence[FileEntry]
    error: bytes | None = None
