"""The progress of a run, and of its operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from malflow.drawing.text import table
from malflow.engine.parts.places import Parts
from malflow.engine.parts.reads import PartProgress, WorkerProgress
from malflow.engine.plan import Program, key_of_count, keys_of_given
from malflow.engine.reports import RunSums
from malflow.engine.ticks import Ticks
from malflow.events import RunFinished
from malflow.nodes import Node, Port, SinkNode, SourceNode
from malflow.operators.epochs.generator import LATE
from malflow.operators.failures.guard import FAILED, LETTERS, SKIPPED
from malflow.operators.hosting.reader import Lags
from malflow.operators.waiting import Running
from malflow.runtime.progress.hot_keys import HotKey, hot_keys
from malflow.snapshot.sizes import StateSize

__all__ = [
    "OperatorProgress",
    "Progress",
    "SinkProgress",
    "SnapshotFailure",
    "SnapshotInfo",
    "Spread",
    "Status",
    "finished",
    "lag_of",
    "lags_of",
    "late_of",
    "operators_of",
    "progress_of",
    "unread_late",
    "written_of",
]

_MOST_WORKERS: Final = 64
"""The greatest number of workers whose values are listed one by one."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of a quantity over the workers.

    Attributes:
        greatest: the greatest value of a worker.
        mean: the mean of all workers.
        by_worker: the value of each worker; empty if there are more than 64.
    """

    greatest: float = 0
    mean: float = 0
    by_worker: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """The progress of an operator.

    Its counts are equal on every runtime. Errors and measurements may differ, and are not compared.

    Attributes:
        taken: the number of records that it has received or, for a source, emitted, since this run started.
        given: the number of records that have left each of its outputs.
        keys: the number of keys of its state in the last snapshot of this run; None if it keeps none, or before one.
        kind: whether it is a ``source``, a ``sink``, or an ``operator`` between them.
        failed: the number of records at which its function failed and the run continued; None if every failure ends the
            run, as without a policy: see `OnError`.
        skipped: the number of them that were skipped; None if `failed` is None.
        letters: the number of them that became dead letters; None if `failed` is None.
        retries: the number of calls that were repeated; None if the operator repeats none.
        errors: how often each kind of error occurred at these records; of each tick, only the commonest are counted.
        example: the last of these errors that was noted, with its record, as text; None without one.
        busy: the seconds in which it processed records, or waited for systems outside, since this run started, the sum
            of its workers. On Spark, none of these numbers include a tick in which a worker changed and sent nothing.
        batches: the number of batches that it has received or, for a source, emitted.
        largest: the number of records in the largest batch of the last tick with any, or of sixteen short ones.
        calls: the greatest number of calls to a system outside that a worker had at a time in these ticks.
        polls: how often the parts of a source were asked for records; 0 for others.
        saturated_polls: how often one of them gave all that it was asked for, so that more input probably waits.
        rows_made: the number of records that came as columns and became Python objects while it ran; reading a field
            by its name, or a function of batches, avoids that.
        demotions: how many workers have given up adding up its columns as arrays, since a value did not fit.
        workers_taken: how the records are spread over the workers.
        workers_busy: how the busy seconds are spread over the workers.
    """

    taken: int
    given: tuple[int, ...] = ()
    keys: int | None = None
    kind: Literal["source", "operator", "sink"] = "operator"
    failed: int | None = None
    skipped: int | None = None
    letters: int | None = None
    retries: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict, compare=False)
    example: str | None = field(default=None, compare=False)
    busy: float = field(default=0.0, compare=False)
    batches: int = field(default=0, compare=False)
    largest: int = field(default=0, compare=False)
    calls: int = field(default=0, compare=False)
    polls: int = field(default=0, compare=False)
    saturated_polls: int = field(default=0, compare=False)
    rows_made: int = field(default=0, compare=False)
    demotions: int = field(default=0, compare=False)
    workers_taken: Spread = field(default=Spread(), compare=False)
    workers_busy: Spread = field(default=Spread(), compare=False)


def operators_of(
    program: Program,
    sums: RunSums,
    counts: Mapping[str, int],
    own: Mapping[str, Mapping[str, int]],
    sizes: Mapping[str, StateSize],
) -> dict[str, OperatorProgress]:
    """Return the progress of each operator, in the order of the program, without exchanges.

    Args:
        program: the program.
        sums: the sums of its workers' reports.
        counts: a copy of its counts.
        own: the counters and gauges of operators, by name.
        sizes: the sizes of states in the last snapshot.
    """
    nodes = [vertex.node for vertex in program.vertices if not vertex.node.starts_stage]
    return {node.name: _operator(node, sums, counts, own.get(node.name, {}), sizes.get(node.name)) for node in nodes}


def _operator(
    node: Node, sums: RunSums, counts: Mapping[str, int], own: Mapping[str, int], size: StateSize | None
) -> OperatorProgress:
    facts = sums.of(node.name)
    return OperatorProgress(
        counts.get(node.name, 0),
        tuple(counts.get(key, 0) for key in keys_of_given(node)),
        None if size is None else size.keys,
        "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "operator",
        failed=own.get(FAILED),
        skipped=own.get(SKIPPED),
        letters=own.get(LETTERS),
        retries=own.get("retried"),
        errors=sums.errors.get(node.name, {}),
        example=sums.examples.get(node.name),
        busy=facts.busy,
        batches=facts.batches,
        largest=facts.largest,
        calls=facts.calls,
        polls=facts.polls,
        saturated_polls=facts.saturated,
        rows_made=facts.made,
        demotions=facts.demotions,
        workers_taken=_spread(facts.taken_by_worker),
        workers_busy=_spread(facts.busy_by_worker),
    )


def _spread(by_worker: Sequence[float]) -> Spread:
    each = tuple(by_worker) if len(by_worker) <= _MOST_WORKERS else ()
    return Spread(max(by_worker), sum(by_worker) / len(by_worker), each)


Status: TypeAlias = Literal["starting", "running", "resting", "blocked", "stopping", "restarting", "ended", "failed"]
"""What a run does: it rests while sources have nothing, and is blocked while sinks wait for a snapshot."""


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """The last snapshot that a run has taken or begun with.

    Attributes:
        id: its id.
        tick: the number of the last tick that it contains.
        at: when it became durable, in UTC; None if unknown.
        keys: the number of keys in it; None if the persistence does not tell.
        bytes: the size of the files that it consists of; None if it is that of an earlier run, or the persistence does
            not tell.
        capture_seconds: how long the ticks waited for it; None if it is that of an earlier run.
        write_seconds: how long it was then written in the background.
    """

    id: int
    tick: int
    at: datetime | None
    keys: int | None = None
    bytes: int | None = None
    capture_seconds: float | None = None
    write_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SnapshotFailure:
    """A snapshot that could not be written, after which none has become durable.

    Attributes:
        tick: the number of the last tick that it would have contained.
        error: the kind and the text of the error.
        at: when it was noted, in UTC.
    """

    tick: int
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """The progress of a sink that commits its records with snapshots.

    Attributes:
        kept: the number of its records, since this run started, that the last durable snapshot contains.
        waiting: the number of records that it has received since, which nobody can read yet.
        uncommitted: the number of its transactions that have ended and are not committed.
        limit: how many of them may be; then the run waits for a snapshot.
    """

    kept: int
    waiting: int
    uncommitted: int
    limit: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run.

    Attributes:
        tick: the number of the last tick.
        parallelism: the number of workers.
        records: the number of records that each operator received, and each source emitted, since this run started.
        polled: the number of records polled in the last tick.
        snapshot: the id of the last snapshot; None before the first.
        restarts: the number of restarts after a failure.
        late: the number of late records at each `generate_epochs`, since this run started.
        patterns: for each `match`, the number of ``starts`` since this run started, and of their outcomes: ``matches``,
            ``timeouts``, ``broken`` by an event, ``used_up`` by a match, or ``dropped`` at the limit; the number of
            ``late`` records; and the current number of ``partials`` (partial matches).
        lateness: the greatest difference between the epoch and the timestamp of a late record, at each
            `generate_epochs`; only for timestamps that can be subtracted.
        lag: how much input waits after the position of each source whose readers report it, in the source's own unit,
            such as records or bytes; None if it is unknown for one of its parts.
        lag_by_part: the same for each unfinished part.
        shares: the amount that each source has read in all, and its whole amount, in its own unit, such as bytes or
            records; only for sources that know it: files, lists, and readers with a ``share()``.
        unfinished: the sources that have not emitted their last record, for which the run waits.
        counts: the counters and gauges of each operator that has any, by their names: counters since this run started,
            gauges as they are now. The numbers in `late` and `patterns` are among them.
        hot: the busiest worker and the busiest key of each operator that gets records by key, estimated from a sample
            of recent records or, where these are added up before they are sent, accumulators; by the name of the
            operator, or of the `key_distribute` if several read its records.
        states: the size of each operator's state in the last snapshot of this run.
        status: whether the run starts, runs, rests, waits, ends or has ended: see `Status`.
        started: when the run started, in UTC; None before.
        at: when this was read, in UTC.
        seconds: the duration of the last tick.
        operators: the progress of each operator, by its name.
        last_snapshot: the snapshot of `snapshot`; None before the first.
        snapshot_failure: the last snapshot, if it failed.
        snapshot_interval: the seconds between snapshots; None if they are only taken on request and at the end, or not
            at all.
        sinks: the progress of each sink that commits its records with snapshots.
        parts: the progress of each part of each source, with its worker; of a source with more than 1,000 parts, the
            fastest that have not ended. These numbers and those of `workers` may differ between runs, and are not
            compared.
        workers: the progress of each worker with its parts, over all sources.
        running: the operator that works at this moment, and the reason if it waits; None if no operator works, or the
            workers are in other processes.
    """

    tick: int
    parallelism: int
    records: dict[str, int]
    polled: int
    snapshot: int | None
    restarts: int
    late: dict[str, int] = field(default_factory=dict)
    lateness: dict[str, Any] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    patterns: dict[str, dict[str, int]] = field(default_factory=dict)
    lag: dict[str, int | None] = field(default_factory=dict)
    lag_by_part: dict[str, dict[Any, int | None]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    hot: dict[str, HotKey] = field(default_factory=dict)
    states: dict[str, StateSize] = field(default_factory=dict)
    status: Status = "starting"
    started: datetime | None = None
    at: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)
    seconds: float = 0.0
    operators: dict[str, OperatorProgress] = field(default_factory=dict)
    last_snapshot: SnapshotInfo | None = None
    snapshot_failure: SnapshotFailure | None = None
    snapshot_interval: float | None = None
    sinks: dict[str, SinkProgress] = field(default_factory=dict)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    running: Running | None = field(default=None, compare=False)
    parts: dict[str, dict[Any, PartProgress]] = field(default_factory=dict, compare=False)
    workers: tuple[WorkerProgress, ...] = field(default=(), compare=False)

    @property
    def rows_made(self) -> dict[str, int]:
        """How many records came as columns and became Python objects at each operator that made any."""
        return {name: it.rows_made for name, it in self.operators.items() if it.rows_made}

    @property
    def demotions(self) -> dict[str, int]:
        """How many workers gave up the arrays of an operator and continue record by record, for each such operator."""
        return {name: it.demotions for name, it in self.operators.items() if it.demotions}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the progress for notebooks, as text and as a table of the operators."""
        del include, exclude
        kept = "" if self.snapshot is None else f", snapshot {self.snapshot}"
        caption = f"{self.status}, tick {self.tick}, parallelism {self.parallelism}, restarts {self.restarts}{kept}"
        rows = [
            [name, count, self.late.get(name), self.lag.get(name), keys and keys.keys, self._read(name)]
            for name, count in self.records.items()
            for keys in [self.states.get(name)]
        ]
        return {
            "text/plain": repr(self),
            "text/html": table(["operator", "records", "late", "lag", "keys", "read"], rows, caption),
        }

    def _read(self, name: str) -> str | None:
        """Return the share of its input that a source has read, as a percentage."""
        read, whole = self.shares.get(name, (None, 0))
        return None if read is None else f"{read / whole:.0%}" if whole else "100%"


def progress_of(
    program: Program,
    ticks: Ticks,
    *,
    restarts: int,
    parts: Parts,
    lanes: Sequence[int],
    sizes: Mapping[str, StateSize] = MappingProxyType({}),
    status: Status = "running",
    running: Running | None = None,
) -> Progress:
    """Return the progress of a run but for its snapshots; may be called from any thread.

    Args:
        program: the program.
        ticks: its ticks.
        restarts: how often the run was restarted.
        parts: the parts of each source that each worker holds.
        lanes: a number for each worker; workers with the same one take turns.
        sizes: the sizes of its states in the last snapshot.
        status: its status.
        running: the operator that works now.
    """
    counts = ticks.counts.copy()
    own = _counts_of(program, counts, ticks.gauges)
    return Progress(
        tick=ticks.number,
        parallelism=len(lanes),
        records=_records_of(counts),
        polled=ticks.polled,
        snapshot=None,
        restarts=restarts,
        late=late_of(program, counts),
        lateness=dict(ticks.lateness),
        unfinished=ticks.unfinished,
        patterns={name: own[name] for name in program.patterns},
        lag=lag_of(ticks.lags),
        lag_by_part=lags_of(ticks.lags),
        shares={name: share for name, share in ticks.shares.items() if share is not None},
        counts=own,
        hot=hot_keys(program, ticks.hot),
        states={name: size for name, size in sizes.items() if "/" not in name},
        status=status,
        seconds=ticks.seconds,
        running=running,
        operators=operators_of(program, ticks.sums, counts, own, sizes),
        parts=ticks.reads.by_part(parts),
        workers=tuple(ticks.reads.by_worker(parts, lanes)),
    )


def lag_of(lags: Mapping[str, Lags]) -> dict[str, int | None]:
    """Return the lag of each source, from the lags of its parts."""
    return {name: None if None in by_part.values() else _total(by_part) for name, by_part in lags.items()}


def _total(by_part: Lags) -> int:
    return sum(lag for lag in by_part.values() if lag is not None)


def lags_of(lags: Mapping[str, Lags]) -> dict[str, dict[Any, int | None]]:
    """Return a copy of the lags of the parts of each source."""
    return {name: dict(by_part) for name, by_part in lags.items()}


def _records_of(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of records that each operator received, from the workers' counts."""
    return {name: count for name, count in counts.items() if "/" not in name}


