"""Sources that end at different times, with operators of event time before and after their streams meet."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.kit.driving import finish, run_of

items = st.lists(st.one_of(st.integers(0, 60), st.just(PAUSE), st.just(PAUSE)), max_size=25)
scripts = st.dictionaries(st.integers(0, 2), items, max_size=2)
flows = st.lists(st.tuples(scripts, st.integers(1, 30)), min_size=2, max_size=3)

BOUND = 100
"""So that nothing is late."""


def flow(sources: list[tuple[Any, int]], how: str, last: int, workers: int) -> tuple[list[Any], list[Any]]:
    """Count the records of each source in windows, and those of all results; return both."""
    first: VecSink[Any, Any, Any] = VecSink()
    second: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        counts = []
        for number, (script, size) in enumerate(sources):
            parts = {part: [it if it is PAUSE else Timed(it, it) for it in script[part]] for part in script}
            stream = provider.new_stream().source(f"source {number}", ScriptedSource(parts))
            if how == "behind exchanges":
                stream = stream.key_distribute(f"spread {number}", lambda msg: msg.value)
            on_time, _ = stream.generate_epochs(
                f"epochs {number}", limit_out_of_orderness(BOUND), per_part=how != "behind exchanges"
            )
            keyed = on_time.key_distribute(f"key {number}", lambda msg: msg.value % 3)
            counts.append(keyed.window(tumbling(size)).aggregate(f"counts {number}", agg.count()))
        merged = counts[0]
        for number, other in enumerate(counts[1:]):
            merged = merged.union(other, name=f"union {number}")
        merged.sink("first", first)
        keyed = merged.map("count", lambda result: result.value).key_distribute("again", lambda msg: msg.key % 2)
        keyed.window(tumbling(last)).aggregate("sums", agg.sum()).sink("second", second)

    finish(run_of(build, workers))
    return list(first), list(second)


def expected(sources: list[tuple[Any, int]], last: int) -> tuple[Counter[Any], Counter[Any]]:
    """Return the counts and the sums, from the records alone."""
    counts: Counter[Any] = Counter()
    sums: Counter[Any] = Counter()
    for number, (script, size) in enumerate(sources):
        for items in script.values():
            for it in items:
                if it is not PAUSE:
                    end = (it // size + 1) * size
                    counts[number, it % 3, end] += 1
                    sums[it % 3 % 2, (end - 1) // last * last] += 1
    return counts, sums


@pytest.mark.parametrize("how", ["before exchanges", "behind exchanges"])
@given(sources=flows, workers=st.integers(1, 3), last=st.integers(1, 50))
def test_results_are_right_whichever_source_ends_first(
    how: str, sources: list[tuple[Any, int]], workers: int, last: int
) -> None:
    first, second = flow(sources, how, last, workers)
    counts, sums = expected(sources, last)
    assert Counter(msg.value.value for msg in first) == Counter(counts.values())
    assert Counter({(msg.key, msg.value.start): msg.value.value for msg in second}) == sums
    assert len(second) == len(sums), "a window gave several results"
