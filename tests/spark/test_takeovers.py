"""State that moves between processes, through the scratch folder and snapshots, against plain dicts."""

from __future__ import annotations

import os
from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from gzip import GzipFile, compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import pytest
from fsspec.compression import compr
from hypothesis import Phase, given, settings, target
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, SparkRuntime, StatefulLogic, StreamProvider
from malflow.connectors.files import lines
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.worker import Worker
from malflow.graph import Graph
from malflow.runtime.spark.changelog.changelog import RUNS, Changelog
from malflow.runtime.spark.changelog.entry import NEVER
from malflow.runtime.spark.tasks.stage import StageTask
from malflow.sinks import StatefulSink, StatefulSinkImpl, StatefulSinkPartition, StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, NoPersistence, fsck, snapshots
from malflow.sources import StatefulSource, TextFileSource
from malflow.sources.contract import StatefulSourceImpl, StatefulSourcePartition
from malflow.testing import ScriptedSource
from tests.kit.backends import in_memory, kept, kept_states
from tests.spark.simulation import Cluster, Later, Plan, settings_at, simulated

pytestmark = pytest.mark.slow

pytest.importorskip("pyspark")

KEYS = 12
LONGEST = 6
"""Changes of a worker before all of its state is written again."""

PARTS = ("a", "b")

Script = Mapping[str, Sequence[Sequence["Command"]]]
"""For each part the commands of each poll."""


@dataclass(frozen=True)
class Command:
    """An action on a key of one operator: "add" to its state, "drop" it, or "doom" it for the next hook."""

    operator: str
    verb: str
    key: Any


class Polls(StatefulSourceImpl[str, Any, int, dict[str, int]]):
    """Emit a script's records poll by poll; the position, mutated in place, is the number of the poll."""

    def __init__(self, script: Mapping[str, Sequence[Sequence[Any]]]) -> None:
        self.script = script

    def list_parts(self) -> list[str]:
        return list(self.script)

    def build_part(self, part: str, state: dict[str, int] | None) -> Any:
        return PollsPart(self.script[part], {"at": 0} if state is None else state)


class PollsPart:
    """The reader of `Polls`, which gives each poll as a batch."""

    def __init__(self, polls: Sequence[Sequence[Any]], position: dict[str, int]) -> None:
        self.polls, self.position = polls, position

    def poll_batch(self, _limit: int) -> tuple[list[Any], list[int]]:
        at = self.position["at"]
        given = list(self.polls[at])
        self.position["at"] += 1
        return given, [at] * len(given)

    def is_finished(self) -> bool:
        return self.position["at"] >= len(self.polls)

    def snapshot(self) -> dict[str, int]:
        return self.position


def changed(state: tuple[str, ...] | None, verb: str) -> tuple[str, ...] | None:
    """Apply a command."""
    if state is not None and state[-1] == "doom":
        state = None  # a hook has dropped it, or will
    return None if verb == "drop" else (*(state or ()), verb)


def fold(_key: Any, command: Command, state: Any) -> tuple[Command, Any]:
    return command, changed(state, command.verb)


