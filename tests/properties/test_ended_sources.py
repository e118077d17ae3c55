"""Sources that end at different times, with operators of event time before and after their streams meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import DataMessage, StatefulLogic, StreamProvider, agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.testing import PAUSE, ScriptedSource, Timed
from malflow.windows import tumbling
from tests.kit.driving import finish, run_of

pytestmark = pytest.mark.slow

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


class Later(StatefulLogic):
    """Send the records of a key when a timer for the last of them fires."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        output.wake(msg.timestamp + 10)
        return [*state, msg.value]

    def on_timer(self, key: Any, at: Any, state: Any, output: Any) -> None:
        for value in state:
            output.send(DataMessage(key, value, at))


HOLDING: dict[str, Callable[[Any], Any]] = {
    "sort": lambda keyed: keyed.sort("hold"),
    "batch": lambda keyed: keyed.batch("hold", 1000, within=20).flatten("values"),
    "windows": lambda keyed: (
        keyed.window(tumbling(7)).aggregate("hold", agg.collect()).flat_map("values", lambda result: result.value)
    ),
    "timers": lambda keyed: keyed.stateful_op("hold", Later(), list),
    "pairs": lambda keyed: keyed.interval_join(
        "hold", keyed.filter("none", lambda _: False), before=5, after=5, how="left"
    ).map("left", lambda pair: pair[0]),
}


@pytest.mark.parametrize("again", ["event_time", "generate_epochs"])
@pytest.mark.parametrize("hold", HOLDING)
@given(
    first=st.lists(st.integers(0, 40), min_size=1, max_size=12),
    second=st.lists(st.integers(0, 90), max_size=15, unique=True).map(sorted),
    workers=st.integers(1, 3),
    meets=st.booleans(),
)
def test_records_that_wait_before_a_generator_are_on_time(
    hold: str, again: str, first: list[int], second: list[int], workers: int, meets: bool
) -> None:
    late: VecSink[Any, Any, Any] = VecSink()
    sums: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        early = provider.new_stream().source("early", ScriptedSource([Timed(1, it) for it in first]))
        script = [item for at in second for item in (PAUSE, Timed(0, at))]
        longer = provider.new_stream().source("longer", ScriptedSource(script))
        timed = early.event_time("early times", lambda msg: msg.timestamp, out_of_orderness=50)
        others = longer.event_time("longer times", lambda msg: msg.timestamp, out_of_orderness=0)
        held = HOLDING[hold](timed.key_distribute("early key", lambda msg: msg.timestamp % 3))
        if again == "event_time":
            on_time = held.event_time("again", lambda msg: msg.timestamp, out_of_orderness=50, per_part=False)
            on_time.late.sink("behind", late)
        else:
            on_time, behind = held.generate_epochs("again", lambda msg, epoch: None, per_part=False)
            behind.sink("behind", late)
        if meets:
            timed.union(others, name="met").sink("both", VecSink())
        keyed = on_time.union(others, name="union").key_distribute("all", lambda msg: 0)
        keyed.window(tumbling(10)).aggregate("sums", agg.sum()).sink("out", sums)

    finish(run_of(build, workers))
    assert late.values == []
    assert sum(msg.value.value for msg in sums) == len(first)
    assert len({msg.value.start for msg in sums}) == len(sums), "a window gave several results"


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_ends_where_one_generator_rounds_what_another_waits_for(workers: int) -> None:
    sums: VecSink[Any, Any, Any] = VecSink()

    def build(provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", ScriptedSource([Timed(1, it) for it in range(20)]))
        rounded = stream.event_time("rounded", lambda msg: msg.timestamp, out_of_orderness=8, every=10)
        exact = stream.event_time("exact", lambda msg: msg.timestamp, out_of_orderness=7)
        held = exact.key_distribute("key", lambda msg: msg.timestamp % 3).batch("hold", 100, within=50)
        again = held.flatten("values").generate_epochs("again", lambda msg, epoch: None, per_part=False).on_time
        keyed = rounded.union(again, name="union").key_distribute("all", lambda msg: 0)
        keyed.window(tumbling(1000)).aggregate("sums", agg.sum()).sink("out", sums)
        provider.new_stream().source("another", ScriptedSource([PAUSE] * 9)).sink("nothing", VecSink())

    run = run_of(build, workers)
    for _ in range(50):
        if not run.is_finished:
            run.tick()
    assert run.is_finished
    finish(run)
    assert [msg.value.value for msg in sums] == [40]
