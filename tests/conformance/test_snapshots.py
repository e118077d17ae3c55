"""Snapshots of a job, and the start of its next run: on every runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider, limit_out_of_orderness
from malflow.errors import FencedError, SnapshotCorrupt
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.testing import ScriptedSource
from tests.conformance.dataflow import Started, counting, counts_of
from tests.kit.backends import at_once, kept, kept_states
from tests.kit.counting import MOMENT, Totals, ids, one_a_tick
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until


def test_run_resumes_where_the_last_one_ended(any_parallelism: Any, store: FsspecBackend) -> None:
    assert counts_of(any_parallelism, "abab", store) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert counts_of(any_parallelism, "ababbc", store) == [("b", 3), ("c", 1)]
    assert kept_states(store, "count") == {"a": 2, "b": 3, "c": 1}
    assert fsck(store).problems == ()


@pytest.mark.fault("F11")
def test_restart_at_the_end_of_the_input_does_nothing(any_parallelism: Any, store: FsspecBackend) -> None:
    counts_of(any_parallelism, "abab", store)
    before = kept(store)
    assert counts_of(any_parallelism, "abab", store) == []
    assert kept(store).states == before.states


def by_remainder(key: int, workers: Sequence[int]) -> int:
    return workers[key % len(workers)]


def test_starts_at_the_end_of_the_input_take_no_snapshots(any_parallelism: Any, store: FsspecBackend) -> None:
    def build(provider: StreamProvider) -> None:
        numbers = [provider.new_stream().source(name, ScriptedSource({"part": range(9)})) for name in ("one", "two")]
        timed, late = numbers[0].generate_epochs("epochs", limit_out_of_orderness(2))
        keyed, other = (
            stream.key_distribute(name, lambda msg: msg.value % 5, by_remainder)
            for name, stream in (("left", timed.union(late)), ("right", numbers[1]))
        )
        timed, late = keyed.union(other).generate_epochs("again", limit_out_of_orderness(1), per_part=False)
        timed.union(late).stateful_map("count", lambda _key, _value, count: (count, count + 1), default=int)

    kept = []
    for _ in range(4):
        any_parallelism(build, store).execute()
        kept.append(ids(store))
    assert kept[1] == kept[3], "the second told workers without parts what epoch the others had reached"


@pytest.mark.fault("F11")
def test_empty_input_leaves_a_snapshot_to_resume_from(runtime: Any, store: FsspecBackend) -> None:
    assert counts_of(runtime, "", store) == []
    assert [dict(snapshot.operators) for snapshot in snapshots(store)] == [{"items": 1, "count": 0}]
    assert counts_of(runtime, "a", store) == [("a", 1)]


def test_next_run_may_have_another_number_of_workers(runtime: Any, store: FsspecBackend) -> None:
    words = [f"word {number % 50}" for number in range(300)]
    for parallelism, end in ((1, 100), (3, 200), (2, 300)):
        counts_of(runtime, words[:end], store, parallelism=parallelism)
        assert kept_states(store, "count") == Counter(words[:end])
        assert kept(store).parallelism == parallelism


def test_snapshot_says_what_it_holds(runtime: Any, store: FsspecBackend) -> None:
    counts_of(runtime, "abc", store, parallelism=2)
    (snapshot,) = snapshots(store)
    assert (snapshot.parallelism, snapshot.kind, dict(snapshot.operators)) == (2, "base", {"items": 1, "count": 3})
    assert snapshot.tick > 0
    assert snapshot.bytes > 100


def test_end_of_the_stream_is_not_in_the_last_snapshot(runtime: Any, store: FsspecBackend) -> None:
    def totals(times: list[int]) -> list[int]:
        sink: VecSink[Any, int, Any] = VecSink()

        def build_dataflow(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("times", ScriptedSource(times))
            timed = stream.assign_timestamps("time", lambda msg: msg.value)
            on_time, late = timed.generate_epochs("epochs", lambda msg, _: msg.value if msg.value % 10 == 0 else None)
            on_time.key_distribute("all", lambda _: 0).stateful_op("totals", Totals(), int).sink("out", sink)
            late.map("late", lambda value: -value).sink("late out", sink)

        runtime(build_dataflow, store, at_end="finish").execute()
        return sorted(msg.value for msg in sink)

    assert totals([1, 2, 10, 11, 12]) == [2, 3], "the epoch 10, then the end of time"
    assert kept_states(store, "totals") == {0: 2}, "what the end of time drops is still there"
    assert totals([1, 2, 10, 11, 12, 13, 9, 20]) == [-9, 4], "time goes on from 10"


def test_any_retained_snapshot_can_be_restored_by_its_id(runtime: Any, store: FsspecBackend) -> None:
    for end in (1, 2):
        counts_of(runtime, "aaa"[:end], store)
    first, second = [snapshot.id for snapshot in snapshots(store)]
    with pytest.raises(SnapshotError, match=rf"has no snapshot with the id 999; it has \[{first}, {second}\]"):
        counts_of(runtime, "aaa", store, restore=999)
    assert counts_of(runtime, "ab", store, restore=first) == [("b", 1)]
    assert counts_of(runtime, "aba", store) == [("a", 2)], "the run after it resumes from there"
    assert counts_of(runtime, "aa", store, restore=None) == [("a", 1), ("a", 2)]


@pytest.mark.damages_snapshots("its newest one")
def test_damaged_newest_snapshot_stops_the_run_by_default(runtime: Any, store: FsspecBackend, tmp_path: Path) -> None:
    counts_of(runtime, "a", store)
    before = set(tmp_path.rglob("*.mfs"))
    counts_of(runtime, "ab", store)
    for path in set(tmp_path.rglob("*.mfs")) - before:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SnapshotCorrupt, match="recovery='previous'"):
        counts_of(runtime, "abc", store)
    assert counts_of(runtime, "abc", store, recovery="previous") == [("b", 1), ("c", 1)]


@pytest.mark.fault("E1", "E2", "F7")
def test_failing_user_code_leaves_the_last_snapshot(runtime: Any, store: FsspecBackend) -> None:
    def add_up_to(end: int) -> Callable[[StreamProvider], None]:
        def add(_key: str, value: int, state: list[int]) -> tuple[int, list[int]]:
            state.append(value)
            return 1 // (value - 3), state  # the state is changed when this raises

        def build_dataflow(provider: StreamProvider) -> None:
            stream = provider.new_stream().source("items", ScriptedSource(range(end)))
            stream.key_distribute("all", lambda _: "all").stateful_map("add", add, list)

        return build_dataflow

    runtime(add_up_to(3), store).execute()
    for _ in range(2):
        with pytest.raises(OperatorError, match="operator 'add' failed at key 'all', value 3"):
            runtime(add_up_to(6), store).execute()
        assert kept_states(store, "add") == {"all": [0, 1, 2]}


@pytest.mark.fault("I12")
def test_older_of_two_runs_of_a_job_is_fenced(any_parallelism: Any, store: FsspecBackend, tmp_path: Path) -> None:
    older, newer = GrowingFile(tmp_path / "older"), GrowingFile(tmp_path / "newer")
    older.write("a")
    newer.write("a", "a", "end")
    with Started(any_parallelism(counting(older), store, snapshots=MOMENT)) as started:
        wait_until(lambda: started.run.progress.snapshot)
        any_parallelism(counting(newer), store, restore=None).execute()
        older.write("b", "end")
        with pytest.raises(FencedError, match="was claimed by another run"):
            started.finish()
    assert kept_states(store, "count") == {"a": 2, "end": 1}


@pytest.mark.parametrize(("codec", "compression"), [("pickle", "none"), ("msgpack", "lz4"), ("msgpack", "none")])
def test_codec_and_compression_preserve_the_state(runtime: Any, tmp_path: Path, codec: str, compression: Any) -> None:
    pytest.importorskip("msgpack")
    backend = FsspecBackend(str(tmp_path), codec=codec, compression=compression)
    keys = ["a", b"b", 3, ("t", 1.5), frozenset({1, 2})]
    SingleThreadRuntime(counting(ScriptedSource(keys)), backend).execute()
    runtime(counting(ScriptedSource([*keys, *keys])), backend).execute()
    assert kept_states(backend, "count") == dict.fromkeys(keys, 2)


def test_compression_can_be_changed(runtime: Any, tmp_path: Path) -> None:
    words = [f"word {number % 7}" for number in range(60)]
    for end, compression in ((20, "lz4"), (40, "none"), (60, "lz4")):
        backend = FsspecBackend(str(tmp_path), compression=compression)  # type: ignore[arg-type] # a literal
        counts_of(runtime, words[:end], backend)
    assert kept_states(backend, "count") == Counter(words)


def test_retention_is_by_count_and_leaves_no_unused_file(runtime: Any, tmp_path: Path) -> None:
    backend = at_once(tmp_path, retain=3)
    runtime(counting(ScriptedSource(one_a_tick([number % 7 for number in range(10)]))), backend, MOMENT).execute()
    assert len(ids(backend)) == 3
    report = fsck(backend)
    assert (report.problems, report.unused) == ((), ())
    assert len(list(tmp_path.glob("default/m/*"))) == 3
    assert len(list(tmp_path.glob("default/gc/*"))) == 1
    for snapshot in ids(backend):
        kept_states(backend, "count", snapshot)


def test_jobs_of_one_folder_are_separate(runtime: Any, tmp_path: Path) -> None:
    one, other = (FsspecBackend(str(tmp_path), job=job) for job in ("one", "other"))
    SingleThreadRuntime(counting(ScriptedSource("aa")), one).execute()
    assert counts_of(runtime, "a", other) == [("a", 1)]
    assert (kept_states(one, "count"), kept_states(other, "count")) == ({"a": 2}, {"a": 1})
