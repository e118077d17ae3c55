"""With debug checks, a value that changes after it was emitted is found, and its emitter named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import OperatorError, SingleThreadRuntime, Stream
from malflow.sinks import StatelessSink, VecSink
from malflow.sources import SingleIteratorSource, StatelessSource
from tests.properties.functions import mutate

pytestmark = pytest.mark.slow

Fork = Callable[[Stream[Any, Any, int]], list[Stream[Any, Any, int]]]

FORKS: dict[str, Fork] = {
    "items": lambda stream: [stream, stream],
    "cloned": lambda stream: stream.cloned("cloned", 2),
    "split": lambda stream: stream.split("split", lambda msg, outputs: outputs.__setitem__(slice(None), [True] * 2), 2),
    "passed": lambda stream: [stream.filter("passed", lambda value: value is not None)] * 2,
}


@given(
    items=st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=1, max_size=5),
    emitter=st.sampled_from(sorted(FORKS)),
    parallelism=st.integers(1, 3),
)
def test_a_reader_that_changes_shared_values_is_found(items: list[list[int]], emitter: str, parallelism: int) -> None:
    def build(stream: Stream[Any, Any, int]) -> None:
        changed, kept = FORKS[emitter](stream)
        changed.map("change", mutate)
        kept.sink("kept", StatelessSink(VecSink()))

    with pytest.raises(OperatorError) as failure:
        _run(items, build, parallelism)
    assert failure.value.operator == emitter


@given(items=st.lists(st.integers(0, 3), min_size=2, max_size=6), parallelism=st.integers(1, 3))
def test_a_state_deep_inside_an_emitted_value_is_found(items: list[int], parallelism: int) -> None:
    def build(stream: Stream[Any, Any, int]) -> None:
        keyed = stream.key_distribute("keyed", lambda _: "all")
        grown = keyed.stateful_map("grown", lambda _, value, state: ((state.append(value), {0: state}), state), list)
        grown.sink("sink", StatelessSink(VecSink()))

    with pytest.raises(OperatorError) as failure:
        _run(items, build, parallelism)
    assert failure.value.operator == "grown"


def _run(items: list[Any], build: Callable[[Stream[Any, Any, int]], None], parallelism: int) -> None:
    SingleThreadRuntime(
        lambda provider: build(provider.new_stream().source("items", StatelessSource(SingleIteratorSource([*items])))),
        parallelism=parallelism,
        debug=True,
    ).execute()
