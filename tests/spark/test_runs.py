"""Runs on Spark: same results as on one thread, stops, restores and rescales."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    DataMessage,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    SparkRuntime,
    limit_out_of_orderness,
)
from malflow.events import TickFinished
from malflow.runtime.spark import streaming_query
from malflow.sinks import StatelessSinkImpl, VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.sources import (
    SingleIteratorSource,
    StatefulSource,
    StatelessSource,
)
from malflow.sources.contract import StatelessSourceImpl, StatelessSourcePartition
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until
from tests.spark.flows import backend_at, expected_sums, kept_sums, sums

pytestmark = pytest.mark.spark

SECONDS = 120


def as_rows(sink: VecSink[Any, Any, Any]) -> list[tuple[Any, Any, Any]]:
    return sorted(((m.key, m.value, m.timestamp) for m in sink), key=repr)


def to_odd_and_even(message: Any, outputs: list[bool]) -> None:
    outputs[1 - message.value % 2] = True


class Joined:
    """A dataflow with splits, a union, event time, late records, and three exchanges in a row."""

    def __init__(self) -> None:
        self.totals: VecSink[Any, Any, Any] = VecSink()
        self.late: VecSink[Any, Any, Any] = VecSink()
        self.words: VecSink[Any, Any, Any] = VecSink()

    def __call__(self, provider: Any) -> None:
        left = provider.new_stream().source("left", SingleIteratorSource([5, 3, 9, 1, 12, 4, 20] * 20))
        right = provider.new_stream().source("right", SingleIteratorSource(range(100)))
        timed, late = left.assign_timestamps("t", lambda m: m.value).generate_epochs("e", lambda m, _: m.timestamp - 6)
        late.sink("late", self.late)
        odd, even = right.split("parity", to_odd_and_even, 2)
        even.map("name", str).sink("words", self.words)
        joined = timed.union(odd)
        first = joined.key_distribute("k1", lambda m: m.value % 5).stateful_map("s1", count, default=int)
        second = first.key_distribute("k2", lambda m: m.value % 3).stateful_map("s2", count, default=int)
        second.key_distribute("k3", lambda m: m.key).stateful_map("s3", count, default=int).sink("totals", self.totals)


def count(_key: Any, _value: Any, so_far: int) -> tuple[int, int]:
    return so_far + 1, so_far + 1


@pytest.mark.fault("I14")
@pytest.mark.parametrize("parallelism", [1, 3])
def test_splits_unions_and_exchanges_in_a_row_come_to_the_same(spark: Any, parallelism: int) -> None:
    here, there = Joined(), Joined()
    SingleThreadRuntime(here, parallelism=parallelism).execute()
    SparkRuntime(there, parallelism=parallelism, spark=spark).execute()
    assert as_rows(there.words) == as_rows(here.words)
    assert as_rows(there.late) == as_rows(here.late)
    assert [len(there.totals), sorted(there.totals.values)] == [len(here.totals), sorted(here.totals.values)]


@pytest.mark.fault("I6")
def test_each_runtime_resumes_from_the_snapshots_of_the_other(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path)
    SparkRuntime(sums(100), backend, parallelism=2, spark=spark).execute()
    assert kept_sums(backend) == expected_sums(100)
    SingleThreadRuntime(sums(150), backend, parallelism=2).execute()
    assert kept_sums(backend) == expected_sums(150)
    SparkRuntime(sums(200), backend, parallelism=3, spark=spark).execute()
    assert kept_sums(backend) == expected_sums(200)
    assert fsck(backend).problems == ()
    assert [it.parallelism for it in snapshots(backend)] == [2, 2, 3]


@pytest.mark.fault("I8")
def test_the_number_of_workers_changes_while_records_flow(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path, retain=50)
    out: VecSink[Any, Any, Any] = VecSink()
    runtime = SparkRuntime(sums(3_000, out), backend, timedelta(seconds=0.2), 2, spark=spark, max_records_per_tick=600)
    handle = runtime.start()
    for workers in (4, 3, 1):
        handle.rescale(workers).result(SECONDS)
        assert handle.progress.parallelism == workers
    assert handle.progress.polled >= 0
    assert handle.await_termination(SECONDS)
    assert kept_sums(backend) == expected_sums(3_000)
    assert len(out) == 9_000
    assert {it.parallelism for it in snapshots(backend)} >= {1}
    assert fsck(backend).problems == ()


def test_increments_until_they_outgrow_the_base(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path, retain=100)
    runtime = SparkRuntime(sums(2_400), backend, timedelta(seconds=0.05), 2, spark=spark, max_records_per_tick=600)
    runtime.execute()
    kinds = [it.kind for it in snapshots(backend)]
    assert {"base", "increment"} == set(kinds)
    for it in snapshots(backend):
        SingleThreadRuntime(sums(2_400), FsspecBackend(str(tmp_path / "state"), job="sums"), restore=it.id).execute()
        assert kept_sums(backend) == expected_sums(2_400)
        break
    assert fsck(backend).problems == ()


@pytest.mark.fault("I4")
def test_an_error_of_user_code_is_the_one_of_a_single_thread(spark: Any, tmp_path: Path) -> None:
    backend = backend_at(tmp_path)
    with pytest.raises(OperatorError) as here:
        SingleThreadRuntime(sums(100, fails_at=60), parallelism=2).execute()
    with pytest.raises(OperatorError) as there:
        SparkRuntime(sums(100, fails_at=60), backend, parallelism=2, spark=spark).execute()
    assert str(there.value) == str(here.value)
    assert isinstance(there.value.__cause__, ValueError)
    assert there.value.operator == "check"
    SparkRuntime(sums(100), backend, parallelism=2, spark=spark).execute()
    assert kept_sums(backend) == expected_sums(100)


class Numbers(StatelessSourceImpl[str, int, int]):
    """A source of the user without positions."""

    def __init__(self, *, locked: bool = False) -> None:
        self.locked = locked

    def list_parts(self) -> list[str]:
        return ["x", "y"]

    def build_part(self, part: str) -> NumbersPart:
        return NumbersPart(self.locked)


class NumbersPart(StatelessSourcePartition[int, int]):
    def __init__(self, locked: bool) -> None:
        self.next = 0
        self.lock = threading.Lock() if locked else None

    def poll(self) -> tuple[int, int] | None:
        self.next += 1
        return self.next, self.next

    def is_finished(self) -> bool:
        return self.next >= 500


def reads(source: Any, out: Any) -> Any:
    return lambda provider: provider.new_stream().source("numbers", StatelessSource(source)).sink("out", out)


def test_readers_without_a_position_travel_as_they_are(spark: Any) -> None:
    out: VecSink[Any, Any, Any] = VecSink()
    SparkRuntime(reads(Numbers(), out), parallelism=3, spark=spark, max_records_per_tick=90).execute()
    assert as_rows(out) == sorted(((part, n, n) for part in "xy" for n in range(1, 501)), key=repr)


def test_a_reader_that_can_not_travel_is_refused_at_the_start(spark: Any) -> None:
    with pytest.raises(GraphError, match=r"part 'x' of source 'numbers' can't move to another process.*StatefulSource"):
        SparkRuntime(reads(Numbers(locked=True), VecSink()), parallelism=1, spark=spark).execute()
    with pytest.raises(GraphError, match=r"operator 'numbers' can't run on Spark.*generator.*StatefulSource"):
        SparkRuntime(reads(SingleIteratorSource(n for n in range(3)), VecSink()), parallelism=1, spark=spark).execute()


class Appending(StatelessSinkImpl[Any, Any, Any]):
    """A sink of the user, in the processes of the workers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{msg.value}\n")

    def close(self) -> None:
        with self.path.with_suffix(".closed").open("a", encoding="utf-8") as file:
            file.write("closed\n")


