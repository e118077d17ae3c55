"""Run a dataflow under a schedule, with its sources replaced by a feed and its sinks by recorders."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count, takewhile
from types import MappingProxyType
from typing import Any, Literal

from fsspec.implementations.memory import MemoryFileSystem

from malflow.engine.compiler import compile_graph
from malflow.engine.idle_epochs import QuietSources
from malflow.engine.parts.places import PartPlaces
from malflow.engine.plan import NO_GROUPS, Program
from malflow.engine.state_specs import hidden_id
from malflow.engine.ticks import RunClock
from malflow.failures import DeadLetter, Replay
from malflow.graph import Graph
from malflow.message import DataMessage
from malflow.nodes import Node, SinkNode, SourceNode, StatefulNode
from malflow.operators.failures.dead_letters import LETTERS, letter_of
from malflow.sinks.contract import StatefulSink, StatelessSink
from malflow.snapshot.backend import FsspecBackend
from malflow.snapshot.reading import dead_letters
from malflow.streams.stream import StreamProvider
from malflow.testing.driven import DrivenProcesses, DrivenRun
from malflow.testing.faults import Crash
from malflow.testing.inputs import Feed, FeedRecord
from malflow.testing.laws import likeness
from malflow.testing.refusing_target import CrashPlan, Record, RefusingTarget
from malflow.testing.schedules import CRASHES, Event, Schedule
from malflow.words import short_repr

__all__ = ["Build", "LetterPlan", "Outcome", "RuntimeName", "State", "Written", "built", "look_closely", "try_out"]

Build = Callable[[StreamProvider], object]

_TOGETHER = 16
"""The most records in a tick of a run with ``debug=True``: values may change between two of them."""

Refuses = Mapping[str, Callable[[Any], object]]
"""By sink, whether its target refuses a value for good."""

RuntimeName = Literal["single_thread", "processes"]
"""Where a dataflow is tried out."""


@dataclass(frozen=True, slots=True)
class LetterPlan:
    """What makes and replays dead letters in a trial.

    Attributes:
        replays: the operators whose dead letters are replayed before a record, by its number.
        refuses: by sink, whether its target refuses a value for good.
    """

    replays: Mapping[int, Sequence[str]]
    refuses: Refuses


_NO_LETTERS = LetterPlan(MappingProxyType({}), MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Written:
    """A message as a sink received it; messages are equal if their contents are alike."""

    like: Hashable
    key: str
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Written) and self.like == other.like

    def __hash__(self) -> int:
        return hash(self.like)


@dataclass(frozen=True, slots=True)
class State:
    """The state of a key, compared likewise; `worker` is None if any worker may hold it."""

    like: Hashable
    worker: int | None
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        states: for each stateful operator the states by worker and key, before the end of the stream; and, for each
            operator with dead letters, these, whatever their id, tick and worker.
        kept: for each sink the messages that no crash discarded.
        written: for each sink all messages it received.
        letters: for each sink whose target refuses records its durable dead letters, with those of the end.
    """

    states: dict[str, dict[Hashable, State]]
    kept: dict[str, list[Written]]
    written: dict[str, list[Written]]
    letters: dict[str, list[Written]] = field(default_factory=dict)


