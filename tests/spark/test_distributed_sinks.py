"""Distributed sinks on Spark: each record is visible once, whatever is repeated, fails or moves."""

from __future__ import annotations

import json
import pickle
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from malflow import GraphError, OperatorError, StreamProvider
from malflow.connectors.delta import DeltaSink
from malflow.connectors.lost_output import SinkFileError
from malflow.connectors.parquet import ArrowSource, ParquetSink
from malflow.connectors.staging import sink as staging
from malflow.engine import sink_transactions
from malflow.engine.compiler import compile_graph
from malflow.engine.plan import Program
from malflow.engine.sink_transactions import SinkTransactions
from malflow.errors import RunFailed
from malflow.graph import Graph
from malflow.message import NoKey
from malflow.records.columnar import rows_made
from malflow.runtime.spark import sinks as seal_task
from malflow.runtime.spark import snapshots
from malflow.runtime.spark.changelog.changelog import Changelog, ScratchFolder
from malflow.runtime.spark.changelog.entry import NEVER, ChangelogEntry, pack_entry
from malflow.runtime.spark.tasks.records import RecordCounts, Row, RowKind
from malflow.runtime.spark.tasks.stage_output import OutputLog, read_pieces
from malflow.runtime.transport.pickling import dumps_by_value
from malflow.runtime.transport.sink_proxies import PieceEncoder
from malflow.sinks import Share, SinkOwner
from malflow.snapshot.protocol import commit as manifests
from malflow.testing import PAUSE, ScriptedSource
from malflow.testing.faults import Crash
from tests.kit.backends import in_memory
from tests.kit.counted_files import JsonFiles, read_json_files
from tests.spark.simulation import Cluster, Later, Plan, settings_at, simulated

pytest.importorskip("pyspark")

PARTS = ("a", "b", "c")
KEYS = 5
SIZE = 40

Values = list[tuple[int, int, int]]
"""Part, number, and the count of records of its key."""


def count(_key: Any, value: int, seen: int) -> tuple[dict[str, int], int]:
    return {"n": value, "nth": seen}, seen + 1


def paused(numbers: range) -> list[Any]:
    """Return numbers that are polled in eight ticks."""
    return [
        it for at in range(0, len(numbers), len(numbers) // 8) for it in (*numbers[at : at + len(numbers) // 8], PAUSE)
    ]


def program_of(sink: Any, size: int = SIZE) -> Program:
    graph = Graph()
    script = {part: paused(range(size * number, size * number + size)) for number, part in enumerate(PARTS)}
    numbers = StreamProvider(graph).new_stream().source("numbers", ScriptedSource(script))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS)
    keyed.stateful_map("count", count, default=int).sink("out", sink)
    return compile_graph(graph)


def assert_once(rows: list[dict[str, int]], size: int = SIZE) -> None:
    """Check that each number is there once, with the count that it had in an uninterrupted run."""
    assert sorted(row["n"] for row in rows) == [*range(len(PARTS) * size)]
    of_key: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        of_key[row["n"] % KEYS].append(row["nth"])
    for nths in of_key.values():
        assert nths == [*range(len(nths))], "the records of a key are in their order"


def parquet_rows(folder: Path) -> list[dict[str, int]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def json_rows(folder: Path) -> list[dict[str, int]]:
    return read_json_files(folder)


def delta_rows(folder: Path) -> list[dict[str, int]]:
    rows: list[dict[str, int]] = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["nth"])


SINKS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], list[dict[str, int]]]]] = {
    "own": (lambda folder: JsonFiles(str(folder)), json_rows),
    "parquet": (ParquetSink, parquet_rows),
    "delta": (DeltaSink, delta_rows),
}

plans = st.lists(
    st.builds(
        Plan,
        places=st.lists(st.integers(0, 2), min_size=1, max_size=4).map(tuple),
        again=st.frozensets(st.integers(0, 7), max_size=3),
        killed=st.none() | st.integers(0, 3),
        asks=st.booleans(),
        writes=st.booleans(),
        down=st.integers(0, 3).map(lambda number: number == 0),
        doubled=st.booleans(),
        rescale=st.integers(0, 9).map(lambda number: number if 1 <= number <= 4 else None),
        crash=st.integers(0, 6).map(lambda number: number == 0),
    ),
    max_size=12,
)


