"""States that move to other workers by Spark jobs: the driver never holds those of keys."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from malflow import OperatorError, SingleThreadRuntime, SnapshotError, SparkRuntime, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.engine.states.rescale import KeyRoute
from malflow.errors import SnapshotCorrupt, StoreError
from malflow.graph import Graph
from malflow.partitioners import rendezvous_select
from malflow.runtime.spark import state_tasks
from malflow.runtime.spark.changelog.changelog import Changelog
from malflow.runtime.spark.state_moves import StateMoves
from malflow.runtime.spark.state_tasks import Routing, WriteBases, routed
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck
from malflow.snapshot.files.stored_states import StoredStates
from malflow.snapshot.persistence import NoPersistence
from malflow.snapshot.protocol.manifest import DATA
from malflow.sources import StatefulSource
from malflow.testing import ScriptedSource
from tests.conformance.dataflow import SECONDS, Started
from tests.conformance.test_discovery import Growing
from tests.kit.backends import in_memory, kept, kept_states
from tests.kit.log import Log
from tests.kit.waiting import wait_until
from tests.spark.simulation import Cluster, Plan, settings_at, simulated


class Watched:
    """A count that records the processes in which it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        (self.folder / str(os.getpid())).touch()


def watched(folder: Path, _key: Any, _value: Any, state: Watched | None) -> tuple[int, Watched]:
    """Count a record."""
    state = state or Watched(folder)
    state.count += 1
    return state.count, state


def counting_of(source: Growing, folder: Path, provider: StreamProvider) -> None:
    numbers = provider.new_stream().source("numbers", StatefulSource(source))
    keyed = numbers.key_distribute("by number", lambda msg: msg.value[1])
    keyed.stateful_map("count", partial(watched, folder)).sink("out", VecSink())


@pytest.mark.spark
def test_the_driver_never_holds_the_states_of_keys(spark: Any, tmp_path: Path) -> None:
    source, store, processes = (
        Growing(tmp_path, Log(tmp_path / "log")),
        FsspecBackend(str(tmp_path / "kept")),
        tmp_path / "ids",
    )
    processes.mkdir()

    def run(parts: str, parallelism: int, *, rescaled: int) -> None:
        flow = partial(counting_of, source, processes)
        with Started(SparkRuntime(flow, store, spark=spark, parallelism=parallelism)) as started:
            wait_until(lambda: started.run.progress.records.get("numbers", 0) >= 5, 60)
            started.run.rescale(rescaled).result(SECONDS)
            before = started.run.progress.records["numbers"]
            source.write(*parts)
            wait_until(lambda: started.run.progress.records["numbers"] == before + 5, 60)
            started.run.snapshot().result(SECONDS)

    source.write("a")
    run("ab", 2, rescaled=3)
    assert {key: state.count for key, state in kept_states(store, "count").items()} == dict.fromkeys(range(1, 6), 2)
    source.write(*"abc")
    for it in processes.iterdir():
        it.unlink()  # this test has just read a snapshot
    run("abcd", 2, rescaled=1)
    assert [it.name for it in processes.iterdir()], "states have moved"
    assert not (processes / str(os.getpid())).exists()
    assert {key: state.count for key, state in kept_states(store, "count").items()} == dict.fromkeys(range(1, 6), 4)


def added(key: Any, value: Any, so_far: int) -> tuple[Any, int]:
    """Add up values."""
    return (key, so_far + value), so_far + value


def summing(
    items: list[int], select: Callable[..., int], version: int, provider: StreamProvider, migrate: Any = None
) -> None:
    numbers = provider.new_stream().source("numbers", ScriptedSource(items))
    keyed = numbers.key_distribute("key", lambda msg: msg.value % 7, select)
    keyed.stateful_map("sum", added, default=int, version=version, migrate=migrate).sink("out", VecSink())


def on_cluster(backend: Any, parallelism: int, items: list[int], select: Callable[..., int], **how: Any) -> None:
    """Run on a simulated cluster, with a snapshot after each tick."""
    graph = Graph()
    summing(items, select, how.pop("version", 1), StreamProvider(graph), **how)
    with TemporaryDirectory() as scratch, simulated():
        Cluster([Plan(asks=True)] * 5).run(compile_graph(graph), settings_at(scratch, backend), parallelism)


def kept_by_one_thread(items: list[int], select: Callable[..., int] = rendezvous_select) -> FsspecBackend:
    backend = in_memory()
    build = partial(summing, items, select, 1)
    SingleThreadRuntime(build, backend, parallelism=2).execute()
    return backend


def sums_of(items: list[int]) -> dict[int, int]:
    return {key: sum(item for item in items if item % 7 == key) for key in {item % 7 for item in items}}


def even_first(key: int, workers: Any) -> int:
    return key % len(workers)


def odd_first(key: int, workers: Any) -> int:
    return (key + 1) % len(workers)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("select", [even_first, odd_first, rendezvous_select])
def test_keys_that_move_at_the_start_are_in_the_next_snapshot(parallelism: int, select: Callable[..., int]) -> None:
    items = [*range(20)]
    backend = kept_by_one_thread(items, even_first)
    on_cluster(backend, parallelism, [*items, 3, 4], select)
    assert fsck(backend).problems == ()
    assert kept_states(backend, "sum") == sums_of([*items, 3, 4])
    for worker, states in kept(backend).states["sum"].items():
        assert {select(key, range(parallelism)) for key in states} <= {worker}