def late_of(program: Program, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of late records at each epoch (watermark) generator, from the workers' counts."""
    return {name: counts.get(key_of_count(name, LATE), 0) for name in program.generators}


def written_of(program: Program, counts: Mapping[str, int]) -> int:
    """Return the number of records that the sinks have received."""
    return sum(counts.get(v.node.name, 0) for v in program.vertices if isinstance(v.node, SinkNode))


def _counts_of(program: Program, counts: Mapping[str, int], gauges: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return the counters and gauges of each operator that has any, from the workers' counts and gauges."""
    return {
        name: {it: counts.get(key_of_count(name, it), 0) for it in own.counters}
        | {it: gauges.get(key_of_count(name, it), 0) for it in own.gauges}
        for name, own in program.counting.items()
    }


def finished(program: Program, progress: Progress, error: BaseException | None) -> RunFinished:
    """Return the last event of a run."""
    return RunFinished(
        tick=progress.tick,
        parallelism=progress.parallelism,
        records=progress.records,
        late=progress.late,
        lateness=progress.lateness,
        dropped=_dropped(program, progress.late),
        snapshot=progress.snapshot,
        restarts=progress.restarts,
        error=error,
    )


def unread_late(program: Program) -> frozenset[str]:
    """Return the epoch (watermark) generators with late records that no operator reads."""
    read = {port for vertex in program.vertices for port in vertex.inputs}
    return frozenset(
        vertex.node.name
        for index, vertex in enumerate(program.vertices)
        if vertex.node.issues_epochs and Port(index, 1) not in read
    )


def _dropped(program: Program, late: Mapping[str, int]) -> dict[str, int]:
    """Return the number of late records that no operator has read, for each generator that had any."""
    unread = unread_late(program)
    return {name: count for name, count in late.items() if count and name in unread}
