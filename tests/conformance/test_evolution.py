"""Programs that change between two runs of a job: names, kinds, versions and codecs of their states.

On every runtime. The run before the change is on one thread, so that a case takes one start of Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import ExpireMap, GraphError, OperatorError, SingleThreadRuntime, SnapshotError, StreamProvider
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.testing import PAUSE, ScriptedSource
from tests.conformance.dataflow import counts_of
from tests.kit.backends import kept, kept_states
from tests.kit.counting import MOMENT, Totals, count, counted, counting
from tests.kit.log import Log


def test_new_operator_starts_empty(runtime: Any, store: FsspecBackend) -> None:
    counted("aab", store)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource("aabab")).key_distribute("k", lambda m: m.value)
        stream.stateful_map("count", count, int)
        stream.stateful_map("new", count, int)

    runtime(build_dataflow, store).execute()
    assert kept_states(store, "count") == {"a": 3, "b": 2}
    assert kept_states(store, "new") == {"a": 1, "b": 1}


def test_state_without_an_operator_is_refused_with_both_sides(runtime: Any, store: FsspecBackend) -> None:
    counted("aab", store)
    before = list(snapshots(store))
    with pytest.raises(SnapshotError) as told:
        runtime(counting("aab", name="counter"), store).execute()
    said = str(told.value)
    assert "has states without an operator in the program: 'count' (stateful_map, 2 keys)" in said
    assert "operators without a state in the snapshot: 'counter' (stateful_map)" in said
    assert "renamed={'count': 'counter'}" in said
    assert "allow_dropped_state=['count']" in said
    assert list(snapshots(store)) == before


@pytest.mark.fault("G1")
def test_renamed_operator_keeps_its_state(runtime: Any, store: FsspecBackend) -> None:
    counted("aab", store)
    runtime(counting("aabb", name="counter"), store, renamed={"count": "counter"}).execute()
    assert kept_states(store, "counter") == {"a": 2, "b": 2}
    assert "count" not in kept(store).states
    SingleThreadRuntime(counting("aabbb", name="counter"), store).execute()
    runtime(counting("aabbbb", name="counter"), store, renamed={"count": "counter"}).execute()
    assert kept_states(store, "counter") == {"a": 2, "b": 4}


@pytest.mark.parametrize(
    ("renamed", "said"),
    [
        ({"count": "counte"}, "the program has no state of that name; did you mean 'counter'?"),
        ({"items": "counter", "count": "counter"}, "maps two operators to 'counter'|still has 'items'"),
    ],
    ids=["unknown", "twice"],
)
def test_wrong_renaming_is_refused(runtime: Any, store: FsspecBackend, renamed: dict[str, str], said: str) -> None:
    counted("aab", store)
    with pytest.raises(SnapshotError, match=said.replace("?", r"\?")):
        runtime(counting("aab", name="counter"), store, renamed=renamed).execute()


def test_state_may_be_dropped_by_name(runtime: Any, store: FsspecBackend) -> None:
    counted("aab", store)
    runtime(counting("aabb", name="other"), store, allow_dropped_state=["count"]).execute()
    assert kept_states(store, "other") == {"b": 1}
    assert "count" not in kept(store).states
    with pytest.raises(GraphError, match="allow_dropped_state needs a list of names; got 'count'"):
        runtime(counting(""), store, allow_dropped_state="count")


def test_operator_of_another_kind_under_the_same_name_is_refused(runtime: Any, store: FsspecBackend) -> None:
    counted("aab", store)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource("aab")).key_distribute("k", lambda m: m.value)
        stream.stateful_op("count", Totals(), int)

    with pytest.raises(SnapshotError, match="'count' is now a stateful_op, but in snapshot 2 it is a stateful_map"):
        runtime(build_dataflow, store).execute()
    runtime(build_dataflow, store, allow_dropped_state=["count"]).execute()
    assert kept_states(store, "count") == {}


def versioned(items: str, version: int, migrate: Any = None) -> Callable[[StreamProvider], None]:
    """Build a count whose state is a number in version 1, and a dict in later ones."""

    def add(_key: str, _value: str, state: Any) -> Any:
        if version == 1:
            return state + 1, state + 1
        return state["n"] + 1, {"n": state["n"] + 1}

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource(items)).key_distribute("k", lambda m: m.value)
        default: Any = int if version == 1 else lambda: {"n": 0}
        stream.stateful_map("count", add, default, version=version, migrate=migrate)

    return build_dataflow


def test_states_are_migrated_to_another_version_once(runtime: Any, store: FsspecBackend, log: Log) -> None:
    def migrate(old: Any, version: int) -> Any:
        log.append((old, version))
        return {"n": old} if old > 1 else None

    SingleThreadRuntime(versioned("aab", 1), store).execute()
    runtime(versioned("aabb", 3, migrate), store, parallelism=2).execute()
    assert sorted(log) == [(1, 1), (2, 1)]
    assert kept_states(store, "count") == {"a": {"n": 2}, "b": {"n": 1}}, "b was dropped, and began anew"
    runtime(versioned("aabbb", 3, migrate), store).execute()
    assert len(log) == 2
    assert kept_states(store, "count") == {"a": {"n": 2}, "b": {"n": 2}}


def test_version_that_can_not_be_reached_is_refused(runtime: Any, store: FsspecBackend) -> None:
    SingleThreadRuntime(versioned("aab", 1), store).execute()
    with pytest.raises(SnapshotError, match=r"operator 'count' has version 2, .*have version 1; pass migrate="):
        runtime(versioned("aab", 2), store).execute()
    with pytest.raises(OperatorError, match=r"operator 'count' failed at the migration of key .*ZeroDivisionError"):
        runtime(versioned("aab", 2, lambda old, version: 1 // 0), store).execute()
    assert kept_states(store, "count") == {"a": 2, "b": 1}
    SingleThreadRuntime(versioned("aab", 2, lambda old, version: {"n": old}), store).execute()
    with pytest.raises(SnapshotError, match="has states of version 2 in the snapshot, but supports only version 1"):
        runtime(versioned("aab", 1), store).execute()


@pytest.mark.damages_snapshots("those of one codec can't be read with another")
def test_another_codec_is_refused(runtime: Any, tmp_path: Path) -> None:
    pytest.importorskip("msgpack")
    counted("aab", FsspecBackend(str(tmp_path)))
    other = FsspecBackend(str(tmp_path), codec="msgpack")
    with pytest.raises(SnapshotError, match="was written with codec 'pickle', but the program uses codec 'msgpack'"):
        counts_of(runtime, "aab", other)
    assert counts_of(runtime, "a", other, restore=None) == [("a", 1)]


def _visit(key: str, value: str, timestamp: int, entries: ExpireMap[Any, int, int]) -> Any:
    entries.insert(value, timestamp, 10**6)
    return value, entries


def _without_some(entries: ExpireMap[Any, int, int], _version: int) -> ExpireMap[Any, int, int]:
    kept: ExpireMap[Any, int, int] = ExpireMap()
    for key in set(entries) - {"a", "c"}:
        kept.insert(key, 1, 10**6)
    return kept


@pytest.mark.fault("B13")
def test_map_that_a_migration_leaves_empty_is_dropped(any_parallelism: Any, store: FsspecBackend) -> None:
    def go(runtime: Any, items: Any, **version: Any) -> None:
        def build_dataflow(provider: StreamProvider) -> None:
            keyed = provider.new_stream().source("items", ScriptedSource(items)).key_distribute("k", lambda m: m.value)
            keyed.ttl_map("held", _visit, **version)

        runtime(build_dataflow, store, snapshots=MOMENT, debug=True).execute()

    go(SingleThreadRuntime, "abcd")
    migration = {"version": 2, "migrate": _without_some}
    go(any_parallelism, [*"abcd", PAUSE, PAUSE, PAUSE, "b"], **migration)
    assert sorted(kept_states(store, "held")) == ["b", "d"]
    assert fsck(store).problems == ()
    go(any_parallelism, [*"abcd", PAUSE, PAUSE, PAUSE, *"ba"], **migration)
    assert sorted(kept_states(store, "held")) == ["a", "b", "d"]


@pytest.mark.fault("G1")
def test_new_name_may_replace_an_operator_whose_state_is_dropped(runtime: Any, store: FsspecBackend) -> None:
    def both(provider: StreamProvider) -> None:
        keyed = (
            provider.new_stream().source("items", ScriptedSource("aab")).key_distribute("item", lambda msg: msg.value)
        )
        keyed.stateful_map("new", count, int)
        keyed.stateful_map("old", lambda _key, _value, so_far: (so_far + 10, so_far + 10), int)

    SingleThreadRuntime(both, store).execute()
    renamed = {"old": "new"}
    with pytest.raises(SnapshotError, match=r"has states of both; pass allow_dropped_state=\['new'\]"):
        runtime(counting("aabb", name="new"), store, renamed=renamed).execute()
    runtime(counting("aabb", name="new"), store, renamed=renamed, allow_dropped_state=["new"]).execute()
    assert kept_states(store, "new") == {"a": 20, "b": 11}
    runtime(counting("aabbb", name="new"), store, renamed=renamed, allow_dropped_state=["new"]).execute()
    assert kept_states(store, "new") == {"a": 20, "b": 12}, "the state under the new name is now the renamed one"
