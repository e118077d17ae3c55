"""The messages between the driver and its tasks: the run's spec, a tick's command, a stage's report."""

from __future__ import annotations

import json
import pickle
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.errors import OperatorError
from malflow.event_time.tick import Tick
from malflow.failures import Replay
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.transport.error_pickles import loaded_error
from malflow.runtime.transport.surroundings import Surroundings

__all__ = [
    "COMMAND",
    "RunSpec",
    "StageReport",
    "TickCommand",
    "names_of_counts",
    "pack_program",
    "unpack_program",
]

COMMAND: Final = "malflow.command"
"""The Spark local property that carries the command of a tick to its tasks."""

_PLACES: Final = ("finished", "quiet")
"""The attributes of a command that are pairs of source and worker."""

_SHORT: Final = 2_048
"""Characters of a command that is not compressed."""

_MICROSECOND = timedelta(microseconds=1)

_Pickled: TypeAlias = bytes

_LARGEST = 64 << 10
"""Bytes of the largest program that is sent with each task; each process reads a larger one once."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One generation of workers of a run.

    Attributes:
        generation: the number of the generation.
        parallelism: the number of workers.
        payload: the pickled program, each worker's parts of each source, and the parts that wait; empty if they are in
            the scratch folder.
        scratch: the place of the changelog.
        attempts: the number of times that Spark tries a task.
        most: the maximum number of records that a worker polls in a tick, over all of its sources.
        poll_seconds: how long a worker keeps polling in a tick while there is input.
        debug: whether to make checks that are too expensive for production.
        number: the number of the run; a run with the number zero never counts as ended.
        surroundings: the settings of the driver's interpreter.
    """

    generation: int
    parallelism: int
    payload: bytes = field(repr=False)
    scratch: ScratchFolder
    attempts: int
    most: int | None
    poll_seconds: float
    debug: bool
    number: int = 0
    surroundings: Surroundings = field(default_factory=Surroundings, repr=False)