class Hooked(StatefulLogic[Any, Command, int, Command, Any]):
    """Does what commands say; the hooks look at all states now and then, and drop those that are doomed."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.send(msg)
        return changed(state, msg.value.verb)

    def on_schedule(self, states: Any, output: Any) -> None:
        if len(states) % 3 == 0:
            for key, state in list(states.items()):
                if state[-1] == "doom":
                    del states[key]

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if len(states) % 4 == 1:
            list(states.values())


def count(_key: Any, command: Command, total: int) -> tuple[int, int]:
    return total + 1, total + 1


def program_of(script: Script, sink: Any) -> Program:
    """Build three operators with states in one stage, and one in the next."""
    graph = Graph()
    polls = StreamProvider(graph).new_stream().source("polls", StatefulSource(Polls(script)))
    timed, _ = polls.generate_epochs("epochs", lambda msg, _: msg.timestamp - 100)
    keyed = timed.key_distribute("by-key", lambda msg: msg.value.key)
    mapped = keyed.filter("is-map", lambda it: it.operator == "map").stateful_map("map", fold)
    other = keyed.filter("is-other", lambda it: it.operator == "other").stateful_map("other", fold)
    hooked = keyed.filter("is-hooked", lambda it: it.operator == "hooked").stateful_op("hooked", Hooked())
    counted = mapped.union(other, hooked).key_distribute("by-verb", lambda msg: msg.value.verb)
    counted.stateful_map("count", count, default=int).sink("out", StatelessSink(sink))
    return compile_graph(graph)


def expected(script: Script, positions: Mapping[str, Mapping[str, int]]) -> dict[str, dict[Any, Any]]:
    """Compute what the states must be at some positions."""
    states: dict[str, dict[Any, Any]] = {name: {} for name in ("map", "other", "hooked", "count")}
    for part, position in positions.items():
        for command in [it for poll in script[part][: position["at"]] for it in poll]:
            held = states[command.operator]
            held[command.key] = changed(held.get(command.key), command.verb)
            states["count"][command.verb] = states["count"].get(command.verb, 0) + 1
    return {name: undoomed(held) for name, held in states.items()}


def undoomed(states: Mapping[Any, Any]) -> dict[Any, Any]:
    """Leave out what hooks have dropped or will drop."""
    return {key: it for key, it in states.items() if it is not None and not (type(it) is tuple and it[-1] == "doom")}


class Checked:
    """Compares, after each tick, what a new process would hold, and what the newest snapshot holds, with dicts."""

    def __init__(self, script: Script, program: Program, backend: FsspecBackend | None) -> None:
        self.script, self.program, self.backend = script, program, backend
        self.snapshot = 0

    def __call__(self, job: Any, coordinator: Any) -> None:
        scratch = Changelog(job.scratch, job.generation)
        held: dict[str, dict[Any, Any]] = {}
        for stage, ticks in enumerate(coordinator.index.last):
            for number, last in enumerate(ticks):
                parts = {"polls": [[]] * job.parallelism}
                worker = Worker(self.program, stage, number, parallelism=job.parallelism, parts=parts, tracked=True)
                for change in scratch.since(stage, number, last, NEVER):
                    worker.states.apply(change.deltas)
                for name, states in worker.states.live().items():
                    held.setdefault(name, {}).update(states)
        self._check(held, f"tick {coordinator.tick}")
        self._check_that_files_are_few(Path(job.scratch.url, RUNS, job.scratch.run, str(job.generation)))
        if self.backend is not None:
            self.check_snapshot()

    def _check_that_files_are_few(self, folder: Path) -> None:
        """There are those since the last whole change, and those that a snapshot is being made of."""
        files = Counter(it.name.split("-", 1)[1] for it in folder.iterdir())
        assert all(number <= 2 * LONGEST + 3 for number in files.values()), files

    def check_snapshot(self) -> None:
        assert self.backend is not None
        newest = max((it.id for it in snapshots(self.backend)), default=0)
        if newest != self.snapshot:
            self.snapshot = newest
            states = kept(self.backend).states
            self._check({name: dict(ChainMap(*by.values())) for name, by in states.items()}, f"snapshot {newest}")

    def _check(self, states: Mapping[str, Mapping[Any, Any]], where: str) -> None:
        positions = states.get("polls", {})
        wanted = expected(self.script, positions)
        assert {name: undoomed(states.get(name, {})) for name in wanted} == wanted, where


verbs = st.sampled_from(["add", "add", "add", "drop", "doom"])
operators = st.sampled_from(["map", "other", "hooked"])


@st.composite
def polls(draw: Any, part: str) -> list[Command]:
    """Draw a poll: for some operators nothing, a key, or nearly all keys."""
    commands: list[Command] = []
    for operator in draw(st.sets(operators)):
        few = st.lists(st.integers(0, KEYS - 1), min_size=1, max_size=2)
        keys = draw(st.one_of(few, st.just(range(1, KEYS)), st.just(range(KEYS))))
        verb = draw(verbs)
        commands += [Command(operator, verb, f"{part}{key}") for key in keys]
    return commands


places = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(tuple)
plans = st.builds(
    Plan,
    places=places,
    again=st.frozensets(st.integers(0, 5), max_size=1),
    killed=st.none() | st.integers(0, 3),
    asks=st.booleans(),
    writes=st.booleans(),
    down=st.integers(0, 5).map(lambda number: number == 0),
    rescale=st.integers(0, 30).map(lambda number: number if 1 <= number <= 3 else None),
    crash=st.integers(0, 20).map(lambda number: number == 20),
)
scripts = st.fixed_dictionaries({part: st.lists(polls(part), max_size=14) for part in PARTS})


@pytest.mark.fault("I14")
@settings(phases=(Phase.explicit, Phase.reuse, Phase.generate))  # to make one smaller takes minutes
@given(
    scripts,
    st.lists(plans, max_size=16),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([1, LONGEST]),
    st.booleans(),
)
def test_states_are_those_of_plain_dicts_whoever_holds_them(
    script: Script, faults: list[Plan], workers: int, keeps: bool, longest: int, merges: bool
) -> None:
    """Each tick may leave a state alone, or change some of it, nearly all, or all; then look at what can be read."""
    later = Later()
    backend = in_memory(retain=3)
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    if not keeps:
        faults = [replace(plan, crash=False, asks=False) for plan in faults]
    with TemporaryDirectory() as scratch, simulated(longest=longest + merges, merges=merges):
        program = program_of(script, VecSink())
        check = Checked(script, program, backend if keeps else None)
        cluster = Cluster(faults, check, later)
        cluster.run(program, settings_at(scratch, backend if keeps else NoPersistence()), workers)
    if keeps:
        check.check_snapshot()
        assert not fsck(backend).problems
    target(float(cluster.takeovers))


@pytest.mark.fault("I14")
def test_an_idle_state_outlives_ticks_that_change_all_of_another() -> None:
    """The states of two streams lie in one stage; the next process, and the snapshot, have both."""
    graph, few, many = Graph(), range(100), range(6000)
    counts: dict[str, VecSink[Any, Any, Any]] = {}
    for name, script in {"few": [few, [], [], few], "many": [many, many, many, []]}.items():
        polls = StreamProvider(graph).new_stream().source(name, StatefulSource(Polls({"p": script})))
        keyed = polls.key_distribute(f"{name}-key", lambda msg: msg.value)
        keyed.stateful_map(f"{name}-count", count, default=int).sink(f"{name}-out", counts.setdefault(name, VecSink()))
    backend = in_memory()
    with TemporaryDirectory() as scratch, simulated(slack=1024):
        plans = [Plan(), Plan(asks=True), Plan(places=(1,)), Plan(places=(2,))]
        Cluster(plans).run(compile_graph(graph), settings_at(scratch, backend), 1)
    assert counts["few"].values == [1] * 100 + [2] * 100
    assert kept_states(backend, "few-count", 2) == dict.fromkeys(few, 1)
    assert kept_states(backend, "few-count") == dict.fromkeys(few, 2)
    assert kept_states(backend, "many-count") == dict.fromkeys(many, 3)


def test_increments_are_merged_by_tasks() -> None:
    graph, backend, ticks = Graph(), in_memory(retain=100), 30
    script = [range(5_000), *[[tick % 7, tick + 100] for tick in range(ticks)]]
    polls = StreamProvider(graph).new_stream().source("polls", StatefulSource(Polls({"p": script})))
    polls.key_distribute("key", lambda msg: msg.value).stateful_map("count", count, default=int).sink("out", VecSink())
    with TemporaryDirectory() as scratch, simulated(slack=1024):
        cluster = Cluster([Plan(asks=True, writes=True)] * (ticks + 1))
        cluster.run(compile_graph(graph), settings_at(scratch, backend), 2)
    found = [*snapshots(backend)]
    assert max(it.files for it in found) <= 2 * 8, "of two workers"
    for it in found:
        expected = Counter(range(5_000))
        for polled in script[1 : it.tick]:
            expected.update(polled)
        assert kept_states(backend, "count", it.id) == expected


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("how", ["nothing is kept", "snapshots are not periodic", "snapshots fail"])
def test_the_scratch_folder_stays_small(how: str, merges: bool) -> None:
    script = {part: [[Command("map", "add", f"{part}{key}") for key in range(3)]] * 60 for part in PARTS}
    backend = None if how == "nothing is kept" else in_memory()
    fails = how == "snapshots fail"
    program = program_of(script, VecSink())
    with TemporaryDirectory() as scratch, simulated(longest=LONGEST, merges=merges):
        cluster = Cluster([Plan(asks=fails, down=fails)] * 55, Checked(script, program, backend))
        cluster.run(program, settings_at(scratch, backend or NoPersistence()), 2)


class Listing(Polls):
    """Lists its parts once; what it would say later is another thing."""

    times = 0

    def list_parts(self) -> list[str]:
        self.times += 1
        return super().list_parts() if self.times == 1 else []


def test_parts_are_listed_once_a_run_however_often_it_is_rescaled() -> None:
    graph, sink = Graph(), VecSink[Any, Any, Any]()
    source = Listing({part: [[1], [2], [3], [4]] for part in PARTS})
    StreamProvider(graph).new_stream().source("polls", StatefulSource(source)).sink("out", sink)
    with TemporaryDirectory() as scratch, simulated():
        cluster = Cluster([Plan(rescale=2), Plan(), Plan(rescale=3)])
        cluster.run(compile_graph(graph), settings_at(scratch, NoPersistence()), 1)
    assert sorted(sink.values) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert source.times == 1


class Quiet(StatefulSourceImpl[str, int, int, int]):
    """Emits three numbers, nothing for some polls, then another one; its position does not move meanwhile."""

    def __init__(self, polls: int) -> None:
        self.polls = polls

    def list_parts(self) -> list[str]:
        return list(PARTS)

    def build_part(self, part: str, state: int | None) -> QuietPart:
        return QuietPart(self, state or 0)


class QuietPart(StatefulSourcePartition[int, int, int]):
    """The reader of `Quiet`. The polls that give nothing are counted by the source."""

    def __init__(self, source: Quiet, at: int) -> None:
        self.source, self.at = source, at

    def poll(self) -> tuple[int, int] | None:
        if self.at == 3 and self.source.polls:
            self.source.polls -= 1
            return None
        self.at += 1
        return self.at, self.at

    def is_finished(self) -> bool:
        return self.at == 4

    def snapshot(self) -> int:
        return self.at


class Files(StatefulSinkImpl[Any, int, int, int, list[int]]):
    """A sink of two parts, whose states are lists that they change."""

    def assign_part(self, msg: Any) -> int:
        return msg.value % 2

    def build_part(self, part: int, state: list[int] | None) -> FilesPart:
        return FilesPart(state or [])


class FilesPart(StatefulSinkPartition[Any, int, int, list[int]]):
    """A writer of `Files`."""

    def __init__(self, written: list[int]) -> None:
        self.written = written

    def sink(self, msg: Any) -> None:
        self.written.append(msg.value)

    def snapshot(self) -> list[int]:
        return self.written


def quiet(provider: StreamProvider, *, polls: int) -> None:
    numbers = provider.new_stream().source("numbers", StatefulSource(Quiet(polls)))
    numbers.sink("files", StatefulSink(Files()))


def written_to_files(backend: FsspecBackend) -> dict[int, list[int]]:
    return {part: sorted(written) for part, written in kept_states(backend, "files").items()}


WRITTEN = {0: [2, 2, 4, 4], 1: [1, 1, 3, 3]}


def test_an_idle_job_writes_no_snapshot() -> None:
    backend = in_memory(retain=100)
    SingleThreadRuntime(partial(quiet, polls=50), backend, timedelta(microseconds=1)).execute()
    assert len([*snapshots(backend)]) <= 5
    assert written_to_files(backend) == WRITTEN


def test_an_idle_job_on_spark_writes_no_snapshot_and_no_change() -> None:
    backend, graph, files = in_memory(retain=100), Graph(), set[str]()
    quiet(StreamProvider(graph), polls=50)
    plans = [Plan(places=(tick % 3, tick % 2), asks=True, again=frozenset({tick % 5})) for tick in range(30)]

    def note(job: Any, coordinator: Any) -> None:
        folder = Path(job.scratch.url, RUNS, job.scratch.run, str(job.generation))
        files.update(f"{coordinator.tick}: {it.name}" for it in folder.iterdir() if coordinator.tick in range(8, 28))

    with TemporaryDirectory() as scratch, simulated(longest=1000):
        Cluster(plans, note).run(compile_graph(graph), settings_at(scratch, backend), 2)
    names = [name.split(": ")[1] for name in files]
    assert {int(name.split("-")[0]) for name in names} <= {*range(7)}
    assert len([*snapshots(backend)]) <= 8
    assert written_to_files(backend) == WRITTEN


def test_only_the_worker_with_many_changes_writes_all_of_its_state_again() -> None:
    """Polls that give nothing move the position of the source; the counts behind the exchange lie idle."""
    graph, last = Graph(), list[Any]()
    polls = StreamProvider(graph).new_stream().source("polls", StatefulSource(Polls({"p": [range(50), *[[]] * 40]})))
    keyed = polls.key_distribute("key", lambda msg: msg.value)
    keyed.stateful_map("count", count, default=int).sink("out", VecSink())
    with TemporaryDirectory() as scratch, simulated(longest=LONGEST):
        cluster = Cluster([], lambda _, coordinator: last.append(coordinator.index.last))
        cluster.run(compile_graph(graph), settings_at(scratch, NoPersistence()), 1)
    assert last[-1] == [[41], [1]]


READ = Counter[int]()
"""How often a state of `Tally` came from another process, by key."""


class Tally:
    """A state that notes when it is read."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.total = 0

    def __setstate__(self, held: dict[str, int]) -> None:
        vars(self).update(held)
        READ[self.key] += 1


