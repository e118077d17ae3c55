"""What becomes of states when the program, their form or their codec has changed since they were kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from malflow import (
    ExpireMap,
    GraphError,
    OperatorError,
    SingleThreadRuntime,
    SnapshotError,
    StreamProvider,
)
from malflow.snapshot import FsspecBackend, fsck, snapshots
from malflow.testing import PAUSE, ScriptedSource
from tests.kit.backends import at_once, kept, kept_states
from tests.kit.counting import MOMENT, Totals, count, counted, counting, run


def test_an_operator_that_is_new_starts_empty(backend: FsspecBackend) -> None:
    counted("aab", backend)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource("aabab")).key_distribute("k", lambda m: m.value)
        stream.stateful_map("count", count, int)
        stream.stateful_map("new", count, int)

    run(build_dataflow, backend)
    assert kept_states(backend, "count") == {"a": 3, "b": 2}
    assert kept_states(backend, "new") == {"a": 1, "b": 1}


def test_a_state_without_an_operator_is_refused_with_both_sides(backend: FsspecBackend) -> None:
    counted("aab", backend)
    before = list(snapshots(backend))
    with pytest.raises(SnapshotError) as told:
        run(counting("aab", name="counter"), backend)
    said = str(told.value)
    assert "has states without an operator in the program: 'count' (stateful_map, 2 keys)" in said
    assert "operators without a state in the snapshot: 'counter' (stateful_map)" in said
    assert "renamed={'count': 'counter'}" in said
    assert "allow_dropped_state=['count']" in said
    assert list(snapshots(backend)) == before


@pytest.mark.fault("G1")
def test_a_renamed_operator_keeps_its_state_from_then_on(backend: FsspecBackend) -> None:
    counted("aab", backend)
    run(counting("aabb", name="counter"), backend, renamed={"count": "counter"})
    assert kept_states(backend, "counter") == {"a": 2, "b": 2}
    assert "count" not in kept(backend).states
    run(counting("aabbb", name="counter"), backend)
    run(counting("aabbbb", name="counter"), backend, renamed={"count": "counter"})
    assert kept_states(backend, "counter") == {"a": 2, "b": 4}


@pytest.mark.parametrize(
    ("renamed", "said"),
    [
        ({"count": "counte"}, "the program has no state of that name; did you mean 'counter'?"),
        ({"items": "counter", "count": "counter"}, "maps two operators to 'counter'|still has 'items'"),
    ],
)
def test_a_wrong_renaming_is_refused(backend: FsspecBackend, renamed: dict[str, str], said: str) -> None:
    counted("aab", backend)
    with pytest.raises(SnapshotError, match=said.replace("?", r"\?")):
        run(counting("aab", name="counter"), backend, renamed=renamed)


def test_a_state_may_be_dropped_by_name(backend: FsspecBackend) -> None:
    counted("aab", backend)
    run(counting("aabb", name="other"), backend, allow_dropped_state=["count"])
    assert kept_states(backend, "other") == {"b": 1}
    assert "count" not in kept(backend).states
    with pytest.raises(GraphError, match="allow_dropped_state needs a list of names; got 'count'"):
        SingleThreadRuntime(counting(""), backend, allow_dropped_state="count")


def test_an_operator_of_another_kind_under_the_same_name_is_refused(backend: FsspecBackend) -> None:
    counted("aab", backend)

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource("aab")).key_distribute("k", lambda m: m.value)
        stream.stateful_op("count", Totals(), int)

    with pytest.raises(SnapshotError, match="'count' is now a stateful_op, but in snapshot 2 it is a stateful_map"):
        run(build_dataflow, backend)
    run(build_dataflow, backend, allow_dropped_state=["count"])
    assert kept_states(backend, "count") == {}


def versioned(items: str, version: int, migrate: Any = None) -> Callable[[StreamProvider], None]:
    """Count, with a state whose form has a version: a number, then a dict."""

    def add(_key: str, _value: str, state: Any) -> Any:
        if version == 1:
            return state + 1, state + 1
        return state["n"] + 1, {"n": state["n"] + 1}

    def build_dataflow(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("items", ScriptedSource(items)).key_distribute("k", lambda m: m.value)
        default: Any = int if version == 1 else lambda: {"n": 0}
        stream.stateful_map("count", add, default, version=version, migrate=migrate)

    return build_dataflow


def test_states_are_migrated_to_another_version_once(backend: FsspecBackend) -> None:
    migrated: list[Any] = []

    def migrate(old: Any, version: int) -> Any:
        migrated.append((old, version))
        return {"n": old} if old > 1 else None

    run(versioned("aab", 1), backend)
    run(versioned("aabb", 3, migrate), backend, parallelism=2)
    assert sorted(migrated) == [(1, 1), (2, 1)]
    assert kept_states(backend, "count") == {"a": {"n": 2}, "b": {"n": 1}}, "b was dropped, and began anew"
    run(versioned("aabbb", 3, migrate), backend)
    assert len(migrated) == 2
    assert kept_states(backend, "count") == {"a": {"n": 2}, "b": {"n": 2}}


def test_a_version_that_can_not_be_reached_is_refused(backend: FsspecBackend) -> None:
    run(versioned("aab", 1), backend)
    with pytest.raises(SnapshotError, match=r"operator 'count' has version 2 .*have version 1; give it migrate="):
        run(versioned("aab", 2), backend)
    with pytest.raises(OperatorError, match=r"operator 'count' failed at the migration of key .*ZeroDivisionError"):
        run(versioned("aab", 2, lambda old, version: 1 // 0), backend)
    assert kept_states(backend, "count") == {"a": 2, "b": 1}
    run(versioned("aab", 2, lambda old, version: {"n": old}), backend)
    with pytest.raises(SnapshotError, match="has states of version 2 in the snapshot and knows version 1 only"):
        run(versioned("aab", 1), backend)


@pytest.mark.damages_snapshots("those of one codec can't be read with another")
def test_another_codec_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("msgpack")
    counted("aab", at_once(tmp_path))
    with pytest.raises(SnapshotError, match="was written with codec 'pickle', but the program uses codec 'msgpack'"):
        counted("aab", at_once(tmp_path, codec="msgpack"))
    assert counted("a", at_once(tmp_path, codec="msgpack"), restore=None) == [("a", 1)]


def _visit(key: str, value: str, timestamp: int, entries: ExpireMap[Any, int, int]) -> Any:
    entries.insert(value, timestamp, 10**6)
    return value, entries


def _without_some(entries: ExpireMap[Any, int, int], _version: int) -> ExpireMap[Any, int, int]:
    kept: ExpireMap[Any, int, int] = ExpireMap()
    for key in set(entries) - {"a", "c"}:
        kept.insert(key, 1, 10**6)
    return kept


@pytest.mark.fault("B13")
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_map_that_a_migration_leaves_empty_is_dropped(backend: FsspecBackend, parallelism: int) -> None:
    def go(items: Any, **version: Any) -> None:
        def build_dataflow(provider: StreamProvider) -> None:
            keyed = provider.new_stream().source("items", ScriptedSource(items)).key_distribute("k", lambda m: m.value)
            keyed.ttl_map("held", _visit, **version)

        run(build_dataflow, backend, snapshots=MOMENT, parallelism=parallelism, debug=True)

    go("abcd")
    migration = {"version": 2, "migrate": _without_some}
    go([*"abcd", PAUSE, PAUSE, PAUSE, "b"], **migration)
    assert sorted(kept_states(backend, "held")) == ["b", "d"]
    assert fsck(backend).problems == ()
    go([*"abcd", PAUSE, PAUSE, PAUSE, *"ba"], **migration)
    assert sorted(kept_states(backend, "held")) == ["a", "b", "d"]


@pytest.mark.fault("G1")
def test_a_new_name_may_replace_an_operator_whose_state_is_dropped(backend: FsspecBackend) -> None:
    def both(provider: StreamProvider) -> None:
        keyed = (
            provider.new_stream().source("items", ScriptedSource("aab")).key_distribute("item", lambda msg: msg.value)
        )
        keyed.stateful_map("new", count, int)
        keyed.stateful_map("old", lambda _key, _value, so_far: (so_far + 10, so_far + 10), int)

    run(both, backend)
    renamed = {"old": "new"}
    with pytest.raises(SnapshotError, match=r"has states of both; pass allow_dropped_state=\['new'\]"):
        run(counting("aabb", name="new"), backend, renamed=renamed)
    run(counting("aabb", name="new"), backend, renamed=renamed, allow_dropped_state=["new"])
    assert kept_states(backend, "new") == {"a": 20, "b": 11}
    run(counting("aabbb", name="new"), backend, renamed=renamed, allow_dropped_state=["new"])
    assert kept_states(backend, "new") == {"a": 20, "b": 12}, "what is there under the new name now is the renamed one"
