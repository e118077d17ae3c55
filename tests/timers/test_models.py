"""Timers of logics fire like those of a model that keeps them in a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from malflow.sinks import VecSink
from malflow.testing import PAUSE, Timed, assert_exactly_once
from tests.kit.driving import Store, compiled, finish, run_of
from tests.selection.model import Row, ascending, by_key, on_time
from tests.timers.model import Dropping, Scripted, fired_rows
from tests.windows.running import Item, results_of, source_of, windowed_flow

pytestmark = pytest.mark.slow

values = st.one_of(st.integers(1, 15), st.integers(1, 15), st.sampled_from(["drop", "sleep", "wait"]))
records = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 12), values)
streams = st.lists(st.one_of(records, st.just(PAUSE)), max_size=40).map(ascending)
bounds = st.integers(0, 12)


def timed(drops: bool) -> Callable[[Any], Any]:
    """Return a function that adds the logic of the model to a keyed stream."""
    return lambda keyed: keyed.stateful_op("it", Dropping() if drops else Scripted())


def rows_of(items: list[Item], bound: int, drops: bool, **options: Any) -> list[Row]:
    """Return what the logic sends when its timers fire."""
    return [(it.key, it.timestamp, it.value) for it in results_of(items, bound, timed(drops), **options)]


@given(items=streams, bound=bounds, drops=st.booleans(), workers=st.integers(1, 3), debug=st.booleans())
def test_timers_fire_in_order_once_each(items: list[Item], bound: int, drops: bool, workers: int, debug: bool) -> None:
    rows = rows_of(items, bound, drops, parallelism=workers, debug=debug)
    expected = fired_rows(items, bound, drops=drops)
    assert by_key(rows) == by_key(expected)
    if workers == 1:
        assert rows == expected


@given(items=streams, bound=bounds, drops=st.booleans(), data=st.data())
def test_batching_is_invisible(items: list[Item], bound: int, drops: bool, data: st.DataObject) -> None:
    arrived = [item for item in items if item is not PAUSE]
    cuts = data.draw(st.lists(st.integers(0, len(arrived)), max_size=5))
    cut = list(arrived)
    for at in sorted(cuts, reverse=True):
        cut.insert(at, PAUSE)
    assert rows_of(cut, bound, drops) == rows_of(arrived, bound, drops)


@given(
    items=streams,
    bound=bounds,
    drops=st.booleans(),
    stop=st.integers(1, 30),
    workers=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_a_restart_changes_nothing(
    items: list[Item], bound: int, drops: bool, stop: int, workers: tuple[int, int]
) -> None:
    spread = [part for item in items for part in (item, PAUSE)]  # a tick for each record
    undisturbed = rows_of(spread, bound, drops, parallelism=workers[0])
    sink: VecSink[Any, Any, Any] = VecSink()
    build = windowed_flow(source_of(spread), bound, timed(drops), sink)
    store, program = Store(), compiled(build)
    run = store.restore(program, workers[0])
    for _ in range(stop):
        if not run.is_finished:
            run.tick()
            store.commit(run, program)
    run.close()
    finish(store.restore(program, workers[1]))
    rows = [(it.key, it.timestamp, it.value) for it in sink]
    assert by_key(rows) == by_key(undisturbed)
    if workers == (1, 1):
        assert rows == undisturbed


@given(items=streams, bound=bounds, kept=st.lists(st.booleans(), min_size=40, max_size=40))
def test_fewer_epochs_fire_the_same_timers(items: list[Item], bound: int, kept: list[bool]) -> None:
    """Of keys with one record each, so that no epoch tells which of two came first; the last epoch stays."""
    arrived = [((key, n), at, value) for n, (key, at, value) in enumerate(on_time(items, bound))]
    newest = max((at for _, at, _ in arrived), default=0)

    def thinned(msg: Any, _epoch: Any) -> Any:
        return msg.timestamp - bound if kept[msg.value[0][1]] or msg.timestamp == newest else None

    few = results_of(arrived, bound, timed(False), generator=thinned)
    assert by_key((it.key, it.timestamp, it.value) for it in few) == by_key(rows_of(arrived, bound, False))


@given(items=streams, bound=bounds, drops=st.booleans())
def test_nothing_is_kept_of_timers_that_fired(items: list[Item], bound: int, drops: bool) -> None:
    still = [item for item in items if item is PAUSE or not isinstance(item[2], int)]
    build = windowed_flow(source_of([*items, *still, ("last", 10_000, "wait"), PAUSE]), bound, timed(drops), VecSink())
    with run_of(build) as run:
        while not run.is_finished:
            run.tick()
        states = {name: state for (_, name), state in run.states().items()}
        assert set(states["it/timers"]) <= set(states["it"])


@pytest.mark.parametrize("drops", [False, True])
def test_timers_are_exactly_once(drops: bool) -> None:
    items = [Timed(("ab"[n % 2], "wait" if n % 5 == 3 else n % 7 + 1), n * 7 % 23 + n) for n in range(24)]
    build = windowed_flow(source_of([]), 9, timed(drops), VecSink())
    assert_exactly_once(build, {"source": items}, max_examples=15)