def tallied(key: int, _value: int, tally: Tally | None) -> tuple[int, Tally]:
    tally = tally or Tally(key)
    tally.total += 1
    return tally.total, tally


def test_processes_that_take_turns_do_not_read_again_what_is_written_whole() -> None:
    """All states are written down now and then; a process that has those of the tick before reads what changed."""
    graph, sink = Graph(), VecSink[Any, Any, Any]()
    polls = StreamProvider(graph).new_stream().source("polls", StatefulSource(Polls({"p": [range(50), *[[0]] * 40]})))
    polls.key_distribute("key", lambda msg: msg.value).stateful_map("tally", tallied).sink("out", sink)
    READ.clear()
    with TemporaryDirectory() as scratch, simulated(longest=LONGEST):
        plans = [Plan(places=(tick % 2,)) for tick in range(45)]
        Cluster(plans).run(compile_graph(graph), settings_at(scratch, NoPersistence()), 1)
    assert sink.values[50:] == [*range(2, 42)]
    assert {READ[key] for key in range(1, 50)} == {1}


def test_snapshots_leave_slots_to_the_ticks_until_the_last_one() -> None:
    script = {part: [[Command("map", "add", f"{part}{key}") for key in range(9)]] * 9 for part in PARTS}
    with TemporaryDirectory() as scratch, simulated():
        cluster = Cluster([Plan(asks=True)] * 5)
        cluster.run(program_of(script, VecSink()), settings_at(scratch, in_memory()), 3)
    assert max(cluster.slices[:-1]) <= 2 < cluster.slices[-1]


