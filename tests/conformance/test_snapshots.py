"""What a job keeps, and where its next run begins: on every runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import OperatorError, SnapshotError, StreamProvider
from malflow.errors import FencedError, SnapshotCorrupt
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.testing import ScriptedSource
from tests.conformance.dataflow import Started, counting, counts_of
from tests.kit.backends import kept, kept_states
from tests.kit.counting import MOMENT, Totals
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

        runtime(build_dataflow, store).execute()
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
