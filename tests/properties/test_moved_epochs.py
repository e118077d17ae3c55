"""Late records stay late, and no window is emitted twice, when keys move between workers with different epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from malflow import DataMessage, StreamProvider, limit_out_of_orderness, rendezvous_select
from malflow.engine.state_specs import name_of
from malflow.partitioners import FORMER_PLACEMENTS, former_select
from malflow.sources import StatefulSource
from malflow.testing import PAUSE, ScriptedSource, Timed
from tests.kit.driving import Store, compiled, finish
from tests.properties import functions

pytestmark = pytest.mark.slow

SIZE = 5
"""Of a window."""

PARTITIONERS = {**functions.PARTITIONERS, "before slots": former_select}
"""The last one is that of an older version, whose snapshots are restored by ours."""


class Tumble:
    """Counts the records of each window, and notes the last epoch that the key's worker saw."""

    def on_data(self, msg: Any, state: Any, output: Any) -> Any:
        last, windows = state
        assert last is None or msg.timestamp > last, "a record on time is later than every epoch"
        windows[msg.timestamp // SIZE] += 1
        return state

    def on_epoch(self, epoch: Any, states: Any, output: Any) -> None:
        for key, (last, windows) in list(states.items()):
            for window in [window for window in windows if window * SIZE + SIZE - 1 <= epoch]:
                output.send(DataMessage(key, (window, windows.pop(window)), epoch))
            states[key] = epoch if last is None or epoch > last else last, windows


class Flow:
    """Windows by key behind epochs that each worker makes of the keys that it has."""

    def __init__(self, items: Sequence[Any], bound: int, every: int | None, partitioner: str) -> None:
        self.source = ScriptedSource(items)
        self.bound = bound
        self.every = every
        self.partitioner = PARTITIONERS[partitioner]
        self.late: list[tuple[int, int]] = []
        self.windows: list[Any] = []

    def build(self, provider: StreamProvider) -> None:
        stream = provider.new_stream().source("source", StatefulSource(self.source))
        keyed = stream.key_distribute("key", lambda msg: msg.value, self.partitioner)
        on_time, late = keyed.generate_epochs("epochs", limit_out_of_orderness(self.bound), every=self.every)
        late.inspect("late", lambda msg, _: self.late.append((msg.key, msg.timestamp)))
        counted = on_time.stateful_op("windows", Tumble(), lambda: (None, Counter()))
        counted.inspect("counted", lambda msg, _: self.windows.append((msg.key, *msg.value)))


rows = st.lists(st.one_of(st.tuples(st.integers(0, 5), st.integers(0, 9)), st.just(PAUSE)), min_size=9, max_size=40)
skews = st.lists(st.sampled_from([0, 0, 12, 25]), min_size=6, max_size=6)


def timed(rows: Sequence[Any], skews: Sequence[int]) -> list[Any]:
    """Advance time with some disorder, some keys' clocks ahead of the others."""
    return [row if row is PAUSE else Timed(row[0], at + row[1] + skews[row[0]]) for at, row in enumerate(rows)]


changes = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.sampled_from(["rescale", "rescale", "restart", "other partitioner", "new version"]),
        st.integers(1, 4),
    ),
    max_size=6,
)


@pytest.mark.fault("E28")
@given(
    items=st.builds(timed, rows, skews),
    bound=st.integers(0, 3),
    every=st.sampled_from([None, 1, 4, SIZE]),
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    start=st.integers(1, 4),
    changes=changes,
)
def test_no_window_comes_twice_and_none_is_lost(
    items: list[Any],
    bound: int,
    every: int | None,
    partitioner: str,
    start: int,
    changes: list[tuple[int, str, int]],
) -> None:
    check(items, bound, every, partitioner, start, changes)


@pytest.mark.fault("E28")
@given(
    items=st.builds(timed, rows, skews),
    bound=st.integers(0, 3),
    before=st.lists(st.tuples(st.integers(1, 6), st.just("rescale"), st.integers(1, 4)), max_size=1),
    ticks=st.integers(1, 20),
    workers=st.integers(2, 4),
    after=st.lists(st.tuples(st.integers(0, 6), st.just("rescale"), st.integers(1, 4)), max_size=1),
)
def test_a_new_version_finds_the_former_workers_of_keys(
    items: list[Any], bound: int, before: list[Any], ticks: int, workers: int, after: list[Any]
) -> None:
    check(items, bound, None, "before slots", workers, [*before, (ticks, "new version", workers), *after])


def check(
    items: list[Any], bound: int, every: int | None, partitioner: str, start: int, changes: list[tuple[int, str, int]]
) -> None:
    flow = Flow(items, bound, every, partitioner)
    run_through(flow, start, changes)
    assert max(Counter((key, window) for key, window, _ in flow.windows).values(), default=1) == 1
    everything = Counter((item.value, item.timestamp // SIZE) for item in items if item is not PAUSE)
    everything -= Counter((key, timestamp // SIZE) for key, timestamp in flow.late)
    assert {(key, window): count for key, window, count in flow.windows} == everything
    event("late" if flow.late else "nothing late")
    if every is not None:
        dense = Flow(items, bound, None, partitioner)
        run_through(dense, start, changes)
        assert Counter(flow.late) <= Counter(dense.late), "each would be late without 'every'"


def run_through(flow: Flow, start: int, changes: list[tuple[int, str, int]]) -> None:
    """Run to the end, with changes on the way."""
    store = Store()
    program = compiled(flow.build)
    run = store.restore(program, start)
    for ticks, change, parallelism in changes:
        for _ in range(ticks):
            if not run.is_finished:
                run.tick()
        if change == "rescale":
            run.rescale(parallelism)
            continue
        store.commit(run, program)
        run.close()
        if change == "other partitioner":
            flow.partitioner = PARTITIONERS["index" if flow.partitioner is rendezvous_select else "rendezvous"]
            program = compiled(flow.build)
        if change == "new version" and flow.partitioner is former_select:
            flow.partitioner = rendezvous_select
            program = compiled(flow.build)
            store.rename_placements({name_of(former_select): FORMER_PLACEMENTS[-1]})
        run = store.restore(program, parallelism)
    finish(run)