LOADED: list[int] = []
"""The sizes of what was unpickled of `Large`."""


class Large:
    """A function with much in it, which says when it is unpickled."""

    def __init__(self, size: int) -> None:
        self.data = os.urandom(size)

    def __call__(self, value: int) -> int:
        return value

    def __setstate__(self, held: dict[str, Any]) -> None:
        vars(self).update(held)
        LOADED.append(len(self.data))


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_large_function_is_sent_to_each_process_once(size: int) -> None:
    graph, sink, tasks = Graph(), VecSink[Any, Any, Any](), list[int]()
    polls = StreamProvider(graph).new_stream().source("polls", StatefulSource(Polls({"p": [[1], [2], [3], [4]] * 3})))
    polls.map("large", Large(size)).key_distribute("key", lambda msg: msg.value).sink("out", sink)
    LOADED.clear()

    def note(job: Any, coordinator: Any) -> None:
        tasks.append(len(cloudpickle.dumps(StageTask(job, 0, is_last=False))))

    with TemporaryDirectory() as scratch, simulated():
        plans = [Plan(places=(tick % 3,)) for tick in range(11)]
        Cluster(plans, note).run(compile_graph(graph), settings_at(scratch, NoPersistence()), 1)
        assert not [*Path(scratch).rglob("program")]
    assert sorted(sink.values) == sorted([1, 2, 3, 4] * 3)
    assert Counter(LOADED) == {size: 3}
    assert max(tasks) < 100_000