@dataclass(frozen=True, slots=True)
class TickCommand:
    """The driver's command to the tasks of a tick.

    Attributes:
        tick: the number of the tick.
        last: the tick of the last changelog entry of each stage and worker.
        ended: the sources that have no unfinished part on any worker.
        finished: pairs of source and worker: the source has no unfinished part on that worker.
        lifts: the epochs to which generators advance, pickled in base 64; empty if there are none.
        now: when the tick began, in ISO format.
        started: when the first tick of the run began, in ISO format.
        passed: the microseconds between the start of the previous tick and of this one.
        quiet: pairs of source and worker: the source emitted nothing there in the previous tick.
        quiet_time: the `passed` of the previous tick.
        queries: questions to states, pickled in base 64 or a mark: see `malflow.runtime.spark.tick_queries`; empty if
            there are none.
        explains: whether tasks report the progress of operators in event time.
        asks_held: whether the input has ended and tasks report the open results of operators.
        replays: the fields of the requests about dead letters.
        given: the parts that are handed out: the source, the worker, and the numbers of the parts among those that
            waited when the generation began.
        waiting: the sources with parts that no worker has got yet.
        polls: whether sources are polled.
        final: whether this is the last tick, which emits the epoch (watermark) `MAX`.
        whole: whether every worker writes a full changelog entry, not only its changes.
        rewrites: the stages and workers that write a full entry even if `whole` is false.
        merges: the stages and workers whose entries after a tick are merged into their next one, with that tick.
        most: the maximum number of records that a worker polls; None for the limit of the spec.
        durable: the tick of the newest durable snapshot, or `NEVER`.
        writing: the tick of the snapshot being written, or `NEVER`.
        live_runs: the fields of a `malflow.runtime.spark.tasks.live_workers.LiveRuns`.
        moves: the fields of each recent `malflow.runtime.spark.tasks.worker_places.Move`. Other executors drop these
            workers.
    """

    tick: int
    last: Sequence[Sequence[int]]
    ended: Sequence[str] = ()
    finished: Sequence[tuple[str, int]] = ()
    lifts: str = ""
    now: str = "1970-01-01T00:00:00+00:00"
    started: str = "1970-01-01T00:00:00+00:00"
    passed: int = 0
    quiet: Sequence[tuple[str, int]] = ()
    quiet_time: int = 0
    queries: str = ""
    explains: bool = False
    asks_held: bool = False
    replays: Sequence[tuple[str, Sequence[str] | None, bool]] = ()
    given: Sequence[tuple[str, int, Sequence[int]]] = ()
    waiting: Sequence[str] = ()
    polls: bool = True
    final: bool = False
    whole: bool = False
    rewrites: Sequence[tuple[int, int]] = ()
    merges: Sequence[tuple[int, int, int]] = ()
    most: int | None = None
    durable: int = NEVER
    writing: int = NEVER
    live_runs: tuple[int, Collection[int]] = (0, ())
    moves: Sequence[tuple[int, int, str, int]] = ()

    @property
    def snapshots(self) -> tuple[int, int]:
        """The ticks of the newest durable snapshot, and of the one being written."""
        return self.durable, self.writing

    def asks_full_entry(self, stage: int, worker: int) -> bool:
        """Whether a stage of a worker must write a full changelog entry."""
        return self.whole or any((stage, worker) == tuple(it) for it in self.rewrites)

    def merged_after(self, stage: int, worker: int) -> int | None:
        """Return the tick after which a stage of a worker merges its changelog entries; None if it does not."""
        return next((tick for *place, tick in self.merges if place == [stage, worker]), None)

    def as_tick(self, waiting: Mapping[str, Sequence[Any]] = MappingProxyType({})) -> Tick:
        """Return the tick in the form that its workers use.

        Args:
            waiting: the parts that no worker held when the generation began, by source.
        """
        given: dict[str, list[list[Any]]] = {}
        for name, worker, numbers in self.given:
            by_worker = given.setdefault(name, [[] for _ in self.last[0]])
            by_worker[worker] = [waiting[name][number] for number in numbers]
        return Tick(
            number=self.tick,
            now=datetime.fromisoformat(self.now),
            started=datetime.fromisoformat(self.started),
            ended=frozenset(self.ended),
            finished=frozenset((name, worker) for name, worker in self.finished),
            passed=timedelta(microseconds=self.passed),
            quiet=frozenset((name, worker) for name, worker in self.quiet),
            quiet_time=timedelta(microseconds=self.quiet_time),
            lifts=pickle.loads(b64decode(self.lifts)) if self.lifts else {},  # noqa: S301 - of this run
            final=self.final,
            polls=self.polls,
            explains=self.explains,
            asks_held=self.asks_held,
            given=given,
            waiting=frozenset(self.waiting),
            replays=tuple(
                Replay(operator, None if ids is None else tuple(ids), discards)
                for operator, ids, discards in self.replays
            ),
        )

    @classmethod
    def of(cls, tick: Tick, last: Sequence[Sequence[int]], **how: Any) -> TickCommand:
        """Return the command for a tick.

        Args:
            tick: the tick.
            last: the tick of the last changelog entry of each stage and worker.
            how: the attributes that are not part of the tick.
        """
        return cls(
            tick.number,
            last,
            ended=sorted(tick.ended),
            finished=sorted(tick.finished),
            lifts=b64encode(pickle.dumps(tick.lifts, 5)).decode() if tick.lifts else "",
            now=tick.now.isoformat(),
            started=tick.started.isoformat(),
            passed=tick.passed // _MICROSECOND,
            quiet=sorted(tick.quiet),
            quiet_time=tick.quiet_time // _MICROSECOND,
            explains=tick.explains,
            asks_held=tick.asks_held,
            replays=[(it.operator, it.ids, it.discards) for it in tick.replays],
            polls=tick.polls,
            final=tick.final,
            waiting=sorted(tick.waiting),
            **how,
        )

    def dumps(self) -> str:
        """Return the command as a text. Spark copies it into every task: it must be short."""
        facts = {it.name: getattr(self, it.name) for it in fields(self)}
        facts["last"] = [_packed_ticks(of_stage) for of_stage in self.last]
        for name in _PLACES:
            facts[name] = _packed_places(facts[name])
        text = json.dumps(facts, separators=(",", ":"))
        return text if len(text) <= _SHORT else b64encode(zlib.compress(text.encode("ascii"))).decode("ascii")

    @classmethod
    def loads(cls, text: str) -> TickCommand:
        """Parse a command that `dumps` returned."""
        if not text.startswith("{"):
            text = zlib.decompress(b64decode(text)).decode("ascii")
        facts = json.loads(text)
        facts["last"] = [_unpacked_ticks(of_stage) for of_stage in facts["last"]]
        for name in _PLACES:
            facts[name] = _unpacked_places(facts[name])
        return cls(**facts)


def _packed_ticks(ticks: Sequence[int]) -> list[Any]:
    """Pack the last ticks of a stage: their number, the one that most workers have, and the others by worker.

    >>> _packed_ticks([7, 7, 3, 7])
    [4, 7, {2: 3}]
    """
    usual = Counter(ticks).most_common(1)[0][0] if ticks else NEVER
    return [len(ticks), usual, {worker: tick for worker, tick in enumerate(ticks) if tick != usual}]


