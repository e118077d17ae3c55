"""File sinks write exactly once, across stops, failures and other numbers of workers."""

import csv
import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from malflow import MAX, DataMessage, GraphError, OperatorError, SingleThreadRuntime, StreamProvider
from malflow.operators.contract import StatefulLogic
from malflow.runtime.spark.runtime import SparkRuntime
from malflow.sinks import CsvSink, JsonLinesSink, StatelessSinkImpl, TextFileSink, VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.sources import SingleIteratorSource, StatefulSource, TextFileSource
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import kept_states
from tests.kit.counting import MOMENT

Build = Callable[[StreamProvider], None]


def writing(items: Iterable[Any], path: Path, *, fails_at: int = -1, **options: Any) -> Build:
    """Write running sums, by remainder, into a file."""
    sink = JsonLinesSink[Any, Any, Any](path, formatter=lambda msg: [msg.key, msg.value], **options)
    return summing(items, sink, fails_at=fails_at)


def summing(items: Iterable[Any], sink: Any, *, fails_at: int = -1) -> Build:
    """Hand running sums, by remainder, to a sink."""

    def check(value: int) -> int:
        if value == fails_at:
            raise ValueError(f"it is {value}")
        return value

    def build(provider: StreamProvider) -> None:
        script = [step for item in items for step in ((PAUSE, item) if fails_at >= 0 else (item,))]
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script))).map("check", check)
        sums = numbers.key_distribute("key", lambda msg: msg.value % 3).stateful_map("sum", add, default=int)
        sums.sink("out", sink)

    return build


def add(_key: int, value: int, total: int) -> tuple[int, int]:
    return total + value, total + value


def lines_of(path: Path) -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def expected(items: Iterable[int]) -> list[str]:
    totals: dict[int, int] = {}
    lines = []
    for item in items:
        totals[item % 3] = totals.get(item % 3, 0) + item
        lines.append(json.dumps([item % 3, totals[item % 3]]))
    return lines