class _Recorder:
    """Record the messages that a sink would receive, in this process."""

    on_driver = True

    def __init__(self, *, in_parts: bool) -> None:
        self.kept: list[Written] = []
        self.written: list[Written] = []
        self.mark = 0
        self._in_parts = in_parts

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Record one message."""
        written = _written(msg, in_parts=self._in_parts)
        self.kept.append(written)
        self.written.append(written)

    def note_snapshot(self) -> None:
        """Mark the messages recorded so far as committed."""
        self.mark = len(self.kept)

    def undo(self) -> None:
        """Discard the messages recorded since the last snapshot."""
        del self.kept[self.mark :]


class _RefusedRecorder:
    """Record the messages of a sink with a target that refuses some records for good."""

    def __init__(self, refuses: Callable[[Any], object], plan: CrashPlan, *, in_parts: bool) -> None:
        self.written: list[Written] = []
        self._in_parts = in_parts
        self.target = RefusingTarget(lambda it: refuses(it[1] if in_parts else it), plan, self._see)

    @property
    def kept(self) -> list[Written]:
        """The messages that the target has accepted."""
        return [self.of(it) for it in self.target.accepted]

    def of(self, record: Record | DeadLetter) -> Written:
        """Return a record to be compared."""
        return _written(record, in_parts=self._in_parts)

    def note_snapshot(self) -> None:
        """Do nothing: the sink commits by itself."""

    def undo(self) -> None:
        """Do nothing: the target keeps what was committed."""

    def _see(self, record: Record) -> None:
        self.written.append(self.of(record))


def _written(record: DataMessage[Any, Any, Any] | Record | DeadLetter, *, in_parts: bool) -> Written:
    """Return a record as a sink received it.

    Args:
        record: the record.
        in_parts: whether its key is the part of a sink, and its value a pair of key and value.
    """
    key, value = record.value if in_parts else (record.key, record.value)
    like = likeness((record.key, key, value, record.timestamp))
    return Written(like, short_repr(key), f"{short_repr(value)} at timestamp {short_repr(record.timestamp)}")


class _Ends:
    """Replacements for the user's sources and sinks."""

    def __init__(self, feed: Feed, refuses: Refuses) -> None:
        self.feed = feed
        self.plan = CrashPlan()
        self.recorders: dict[str, _Recorder | _RefusedRecorder] = {}
        self._refuses = refuses

    def put_on(self, node: Node) -> Node:
        """Return the node with its source or sink replaced; other nodes are returned as they are."""
        if isinstance(node, SourceNode):
            return replace(node, source=self.feed.source(node.name, keyed=node.keyed))
        if isinstance(node, SinkNode):
            if node.name not in self.recorders:
                self.recorders[node.name] = self._recorder_of(node)
            recorder = self.recorders[node.name]
            sink: Any = recorder.target if isinstance(recorder, _RefusedRecorder) else recorder
            return replace(node, sink=StatelessSink(sink))
        return node

    def _recorder_of(self, node: SinkNode) -> _Recorder | _RefusedRecorder:
        in_parts = isinstance(node.sink, StatefulSink)
        if node.name in self._refuses:
            return _RefusedRecorder(self._refuses[node.name], self.plan, in_parts=in_parts)
        return _Recorder(in_parts=in_parts)

    def note_snapshot(self) -> None:
        """Mark the messages recorded so far as committed."""
        for recorder in self.recorders.values():
            recorder.note_snapshot()

    def undo(self) -> None:
        """Discard the messages recorded since the last snapshot."""
        for recorder in self.recorders.values():
            recorder.undo()


def built(build_dataflow: Build, ends: Callable[[Node], Node] | None = None) -> Program:
    """Build a dataflow; `ends`, if passed, replaces its nodes.

    Raises:
        GraphError: if it is malformed.
    """
    graph = Graph()
    build_dataflow(StreamProvider(graph))
    graph.complete()
    if ends is not None:
        graph.vertices[:] = [replace(vertex, node=ends(vertex.node)) for vertex in graph.vertices]
    return compile_graph(graph)


