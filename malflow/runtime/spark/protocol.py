"""What every process needs to know of a run, and what changes of it from tick to tick."""

from __future__ import annotations

import json
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from malflow.engine.plan import Program
from malflow.engine.worker import LATE
from malflow.runtime.spark.changelog import Scratch, ScratchPlace

__all__ = ["COMMAND", "RunSpec", "StageReport", "TickCommand", "counted", "packed", "unpacked"]

COMMAND: Final = "malflow.command"
"""The local property of Spark by which the driver tells the tasks of a tick what they must know."""

_LARGEST = 64 << 10
"""Bytes of a program that are sent with each task; a larger one is read once by each process."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One generation of workers of a run.

    Attributes:
        generation: its number.
        parallelism: how many workers there are.
        payload: the program, and the parts of each source that each worker holds; empty where they lie in scratch.
        scratch: where changes lie.
        attempts: how often Spark tries a task.
        most: how many records a worker may poll in a tick, over all of its sources.
        poll_seconds: how long a worker goes on polling in a tick, as long as there is anything.
        debug: whether to check what costs too much to check always.
        number: the number of the run; zero is never over.
    """

    generation: int
    parallelism: int
    payload: bytes = field(repr=False)
    scratch: ScratchPlace
    attempts: int
    most: int | None
    poll_seconds: float
    debug: bool
    number: int = 0


@dataclass(frozen=True, slots=True)
class TickCommand:
    """What the driver tells the tasks of a tick.

    Attributes:
        tick: its number.
        last: for each stage and worker the tick of its last change.
        ended: the sources that have no unfinished part on any worker.
        polls: whether sources are polled.
        final: whether this is the end: `MAX` flows.
        whole: whether all state is to be written down, and not only what changed.
        rewrites: the stages and workers whose state alone is to be written down so.
        most: how many records a worker may poll; None for as many as the spec allows.
        going: the runs that are going on; see `malflow.runtime.spark.live_runs.Going`.
    """

    tick: int
    last: Sequence[Sequence[int]]
    ended: Sequence[str] = ()
    polls: bool = True
    final: bool = False
    whole: bool = False
    rewrites: Sequence[tuple[int, int]] = ()
    most: int | None = None
    going: tuple[int, Collection[int]] = (0, ())

    def asks_all_of(self, stage: int, worker: int) -> bool:
        """Whether a worker is to write down all of its state, and not only what changed."""
        return self.whole or any((stage, worker) == tuple(it) for it in self.rewrites)

    def dumps(self) -> str:
        """Write it as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def loads(cls, text: str) -> TickCommand:
        """Read it."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class StageReport:
    """What a worker tells of one stage of a tick.

    Attributes:
        tick, stage, worker: which.
        bytes: the size of its change; None where nothing has changed.
        whole: whether the change is all of its state.
        keys: how many keys each state holds that has changed.
        polled: how many records the sources gave.
        live: the sources that have an unfinished part here.
        taken: how many records came, by channel and sender.
        sent: how many records went on, by channel and target.
        noted: whether it is written down, until the tick is over, that nothing came and nothing changed.
        process: the process of Python that did it, where this was the last stage; before that Spark compares what is
            sent again with what was sent.
    """

    tick: int
    stage: int
    worker: int
    bytes: int | None
    whole: bool
    keys: Mapping[str, int]
    polled: int
    live: Sequence[str]
    taken: Mapping[tuple[int, int], int]
    sent: Mapping[tuple[int, int], int] = field(default_factory=dict)
    noted: bool = False
    process: str = ""


def counted(program: Program) -> list[str]:
    """Name what the counts of a report are of."""
    return [*(vertex.node.name for vertex in program.vertices), *(name + LATE for name in program.generators)]


def packed(data: bytes, place: ScratchPlace, scratch: Scratch) -> tuple[bytes, ScratchPlace]:
    """Return what each task gets of a program, and of the place where changes lie.

    A large program, or large classes of the script, are put into the scratch folder instead.

    Raises:
        StoreError: if they can't be written.
    """
    if len(data) + len(place.classes) <= _LARGEST:
        return data, place
    scratch.write_program(pickle.dumps((place.classes, data), 5))
    return b"", replace(place, classes=b"")


def unpacked(spec: RunSpec, scratch: Scratch) -> tuple[bytes, bytes]:
    """Return the classes of the script and the program, as they were before `packed`.

    Raises:
        RunFailed: if they can't be read.
    """
    if spec.payload:
        return spec.scratch.classes, spec.payload
    classes, data = pickle.loads(scratch.read_program())  # noqa: S301 - the driver wrote it
    return classes, data
