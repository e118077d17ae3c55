"""Rescales in worker processes: readers that move, readers that can't, and more or fewer processes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from malflow import GraphError, MultiProcessRuntime, StreamProvider
from malflow.events import RescaleRefused
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend
from malflow.sources import SingleIteratorSource, StatelessSource, StatelessSourceImpl, StatelessSourcePartition
from tests.kit.backends import kept_states
from tests.kit.log import Log
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.slow

RECORDS = 400


class Counting(StatelessSourcePartition[int, int]):
    """A reader without a position, which ends after another file exists."""

    def __init__(self, go: Path, pause: float, *, can_move: bool) -> None:
        self._at = 0
        self._go = go
        self._pause = pause
        self._lock = None if can_move else threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled, in each process after another while."""
        time.sleep(self._pause)
        return vars(self)

    def poll(self) -> tuple[int, int] | None:
        """Return the next number; the last ones only if the file exists."""
        if self._at >= RECORDS or (self._at >= RECORDS // 2 and not self._go.exists()):
            return None
        self._at += 1
        return self._at, self._at

    def is_finished(self) -> bool:
        return self._at == RECORDS


class Counters(StatelessSourceImpl[str, int, int]):
    """Four such readers."""

    keyed = False

    def __init__(self, go: Path, *, can_move: bool) -> None:
        self._go = go
        self._can_move = can_move

    def list_parts(self) -> list[str]:
        return ["a", "b", "c", "d"]

    def build_part(self, part: str) -> Counting:
        return Counting(self._go, 0.1 * "abcd".index(part), can_move=self._can_move)


def sums(provider: StreamProvider, go: Path, sink: VecSink[Any, Any, Any], pids: Log, *, can_move: bool) -> None:
    numbers = provider.new_stream().source("numbers", StatelessSource(Counters(go, can_move=can_move)))

    def tell(value: int) -> int:
        if value == RECORDS:
            pids.append(os.getpid())
        return value

    keyed = numbers.key_distribute("key", lambda msg: msg.value % 7).map("tell", tell)
    keyed.stateful_map("sum", lambda _, value, total: (total + value, total + value), default=int).sink("out", sink)


@pytest.fixture
def pids(tmp_path: Path) -> Log:
    """Return a log of the processes that saw the last number."""
    return Log(tmp_path / "pids")


def totals(sink: VecSink[Any, Any, Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for it in sink:
        found[it.key] = max(found.get(it.key, 0), it.value)
    return found


EXPECTED = {key: 4 * sum(n for n in range(1, RECORDS + 1) if n % 7 == key) for key in range(7)}


@pytest.mark.parametrize("workers", [1, 4, 5])
def test_readers_without_positions_move_to_other_processes(workers: int, tmp_path: Path, pids: Log) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    go = tmp_path / "go"
    runtime = MultiProcessRuntime(
        lambda provider: sums(provider, go, sink, pids, can_move=True),
        processes=3,
        parallelism=2,
        start_method="forkserver",
    )
    handle = runtime.start()
    wait_until(lambda: handle.progress.records.get("numbers", 0) == 2 * RECORDS)
    handle.rescale(workers).result(30)
    assert handle.progress.parallelism == workers
    go.touch()
    handle.await_termination()
    assert totals(sink) == EXPECTED
    assert len(sink) == 4 * RECORDS


@pytest.mark.fault("J7")
def test_a_rescale_that_a_reader_can_not_follow_is_refused(tmp_path: Path, pids: Log) -> None:
    sink: VecSink[Any, Any, Any] = VecSink()
    go, heard = tmp_path / "go", []

    class Ears:
        def on_event(self, event: Any) -> None:
            heard.append(event)

    runtime = MultiProcessRuntime(
        lambda provider: sums(provider, go, sink, pids, can_move=False),
        processes=2,
        listeners=[Ears()],
        start_method="forkserver",
    )
    handle = runtime.start()
    wait_until(lambda: handle.progress.records.get("numbers", 0) == 2 * RECORDS)
    with pytest.raises(GraphError, match=r"the reader of part .* of source 'numbers' can't move to another process"):
        handle.rescale(3).result(30)
    assert handle.progress.parallelism == 2
    assert [event.parallelism for event in heard if isinstance(event, RescaleRefused)] == [3]
    go.touch()
    handle.await_termination()
    assert totals(sink) == EXPECTED
    assert len(sink) == 4 * RECORDS


def test_work_is_spread_over_all_processes(tmp_path: Path, pids: Log) -> None:
    (tmp_path / "go").touch()
    sink: VecSink[Any, Any, Any] = VecSink()
    MultiProcessRuntime(
        lambda provider: sums(provider, tmp_path / "go", sink, pids, can_move=True), processes=3, start_method="spawn"
    ).execute()
    assert totals(sink) == EXPECTED
    assert os.getpid() not in set(pids)


def test_a_rescale_is_in_the_next_snapshot(tmp_path: Path) -> None:
    backend = FsspecBackend(str(tmp_path / "state"))
    go = tmp_path / "go"

    def build(provider: StreamProvider) -> None:
        def slow(value: int) -> int:
            if value == 50:
                wait_until(go.exists)
            return value

        numbers = provider.new_stream().source("numbers", SingleIteratorSource(range(100))).map("slow", slow)
        keyed = numbers.key_distribute("key", lambda msg: msg.value % 7)
        keyed.stateful_map("sum", lambda _, value, total: (total, total + value), default=int).sink("out", VecSink())

    runtime = MultiProcessRuntime(build, backend, processes=2, start_method="forkserver")
    handle = runtime.start()
    rescaled = handle.rescale(4)
    go.touch()
    rescaled.result(30)
    handle.snapshot().result(30)
    handle.await_termination()
    expected = {key: sum(n for n in range(100) if n % 7 == key) for key in range(7)}
    assert kept_states(backend, "sum") == expected