def try_out(
    build_dataflow: Build,
    feed: Feed,
    schedule: Schedule,
    times: Sequence[datetime],
    *,
    by_worker: bool,
    finishes: bool = True,
    runtime: RuntimeName = "single_thread",
    plan: LetterPlan = _NO_LETTERS,
) -> Outcome:
    """Run a dataflow under a schedule, with its snapshots in memory.

    Args:
        build_dataflow: the user's function; it is called again for every start.
        feed: the records; each tick processes one.
        schedule: the events to apply.
        times: the times at which the ticks of the records begin, and last the time of the end.
        by_worker: whether to record which worker holds a state.
        finishes: whether the end of the input emits open results.
        runtime: where the dataflow runs.
        plan: makes and replays dead letters.

    Raises:
        MalflowError: any error that a run of the dataflow raises.
    """
    job = _Job(build_dataflow, feed, times, runtime, plan)
    try:
        job.start(schedule.workers)
        for step in schedule.steps:
            job.process(step.records)
            match step.event:
                case Event.SNAPSHOT:
                    job.snapshot()
                case Event.STOP:
                    job.snapshot()
                    job.restart(step.workers)
                case Event.CRASH:
                    job.restart(step.workers)
                case Event.RESCALE:
                    job.run.rescale(step.workers)
                    job.continue_ticks()
                case torn:
                    job.crash_in_snapshot(torn)
                    job.restart(step.workers)
        job.process(len(feed))
        job.snapshot()
        states = job.states(by_worker=by_worker)
        if finishes:
            job.end()
        letters = job.letters_of_sinks()
    finally:
        job.close()
    recorders = job.ends.recorders.items()
    kept, written = ({name: it.kept for name, it in recorders}, {name: it.written for name, it in recorders})
    return Outcome(states, kept, written, letters)


def look_closely(
    build_dataflow: Build, feed: Feed, times: Sequence[datetime], workers: int, *, finishes: bool = True
) -> None:
    """Run a dataflow in this process with ``debug=True`` and several records in a tick, without a snapshot.

    Args:
        build_dataflow: the user's function.
        feed: the records.
        times: as for `try_out`.
        workers: the number of workers.
        finishes: whether the end of the input emits open results.

    Raises:
        MalflowError: any error that a run of the dataflow raises.
    """
    job = _Job(build_dataflow, feed, times, "single_thread", _NO_LETTERS, debug=True)
    try:
        job.start(workers)
        while feed.allowed < len(feed):
            job.process(1, together=_TOGETHER)
        if finishes:
            job.end()
    finally:
        job.close()


class _ScriptedClock(RunClock):
    """A clock that stands still until it is set."""

    def __init__(self, started: datetime) -> None:
        super().__init__()
        self.now, self.started = started, started

    def read(self) -> tuple[datetime, datetime]:
        """Return the time that was set."""
        return self.now, self.started or self.now