@pytest.mark.fault("I2", "I3", "I24")
@settings(max_examples=max(12, settings().max_examples // 4))
@given(name=st.sampled_from(sorted(SINKS)), plans=plans, share_bytes=st.sampled_from([1, 200, 1 << 20]))
@pytest.mark.slow
def test_each_record_is_visible_once(name: str, plans: list[Plan], share_bytes: int) -> None:
    run_simulated(name, plans, share_bytes)


def run_simulated(name: str, plans: list[Plan], share_bytes: int) -> None:
    """Run a dataflow as plans say, and check what its sink has written."""
    make, read = SINKS[name]
    backend, later = in_memory(), Later()
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    with tempfile.TemporaryDirectory() as scratch, simulated():
        folder = Path(scratch) / "out"
        sink = make(folder)
        sink.share_bytes, sink.max_pending = share_bytes, 100
        Cluster(plans, later=later).run(program_of(sink), settings_at(scratch, backend), 2)
        assert_once(read(folder))
        assert not [*Path(scratch).glob("runs/*/sinks/*")]
        assert_no_orphans(sink, folder)


@pytest.mark.fault("I2", "I3")
@settings(max_examples=max(8, settings().max_examples // 6))
@given(
    name=st.sampled_from(["parquet", "delta"]),
    plans=plans,
    size=st.integers(1, 9),
    share_bytes=st.sampled_from([1, 1 << 20]),
)
@pytest.mark.slow
def test_each_row_of_columns_is_visible_once(name: str, plans: list[Plan], size: int, share_bytes: int) -> None:
    make, _ = SINKS[name]
    backend, later = in_memory(), Later()
    backend._executor = lambda: later  # type: ignore[assignment] # it does what a test does by hand
    graph = Graph()
    rows = StreamProvider(graph).new_stream().source("rows", Tables(size))
    with tempfile.TemporaryDirectory() as scratch, simulated():
        folder = Path(scratch) / "out"
        sink = make(folder)
        sink.share_bytes, sink.max_pending = share_bytes, 100
        rows.sink("out", sink)
        before = rows_made()
        Cluster(plans, later=later).run(compile_graph(graph), settings_at(scratch, backend), 2)
        assert rows_made() == before
        files = DeltaTable(folder).file_uris() if name == "delta" else [str(it) for it in folder.glob("*.parquet")]
        assert sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist()) == [*range(len(PARTS) * SIZE)]
        assert_no_orphans(sink, folder)


class Tables(ArrowSource):
    """A table for each part, in batches of one size: one a tick."""

    def __init__(self, size: int) -> None:
        super().__init__(pa.table({}))
        self._size = size

    def list_parts(self) -> list[Any]:
        return [*PARTS]

    def build_part(self, part: Any, state: int | None) -> Any:
        first = PARTS.index(part) * SIZE
        table = pa.table({"n": range(first, first + SIZE), "part": [part] * SIZE})
        source = ArrowSource(
            [it for at in range(0, SIZE, self._size) for it in table[at : at + self._size].to_batches()]
        )
        return source.build_part(NoKey, state)


def assert_no_orphans(sink: Any, folder: Path) -> None:
    """Check that the next run finds nothing that is staged, or removes it."""
    if isinstance(sink, DeltaSink):
        assert {*folder.glob("malflow-*/*/*.parquet")} == {*map(Path, DeltaTable(folder).file_uris())}
        return
    owner = sink.owner if isinstance(sink, JsonFiles) else sink._owner
    sink.fence(SinkOwner(owner.job, owner.sink, owner.claim + 1, owner.transaction))
    sink.abort([])
    assert not [*folder.rglob("*.part")]


POINTS = {
    "sealed": snapshots,
    "share-sealed": seal_task,
    "before-manifest": manifests,
    "manifest-written": manifests,
    "before-commit": sink_transactions,
    "published": staging,
    "committed": sink_transactions,
}
"""The failpoints on the way of a transaction, and the modules that pass them."""


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_run_that_is_killed_at_any_point_goes_on(point: str, nth: int) -> None:
    passed = 0

    def crash(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == nth:
            raise Crash(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(POINTS[point], "failpoint", crash)
        run_simulated("parquet", [Plan(asks=True), Plan(), Plan(asks=True, rescale=3), Plan(asks=True)] * 2, 1)
    assert passed > nth


@pytest.mark.parametrize("name", SINKS)
@pytest.mark.slow
def test_the_records_of_a_key_stay_in_order_over_a_rescale(name: str) -> None:
    """Two workers have had a key since the last snapshot; the share of the former comes first."""
    run_simulated(name, [Plan(), Plan(), Plan(rescale=4), Plan(rescale=3), Plan(), Plan(asks=True)], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parquet", "delta"])
def test_duckdb_reads_the_rows_that_workers_wrote(name: str, tmp_path: Path) -> None:
    """A reader that shares no code with the writers sees each row once, with its values and types."""
    graph = Graph()
    script = {part: paused(range(SIZE * number, SIZE * number + SIZE)) for number, part in enumerate(PARTS)}
    numbers = StreamProvider(graph).new_stream().source("numbers", ScriptedSource(script))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % KEYS)
    sink = {"parquet": ParquetSink, "delta": DeltaSink}[name](tmp_path / "out", schema=SCHEMA)
    sink.share_bytes = 200
    keyed.map("row", row_of).sink("out", sink)
    plans = [Plan(asks=True, again=frozenset({0, 3})), Plan(asks=True, doubled=True), Plan(rescale=3), Plan(asks=True)]
    with simulated():
        Cluster(plans * 2).run(compile_graph(graph), settings_at(str(tmp_path / "scratch"), in_memory()), 2)
    assert duckdb_rows(active_files(tmp_path / "out")) == [row_of(number) for number in range(len(PARTS) * SIZE)]


SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "text": pa.string(),
        "ratio": pa.float64(),
        "even": pa.bool_(),
        "some": pa.int64(),
        "price": pa.decimal128(9, 2),
        "raw": pa.binary(),
        "day": pa.date32(),
        "at": pa.timestamp("us", "UTC"),
        "tags": pa.list_(pa.string()),
        "nested": pa.struct({"a": pa.int32(), "b": pa.struct({"c": pa.float64()})}),
    }
)


def row_of(number: int) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=number)
    return {
        "n": number - (1 << 40),
        "text": f"ü{number}" * (number % 3),
        "ratio": number / 7,
        "even": number % 2 == 0,
        "some": None if number % 3 else number,
        "price": Decimal(number) / 4,
        "raw": bytes([number]),
        "day": at.date(),
        "at": at,
        "tags": [str(number)] * (number % 4),
        "nested": {"a": number, "b": None if number % 2 else {"c": 0.5}},
    }


def active_files(folder: Path) -> list[str]:
    """Return the files of a folder, or those that the log of a Delta table has added and not removed."""
    commits = sorted(folder.glob("_delta_log/*.json"))
    if not commits:
        return [str(path) for path in folder.glob("*.parquet")]
    actions = [json.loads(line) for commit in commits for line in commit.read_text(encoding="utf-8").splitlines()]
    added = {action["add"]["path"] for action in actions if "add" in action}
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    return [str(folder / unquote(path)) for path in added - removed]


def duckdb_rows(files: list[str]) -> list[dict[str, Any]]:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False}) as connection:
        found = connection.execute("SELECT * FROM read_parquet(?) ORDER BY n", [files])
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@pytest.mark.fault("I3")
def test_a_record_that_differs_fails_in_its_tick_with_the_record(tmp_path: Path) -> None:
    graph = Graph()
    script = {"a": [{"n": 1}, PAUSE, {"n": "two"}], "b": [{"n": 3}]}
    rows = StreamProvider(graph).new_stream().source("rows", ScriptedSource(script))
    keyed = rows.key_distribute("key", lambda msg: f"{msg.value}")
    keyed.sink("out", ParquetSink(tmp_path / "out"))
    with simulated(), pytest.raises(OperatorError, match=r"operator 'out' failed.*cannot store \{'n': 'two'\}.*'n'"):
        Cluster([Plan()]).run(compile_graph(graph), settings_at(str(tmp_path / "scratch"), in_memory()), 2)