def test_only_states_without_keys_are_told_to_the_driver(tmp_path: Path) -> None:
    graph = Graph()
    summing([], rendezvous_select, 1, StreamProvider(graph))
    restored = kept(kept_by_one_thread([*range(20)]))
    moves = StateMoves(Cluster([]), settings_at(str(tmp_path), NoPersistence()), compile_graph(graph))  # type: ignore[arg-type] # stands for a context
    told = moves.of_snapshot(restored, 3, {}).told()
    assert sum(it.counts["sum"] for it in told) == 7
    assert {name for it in told for name in it.states} == restored.states.keys() - {"sum"}


def refusing(key: int, workers: Any) -> int:
    if key == 3:
        raise ValueError("no worker for three")
    return key % len(workers)


@pytest.mark.slow
def test_a_partitioner_that_fails_in_a_task_names_the_key() -> None:
    backend = kept_by_one_thread([*range(20)])
    with pytest.raises(OperatorError, match=r"operator 'sum' failed at key 3.*no worker for three") as caught:
        on_cluster(backend, 3, [*range(20)], refusing)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_migration_runs_in_tasks_and_its_error_names_the_state() -> None:
    backend = kept_by_one_thread([*range(20)])
    with pytest.raises(OperatorError, match="the migration of key 1, state 24, from version 1"):
        on_cluster(backend, 2, [*range(20)], rendezvous_select, version=2, migrate=lambda old, _: 1 // 0)
    with pytest.raises(SnapshotError, match="pass migrate="):
        on_cluster(backend, 2, [*range(20)], rendezvous_select, version=2)
    on_cluster(backend, 2, [*range(20)], rendezvous_select, version=2, migrate=lambda old, _: -old)
    assert kept_states(backend, "sum") == {key: -total for key, total in sums_of([*range(20)]).items()}


@pytest.mark.damages_snapshots
def test_a_snapshot_that_lacks_keys_is_found_before_the_first_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, states = kept_by_one_thread([*range(20)]), StoredStates.states

    def lossy(stored: StoredStates, sections: Any) -> dict[str, dict[Any, Any]]:
        found = states(stored, sections)
        found.get("sum", {}).pop(3, None)
        return found

    monkeypatch.setattr(StoredStates, "states", lossy)
    with pytest.raises(SnapshotCorrupt, match="operator 'sum' has 6 keys of 7; recovery='previous' falls back"):
        on_cluster(backend, 3, [*range(20)], rendezvous_select)


@pytest.mark.fault("I30")
def test_a_scratch_folder_that_is_full_at_the_start_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = kept_by_one_thread([*range(20)])

    def full(*_: Any) -> bool:
        raise StoreError("there is no space left on the device")

    with monkeypatch.context() as patched:
        patched.setattr(Changelog, "write", full)
        with pytest.raises(StoreError, match="no space left"):
            on_cluster(backend, 3, [*range(20)], rendezvous_select)
    on_cluster(backend, 3, [*range(21)], rendezvous_select)
    assert kept_states(backend, "sum") == sums_of([*range(21)])


@pytest.mark.damages_snapshots
def test_a_damaged_file_is_named_by_the_task_that_reads_it() -> None:
    backend = kept_by_one_thread([*range(20)])
    store = backend.manifest_log().store
    name = next(name for name in store.list(DATA))
    data = store.get(name, 1 << 20)
    store.delete(name)
    store.put_new(name, data[:-1])
    with pytest.raises(SnapshotCorrupt, match=f"'{name}' is damaged.*recovery='previous' falls back"):
        on_cluster(backend, 3, [*range(20)], rendezvous_select)


def pieces_from(*old: dict[Any, Any], route: KeyRoute | None) -> list[tuple[int, bytes]]:
    routing = Routing(1, {"sum": route})
    return [piece for at, states in enumerate(old) for piece in routed(routing, at, {"sum": states}) if piece[0] == 0]


def base_of(pieces: list[tuple[int, bytes]], folder: Path) -> dict[Any, Any]:
    place = settings_at(str(folder), NoPersistence()).scratch
    task = WriteBases(place, 1, 5, {"sum": 0})
    (base,) = task(0, pieces, pickle.dumps([({}, {})]))
    assert task(0, pieces, pickle.dumps([({}, {})])) == [base], "a task may be repeated"
    assert base.moved
    assert base.size is not None
    delta = Changelog(place, 1).read(0, 0, 5).deltas["sum"]
    assert delta.whole
    return {**delta.changed}


@pytest.mark.fault("I27")
def test_keys_from_several_workers_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tasks, "_KEYS", 2)
    first, second = dict.fromkeys("kjihgfedcba", 1), dict.fromkeys("zyx", 2)
    pieces = pieces_from(first, second, route=KeyRoute("sum", 1, rendezvous_select))
    assert len(pieces) == 8
    for at, sent in enumerate((pieces, pieces[::-1], pieces[3:] + pieces[:3])):
        assert [*base_of(sent, tmp_path / str(at)).items()] == [*first.items(), *second.items()]


def test_a_key_of_two_workers_is_refused(tmp_path: Path) -> None:
    pieces = pieces_from({"a": 1}, {"a": 2}, route=KeyRoute("sum", 1, rendezvous_select))
    with pytest.raises(SnapshotError, match="operator 'sum' has two states for key 'a', on two workers"):
        base_of(pieces, tmp_path)
