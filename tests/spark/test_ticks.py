"""A tick that Spark repeats in part, by hand: the coordinator and a stage detect records that differ."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from malflow import DataMessage, StatefulLogic, StreamProvider, rendezvous_select
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.reports import Report
from malflow.engine.sinks import RunSinks
from malflow.engine.worker import Worker
from malflow.errors import RunFailed, SnapshotError
from malflow.event_time.tick import Tick
from malflow.graph import Graph
from malflow.records.batch import Batch
from malflow.runtime.requests.mailbox import RunRequests
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder, StoredOutput
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, pack_entry
from malflow.runtime.spark.host import SparkHost
from malflow.runtime.spark.protocol import RunSpec, StageReport, TickCommand, names_of_counts
from malflow.runtime.spark.session.session import check_spark
from malflow.runtime.spark.tasks import polling as tick_polling
from malflow.runtime.spark.tasks.records import RecordCounts, Row, RowKind, ShuffleBuffer, chunks_of, summed
from malflow.runtime.spark.tasks.stage import StageAttempt
from malflow.runtime.transport import chunks
from malflow.runtime.transport.program_pickle import ON_SPARK, dumps_program
from malflow.runtime.transport.sink_proxies import driver_sinks, with_sink_proxies
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import NoPersistence
from malflow.snapshot.persistence import RestoredState
from malflow.sources import SingleIteratorSource
from tests.kit.growing_file import GrowingFile
from tests.spark.flows import sums
from tests.spark.simulation import Cluster, settings_at

WORKERS = 2
OURS = [key for key in range(20) if rendezvous_select(key, range(WORKERS)) == 0]
"""Keys of worker 0."""


def program() -> Program:
    graph = Graph()
    sums(10)(StreamProvider(graph))
    return compile_graph(graph)


def payload_of(made: Program, parts: Any, discovered: Any) -> bytes:
    return dumps_program(with_sink_proxies(made), ON_SPARK, parts, discovered, {})


def place(folder: Path) -> ScratchFolder:
    run = blake2b(str(folder).encode(), digest_size=8).hexdigest()
    return ScratchFolder(str(folder), {}, run, b"a key for tests", pickle.dumps({}))


def told(stage: int, worker: int, counts: RecordCounts) -> Row:
    taken, sent = summed(counts.received_by(worker)), summed(counts.sent_by(worker))
    report = StageReport(1, stage, Report(worker, live=["numbers"]), taken=taken, sent=sent)
    return Row(worker, RowKind.REPORT, 0, worker, pickle.dumps(report), [0] * len(names_of_counts(program())))


@pytest.mark.fault("I2")
@pytest.mark.parametrize(
    ("came", "is_stored", "reason"),
    [
        (2, True, "worker 0 received 2 of the 3 records that worker 1 sent on channel 0"),
        (0, True, "worker 0 received 0 of the 3 records that worker 1 sent on channel 0"),
        (4, True, "worker 0 received 4 of the 3 records that worker 1 sent on channel 0"),
        (4, False, "worker 0 received other records than those that were sent to it on channel 0"),
    ],
)
def test_a_tick_of_which_two_tries_are_mixed_starts_the_run_again(
    came: int, is_stored: bool, reason: str, tmp_path: Path
) -> None:
    made = program()
    settings = settings_at(str(tmp_path), NoPersistence())
    host = SparkHost(made, WORKERS, Cluster([]), settings, RunSinks(driver_sinks(made)), RunRequests(), 0)
    host.open(0)
    host.command(Tick(number=1))
    nothing = RecordCounts({}, {})
    sent, taken = RecordCounts({}, {(0, 0): 3}), RecordCounts({(0, 1): came} if came else {}, {})
    for stage, worker, counts in [(0, 1, sent), *([(1, 0, taken)] if is_stored else [])]:
        entry = pack_entry(ChangelogEntry(1, NEVER, {}))
        Changelog(settings.scratch, 1).write(stage, worker, entry, StoredOutput(counts=counts))
    rows = [told(0, 0, nothing), told(0, 1, sent), told(1, 0, taken), told(1, 1, nothing)]
    with pytest.raises(RunFailed, match=reason):
        host.take(rows, 0.0)
    rows[2] = told(1, 0, RecordCounts({(0, 1): 3}, {}))
    reports, _ = host.take(rows, 0.0)
    assert [report.worker for report in reports] == [0, 1, 0, 1, 0]  # the last one is from the sinks on the driver


class Keeping:
    """A session that has every snapshot at once."""

    def __init__(self) -> None:
        self.names: list[set[str]] = []

    def commit(self, _tick: int, _parallelism: int, _states: Any, deltas: Any) -> Future[int]:
        made: Future[int] = Future()
        self.names.append({delta.name for delta in deltas})
        made.set_result(len(self.names))
        return made


def test_snapshot_after_a_rescale_at_its_own_tick_has_all_state(tmp_path: Path) -> None:
    made, session = program(), Keeping()
    settings = settings_at(str(tmp_path), NoPersistence())
    host = SparkHost(made, WORKERS, Cluster([]), settings, RunSinks(driver_sinks(made)), RunRequests(), 0)
    host.load(RestoredState(1, 5, WORKERS, {"sum": {0: {OURS[0]: 7}}}, {"sum": 1}, {}))
    host.open(5)
    host.command(Tick(number=5))
    host.capture(session, 5, lambda _: (), full=False, alone=False)
    host.rescale(WORKERS + 1)
    host.settle(5, 1)
    host.capture(session, 5, lambda _: (), full=False, alone=False)
    assert "sum" in session.names[-1]


@pytest.mark.fault("I2")
@pytest.mark.spark
def test_repeated_stage_sends_its_first_output_whatever_it_receives(tmp_path: Path) -> None:
    check_spark()
    made = program()
    spec = RunSpec(1, WORKERS, payload_of(made, {"numbers": [[], []]}, {}), place(tmp_path), 1, None, 0.5, False)
    command = TickCommand(1, [[NEVER] * WORKERS] * 2)

    def done(values: list[int]) -> list[Row]:
        buffer = ShuffleBuffer()
        buffer.add([Batch([0] * len(values), values, values)])
        rows = [Row(0, RowKind.CHANNEL, 0, 1, blob) for blob in buffer.blobs()]
        return [*StageAttempt(spec, 1, 0, command).take(rows)]

    def kinds(rows: list[Row]) -> list[int]:
        return [row.kind for row in rows]

    first = done([1, 2, 3])
    assert kinds(first) == [RowKind.SINK, RowKind.REPORT]
    assert done([1, 2, 3]) == first
    assert done([1, 2, 3, 4]) == first, "its report says which records it has counted"


class Scheduled(StatefulLogic[Any, Any, Any, Any, Any]):
    """Emits a record on each call."""

    def on_data(self, msg: Any, state: int, output: Any) -> int:
        output.send(msg)
        return state

    def on_schedule(self, states: Any, output: Any) -> None:
        output.send(DataMessage(OURS[0], "a tick", 0))


def kept(provider: StreamProvider, *, how: str) -> None:
    """Add up numbers, after an exchange alone, or with something that makes a difference of the order or of runs."""
    numbers = provider.new_stream().source("numbers", SingleIteratorSource([0]))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % 5)
    if how == "joined":
        keyed = keyed.union(numbers.key_distribute("other", lambda msg: msg.value % 5))
    if how == "timed":
        keyed, _ = keyed.generate_epochs("epochs", lambda msg, _: msg.timestamp)
    if how == "scheduled":
        keyed = keyed.stateful_op("op", Scheduled(), default=int)
    keyed.stateful_map("sum", lambda key, value, total: ((value, total), total + 1), default=int).sink("out", VecSink())


@pytest.mark.spark
@pytest.mark.parametrize("how", ["alone", "joined", "timed", "scheduled"])
def test_input_in_chunks_is_processed_as_one(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_spark()
    graph = Graph()
    kept(StreamProvider(graph), how=how)
    made = compile_graph(graph)
    command = TickCommand(1, [[NEVER] * WORKERS] * 2)
    runs = []
    run = Worker.run

    def counted(worker: Worker, *what: Any, **how: Any) -> Any:
        runs.append(worker)
        return run(worker, *what, **how)

    monkeypatch.setattr(Worker, "run", counted)

    def taken(size: int) -> tuple[list[Any], list[Any], int]:
        monkeypatch.setattr(chunks, "_CHUNK", size)
        rows = []
        for sender in range(WORKERS):
            buffer = ShuffleBuffer()
            for number in range(sender, 40, 2):
                buffer.add([Batch([OURS[number % 5]], [number], [number])])
            rows += [Row(0, RowKind.CHANNEL, 0, sender, blob) for blob in buffer.blobs()]
        spec = RunSpec(
            1, WORKERS, payload_of(made, {"numbers": [[], []]}, {}), place(tmp_path / str(size)), 1, None, 0.5, False
        )
        runs.clear()
        given = [*StageAttempt(replace(spec, generation=size), 1, 0, command).take(rows)]
        sums = [row for row in given if row.kind == RowKind.SINK]
        state = Changelog(spec.scratch, size).read(1, 0, 1).deltas["sum"]
        values = [value for row in sums for chunk in chunks_of([row.blob]) for value in chunk.batch().values]
        return values, list(state.changed.items()), len(runs)

    in_one, in_many = taken(10_000), taken(1)
    assert in_one[:2] == in_many[:2]
    assert len(in_one[0]) == 40 + (how == "scheduled")
    assert (in_one[2], in_many[2]) == ((2, 40) if how == "alone" else (1, 1))


@dataclass(eq=False)
class Changeable:
    """A key that changes in spite of all that keys must be."""

    number: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changeable) and self.number == other.number

    def __hash__(self) -> int:
        return 7

    def __stable_key__(self) -> int:
        return 7


class Changing(StatefulLogic[Any, Any, Any, Any, Any]):
    """Changes a key at the last of three records."""

    def __init__(self) -> None:
        self.keys: list[Changeable] = []

    def on_data(self, msg: Any, state: int, output: Any) -> int:
        self.keys.append(msg.key)
        if len(self.keys) == 3:
            self.keys[1].number = 0
        return state + 1


@pytest.mark.spark
@pytest.mark.parametrize("debug", [True, False])
def test_debug_refuses_to_write_what_could_not_be_read_again(debug: bool, tmp_path: Path) -> None:
    check_spark()
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource([0]))
    numbers.key_distribute("key", lambda msg: msg.value).stateful_op("count", Changing(), default=int)
    made = compile_graph(graph)
    spec = RunSpec(1, 1, payload_of(made, {"numbers": [[]]}, {}), place(tmp_path), 1, None, 0.5, debug)
    buffer = ShuffleBuffer()
    buffer.add([Batch([Changeable(0), Changeable(1), Changeable(2)], [0, 1, 2], [0, 0, 0])])
    attempt = StageAttempt(spec, 1, 0, TickCommand(1, [[NEVER]] * 2)).take(
        [Row(0, RowKind.CHANNEL, 0, 0, blob) for blob in buffer.blobs()]
    )
    if debug:
        with pytest.raises(
            SnapshotError, match=r"'count' has 3 keys on worker 0, but its snapshots add up to 2: .* must"
        ):
            list(attempt)
    else:
        assert list(attempt)


@pytest.mark.fault("I2")
@pytest.mark.parametrize("keeps", [True, False], ids=["with an entry", "without an entry"])
def test_facts_are_those_of_the_first_try(keeps: bool, tmp_path: Path) -> None:
    """Times differ when a task is repeated, and Spark compares what it sends."""
    pytest.importorskip("pyspark")
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource([]))
    numbers.key_distribute("key", lambda _: 0).filter("slow", lambda _: time.sleep(0.03) or keeps).sink(
        "out", VecSink()
    )
    spec = RunSpec(3, 1, payload_of(compile_graph(graph), {"numbers": [[]]}, {}), place(tmp_path), 1, None, 0.5, False)
    buffer = ShuffleBuffer()
    buffer.add([Batch([0, 0], [1, 2], [1, 2])])
    arrived = [Row(0, RowKind.CHANNEL, 0, 0, blob) for blob in buffer.blobs()]

    def done(tick: int, last: int) -> list[Row]:
        return [*StageAttempt(spec, 1, 0, TickCommand(tick, [[last]] * 2)).take(list(arrived))]

    done(1, NEVER)  # states are new in it
    report, again = (pickle.loads(done(2, 1)[-1].blob).report for _ in range(2))
    assert report == again
    facts = report.facts
    assert sorted(facts) == (["key", "out", "slow"] if keeps else [])
    if keeps:
        assert facts["slow"].busy >= 60_000_000
        assert facts["slow"][1:] == (1, 2, 0, 0, 0, 0, 0)


@pytest.mark.fault("I2")
@pytest.mark.spark
def test_a_tick_in_which_nothing_came_is_done_again_with_nothing(tmp_path: Path) -> None:
    check_spark()
    graph, path = Graph(), tmp_path / "lines"
    path.touch()
    StreamProvider(graph).new_stream().source("lines", GrowingFile(path)).sink("out", StatelessSink(VecSink()))
    made = compile_graph(graph)
    spec = RunSpec(2, 1, payload_of(made, {"lines": [["lines"]]}, {}), place(tmp_path), 1, None, 0.5, False)

    def done(tick: int, last: int) -> tuple[list[Row], int]:
        rows = [*StageAttempt(spec, 0, 0, TickCommand(tick, [[last]])).take([])]
        return rows, sum(pickle.loads(row.blob).report.polled for row in rows if row.kind == RowKind.REPORT)

    begun, idle = done(1, NEVER), done(2, 1)
    path.write_text("one\ntwo\n", encoding="utf-8")
    assert (done(1, NEVER), done(2, 1)) == (begun, idle)
    assert (begun[1], idle[1], done(3, 1)[1]) == (0, 0, 2)


@pytest.mark.spark
@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "sink on the driver"])
def test_poll_loop_ends_when_large_records_fill_the_tick(
    exchange: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_spark()
    graph = Graph()
    numbers = StreamProvider(graph).new_stream().source("numbers", SingleIteratorSource(range(1_000)))
    large = numbers.map("large", lambda _: bytes(1_000_000))
    (large.key_distribute("key", lambda _: 0) if exchange else large).sink("out", VecSink())
    made = compile_graph(graph)
    spec = RunSpec(1, 1, payload_of(made, {"numbers": [[0]]}, {}), place(tmp_path), 1, None, 60.0, False)
    monkeypatch.setattr(tick_polling, "MOST_BYTES", 5_000_000)
    rows = [*StageAttempt(spec, 0, 0, TickCommand(1, [[NEVER]] * 2)).take([])]
    told = pickle.loads(rows[-1].blob)
    assert 5 <= told.report.polled < 500
    assert told.size >= told.report.polled * 1_000_000
    assert max(len(row.blob) for row in rows) <= (4 << 20) + 8