@pytest.mark.fault("F12")
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_a_run_that_goes_on_keeps_what_was_written(
    runtime: Any, store: FsspecBackend, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    for size in (3, 6):
        runtime(writing(range(size), path), store).execute()
        assert lines_of(path) == expected(range(size))


@pytest.mark.fault("F7")
@pytest.mark.parametrize("append", [False, True])
def test_output_of_a_failed_run_after_its_snapshot_is_cut_off(
    runtime: Any, store: FsspecBackend, tmp_path: Path, append: bool
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("of old\n")
    old = ["of old"] if append else []
    with pytest.raises(OperatorError, match="it is 7"):
        runtime(writing(range(9), path, fails_at=7, append=append), store).execute()
    runtime(writing(range(9), path, append=append), store).execute()
    assert lines_of(path) == old + expected(range(9))


@pytest.mark.fault("F7")
def test_compressed_file_is_exact_after_several_failures(runtime: Any, store: FsspecBackend, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl.gz"
    for size, fails_at, parallelism, interval in ((6, 4, 2, MOMENT), (9, 7, 1, None), (9, 8, 3, MOMENT)):
        with pytest.raises(OperatorError, match=f"it is {fails_at}"):
            runtime(writing(range(size), path, fails_at=fails_at), store, interval, parallelism=parallelism).execute()
    runtime(writing(range(12), path, fails_at=99), store, parallelism=1).execute()
    assert lines_of(path) == expected(range(12))


@pytest.mark.fault("F7")
@pytest.mark.parametrize("place", ["out.csv", "out/"])
def test_rows_of_csv_have_one_header_a_file_after_a_failure(
    runtime: Any, store: FsspecBackend, tmp_path: Path, place: str
) -> None:
    def of(size: int, fails_at: int = 99) -> Build:
        sink = CsvSink[Any, Any, Any](f"{tmp_path}/{place}", fields=["key", "sum"], formatter=key_and_sum)
        return summing(range(size), sink, fails_at=fails_at)

    runtime(of(3), store).execute()
    with pytest.raises(OperatorError, match="it is 7"):
        runtime(of(9, fails_at=7), store, MOMENT).execute()
    runtime(of(9), store).execute()
    files = sorted((tmp_path / place).glob("part-*")) if place.endswith("/") else [tmp_path / place]
    found = [list(csv.reader(file.read_text().splitlines())) for file in files]
    assert all(rows[0] == ["key", "sum"] for rows in found)
    rows = [json.dumps([int(it) for it in row]) for rows in found for row in rows[1:]]
    assert sorted(rows) == sorted(expected(range(9)))


def key_and_sum(msg: DataMessage[int, int, int]) -> list[int]:
    return [msg.key, msg.value]


def test_a_sink_goes_back_with_the_snapshot_that_is_asked_for(
    runtime: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    path = tmp_path / "out.jsonl"
    ids = []
    for size in (4, 6, 8):
        runtime(writing(range(size), path), store).execute()
        ids.append(max(it.id for it in snapshots(store)))
    runtime(writing(range(4), path), store, restore=ids[0]).execute()
    assert lines_of(path) == expected(range(4))
    runtime(writing([*range(4), 99], path), store).execute()
    assert lines_of(path) == expected([*range(4), 99])


def test_output_at_the_end_comes_again_more_complete(
    any_parallelism: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    path = tmp_path / "totals.txt"

    def build(size: int) -> Build:
        def build_dataflow(provider: StreamProvider) -> None:
            numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(range(size))))
            keyed = numbers.key_distribute("key", lambda msg: msg.value % 3)
            keyed.stateful_op("total", AtTheEnd(), default=int).sink("out", TextFileSink(path))

        return build_dataflow

    for size in (5, 9):
        any_parallelism(build(size), store, at_end="finish").execute()
        assert sorted(lines_of(path)) == sorted(str(sum(range(key, size, 3))) for key in range(3))


class AtTheEnd(StatefulLogic[int, int, int, int, int]):
    """Sums up, and tells when all has come."""

    def on_data(self, msg: DataMessage[int, int, int], state: int, output: Any) -> int:
        return state + msg.value

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        if epoch is MAX:
            for key in states:
                output.send(DataMessage(key, states[key], MAX))


@pytest.mark.spark
def test_a_sink_goes_on_on_the_other_runtime(spark: Any, store: FsspecBackend, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    SingleThreadRuntime(writing(range(4), path), store).execute()
    with path.open("a") as file:
        file.write("what comes again")
    SparkRuntime(writing(range(7), path), store, parallelism=1, spark=spark).execute()
    with path.open("a") as file:
        file.write("what comes again")
    SingleThreadRuntime(writing(range(9), path), store).execute()
    assert lines_of(path) == expected(range(9))


@pytest.mark.fault("F12")
def test_a_sink_without_a_position_that_meets_content_is_refused(
    runtime: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    path, other = tmp_path / "out.jsonl", tmp_path / "other.jsonl"
    runtime(writing(range(3), path), store).execute()
    other.write_text("precious\n")
    with pytest.raises(OperatorError, match=r"pass append=True to append to it, or restore=None") as refused:
        runtime(writing(range(6), other), store).execute()
    assert refused.value.operator == "out"
    assert other.read_text() == "precious\n"
    runtime(writing(range(6), other, append=True), store).execute()
    assert lines_of(other) == ["precious", *expected(range(6))[3:]]


@pytest.mark.fault("F12")
@pytest.mark.parametrize("kept", [True, False], ids=["another file", "no file"])
def test_a_file_that_is_new_to_a_job_is_exact_from_its_first_line(
    runtime: Any, store: FsspecBackend, tmp_path: Path, kept: bool
) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    runtime(writing(range(3), old) if kept else summing(range(3), VecSink()), store).execute()
    with pytest.raises(OperatorError, match="it is 7"):
        runtime(writing(range(9), new, fails_at=7), store).execute()
    assert lines_of(new), "something was written when it failed"
    runtime(writing(range(9), new), store).execute()
    assert lines_of(new) == expected(range(9))[3:]
    assert not kept or lines_of(old) == expected(range(3))


def test_a_start_at_the_end_of_the_input_takes_no_snapshot(runtime: Any, store: FsspecBackend, tmp_path: Path) -> None:
    for size in (0, 1, 3, 3, 3):
        runtime(writing(range(size), tmp_path / "out.jsonl"), store).execute()
    before = [it.id for it in snapshots(store)]
    runtime(writing(range(3), tmp_path / "out.jsonl"), store).execute()
    assert [it.id for it in snapshots(store)] == before


@pytest.mark.fault("F12")
def test_a_file_that_can_not_be_cut_back_is_refused_at_the_start(
    runtime: Any, store: FsspecBackend, tmp_path: Path
) -> None:
    with pytest.raises(OperatorError, match=r"out\.zip' is compressed with zip, which cannot be truncated; use gzip"):
        runtime(writing(range(3), tmp_path / "out.zip"), store).execute()
    assert not (tmp_path / "out.zip").exists()


@pytest.mark.fault("F14")
def test_two_sinks_of_one_file_are_refused(runtime: Any, tmp_path: Path) -> None:
    def build(provider: StreamProvider) -> None:
        one, two = provider.new_stream().source("numbers", SingleIteratorSource(range(3))).cloned("both", 2)
        one.sink("one", TextFileSink(tmp_path / "out.txt"))
        two.sink("two", TextFileSink(f"file://{tmp_path}//out.txt"))

    with pytest.raises(GraphError, match="sinks 'one' and 'two' both write to"):
        runtime(build).execute()


@pytest.mark.parametrize("append", [False, True])
def test_a_sink_does_not_write_to_what_a_source_reads(runtime: Any, tmp_path: Path, append: bool) -> None:
    lines, link = tmp_path / "lines.txt", tmp_path / "link.txt"
    lines.write_text("precious\n")
    link.symlink_to(lines)

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("lines", StatefulSource(TextFileSource(tmp_path / "*.txt")))
        stream.sink("out", TextFileSink(link, append=append))

    with pytest.raises(GraphError, match=r"sink 'out' writes to '.*/lines.txt', which source 'lines' reads"):
        runtime(build).execute()
    assert lines.read_text() == "precious\n"


class Addressed(StatelessSinkImpl[Any, Any, Any]):
    """A sink of a user's that has a `target`, of which malflow knows nothing."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        """Do nothing."""


@pytest.mark.parametrize("target", ["http://localhost/", ["a", "list"]])
def test_the_target_of_a_sink_of_ones_own_is_its_own(runtime: Any, target: Any) -> None:
    def build(provider: StreamProvider) -> None:
        one, two = provider.new_stream().source("numbers", SingleIteratorSource(range(3))).cloned("both", 2)
        one.sink("one", Addressed(target))
        two.sink("two", Addressed(target))

    runtime(build).execute()


class Ledger(StatelessSinkImpl[Any, Any, Any]):
    """A sink of a user's that can go back."""

    on_driver = True

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.restored: list[Any] = []

    def sink(self, msg: DataMessage[Any, Any, Any]) -> None:
        self.written.append(msg.value)

    def snapshot(self) -> int:
        return len(self.written)

    def restore(self, position: int | None) -> None:
        self.restored.append(position)
        del self.written[position or 0 :]


@pytest.mark.fault("F7")
def test_a_sink_of_ones_own_can_go_back_too(runtime: Any, store: FsspecBackend) -> None:
    ledger = Ledger()

    def build(provider: StreamProvider) -> None:
        provider.new_stream().source("numbers", StatefulSource(ScriptedSource(range(5)))).sink("out", ledger)

    runtime(build, store).execute()
    ledger.written.append("what was written after the snapshot")
    runtime(build, store).execute()
    assert ledger.written == list(range(5))
    assert ledger.restored == [5]
    assert kept_states(store, "out") == {"position": 5}
