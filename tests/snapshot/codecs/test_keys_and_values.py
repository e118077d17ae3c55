"""Keys and states of every shape and size are restored unchanged, or refused by name."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.errors import OperatorError
from malflow.sinks import StatelessSink, VecSink
from malflow.snapshot import FsspecBackend, snapshots
from malflow.sources import StatefulSource
from malflow.testing import CRASH, END, PAUSE, Crash, ScriptedSource
from tests.kit.backends import in_memory, kept_states
from tests.kit.jobs import Job, StoreBackend, data_keys
from tests.kit.memory_store import HookedStore


def run(backend: FsspecBackend, source: ScriptedSource, **options: Any) -> None:
    """Keep the last value of each key; records are pairs of both."""

    def build(provider: StreamProvider) -> object:
        pairs = provider.new_stream().source("pairs", StatefulSource(source))
        keyed = pairs.inspect("snapshots", lambda *_: runtime.snapshot()).key_distribute(
            "key", lambda msg: msg.value[0]
        )
        latest = keyed.stateful_map("latest", lambda _key, value, _state: (value[0], value[1]))
        return latest.sink("seen", StatelessSink(VecSink()))

    runtime = SingleThreadRuntime(build, backend, **options)
    runtime.execute()


CODECS = pytest.mark.parametrize("codec", ["pickle", "msgpack"])

ODD = {
    "empty": "",
    "megabyte": "k" * 2**20,
    "nul": "a\0b",
    "slash": "a/b",
    "parents": "../../etc/passwd",
    "line": "a\nb\r\n",
    "emoji": "\U0001f600",
    "half of a pair": "\ud800",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "looks like a name": "m/00000000000000000001.json",
    "bytes": b"\xff\0",
    "negative": -(2**70),
}


@pytest.mark.fault("E11", "E12", "E13")
@CODECS
@pytest.mark.parametrize("parallelism", [1, 3])
def test_keys_of_any_text_are_no_names_of_files_and_come_back(codec: str, parallelism: int) -> None:
    backend = in_memory(codec=codec)
    pairs = [(key, name) for name, key in ODD.items()]
    source = ScriptedSource({"x": [*pairs, END, ("again", 1)]})
    run(backend, source, parallelism=parallelism)
    run(backend, source, parallelism=4 - parallelism)
    assert kept_states(backend, "latest") == {**{key: name for name, key in ODD.items()}, "again": 1}
    names = [path for path in backend._filesystem.store if "/d/" in path or "/m/" in path]
    assert names
    assert all(len(name) < 120 and name.isascii() for name in names)


@pytest.mark.fault("E10")
@CODECS
def test_numbers_that_are_equal_are_one_key_before_and_after_a_restart(codec: str) -> None:
    backend = in_memory(codec=codec)
    source = ScriptedSource(
        {"x": [(1, "int"), (0.0, "zero"), END, (1.0, "float"), (True, "bool"), (-0.0, "minus zero")]}
    )
    run(backend, source, parallelism=2)
    assert kept_states(backend, "latest") == {1: "int", 0: "zero"}
    run(backend, source, parallelism=3)
    assert kept_states(backend, "latest") == {1: "bool", 0: "minus zero"}


@pytest.mark.fault("E9", "E14")
@pytest.mark.parametrize("key", [math.nan, None, ["a"], ("a", ["b"]), {}], ids=repr)
def test_key_that_does_not_equal_its_copy_is_refused(key: Any) -> None:
    backend = in_memory()
    with pytest.raises(OperatorError, match=r"operator 'key' failed at"):
        run(backend, ScriptedSource({"x": [("good", 1), PAUSE, (key, 2)]}))
    assert kept_states(backend, "latest") == {"good": 1}


@pytest.mark.fault("E15")
@pytest.mark.slow
def test_a_state_larger_than_a_file_may_be_is_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALFLOW_SIGNING_KEY", raising=False)
    store = HookedStore()
    huge = os.urandom(80 << 20)
    job = Job(StoreBackend(store, compression="none"))
    job.save({"small": 1, "huge": huge, "after": 2}).result()
    assert len(data_keys(store)) == 3
    assert max(map(len, store.objects.values())) < 33 << 20
    assert Job(StoreBackend(store, compression="none")).state == job.state


@pytest.mark.fault("E16")
@CODECS
@pytest.mark.slow
def test_too_deeply_nested_state_is_refused_by_name(codec: str) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    backend = in_memory(codec=codec)
    try:
        with pytest.raises(OperatorError, match=r"operator 'latest' failed at key 'deep': its state"):
            run(backend, ScriptedSource({"x": [("good", 1), PAUSE, ("deep", deep)]}))
    finally:
        while deep:  # an interpreter may not be able to let go of it in one go
            deep = deep.pop()
    assert kept_states(backend, "latest") == {"good": 1}
    assert len(list(snapshots(backend))) == 1


Operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from("abcd"), st.integers(0, 3)),
        st.tuples(st.just("delete"), st.sampled_from("abcd"), st.just(0)),
        st.tuples(st.just("snapshot"), st.just(""), st.just(0)),
        st.tuples(st.just("crash"), st.just(""), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.fault("E17", "E18")
@given(Operations, st.sampled_from([1e-9, 1.0, 1e9]), st.sampled_from(["pickle", "msgpack"]))
def test_keys_that_come_and_go_are_as_they_were_at_the_last_snapshot(
    operations: list[tuple[str, str, int]], growth: float, codec: str
) -> None:
    store = HookedStore()
    job = Job(StoreBackend(store, growth=growth, codec=codec))
    live: dict[str, int] = {}
    kept: dict[str, int] = {}
    changed: set[str] = set()
    for operation, key, value in operations:
        match operation:
            case "set":
                live[key] = value
                changed.add(key)
            case "delete":
                live.pop(key, None)
                changed.add(key)
            case "snapshot":
                new = {key: live[key] for key in sorted(changed & live.keys())}
                job.save(new, deleted=sorted((changed - live.keys()) & job.state.keys())).result()
                kept, changed = dict(live), set()
            case "crash":
                job = Job(StoreBackend(store, growth=growth, codec=codec))
                assert job.state == kept
                live, changed = dict(kept), set()


@pytest.mark.fault("F4")
def test_new_part_begins_at_its_beginning_and_a_gone_one_is_remembered() -> None:
    backend = in_memory()
    x = [("x", 1), END, ("x", 2), END, ("x", 3)]
    y = [("y", 1), END, ("y", 2)]
    run(backend, ScriptedSource({"x": x}))
    run(backend, ScriptedSource({"x": x, "y": y}), parallelism=2)
    assert kept_states(backend, "latest") == {"x": 2, "y": 1}
    run(backend, ScriptedSource({"y": y}))
    assert kept_states(backend, "latest") == {"x": 2, "y": 2}
    run(backend, ScriptedSource({"x": x, "y": y}))
    assert kept_states(backend, "latest") == {"x": 3, "y": 2}


@pytest.mark.fault("F1")
def test_a_source_that_fails_goes_on_from_its_position_when_it_can() -> None:
    backend = in_memory()
    source = ScriptedSource({"x": [("a", 1), PAUSE, ("a", 2), CRASH, ("b", 3)]})
    with pytest.raises(Crash):
        run(backend, source)
    assert kept_states(backend, "pairs") == {"x": 3}
    run(backend, source)
    assert kept_states(backend, "latest") == {"a": 2, "b": 3}
