"""Run a dataflow under a schedule, with its sources replaced by a feed and its sinks by recorders."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, takewhile
from types import MappingProxyType
from typing import Any, Literal

from fsspec.implementations.memory import MemoryFileSystem

from malflow.diagnostics import short_repr
from malflow.engine.clock import RunClock
from malflow.engine.plan import Program, compile_graph
from malflow.engine.quiet_sources import QuietSources
from malflow.engine.state_specs import hidden_id
from malflow.failures import DeadLetter, Replay
from malflow.graph import Graph
from malflow.message import DataMessage
from malflow.nodes import Node, SinkNode, SourceNode, StatefulNode
from malflow.operators.letters import LETTERS, letter_of
from malflow.partitioners import rendezvous_select
from malflow.sinks.contract import StatefulSink, StatelessSink
from malflow.snapshot.backend import FsspecBackend
from malflow.streams.stream import StreamProvider
from malflow.testing.driven_processes import DrivenProcesses
from malflow.testing.driven_run import DrivenRun
from malflow.testing.inputs import Feed, FeedRecord
from malflow.testing.likeness import likeness
from malflow.testing.schedules import Event, Schedule

__all__ = ["Build", "Outcome", "RuntimeName", "State", "Written", "built", "look_closely", "try_out"]

Build = Callable[[StreamProvider], object]

_TOGETHER = 16
"""The most records in a tick of a run with ``debug=True``: values may change between two of them."""

RuntimeName = Literal["single_thread", "processes"]
"""Where a dataflow is tried out."""


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
    """

    states: dict[str, dict[Hashable, State]]
    kept: dict[str, list[Written]]
    written: dict[str, list[Written]]


class _Recorder:
    """Record the messages that a sink would receive, in this process."""

    on_driver = True

    def __init__(self, *, in_parts: bool) -> None:
        self.kept: list[Written] = []
        self.written: list[Written] = []
        self.mark = 0
        self._in_parts = in_parts

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Record one message. For a sink with parts its key is the part, and its value a pair of key and value."""
        key, value = msg.value if self._in_parts else (msg.key, msg.value)
        like = likeness((msg.key, key, value, msg.timestamp))
        written = Written(like, short_repr(key), f"{short_repr(value)} at timestamp {short_repr(msg.timestamp)}")
        self.kept.append(written)
        self.written.append(written)


class _Ends:
    """Replacements for the user's sources and sinks."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.recorders: dict[str, _Recorder] = {}

    def put_on(self, node: Node) -> Node:
        """Return the node with its source or sink replaced; other nodes are returned as they are."""
        if isinstance(node, SourceNode):
            return replace(node, source=self.feed.source(node.name, keyed=node.keyed))
        if isinstance(node, SinkNode):
            recorder = _Recorder(in_parts=isinstance(node.sink, StatefulSink))
            recorder = self.recorders.setdefault(node.name, recorder)
            return replace(node, sink=StatelessSink(recorder))  # type: ignore[arg-type] # it has what it needs
        return node

    def note_snapshot(self) -> None:
        """Mark the messages recorded so far as committed."""
        for recorder in self.recorders.values():
            recorder.mark = len(recorder.kept)

    def undo(self) -> None:
        """Discard the messages recorded since the last snapshot."""
        for recorder in self.recorders.values():
            del recorder.kept[recorder.mark :]


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
    replays: Mapping[int, Sequence[str]] = MappingProxyType({}),
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
        replays: the operators whose dead letters are replayed before a record, by its number.

    Raises:
        MalflowError: any error that a run of the dataflow raises.
    """
    job = _Job(build_dataflow, feed, times, runtime, replays)
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
        job.process(len(feed))
        job.snapshot()
        states = job.states(by_worker=by_worker)
        if finishes:
            job.end()
    finally:
        job.close()
    recorders = job.ends.recorders.items()
    return Outcome(states, {name: it.kept for name, it in recorders}, {name: it.written for name, it in recorders})


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
    job = _Job(build_dataflow, feed, times, "single_thread", {}, debug=True)
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
        replays: Mapping[int, Sequence[str]],
        *,
        debug: bool = False,
    ) -> None:
        self._runtime = runtime
        self._debug = debug
        self._replays = replays
        self.ends = _Ends(feed)
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
            self.run.tick(replays)

    def continue_ticks(self) -> None:
        """Continue from the last two ticks, so that ticks are the same as in an undisturbed run."""
        quiet, done = QuietSources(self.run.parts), self._feed.allowed
        for tick in range(max(0, done - 2), done):
            record = self._feed.records[tick]
            quiet.begin_tick(self._times[tick])
            quiet.end_tick(() if record.is_pause else [self._place_of(record)])
        left = {self._place_of(record) for record in self._feed.records[max(0, done - 1) :]}
        self.run.continue_ticks(quiet, quiet.finished(left) if done else frozenset())

    def _place_of(self, record: FeedRecord) -> tuple[str, int]:
        return record.source, rendezvous_select(record.part, range(self.run.parallelism))

    def end(self) -> None:
        """End the stream."""
        self.run.ticks.clock.now = self._times[-1]
        self.run.end()

    def snapshot(self) -> None:
        """Take a snapshot and wait for it."""
        self.run.snapshots.take(ending=True)
        self.ends.note_snapshot()
        self._kept = self._feed.allowed

    def restart(self, workers: int) -> None:
        """Abandon the run, and start another from the last snapshot."""
        self.close()
        self.ends.undo()
        self.start(workers)

    def close(self) -> None:
        """Close the run."""
        self._held.close()

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
    """Add a dead letter, without the tick and the worker, which depend on the schedule."""
    like = likeness((it.key, it.value, it.timestamp, it.error, it.message, it.attempts))
    name = next(name for name in count() if (like, name) not in letters)
    letters[like, name] = State(like, None, short_repr(it.key), f"the dead letter of {short_repr(it.value)}")
