"""Snapshots of one run and the start of the next: on disk and in memory, through the runtime only."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from malflow import (
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    SnapshotError,
    StreamProvider,
)
from malflow.errors import FencedError, SnapshotCorrupt
from malflow.runtime.coordination import snapshots as run_snapshots
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.store.contract import Store
from malflow.store.local import LocalStore
from malflow.testing import ScriptedSource
from tests.kit.backends import at_once, in_memory, kept_states
from tests.kit.counting import MOMENT, counted, counting, ids, one_a_tick, run

pytestmark = pytest.mark.slow


def test_snapshots_are_taken_at_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, backend = SimpleNamespace(now=0.0), in_memory(retain=1_000)
    monkeypatch.setattr(run_snapshots, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def tick(_msg: Any, _ctx: Any) -> None:
        clock.now += 1

    run(counting(one_a_tick(range(95)), look=tick), backend, snapshots=timedelta(seconds=10))
    sizes = [snapshot.operators["count"] for snapshot in snapshots(backend)]
    assert sizes == [*range(10, 91, 10), 95]


def test_without_an_interval_there_is_one_snapshot_at_the_end() -> None:
    backend = in_memory()
    counted(one_a_tick(range(50)), backend)
    assert [snapshot.operators["count"] for snapshot in snapshots(backend)] == [50]


class Gated(FsspecBackend):
    """A backend whose store writes no data file before a gate is open."""

    gate: threading.Event

    def _store(self, *, exclusive: bool) -> Store:
        store, put_new = LocalStore(Path(self._url, self.job)), LocalStore.put_new

        def gated(key: str, data: bytes) -> None:
            if key.startswith("d/"):
                assert self.gate.wait(timeout=60)
            put_new(store, key, data)

        store.put_new = gated  # type: ignore[method-assign]
        return store


@pytest.mark.fault("F9")
def test_slow_snapshot_delays_no_record_and_no_other_piles_up(tmp_path: Path) -> None:
    backend = Gated(str(tmp_path), retain=1_000)
    backend.gate = threading.Event()

    def open_at_last(msg: Any, _ctx: Any) -> None:
        if msg.value == 99:
            assert not list(snapshots(backend))
            backend.gate.set()

    run(counting(one_a_tick(range(100)), look=open_at_last), backend, snapshots=MOMENT)
    sizes = [snapshot.operators["count"] for snapshot in snapshots(backend)]
    assert sizes[0] == 1
    assert sizes[-1] == 100
    assert len(sizes) <= 4, "the first, the last, and what was taken between the opening of the gate and the end"


@pytest.mark.fault("E5")
def test_state_is_captured_at_the_end_of_the_tick(tmp_path: Path) -> None:
    backend = Gated(str(tmp_path))
    backend.gate = threading.Event()

    def grow(_key: Any, value: int, state: list[int]) -> tuple[int, list[int]]:
        state.append(value)  # the same list, in place
        return value, state

    def build_dataflow(provider: StreamProvider) -> None:
        def look(msg: Any, _ctx: Any) -> None:
            if msg.value == 10:
                backend.gate.set()

        stream = provider.new_stream().source("items", ScriptedSource(one_a_tick(range(20)))).inspect("look", look)
        stream.key_distribute("all", lambda _: "all").stateful_map("grow", grow, list)

    run(build_dataflow, backend, snapshots=MOMENT)
    first = ids(backend)[0]
    assert kept_states(backend, "grow", first) == {"all": [0]}
    assert kept_states(backend, "grow") == {"all": list(range(20))}


@pytest.mark.parametrize("restore", ["newest", True, 1.5, "2026-01-01"])
def test_invalid_snapshot_id_is_refused_before_the_run(restore: Any) -> None:
    with pytest.raises(GraphError, match="restore needs 'latest', the id of a snapshot, or a datetime, or None"):
        SingleThreadRuntime(counting(""), restore=restore)


@pytest.mark.damages_snapshots("its newest one")
def test_damaged_newest_snapshot_stops_the_run_by_default(tmp_path: Path) -> None:
    backend, sizes = at_once(tmp_path), []
    for end in (1, 2, 3):
        counted("aaa"[:end], backend)
        sizes.append(len(list(tmp_path.glob("default/d/*"))))
    assert sizes == [1, 2, 3]
    last = max(tmp_path.glob("default/d/*"))
    last.write_bytes(last.read_bytes()[:-1])
    with pytest.raises(SnapshotCorrupt, match=rf"d/{last.name}' is damaged.*recovery='previous' falls back"):
        counted("aaa", backend)
    assert counted("aaa", backend, recovery="previous") == [("a", 3)], "it is done again"


def test_an_increment_is_as_small_as_the_change(tmp_path: Path) -> None:
    backend = at_once(tmp_path)
    everything = [f"key {number}" for number in range(20_000)]
    counted(everything, backend)
    (base,) = tmp_path.glob("default/d/*")
    counted([*everything, *everything[::100]], backend)
    (increment,) = set(tmp_path.glob("default/d/*")) - {base}
    assert [snapshot.kind for snapshot in snapshots(backend)] == ["base", "increment"]
    assert increment.stat().st_size < 0.05 * base.stat().st_size
    assert kept_states(backend, "count") == Counter([*everything, *everything[::100]])


def test_a_base_is_written_when_the_increments_have_outgrown_it() -> None:
    kinds = {}
    for growth in (0.5, 100):
        backend = in_memory(retain=1_000, growth=growth)
        run(counting(one_a_tick([number % 7 for number in range(50)])), backend, snapshots=MOMENT)
        kinds[growth] = [snapshot.kind for snapshot in snapshots(backend)]
    assert kinds[100][0] == "base"
    assert set(kinds[100][1:]) == {"increment"}
    assert len(kinds[100]) >= 50
    assert kinds[0.5][:1] == ["base"]
    assert kinds[0.5].count("base") > 10


def test_many_small_increments_become_few_files() -> None:
    backend = in_memory(growth=1_000)
    run(counting(one_a_tick([number % 7 for number in range(300)])), backend, snapshots=MOMENT)
    assert max(snapshot.files for snapshot in snapshots(backend)) <= 3 * 8, "up to seven of a tier, and the base"
    assert kept_states(backend, "count") == Counter(number % 7 for number in range(300))


class Stubborn:
    """A state that can't be pickled from some moment on."""

    def __init__(self) -> None:
        self.seen = 0

    def __reduce__(self) -> Any:
        if self.seen > 1:
            raise ValueError("not this one")
        return _stubborn, (self.seen,)


