"""A `ttl_map` holds the entries that no epoch has passed, and no key without an entry."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import ExpireMap, SingleThreadRuntime, StreamProvider
from malflow.sources import SingleIteratorSource
from tests.kit.backends import in_memory, kept_states

pytestmark = pytest.mark.slow


class Visit(NamedTuple):
    """A record: it puts an entry under its key, and the epoch that follows it is its time, where that is later."""

    key: str
    entry: str
    time: int
    lifetime: int


steps = st.lists(
    st.builds(Visit, st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(-1, 6), st.integers(-1, 20)),
    min_size=5,
    max_size=40,
)


def at_their_times(steps: list[Visit]) -> list[Visit]:
    """Turn the times since the record before into times."""
    times = accumulate(step.time for step in steps)
    return [step._replace(time=time) for step, time in zip(steps, times, strict=True)]


@given(steps.map(at_their_times), st.sampled_from([1, 3]), st.booleans(), st.sampled_from([list, iter]))
def test_a_ttl_map_holds_what_has_not_expired(
    records: list[Visit], parallelism: int, drop: bool, in_batches_or_one_by_one: Any
) -> None:
    store = in_memory()

    def visit(key: str, value: Visit, timestamp: int, entries: ExpireMap[str, int, int]) -> Any:
        entries.insert(value.entry, timestamp, timestamp + value.lifetime)
        return None, None if drop and value.lifetime == 0 else entries

    def build_dataflow(provider: StreamProvider) -> None:
        source = provider.new_stream().source("visits", SingleIteratorSource(in_batches_or_one_by_one(records)))
        stamped = source.assign_timestamps("time", lambda msg: msg.value.time)
        on_time, _ = stamped.generate_epochs("epochs", lambda msg, _: msg.timestamp)
        on_time.key_distribute("key", lambda msg: msg.value.key).ttl_map("held", visit)

    SingleThreadRuntime(build_dataflow, store, parallelism=parallelism).execute()
    held = kept_states(store, "held")
    assert {key: {entry: entries.get(entry) for entry in entries} for key, entries in held.items()} == _model(
        records, drop
    )


def _model(records: list[Visit], drop: bool) -> dict[str, dict[str, int]]:
    held: dict[str, dict[str, tuple[int, int]]] = {}
    epoch = -2
    for visit in records:
        if visit.time > epoch:
            held.setdefault(visit.key, {})[visit.entry] = (visit.time, visit.time + visit.lifetime)
            if drop and visit.lifetime == 0:
                del held[visit.key]
            epoch = visit.time
            for key in list(held):
                held[key] = {entry: kept for entry, kept in held[key].items() if kept[1] > epoch}
                if not held[key]:
                    del held[key]
    return {key: {entry: value for entry, (value, _) in entries.items()} for key, entries in held.items()}