class _Job:
    """The successive runs of one job."""

    def __init__(
        self,
        build_dataflow: Build,
        feed: Feed,
        times: Sequence[datetime],
        runtime: RuntimeName,
        plan: LetterPlan,
        *,
        debug: bool = False,
    ) -> None:
        self._runtime = runtime
        self._debug = debug
        self._replays = plan.replays
        self.ends = _Ends(feed, plan.refuses)
        self._times = times
        self._build = build_dataflow
        self._feed = feed
        self._kept = 0
        files = MemoryFileSystem(skip_instance_cache=True)
        files.store, files.pseudo_dirs = {}, [""]  # instances share these by default
        self._backend = FsspecBackend("/trial", filesystem=files)
        self._held = ExitStack()

    def start(self, workers: int) -> None:
        """Start a run from the last snapshot."""
        self._feed.allowed = self._kept
        self._program = built(self._build, self.ends.put_on)
        self.run: DrivenRun | DrivenProcesses = self._made_run(workers)
        self._held.push(self.run)
        self.run.ticks.clock = _ScriptedClock(self._times[0])
        self.run.resume()
        self.run.ticks.clock.now = self._times[0]
        self.continue_ticks()

    def _made_run(self, workers: int) -> DrivenRun | DrivenProcesses:
        if self._runtime == "single_thread":
            return DrivenRun(self._program, parallelism=workers, debug=self._debug, persistence=self._backend)
        return DrivenProcesses(self._program, parallelism=workers, persistence=self._backend)

    def process(self, ticks: int, *, together: int = 1) -> None:
        """Process up to `ticks` ticks of at most `together` records; a pause is a tick of its own."""
        for _ in range(min(ticks, len(self._feed) - self._feed.allowed)):
            self.run.ticks.clock.now = self._times[self._feed.allowed]
            replays = [Replay(name) for name in self._replays.get(self._feed.allowed, ())]
            following = self._feed.records[self._feed.allowed : self._feed.allowed + together]
            self._feed.allowed += max(1, sum(1 for _ in takewhile(lambda it: not it.is_pause, following)))
            for it in replays:
                self.run.sinks.replay(it)
            self.run.tick(replays)

    def continue_ticks(self) -> None:
        """Continue from the last two ticks. Ticks are then the same as in an undisturbed run."""
        quiet, done = QuietSources(self.run.parts), self._feed.allowed
        for tick in range(max(0, done - 2), done):
            record = self._feed.records[tick]
            quiet.begin_tick(self._times[tick])
            quiet.end_tick(() if record.is_pause else [self._place_of(record)])
        left = {self._place_of(record) for record in self._feed.records[max(0, done - 1) :]}
        self.run.continue_ticks(quiet, quiet.finished(left) if done else frozenset())

    def _place_of(self, record: FeedRecord) -> tuple[str, int]:
        workers = self.run.parallelism
        places = PartPlaces(workers, NO_GROUPS, self.run.parts).of(record.source)
        return record.source, places(record.part, range(workers))

    def end(self) -> None:
        """End the stream."""
        self.run.ticks.clock.now = self._times[-1]
        self.run.end()
        self.run.snapshots.finish_sinks()

    def snapshot(self) -> None:
        """Take a snapshot and wait for it."""
        self.run.snapshots.take(ending=True)
        self._note_snapshot()

    def _note_snapshot(self) -> None:
        self.ends.note_snapshot()
        self._kept = self._feed.allowed

    def crash_in_snapshot(self, event: Event) -> None:
        """Take a snapshot that crashes at a call of an exactly-once sink; a new run has to follow."""
        self.ends.plan.point = CRASHES[event]
        try:
            self.snapshot()
        except Crash:
            if event is not Event.UNPREPARED:
                self._note_snapshot()
        finally:
            self.ends.plan.point = None

    def restart(self, workers: int) -> None:
        """Abandon the run, and start another from the last snapshot."""
        self.close()
        self.ends.undo()
        self.start(workers)

    def close(self) -> None:
        """Close the run."""
        self._held.close()

    def letters_of_sinks(self) -> dict[str, list[Written]]:
        """Return the durable dead letters of the sinks with targets that refuse records."""
        sinks = {name: it for name, it in self.ends.recorders.items() if isinstance(it, _RefusedRecorder)}
        return {name: [it.of(letter) for letter in dead_letters(self._backend, name)] for name, it in sinks.items()}

    def states(self, *, by_worker: bool) -> dict[str, dict[Hashable, State]]:
        """Return the state of every key of the user's operators."""
        nodes = (vertex.node for vertex in self._program.vertices)
        found: dict[str, dict[Hashable, State]] = {
            node.name: {} for node in nodes if isinstance(node, StatefulNode | SourceNode)
        }
        guarded = [vertex.node for vertex in self._program.vertices if vertex.node.on_error is not None]
        letters: dict[str, dict[Hashable, State]] = {hidden_id(node, LETTERS): {} for node in guarded}
        for worker, name, delta, _ in self.run.deltas(whole=True):
            for key, state in delta.changed.items() if name in found else ():
                holder = worker if by_worker else None
                found[name][holder, likeness(key)] = State(likeness(state), holder, short_repr(key), short_repr(state))
            if name in letters:
                for entry, fields in delta.changed.items():
                    _add_letter(letters[name], letter_of(name, entry, fields))
        return found | letters


def _add_letter(letters: dict[Hashable, State], it: DeadLetter) -> None:
    """Add a dead letter, without the tick and the worker. These depend on the schedule."""
    like = likeness((it.key, it.value, it.timestamp, it.error, it.message, it.attempts))
    name = next(name for name in count() if (like, name) not in letters)
    letters[like, name] = State(like, None, short_repr(it.key), f"the dead letter of {short_repr(it.value)}")
