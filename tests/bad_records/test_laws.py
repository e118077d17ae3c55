"""An operator that skips its failures gives the same results with the bad records as without them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import SingleThreadRuntime, StreamProvider
from malflow.sinks import VecSink
from malflow.sources import SingleIteratorSource
from tests.bad_records.operators import KINDS, OPERATORS, Item

pytestmark = pytest.mark.slow

ITEMS = st.lists(
    st.builds(
        Item,
        key=st.integers(0, 2),
        number=st.integers(0, 20),
        time=st.integers(0, 12),
        fault=st.none() | st.integers(0, len(KINDS) - 1),
    ),
    max_size=24,
)


@pytest.mark.fault("N1")
@pytest.mark.parametrize("name", OPERATORS)
@given(items=ITEMS, parallelism=st.sampled_from([1, 3]), debug=st.booleans())
def test_a_failed_call_leaves_no_trace(name: str, items: list[Item], parallelism: int, debug: bool) -> None:
    found, counts, taken = run(name, items, parallelism, debug, on_error="skip")
    expected, _, good = run(name, items, parallelism, debug)
    bad = sum(item.fault is not None for item in items) if name == "event_time" else taken - good
    assert found == expected
    assert (counts["failed"], counts["skipped"], counts["letters"], counts["kept"]) == (bad, bad, 0, 0)


def run(
    name: str, items: list[Item], parallelism: int, debug: bool, on_error: Any = None
) -> tuple[list[tuple[Any, Any, Any]], Any, int]:
    """Return an operator's output by key, its counts and its number of records; without a policy, none is bad."""
    sink: VecSink[Any, Any, Any] = VecSink()
    prepare, apply = OPERATORS[name]

    def build_dataflow(provider: StreamProvider) -> None:
        stream = prepare(provider.new_stream().source("items", SingleIteratorSource(items)))
        if on_error is None:
            stream = stream.filter("good", lambda item: item.fault is None)
        apply(stream, on_error or "fail").sink("out", sink)

    runtime = SingleThreadRuntime(build_dataflow, parallelism=parallelism, debug=debug)
    runtime.execute()
    progress = runtime.progress
    found = sorted(((msg.key, msg.value, msg.timestamp) for msg in sink), key=lambda it: repr(it[0]))
    return found, progress.counts.get("it"), progress.records["it"]