class Audit(StatefulLogic[Any, Any, Any, Any, int]):
    """Counts the records of each key, and looks at all counts at the start of every tick."""

    def on_data(self, msg: Any, state: int, output: Any) -> int:
        output.send(msg)
        return state + 1

    def on_schedule(self, states: Any, output: Any) -> None:
        assert all(states.values())


def is_idle(value: int) -> bool:
    """Whether a record passes by the sum, as those in the middle do."""
    return 30 <= value < 70


def audited(provider: StreamProvider, *, sink: Any) -> None:
    """Count all records, and add up those at the beginning and at the end; say which process did it."""
    numbers = provider.new_stream().source("numbers", ScriptedSource({part: range(100) for part in PARTS}))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % 7).stateful_op("audit", Audit(), default=int)
    summed = keyed.filter("is-busy", lambda value: not is_idle(value))
    summed.stateful_map("sum", lambda _, value, total: ((total + 1, os.getpid()), total + 1), default=int).sink(
        "out", sink
    )


@pytest.mark.fault("I14")
@pytest.mark.spark
def test_state_that_moves_between_processes_of_spark_is_whole(spark: Any, tmp_path: Path) -> None:
    """More workers than processes: each tick another one takes what is next, in whatever order they get free."""
    here, there = VecSink[Any, Any, Any](), VecSink[Any, Any, Any]()
    SingleThreadRuntime(partial(audited, sink=here)).execute()
    backend = FsspecBackend(str(tmp_path), retain=100)
    every = timedelta(seconds=0.5)
    SparkRuntime(
        partial(audited, sink=there), backend, every, parallelism=4, spark=spark, max_records_per_tick=40
    ).execute()
    processes: dict[Any, set[int]] = {}
    for message in there:
        processes.setdefault(message.key, set()).add(message.value[1])
    assert max(map(len, processes.values())) > 1, "no worker has moved"
    assert sorted((it.key, it.value[0]) for it in there) == sorted((it.key, it.value[0]) for it in here)
    for snapshot in snapshots(backend):
        positions = kept_states(backend, "numbers", snapshot.id).values()
        polled = [value for at in positions for value in range(at)]
        assert kept_states(backend, "audit", snapshot.id) == Counter(value % 7 for value in polled)
        assert kept_states(backend, "sum", snapshot.id) == Counter(value % 7 for value in polled if not is_idle(value))
    assert not fsck(backend).problems


