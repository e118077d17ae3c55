"""Runs whose number of workers changes while records flow: on every runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from malflow import SnapshotError, StreamProvider
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from tests.conformance.dataflow import SECONDS, Started, count, counting
from tests.kit.backends import kept_states
from tests.kit.growing_file import GrowingFile
from tests.kit.waiting import wait_until

LETTERS = "abcdefgh"


@pytest.fixture
def lines(tmp_path: Path) -> GrowingFile:
    """Make an input that grows while it is read."""
    return GrowingFile(tmp_path / "lines")


@pytest.mark.fault("I8")
@pytest.mark.parametrize("keeps", [True, False], ids=["with_persistence", "without_persistence"])
def test_counts_are_exact_across_rescales(runtime: Any, store: FsspecBackend, lines: GrowingFile, keeps: bool) -> None:
    out: VecSink[Any, int, Any] = VecSink()
    with Started(runtime(counting(lines, out), *([store] if keeps else []))) as started:
        for workers in (3, 2):
            lines.write(*LETTERS)
            started.run.rescale(workers).result(SECONDS)
            assert started.run.progress.parallelism == workers
        lines.write(*LETTERS, "end")
        started.finish()
    expected = [*((letter, number) for letter in LETTERS for number in (1, 2, 3)), ("end", 1)]
    assert sorted((msg.key, msg.value) for msg in out) == sorted(expected)
    if keeps:
        assert kept_states(store, "count") == {**dict.fromkeys(LETTERS, 3), "end": 1}
        assert [*snapshots(store)][-1].parallelism == 2
        assert fsck(store).problems == ()


def test_late_records_stay_late_across_a_rescale(runtime: Any, lines: GrowingFile) -> None:
    on_time: VecSink[Any, int, Any] = VecSink()
    late: VecSink[Any, int, Any] = VecSink()

    def build_dataflow(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("items", lines).filter("numbers", str.isdigit).map("int", int)
        timed = numbers.key_distribute("key", lambda msg: msg.value % 7).assign_timestamps(
            "time", lambda msg: msg.value
        )
        left, right = timed.generate_epochs("epochs", lambda msg, _: msg.value, per_part=False)
        left.sink("on time", on_time)
        right.sink("late", late)

    with Started(runtime(build_dataflow)) as started:
        lines.write("14", "21")
        wait_until(lambda: started.run.progress.records.get("on time", 0) == 2)
        started.run.rescale(2).result(SECONDS)
        lines.write("7", "28", "end")
        started.finish()
    assert (sorted(on_time.values), late.values) == ([14, 21, 28], [7])


def test_state_under_key_local_refuses_a_rescale(runtime: Any, store: FsspecBackend, lines: GrowingFile) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("items", lines).key_local("item", lambda msg: msg.value)
        keyed.stateful_map("count", count, int)

    with Started(runtime(build_dataflow, store)) as started:
        lines.write("a", "b")
        with pytest.raises(SnapshotError, match="key_local"):
            started.run.rescale(2).result(SECONDS)
        lines.write("a", "end")
        started.finish()
    assert kept_states(store, "count") == {"a": 2, "b": 1, "end": 1}