def _unpacked_ticks(packed: list[Any]) -> list[int]:
    count, usual, others = packed
    ticks: list[int] = [usual] * count
    for worker, tick in others.items():
        ticks[int(worker)] = tick
    return ticks


def _packed_places(places: Iterable[Sequence[Any]]) -> dict[str, str]:
    """Pack pairs of source and worker: a set of bits, as a hexadecimal number, for each source.

    >>> _packed_places([("a", 0), ("a", 3), ("b", 1)])
    {'a': '9', 'b': '2'}
    """
    bits: dict[str, int] = {}
    for name, worker in places:
        bits[name] = bits.get(name, 0) | 1 << worker
    return {name: f"{of_source:x}" for name, of_source in bits.items()}


def _unpacked_places(packed: Mapping[str, str]) -> list[tuple[str, int]]:
    return [
        (name, worker)
        for name, bits in packed.items()
        for worker, bit in enumerate(reversed(f"{int(bits, 16):b}"))
        if bit == "1"
    ]


@dataclass(frozen=True, slots=True)
class StageReport:
    """A worker's report of one stage of a tick, with data about the shuffle for the driver.

    Attributes:
        tick, stage: identify, with the worker of `report`, the stage attempt.
        report: the report as on any host; its counts are in the row, where Spark can observe them.
        bytes: the size of its changelog entry; None without an entry, or for an entry without changes.
        whole: whether the entry is a full one.
        merged: the tick after which the entry replaces all others; None if it replaces none.
        keys: the number of keys of each state that changed.
        taken, sent: for each channel, a sum over the numbers of records received and sent: see
            `malflow.runtime.spark.tasks.records`.
        noted: whether it wrote an entry without changes, dropped after the tick, for the output of a repeated task.
        size: the size of the records that it sent.
        pieces: the names of the pieces of output in the scratch folder, dropped after the tick.
        sinks: the pieces of distributed sinks there, dropped once a snapshot is durable: the number of the sink, the
            name and the bytes of each object.
        unconfirmed: pickled errors of readers that could not confirm a position.
        process: the name of the Python process.
        copies: the number of workers' stages that it holds.
        read: the bytes of changelog entries that it read to have the worker's state.
    """

    tick: int
    stage: int
    report: Report
    bytes: int | None = None
    whole: bool = False
    merged: int | None = None
    keys: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[int, int] = field(default_factory=dict)
    sent: Mapping[int, int] = field(default_factory=dict)
    noted: bool = False
    size: int = 0
    pieces: Sequence[str] = ()
    sinks: Sequence[tuple[int, str, int]] = ()
    unconfirmed: Sequence[_Pickled] = ()
    process: str = ""
    copies: int = 0
    read: int = 0

    def __reduce__(self) -> tuple[type[StageReport], tuple[Any, ...]]:
        """Pickle the values without their names, as `Report` does."""
        return StageReport, _VALUES(self)

    @property
    def worker(self) -> int:
        """The worker."""
        return self.report.worker

    def unconfirmed_errors(self) -> Iterator[tuple[str, Exception]]:
        """Yield the errors of readers that could not confirm a position, each after the name of its source."""
        for error in map(loaded_error, self.unconfirmed):
            yield error.operator if isinstance(error, OperatorError) else "", error


_VALUES = attrgetter(*(it.name for it in fields(StageReport)))


def names_of_counts(program: Program) -> list[str]:
    """Return the names of the counters and gauges in a report's row, in their order."""
    return [*program.counters, *program.gauges]


def pack_program(data: bytes, place: ScratchFolder, changelog: Changelog) -> tuple[bytes, ScratchFolder]:
    """Return the program and the place of the changelog in the form sent with each task.

    A large program, or large classes of the script, are written to the scratch folder and omitted.

    Raises:
        StoreError: if they can't be written.
    """
    if len(data) + len(place.classes) <= _LARGEST:
        return data, place
    changelog.write_program(pickle.dumps((place.classes, data), 5))
    return b"", replace(place, classes=b"")


def unpack_program(spec: RunSpec, changelog: Changelog) -> tuple[bytes, bytes]:
    """Return the script's classes and the program that were passed to `pack_program`.

    Raises:
        RunFailed: if they can't be read.
    """
    if spec.payload:
        return spec.scratch.classes, spec.payload
    classes, data = pickle.loads(changelog.read_program())  # noqa: S301 - the driver wrote it
    return classes, data