class CountedGzip(GzipFile):
    """Counts how often a file is read from its beginning."""

    begun = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        type(self).begun += offset == 0
        return super().seek(offset, whence)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        type(self).begun += 1


def test_a_compressed_file_is_read_once_by_each_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers move in each tick, and continue where they left off; those that have ended are not begun again."""
    monkeypatch.setitem(compr, "gzip", lambda file, mode: CountedGzip(fileobj=file, mode=mode))
    monkeypatch.setattr(lines, "CHUNK", 64)
    sizes = {"short": 40, "long": 400}
    for name, size in sizes.items():
        (tmp_path / f"{name}.txt.gz").write_bytes(compress("".join(f"{name} {n}\n" for n in range(size)).encode()))
    graph, out = Graph(), VecSink[Any, Any, Any]()
    source = TextFileSource(str(tmp_path / "*.gz"))
    read = StreamProvider(graph).new_stream().source("files", StatefulSource(source))
    read.key_distribute("key", lambda msg: msg.value.split()[0]).sink("out", StatelessSink(out))
    cluster = Cluster([Plan(places=(tick % 2,)) for tick in range(100)])
    with simulated(longest=LONGEST):
        settings = settings_at(str(tmp_path / "scratch"), NoPersistence())
        few = replace(settings, options=replace(settings.options, max_records_per_tick=10))
        cluster.run(compile_graph(graph), few, 1)
    assert sorted(out.values) == sorted(f"{name} {n}" for name, size in sizes.items() for n in range(size))
    assert cluster.takeovers > 20
    assert CountedGzip.begun <= 2 * 2 * len(sizes), "each process opens each file, and reads its head first"