def test_a_run_waits_for_a_snapshot_once_too_many_have_failed() -> None:
    sink = SinkTransactions("out", JsonFiles(""), Pieces())
    for _ in range(3):
        assert sink.cut() is not None
        sink.note_lost()
    assert not sink.is_full
    sink.note_lost()
    assert sink.is_full
    cut = sink.cut()
    assert cut is not None
    assert cut.transaction == 1
    sink.add(cut)
    assert not sink.is_full


class Pieces:
    """Stands for the pieces of a sink."""

    def has(self, sink: str) -> bool:
        return True

    def seal(self, transactions: Mapping[str, int]) -> dict[str, list[Any]]:
        return {sink: [] for sink in transactions}

    def drop(self, sink: str) -> None:
        pass


def test_records_that_a_failed_attempt_left_are_dropped() -> None:
    """A process may keep its copy of a sink after an attempt that failed between two batches."""
    sink = PieceEncoder(0, JsonFiles(""))
    sink.sink_batch(["a"], [1], [0])
    assert sink.take() == []
    sink.sink_batch(["a", "b"], [2, 3], [0, 0])
    sink.flush()
    assert sink.take() == [["2", "3"]]
    assert sink.take() == []


@pytest.mark.fault("I2")
def test_of_two_attempts_at_once_the_pieces_of_the_first_count(tmp_path: Path) -> None:
    changelog = Changelog(ScratchFolder(str(tmp_path), {}, "run", b"k" * 32), 1)
    logs = [OutputLog(changelog, 0, 0, 1) for _ in range(2)]
    for number, log in enumerate(logs):
        log.add_pieces(0, [f"of attempt {number}"])
    report = Row(0, RowKind.REPORT, 0, 0, b"")
    entry = pack_entry(ChangelogEntry(1, NEVER, {}))
    assert [log.end(entry, report, RecordCounts({}, {})) for log in logs] == [True, False]
    stored = changelog.output(0, 0, 1)
    assert stored is not None
    ((_, name, _),) = stored.sinks
    assert read_pieces(changelog, name) == ["of attempt 0"]
    assert len([*tmp_path.glob("runs/run/sinks/*")]) == 1


