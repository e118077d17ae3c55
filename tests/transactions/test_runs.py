"""Transactional sinks in one process: visibility, restarts, errors, other runs."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from malflow import FencedError, GraphError, OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.sinks import RunSinks
from malflow.errors import StoreError
from malflow.graph import Graph
from malflow.sinks import StatelessSink, TransactionalSinkImpl
from malflow.snapshot import FsspecBackend, snapshots
from malflow.snapshot.protocol.manifest import DATA
from malflow.store.local import LocalStore
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once, kept
from tests.kit.ledger import LedgerSink, rows_of, transactions_of
from tests.kit.threads_host import ThreadsRuntime

pytestmark = pytest.mark.slow

EACH_TICK = timedelta(microseconds=1)


class Job:
    """A job that passes numbers on, a few a tick, into a ledger."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.backend = at_once(folder / "state", job="numbers", retain=100)
        self.path = folder / "outside.db"
        self.settings = settings
        self.sink = LedgerSink(self.path, staged=settings.pop("staged", False))

    def runtime(
        self,
        numbers: list[Any],
        each: Callable[[int], int] = lambda number: number,
        kind: Any = SingleThreadRuntime,
        **options: Any,
    ) -> Any:
        script = [item for number in numbers for item in (number, PAUSE)]
        sink = self.sink = LedgerSink(self.path, staged=self.sink.staged, before=self.sink.before)

        def build(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
            stream.map("each", each).sink("ledger", sink)

        options.setdefault("snapshots", EACH_TICK)
        return kind(build, self.backend, **options)


@pytest.fixture(params=[False, True], ids=["rows_in_handle", "rows_staged"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    return Job(tmp_path, staged=request.param)


def fail_at(bad: int) -> Callable[[int], int]:
    def each(number: int) -> int:
        if number == bad:
            raise ValueError("bad number")
        return number

    return each


def test_each_record_is_visible_once_after_a_run(job: Job) -> None:
    job.runtime([1, 2, 3, 4]).execute()
    assert rows_of(job.path) == [1, 2, 3, 4]


def test_records_after_the_last_snapshot_are_not_visible_after_a_failure(job: Job) -> None:
    with pytest.raises(OperatorError):
        job.runtime([1, 2, 3, 4], fail_at(3), snapshots=None).execute()
    assert rows_of(job.path) == []
    job.runtime([1, 2, 3, 4]).execute()
    assert rows_of(job.path) == [1, 2, 3, 4]


def test_a_run_that_failed_goes_on_where_its_snapshot_was(job: Job) -> None:
    with pytest.raises(OperatorError):
        job.runtime([1, 2, 3, 4], fail_at(4)).execute()
    seen = rows_of(job.path)
    assert seen == [1, 2, 3, 4][: len(seen)]
    job.runtime([1, 2, 3, 4]).execute()
    assert rows_of(job.path) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("call", "nth"),
    [("fence", 1), ("abort", 1)]
    + [(it, n) for it in ("prepare", "commit", "commit one", "after commit") for n in (1, 3)],
)
def test_an_error_of_a_sink_in_any_call_loses_and_doubles_nothing(job: Job, call: str, nth: int) -> None:
    left = [nth]

    def before(passed: str) -> None:
        if passed == call:
            left[0] -= 1
            if left[0] == 0:
                raise ConnectionError("the server is gone")

    job.sink.before = before
    with pytest.raises(OperatorError, match=r"'ledger' failed at (fence|prepare|commit|abort).*the server is gone"):
        job.runtime([1, 2, 3, 4]).execute()
    job.sink.before = lambda _: None
    job.runtime([1, 2, 3, 4]).execute()
    assert rows_of(job.path) == [1, 2, 3, 4]


def test_the_calls_of_a_restart_are_fence_commit_abort(job: Job) -> None:
    job.sink.before = lambda call: (_ for _ in ()).throw(ConnectionError()) if call == "commit" else None
    with pytest.raises(OperatorError):
        job.runtime([1, 2, 3]).execute()
    job.sink.before = lambda _: None
    job.runtime([1, 2, 3]).execute()
    assert job.sink.calls[:4] == ["fence", "commit", "commit one", "after commit"]
    assert job.sink.calls[4] == "abort"


def test_nothing_is_pending_in_the_snapshot_of_an_ended_run(job: Job) -> None:
    job.runtime([1, 2, 3]).execute()
    job.runtime([1, 2, 3]).execute()
    assert "commit" not in job.sink.calls


def test_a_record_that_comes_with_a_later_run_is_added(job: Job) -> None:
    job.runtime([1, 2]).execute()
    job.runtime([1, 2, 3]).execute()
    assert rows_of(job.path) == [1, 2, 3]


def test_a_transaction_is_as_much_as_was_written_between_two_snapshots(job: Job) -> None:
    job.runtime([1, 2, 3], snapshots=timedelta(hours=1)).execute()
    assert transactions_of(job.path) == {1: [1, 2, 3]}


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers, counted from 0, of the data files that can't be written."""
    write, count = LocalStore.put_new, itertools.count()
    failing: list[int] = []

    def put_new(store: LocalStore, key: str, data: bytes) -> None:
        if key.startswith(DATA) and next(count) in failing:
            raise StoreError("the disk is full")
        write(store, key, data)

    monkeypatch.setattr(LocalStore, "put_new", put_new)
    monkeypatch.setattr("malflow.snapshot.writer._FIRST_RETRY", 0.001)
    monkeypatch.setattr("malflow.snapshot.writer._LONGEST_RETRY", 0.002)
    return failing


def test_a_snapshot_that_fails_is_committed_with_the_next(job: Job, full_disk: list[int]) -> None:
    full_disk.append(2)
    seen: list[int] = []

    def each(number: int) -> int:
        seen.append(len(rows_of(job.path)))
        return number

    job.runtime([1, 2, 3, 4, 5, 6], each).execute()
    assert rows_of(job.path) == [1, 2, 3, 4, 5, 6]
    assert len(set(seen)) < len(seen), "a tick saw no more than the one before"


def test_a_run_waits_for_a_snapshot_when_too_many_transactions_are_pending(job: Job, full_disk: list[int]) -> None:
    full_disk.extend(range(2, 12))
    ticks: list[int] = []

    def each(number: int) -> int:
        ticks.append(number - len(rows_of(job.path)))
        return number

    job.runtime(list(range(30)), each).execute()
    assert rows_of(job.path) == list(range(30))
    assert 2 <= max(ticks) <= LedgerSink.max_pending


@pytest.mark.usefixtures("full_disk")  # failed snapshots are tried again at once
@pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
@pytest.mark.slow
def test_a_run_that_waits_for_a_snapshot_is_explained(job: Job, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    freed, put_new = threading.Event(), LocalStore.put_new

    def put_if_free(store: LocalStore, key: str, data: bytes) -> None:
        if key.startswith(DATA) and not freed.is_set():
            raise StoreError("the disk is full")
        put_new(store, key, data)

    monkeypatch.setattr(LocalStore, "put_new", put_if_free)
    handle = job.runtime(list(range(30)), kind=kind).start()
    try:
        while handle.progress.records.get("ledger", 0) < LedgerSink.max_pending - 1:
            time.sleep(0.001)
        for _ in range(5):
            assert handle.explain_time(10).rows == ()
        assert handle.progress.records["ledger"] <= LedgerSink.max_pending
    finally:
        freed.set()
    assert handle.await_termination(30)
    assert rows_of(job.path) == list(range(30))


class Disk:
    """A disk on which data files can be written or not: it fails, or it does not answer, until it is free again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, hangs: bool) -> None:
        self.free, self.reached, put_new = threading.Event(), threading.Event(), LocalStore.put_new
        self.free.set()

        def put_if_free(store: LocalStore, key: str, data: bytes) -> None:
            if key.startswith(DATA) and not self.free.is_set():
                self.reached.set()
                if not hangs:
                    raise StoreError("the disk is full")
                self.free.wait()
            put_new(store, key, data)

        monkeypatch.setattr(LocalStore, "put_new", put_if_free)
        monkeypatch.setattr("malflow.snapshot.writer._FIRST_RETRY", 3600.0)  # nobody waits for that
        monkeypatch.setattr("malflow.snapshot.writer._LONGEST_RETRY", 3600.0)


@pytest.mark.parametrize("kind", [SingleThreadRuntime, ThreadsRuntime])
@pytest.mark.parametrize("hangs", [False, True], ids=["disk_fails", "disk_hangs"])
@pytest.mark.parametrize("asked", ["rescale", "snapshot", "stop"])
def test_requests_are_served_while_a_run_waits_for_a_snapshot(
    tmp_path: Path, asked: str, kind: Any, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LedgerSink, "max_pending", 1)
    job, disk = Job(tmp_path), Disk(monkeypatch, hangs=hangs)
    job.backend = FsspecBackend(str(tmp_path / "state"), job="numbers")
    begun, continues = threading.Event(), threading.Event()

    def each(number: int) -> int:
        if number == 3:
            begun.set()
            assert continues.wait(30)
        return number

    handle = job.runtime(list(range(1_000)), each, kind=kind, snapshots=timedelta(hours=1)).start()
    try:
        assert begun.wait(30)
        disk.free.clear()
        handle.snapshot()  # fills the sink, and is not made
        continues.set()
        assert disk.reached.wait(30)
        if asked == "rescale":
            handle.rescale(2).result(30)
        disk.free.set()
        if asked == "snapshot":
            handle.snapshot().result(30)
        handle.stop()
        assert handle.await_termination(30)
    finally:
        continues.set()
        disk.free.set()
    rows = rows_of(job.path)
    assert rows == list(range(len(rows)))
    assert 4 <= len(rows) < 1_000


def test_a_run_that_was_overtaken_commits_nothing(job: Job) -> None:
    taken: list[bool] = []

    def each(number: int) -> int:
        if number == 3 and not taken:
            taken.append(True)
            other = Job(job.path.parent, staged=job.sink.staged)
            other.runtime([1, 2, 3, 4]).execute()
        return number

    with pytest.raises(FencedError):
        job.runtime([1, 2, 3, 4], each).execute()
    assert rows_of(job.path) == [1, 2, 3, 4]


def test_an_older_snapshot_is_refused_behind_what_the_sink_committed(job: Job) -> None:
    job.runtime([1, 2, 3]).execute()
    first = next(it.id for it in sorted(snapshots(job.backend), key=lambda it: it.id))
    ahead = r"sink 'ledger' has committed transaction \d.*snapshot \d.*accept_duplicates"
    with pytest.raises(SnapshotError, match=ahead):
        job.runtime([1, 2, 3], restore=first).execute()
    with pytest.raises(SnapshotError, match="the run starts without a snapshot"):
        job.runtime([1, 2, 3], restore=None).execute()
    assert rows_of(job.path) == [1, 2, 3]
    job.runtime([1, 2, 3], restore=None, sinks="accept_duplicates").execute()
    assert rows_of(job.path) == [1, 2, 3, 1, 2, 3]
    job.runtime([1, 2, 3, 4]).execute()
    assert rows_of(job.path) == [1, 2, 3, 1, 2, 3, 4]


def test_a_snapshot_that_is_one_transaction_behind_is_refused(job: Job) -> None:
    job.runtime([1, 2, 3]).execute()
    for it in snapshots(job.backend):
        positions = kept(job.backend, it.id).states["ledger"]
        transaction = positions[0]["position"][1] if positions else 0
        if transaction == 2:
            with pytest.raises(SnapshotError, match="accept_duplicates"):
                job.runtime([1, 2, 3], restore=it.id).execute()
            return
    pytest.fail("no snapshot has transaction 2 as its last")


def test_only_transactions_in_a_durable_snapshot_are_committed(tmp_path: Path) -> None:
    sink = LedgerSink(tmp_path / "db")
    graph = Graph()
    StreamProvider(graph).new_stream().source("numbers", ScriptedSource([1])).sink("ledger", sink)
    sinks = RunSinks(compile_graph(graph).sinks)
    sinks.begin("job", 1, origin="the run starts", accept_duplicates=False)
    sink.rows.append("first")
    assert sinks.deltas()
    durable = sinks.captured
    sink.rows.append("second")
    assert sinks.deltas()
    sinks.commit(durable)
    assert rows_of(sink.path) == ["first"]
    sinks.commit(sinks.captured)
    assert rows_of(sink.path) == ["first", "second"]


def test_a_renamed_sink_keeps_its_ledger(job: Job) -> None:
    job.runtime([1, 2]).execute()
    sink = LedgerSink(job.path)

    def build(provider: StreamProvider) -> None:
        script = [1, PAUSE, 2, PAUSE, 3]
        stream = provider.new_stream().source("numbers", ScriptedSource({"part": script}))
        stream.sink("table", sink)

    SingleThreadRuntime(build, job.backend, EACH_TICK, renamed={"ledger": "table"}).execute()
    assert rows_of(job.path) == [1, 2, 3]
    assert sink.owner is not None
    assert sink.owner.sink == "ledger"


def test_a_job_of_the_same_name_elsewhere_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name)
        job.path = tmp_path / "outside.db"
        job.sink.path = job.path
        job.runtime([1, 2]).execute()
    assert rows_of(tmp_path / "outside.db") == [1, 2, 1, 2]


def test_a_run_may_be_rescaled_between_any_two_snapshots(job: Job) -> None:
    runtimes: list[SingleThreadRuntime] = []

    def each(number: int) -> int:
        runtimes[0].rescale(1 + number % 3)
        return number

    runtimes.append(job.runtime(list(range(12)), each))
    runtimes[0].execute()
    assert sorted(rows_of(job.path)) == list(range(12))


def test_a_stop_commits_everything_written_before_it(job: Job) -> None:
    runtimes: list[SingleThreadRuntime] = []

    def each(number: int) -> int:
        if number == 2:
            runtimes[0].stop()
        return number

    runtimes.append(job.runtime([1, 2, 3], each, snapshots=None))
    runtimes[0].execute()
    assert rows_of(job.path) == [1, 2]


class NoFence(TransactionalSinkImpl[Any, Any, Any, Any]):
    """A sink without fence, commit and abort."""

    def sink(self, msg: Any) -> None: ...

    def prepare(self, transaction: int) -> None: ...


def run_with(sink: Any, *more: Any, persistence: Any = None) -> None:
    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("numbers", ScriptedSource({"part": [1, 2]}))
        stream.sink("out", StatelessSink(sink))
        for it in more:
            stream.sink("more", StatelessSink(it))

    SingleThreadRuntime(build, *(() if persistence is None else (persistence,))).execute()


def test_a_sink_that_lacks_a_method_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"sink 'out'.*fence\(\)"):
        run_with(NoFence(), persistence=FsspecBackend(str(tmp_path)))


def test_a_transactional_sink_without_snapshots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"delivers exactly once.*persistence=.*at-least-once") as raised:
        run_with(LedgerSink(tmp_path / "db"))
    assert raised.value.operator == "out"


def test_a_sink_object_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    sink = LedgerSink(tmp_path / "db")
    with pytest.raises(GraphError, match="'more' and sink 'out' are the same object"):
        run_with(sink, sink, persistence=FsspecBackend(str(tmp_path)))


def test_a_delivery_that_is_not_known_is_refused(tmp_path: Path) -> None:
    sink = LedgerSink(tmp_path / "db")
    sink.delivery = "most-once"  # type: ignore[assignment]
    with pytest.raises(GraphError, match="delivery must be 'exactly-once' or 'at-least-once'"):
        run_with(sink, persistence=FsspecBackend(str(tmp_path)))


def test_a_sink_without_room_for_a_transaction_is_refused(tmp_path: Path) -> None:
    sink = LedgerSink(tmp_path / "db")
    sink.max_pending = 0
    with pytest.raises(GraphError, match="max_pending must be a whole number, at least 1; got 0"):
        run_with(sink, persistence=FsspecBackend(str(tmp_path)))


def test_a_sink_that_delivers_at_least_once_is_not_fenced(tmp_path: Path) -> None:
    sink = LedgerSink(tmp_path / "db")
    sink.delivery = "at-least-once"
    run_with(sink)
    assert sink.rows == [1, 2]
    assert sink.calls == []


def test_a_fence_that_returns_no_number_is_refused(tmp_path: Path) -> None:
    class Odd(LedgerSink):
        def fence(self, owner: Any) -> Any:
            return "three"

    with pytest.raises(OperatorError, match=r"fence\(\) must return.*got 'three'"):
        run_with(Odd(tmp_path / "db"), persistence=FsspecBackend(str(tmp_path)))
