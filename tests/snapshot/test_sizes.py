"""Sizes of states: large ones are found wherever they are, and told once; states that only grow are told once."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from malflow import MultiProcessRuntime, SingleThreadRuntime, StreamProvider
from malflow.engine.compiler import compile_graph
from malflow.graph import Graph
from malflow.sinks import VecSink
from malflow.snapshot import FsspecBackend, StateSize
from malflow.snapshot.codecs.contract import PickleCodec
from malflow.snapshot.files.sections import LARGE, Found, bare_sections
from malflow.snapshot.sizes import Sizes
from malflow.sources import StatefulSource
from malflow.states.keyed import Delta
from malflow.testing import ScriptedSource


def padded(count: int, size: int) -> dict[Any, Any]:
    """Return as many states of a size; no two of them are one object, which would be serialised once."""
    return {number: b"%d".ljust(size) % number for number in range(count)}


@example(count=4_000, size=10, large=(3_900, 0), known=True)
@given(
    count=st.integers(1, 4_000),
    size=st.sampled_from([10, 1_000]),
    large=st.none() | st.tuples(st.integers(0, 3_999), st.integers(0, 9)),
    known=st.booleans(),
)
def test_the_largest_state_is_found_wherever_it_is(
    count: int, size: int, large: tuple[int, int] | None, known: bool
) -> None:
    states: dict[Any, Any] = padded(count, size)
    expected = None
    if large is not None:
        key, more = large[0] % count, LARGE + 1_000 * large[1]
        states[key] = [b"y" * more]
        expected = (repr(key), more)
    found = Found(usual=known and size)
    for _ in bare_sections(PickleCodec(), 0, "op", 1, Delta(states, appended=len(states)), found):
        pass
    assert found.usual < 2 * size + 200, "the large state is not among the usual ones"
    assert (found.largest is None) == (expected is None)
    if found.largest is not None and expected is not None:
        assert found.largest[0] == expected[0]
        assert expected[1] <= found.largest[1] <= expected[1] + 100


def test_states_are_measured_once_and_not_in_each_snapshot() -> None:
    class Counting(PickleCodec):
        calls = 0

        def dumps(self, value: Any) -> bytes:
            self.calls += type(value) is bytes
            return super().dumps(value)

    codec, states, usual = Counting(), padded(900, 2_000), 0.0
    for calls in (900, 0, 0):
        found, codec.calls = Found(usual=usual), 0
        assert [*bare_sections(codec, 0, "op", 1, Delta(states, appended=900), found)]
        assert codec.calls == calls
        usual = found.usual


def flow(sink: Any) -> Any:
    script: Any = {"a": [*range(20), ("large", 3_000_000)], "b": [*range(20, 40)]}

    def build(provider: StreamProvider) -> None:
        numbers = provider.new_stream().source("numbers", StatefulSource(ScriptedSource(script)))
        keyed = numbers.key_distribute("key", lambda msg: str(msg.value)[:7])
        keyed.stateful_map("keep", kept, default=str).sink("out", sink)

    return build


def kept(_key: Any, value: Any, held: str) -> tuple[Any, str]:
    return value, held + ("z" * value[1] if isinstance(value, tuple) else "z")


@pytest.mark.parametrize("runtime", [SingleThreadRuntime, pytest.param(MultiProcessRuntime, marks=pytest.mark.slow)])
def test_sizes_are_in_the_progress_and_told_once(
    runtime: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        how = {} if runtime is SingleThreadRuntime else {"processes": 2}
        run = runtime(flow(VecSink()), FsspecBackend(str(tmp_path)), timedelta(seconds=60), 2, **how)
        handle = run.start()
        handle.await_termination()
        size = handle.progress.states["keep"]
        assert size.keys == 41
        assert size.largest_key in (None, repr("('large")), "the second run changes nothing"
    told = [it.getMessage() for it in caplog.records if "keeps" in it.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("operator 'keep' keeps 3.0 MB for key ")


def test_states_that_only_grow_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    sizes = Sizes()
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            sizes.note_keys({"grows": 90_000 + 1_000 * number, "small": number, "breathes": 200_000 + number % 31})
    (told,) = [it.getMessage() for it in caplog.records]
    assert told.startswith("the state of operator 'grows' has 122,000 keys, and has had more in each of the last 32")
    assert sizes.found["small"] == StateSize(99)


@pytest.mark.slow
def test_sizes_are_told_on_spark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("pyspark")
    from tests.spark.simulation import Cluster, Plan, settings_at, simulated  # noqa: PLC0415 - needs it

    graph = Graph()
    flow(VecSink())(StreamProvider(graph))
    with simulated():
        cluster = Cluster([Plan(asks=True)] * 4)
        cluster.run(compile_graph(graph), settings_at(str(tmp_path / "scratch"), FsspecBackend(str(tmp_path))), 2)
    assert cluster.attempt is not None
    assert cluster.attempt.progress.states["keep"] == StateSize(41, repr("('large"), 3_000_009)
    assert sum("keeps 3.0 MB for key" in it.getMessage() for it in caplog.records) == 1