def test_sinks_of_the_user_write_where_the_workers_are_and_are_closed(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    SparkRuntime(reads(SingleIteratorSource(range(50)), Appending(path)), parallelism=2, spark=spark).execute()
    assert sorted(map(int, path.read_text(encoding="utf-8").split())) == list(range(50))
    assert path.with_suffix(".closed").read_text(encoding="utf-8").count("closed") >= 1


def test_nothing_is_left_behind(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(threading.enumerate())
    SparkRuntime(sums(50), parallelism=2, spark=spark).execute()
    assert list(tmp_path.iterdir()) == []
    theirs = tmp_path / "malflow-scratch-of-the-user"
    SparkRuntime(sums(50), parallelism=2, spark=spark, scratch=str(theirs)).execute()
    assert theirs.is_dir(), "a folder that was given stays, whatever its name"
    assert [it for it in theirs.rglob("*") if it.is_file()] == []
    assert [it.name for it in set(threading.enumerate()) - before if it.name.startswith("malflow")] == []
    assert spark.streams.active == []


@pytest.mark.fault("I11")
def test_impossible_run_is_refused_before_it_starts(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="in the memory of one process"):
        SparkRuntime(sums(1), FsspecBackend("memory://place", job="j"), spark=spark).execute()
    with pytest.raises(GraphError, match="SparkSession of this process"):
        SparkRuntime(sums(1), spark=object()).execute()  # type: ignore[arg-type]
    for options in ({"parallelism": 0}, {"snapshots": "soon"}, {"trigger": -1}, {"max_records_per_tick": 0}):
        with pytest.raises(GraphError):
            SparkRuntime(sums(1), **options)  # type: ignore[arg-type]


class Ticks:
    """Calls a function after each tick."""

    def __init__(self, note: Callable[[TickFinished], object]) -> None:
        self._note = note

    def on_event(self, event: object) -> None:
        if isinstance(event, TickFinished):
            self._note(event)


def test_ticks_are_micro_batches_and_jobs_with_a_description(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(streaming_query, "_SLOWEST", 2)
    described: list[str] = []
    listener = Ticks(lambda _: described.append(spark.sparkContext.getLocalProperty("spark.job.description")))
    options: dict[str, Any] = {"max_records_per_tick": 100, "name": "told", "listeners": [listener]}
    handle = SparkRuntime(sums(200), parallelism=2, spark=spark, **options).start()
    wait_until(lambda: handle.query is not None)
    query = handle.query
    assert query is not None
    assert handle.await_termination(SECONDS)
    assert {progress.name for progress in query.recentProgress} == {"told"}
    assert len(query.recentProgress) in range(handle.progress.tick - 1, handle.progress.tick + 1)
    assert described == [f"malflow told, tick {tick + 1}" for tick in range(handle.progress.tick)]
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    assert len(jobs) == handle.progress.tick, "a job each, which ends with the query"
    assert handle.progress.records == dict.fromkeys(("numbers", "check", "key", "sum", "out"), 600)
    assert handle.progress.late == {}
    (told,) = [record.message for record in caplog.records if "tasks in each tick" in record.message]
    assert told == (
        "run 'told' starts 4 tasks in each tick (2 workers, 2 stages); Spark starts 2 to 3,000 in a second, so a "
        "tick takes at least 0.0 to 2.0 seconds; with fewer workers it is shorter"
    )


def test_late_records_are_counted_and_told(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource([*range(100), *range(50)]))
        keyed = numbers.assign_timestamps("time", lambda msg: msg.value)
        on_time, _ = keyed.generate_epochs("epochs", limit_out_of_orderness(10))
        on_time.key_distribute("key", lambda msg: msg.value).sink("out", VecSink())

    handle = SparkRuntime(build, parallelism=2, spark=spark, max_records_per_tick=40).start()
    assert handle.await_termination(SECONDS)
    assert handle.progress.late == {"epochs": 50}
    assert handle.progress.lateness == {"epochs": 89}
    assert handle.progress.records["out"] == 100
    (told,) = [record.message for record in caplog.records if "late" in record.message]
    assert told.startswith("operator 'epochs' dropped 50 records as late")


def slowly(number: int) -> int:
    time.sleep(0.05)
    return number


def test_a_long_tick_takes_what_waits(spark: Any) -> None:
    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(24)))
        numbers.map("slow", slowly).sink("out", VecSink())

    polled: list[int] = []
    listener = Ticks(lambda event: polled.append(event.polled))
    SparkRuntime(build, parallelism=1, spark=spark, trigger=timedelta(seconds=5), listeners=[listener]).execute()
    assert (sum(polled), max(polled)) == (24, 24), "half a second is not enough for them, half of five is"


def test_ticks_rest_while_there_is_nothing_and_go_on_when_there_is(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.touch()
    out: VecSink[Any, Any, Any] = VecSink()

    def build(provider: Any) -> None:
        provider.new_stream().source("lines", StatefulSource(GrowingFile(path))).sink("out", out)

    handle = SparkRuntime(build, parallelism=1, spark=spark).start()
    wait_until(lambda: handle.progress.tick > 3)
    first = handle.progress.tick
    handle.await_termination(1.0)
    assert 0 < handle.progress.tick - first <= 20, "a rest is of 50 ms"
    path.write_text("one\ntwo\n", encoding="utf-8")
    wait_until(lambda: len(out) == 2)
    path.write_text("one\ntwo\nend\n", encoding="utf-8")
    assert handle.await_termination(SECONDS)
    assert out.values == ["one", "two", "end"]


def slow_sum(_key: Any, value: int, total: int) -> tuple[int, int]:
    time.sleep(0.002)
    return total + value, total + value


@pytest.mark.fault("I18")
def test_a_slow_function_behind_an_exchange_is_paced(spark: Any, tmp_path: Path) -> None:
    def build(provider: Any) -> None:
        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(10**7)))
        keyed = numbers.key_distribute("key", lambda m: m.value % 50)
        keyed.stateful_map("sum", slow_sum, default=int).sink("out", VecSink())

    backend = backend_at(tmp_path)
    handle = SparkRuntime(build, backend, timedelta(seconds=0.5), 2, spark=spark).start()
    wait_until(lambda: len([*snapshots(backend)]) > 2)
    assert handle.progress.polled < 5_000
    asked = time.monotonic()
    handle.stop()
    assert handle.await_termination(SECONDS)
    assert time.monotonic() - asked < 120, "some ticks of about a second; all records would take hours"
