"""Windows while workers change: no window is emitted twice, and no record is lost or added twice."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow import agg, limit_out_of_orderness
from malflow.sinks import VecSink
from malflow.sources import StatefulSource
from malflow.testing import END, PAUSE, ScriptedSource, Timed
from malflow.testing.driven import DrivenRun
from malflow.windows import session, sliding, tumbling
from tests.kit.driving import Store, compiled, finish
from tests.windows.model import sliding_windows

pytestmark = pytest.mark.slow


class Shape(NamedTuple):
    """Windows, and how many of them contain a record with a given timestamp."""

    windows: Any
    count: Any


def _overlapping(size: int, every: int) -> Shape:
    def count(timestamp: int) -> int:
        return len(sliding_windows(size, every, 0, timestamp))

    return Shape(sliding(size, every), count)


shapes = st.one_of(
    st.integers(1, 12).map(lambda size: Shape(tumbling(size), lambda _: 1)),
    st.builds(_overlapping, st.integers(1, 20), st.integers(1, 10)),
    st.integers(1, 5).map(lambda gap: Shape(session(gap), lambda _: 1)),
)
timestamps = st.lists(st.integers(-9, 9), min_size=10, max_size=40)
scripts = st.lists(timestamps, min_size=2, max_size=3)
changes = st.lists(
    st.sampled_from(["none"] * 6 + ["rescale", "commit", "restart", "restart"]), min_size=10, max_size=60
)
keys = "abcdefgh"


def records_of(script: list[list[int]]) -> dict[int, list[Any]]:
    """Return the records of each part, a tick each; time advances by one a record, with some disorder."""
    return {
        part: [
            Timed((keys[(3 * index + part + jitter) % len(keys)], (part, index)), 2 * index + jitter)
            for index, jitter in enumerate(jitters)
        ]
        for part, jitters in enumerate(script)
    }


def run_through(build: Any, plan: list[str], workers: list[int], *, ends: int = 0) -> None:
    """Run to the end of all input, with changes between ticks; restart wherever a part may go on after an end."""
    store, program = Store(), compiled(build)
    run = store.restore(program, workers[0])
    for turn, change in enumerate(plan, 1):
        if not run.is_finished:
            run.tick()
        run = _change(run, change, store, program, workers[turn % len(workers)])
    for turn in range(ends + 1):
        while not run.is_finished:
            run.tick()
        if turn < ends:
            run = _change(run, "restart", store, program, workers[turn % len(workers)])
    finish(run)


def _change(run: DrivenRun, change: str, store: Store, program: Any, workers: int) -> DrivenRun:
    if change == "rescale":
        run.rescale(workers)
    elif change in ("commit", "restart"):
        store.commit(run, program)
    if change == "restart":
        run.close()
        return store.restore(program, workers)
    return run


def check(
    records: dict[int, list[Any]], shape: Shape, late: VecSink[Any, Any, Any], results: VecSink[Any, Any, Any]
) -> None:
    windows = Counter((it.key, it.value.start, it.value.end) for it in results)
    assert [window for window, times in windows.items() if times > 1] == []
    too_late = {it.value[1] for it in late}
    found = Counter(number for it in results for number in it.value.value)
    for part in records.values():
        for record in part:
            number = record.value[1]
            assert found[number] == (0 if number in too_late else shape.count(record.timestamp))


def numbers() -> Any:
    return agg.fold(list, lambda held, value: [*held, value[1]], merge=lambda one, other: one + other)


@given(
    script=scripts,
    shape=shapes,
    bound=st.integers(0, 8),
    every=st.sampled_from([None, 3]),
    plan=changes,
    workers=st.lists(st.integers(1, 4), min_size=1, max_size=5),
)
def test_epochs_of_each_worker(
    script: list[list[int]], shape: Shape, bound: int, every: Any, plan: list[str], workers: list[int]
) -> None:
    """Workers with epochs of their own have closed different windows when they change."""
    records = records_of(script)
    late: VecSink[Any, Any, Any] = VecSink()
    results: VecSink[Any, Any, Any] = VecSink()
    ticks = {part: [it for record in them for it in (record, PAUSE)] for part, them in records.items()}
    source = StatefulSource(ScriptedSource(ticks))

    def build(provider: Any) -> None:
        keyed = provider.new_stream().source("source", source).key_distribute("key", lambda msg: msg.value[0])
        on_time, too_late = keyed.generate_epochs("epochs", limit_out_of_orderness(bound), every=every, per_part=False)
        too_late.sink("late", late)
        on_time.window(shape.windows).aggregate("windows", numbers()).sink("results", results)

    run_through(build, plan, workers)
    check(records, shape, late, results)


@given(
    script=scripts,
    shape=shapes,
    bound=st.integers(0, 8),
    ends=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 8)), min_size=1, max_size=4),
    plan=changes,
    workers=st.lists(st.integers(1, 4), min_size=1, max_size=5),
)
def test_parts_that_finish_and_grow(
    script: list[list[int]], shape: Shape, bound: int, ends: set[Any], plan: list[str], workers: list[int]
) -> None:
    """Workers whose parts have finished are lifted; what their parts have later is on time or late, never lost."""
    records = records_of(script)
    late: VecSink[Any, Any, Any] = VecSink()
    results: VecSink[Any, Any, Any] = VecSink()
    ticks = {
        part: [it for at, record in enumerate(them) for it in (record, END if (part, at) in ends else PAUSE)]
        for part, them in records.items()
    }
    source = StatefulSource(ScriptedSource(ticks))

    def build(provider: Any) -> None:
        stream = provider.new_stream().source("source", source)
        on_time, too_late = stream.generate_epochs("epochs", limit_out_of_orderness(bound))
        too_late.sink("late", late)
        keyed = on_time.key_distribute("key", lambda msg: msg.value[0])
        keyed.window(shape.windows).aggregate("windows", numbers()).sink("results", results)

    run_through(build, plan, workers, ends=len(ends))
    check(records, shape, late, results)