def _stubborn(seen: int) -> Stubborn:
    made = Stubborn()
    made.seen = seen
    return made


def nested(depth: int) -> list[Any]:
    state: list[Any] = []
    for _ in range(depth):
        state = [state]
    return state


@pytest.mark.fault("E3")
@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (lambda: 1, r"PicklingError: Can't pickle .*states are pickled by reference"),
        (nested(5_000), "RecursionError"),
        (threading.Lock(), "TypeError: cannot pickle '_thread.lock' object"),
    ],
    ids=["lambda", "nested", "lock"],
)
def test_a_state_that_can_not_be_written_is_told_with_its_operator_and_key(
    backend: FsspecBackend, state: Any, reason: str
) -> None:
    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource(one_a_tick("abcd")))
        keyed = stream.key_distribute("item", lambda msg: msg.value)
        keyed.stateful_map("odd", lambda key, _value, _state: (key, state if key == "c" else key))

    with pytest.raises(OperatorError, match=rf"operator 'odd' failed at key 'c': its state .*{reason}") as told:
        run(build_dataflow, backend, snapshots=MOMENT)
    assert (told.value.operator, told.value.key) == ("odd", "c")
    assert "the last snapshot is intact" in str(told.value)
    assert kept_states(backend, "odd") == {"a": "a", "b": "b"}
    assert fsck(backend).problems == ()


@pytest.mark.fault("E4")
def test_state_that_can_be_written_only_once(backend: FsspecBackend) -> None:
    def add(_key: str, _value: str, state: Stubborn) -> tuple[int, Stubborn]:
        state.seen += 1
        return state.seen, state

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource(one_a_tick("aba")))
        stream.key_distribute("item", lambda msg: msg.value).stateful_map("add", add, Stubborn).sink("out", sink)

    for _ in range(2):
        sink: VecSink[Any, Any, Any] = VecSink()
        with pytest.raises(OperatorError, match=r"operator 'add' failed at key 'a'.*ValueError: not this one"):
            run(build_dataflow, backend, snapshots=MOMENT)
        assert {key: state.seen for key, state in kept_states(backend, "add").items()} == {"a": 1, "b": 1}
    assert sink.values == [2], "the second run began where the last snapshot was"


def test_of_two_runtimes_the_older_one_is_fenced_and_leaves_nothing(backend: FsspecBackend) -> None:
    def rival(msg: Any, _ctx: Any) -> None:
        if msg.value == 4:
            counted(one_a_tick(range(20)), backend)

    with pytest.raises(FencedError, match=r"job 'default' was claimed by another run, .*its work since its last"):
        run(counting(one_a_tick(range(8)), look=rival), backend, snapshots=MOMENT)
    assert kept_states(backend, "count") == dict.fromkeys(range(20), 1)
    assert counted(one_a_tick(range(20)), backend) == []


def test_a_fenced_run_that_had_nothing_new_to_keep_is_fenced_too(backend: FsspecBackend) -> None:
    def rival(msg: Any, _ctx: Any) -> None:
        if msg.value == 0:
            counted("a", backend)

    with pytest.raises(FencedError):
        run(counting([0], look=rival), backend)


class Changeable:
    """A key that changes in spite of all that keys must be."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Changeable) and self.number == other.number

    def __hash__(self) -> int:
        return 7

    def __stable_key__(self) -> int:
        return 7

    def __repr__(self) -> str:
        return f"Changeable({self.number})"


@pytest.mark.fault("B13")
@pytest.mark.parametrize(("debug", "said"), [(True, "its snapshots add up to 2"), (False, "have become equal")])
def test_debug_refuses_a_snapshot_that_could_not_be_restored(debug: bool, said: str) -> None:
    backend, keys = in_memory(), [Changeable(number) for number in range(3)]

    def change(_key: Any, value: int, total: int) -> tuple[int, int]:
        if value == 2:
            keys[1].number = 0
        return value, total + 1

    def build_dataflow(provider: StreamProvider) -> None:
        keyed = provider.new_stream().source("n", ScriptedSource(range(3))).key_distribute("k", lambda m: keys[m.value])
        keyed.stateful_map("count", change, int)

    with pytest.raises(SnapshotError, match=rf"operator 'count' has .*{said}.* keys and their hashes must not change"):
        run(build_dataflow, backend, debug=debug, snapshots=None if debug else MOMENT)
    assert fsck(backend).problems == ()