@pytest.mark.fault("I25")
def test_pieces_that_are_gone_are_named(tmp_path: Path) -> None:
    def lose(_spec: Any, _seen: Any) -> None:
        for path in tmp_path.glob("runs/*/sinks/*"):
            path.unlink()

    program = program_of(JsonFiles(str(tmp_path / "out")))
    with simulated(), pytest.raises(RunFailed, match=r"'runs/run-0/sinks/1-.*' is missing from the scratch folder"):
        Cluster([Plan(), Plan(asks=True)], lose).run(program, settings_at(str(tmp_path), in_memory()), 2)


@pytest.mark.fault("I26")
def test_a_folder_that_a_worker_does_not_reach_is_an_error(tmp_path: Path) -> None:
    """The copy of a worker finds no ledger in the folder of its machine."""
    sink = ParquetSink(tmp_path / "out")
    sink.fence(SinkOwner("job", "out", 1))
    copy = pickle.loads(dumps_by_value(sink))
    (tmp_path / "out").rename(tmp_path / "out of the other machine")
    writer = copy.open_writer(Share(1, 0, 1, "token"))
    writer.write(pa.record_batch({"n": [1]}))
    with pytest.raises(SinkFileError, match=r"is not the driver's.*pass on_workers=False"):
        writer.seal()


def test_a_sink_that_can_not_be_pickled_names_the_other_way(tmp_path: Path) -> None:
    lock = threading.Lock()
    sink = ParquetSink(tmp_path / "out", formatter=lambda msg: (lock, msg.value)[1])
    with (
        simulated(),
        pytest.raises(GraphError, match=r"operator 'out' can't run on Spark: .*; or let the driver write"),
    ):
        Cluster([]).run(program_of(sink), settings_at(str(tmp_path), in_memory()), 2)
    sink.on_workers = False
    with simulated():
        Cluster([]).run(program_of(sink), settings_at(str(tmp_path), in_memory()), 2)
    assert_once(parquet_rows(tmp_path / "out"))
